//! How does an event come to its handlers?
//!
//! One tail reads the log, the router matches each event once against everything that handlers want, and a worker for each
//! handler runs what is for it: in order for each object, in parallel across objects. What is done is remembered as a
//! cursor, written a few times a second; what fails gets a row of its own, so that nothing else waits for it.
//!
//! | question | file |
//! |---|---|
//! | Which handlers is this event for? | `router.rs` |
//! | Who runs one handler? | `worker.rs` |
//! | What does one handler do next? | `life.rs` |
//! | Where do its events come from? | `intake.rs` |
//! | What may start now? | `starts.rs` |
//! | What follows when an attempt has ended? | `conclude.rs` |
//! | Which events of which object are next? | `lanes.rs` |
//! | Where does a lane that stands apart find its events? | `fetch.rs` |
//! | How much does a handler, and one object of it, hold in memory? | `read_ahead.rs` |
//! | Which events go together to a handler of batches? | `batches.rs` |
//! | What ended the processes that ran it before? | `suspects.rs` |
//! | What is `prev` for a handler? | `prevs.rs` |
//! | How is one attempt run? | `attempt.rs`, `first_turn.rs` |
//! | What is to be written, and when? | `pending.rs`, `checkpoint.rs`, `settler.rs` |
//! | What comes by the clock? | `ticks.rs` |
//! | What has happened to its slots and lanes? | `ownership.rs` |
//! | Which slots are this process's? | `member.rs` |
//! | May this process start anything? | `lease.rs` |
//! | What happens elsewhere? | `pulse.rs` |
//! | How far is a handler, for those who wait for it? | `progress.rs` |
//! | When are the sync handlers done with what was published? | `sync_wait.rs` |
//! | How does one wait until there is nothing to do? | `drain.rs` |
//! | What became of an event, and how do the handlers stand? | `report.rs` |
//! | How do the jobs stand that deliveries became? | `as_jobs.rs` |
//! | How is something brought back that stands still? | `held.rs` |
//! | How is it all started and stopped, and how do handlers come and go meanwhile? | `start_and_stop.rs`, `establish.rs` |

mod as_jobs;
mod attempt;
mod batches;
mod checkpoint;
mod conclude;
mod drain;
mod establish;
mod fetch;
pub(crate) mod first_turn;
mod held;
mod intake;
mod lanes;
mod lease;
mod life;
mod member;
mod ownership;
mod pending;
mod prevs;
mod progress;
mod pulse;
mod read_ahead;
mod report;
mod router;
mod settler;
mod start_and_stop;
mod starts;
mod suspects;
mod sync_wait;
mod ticks;
mod worker;

pub use held::{HeldLane, Stuck};
pub(crate) use pulse::until;
pub(crate) use read_ahead::check_read_ahead;
pub use read_ahead::{READ_AHEAD, READ_AHEAD_MAX};
pub use report::{DeliveryReport, HandlerReport};
pub(crate) use report::{done_to, is_wanted};
pub(crate) use start_and_stop::Deliveries;
pub use sync_wait::{SyncReport, Waited};

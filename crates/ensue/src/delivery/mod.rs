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
//! | Which events go together to a handler of batches? | `batches.rs` |
//! | What ended the processes that ran it before? | `suspects.rs` |
//! | How is one attempt run? | `attempt.rs` |
//! | What is to be written, and when? | `pending.rs`, `checkpoint.rs`, `settler.rs` |
//! | What comes by the clock? | `ticks.rs` |
//! | What has happened to its slots and lanes? | `ownership.rs` |
//! | Which slots are this process's? | `member.rs` |
//! | Which slots does nobody claim? | `orphans.rs` |
//! | How far is a handler, for those who wait for it? | `progress.rs` |
//! | How does one wait for handlers, or bring something back? | `asking.rs` |
//! | What became of an event, and how do the handlers stand? | `audit.rs` |
//! | How is something brought back that stands still? | `held.rs` |
//! | How is it all started and stopped? | `start.rs` |

mod asking;
mod attempt;
mod audit;
mod batches;
mod checkpoint;
mod conclude;
mod held;
mod intake;
mod lanes;
mod life;
mod member;
mod orphans;
mod ownership;
mod pending;
mod progress;
mod router;
mod settler;
mod start;
mod starts;
mod suspects;
mod ticks;
mod worker;

pub use asking::Waited;
pub use audit::{DeliveryReport, HandlerReport};
pub use held::Stuck;
pub(crate) use start::Deliveries;

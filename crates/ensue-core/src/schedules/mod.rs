//! What fires, and when?
//!
//! The port's sixth part: schedules, durably. Engines keep a schedule as a text that they do not read, with a watermark and the
//! time at which it is due; what fires is decided by [`firing`], and made durable by one verb.
//!
//! | question | file |
//! |---|---|
//! | When does a cron expression fire? | [`cron`] |
//! | When does a schedule fire? | [`timing`] |
//! | What does a timing mean, in words, and is it what its author meant? | [`meaning`] |
//! | What does a cron expression say, in words? | `words.rs` |
//! | What is a schedule? | [`schedule`] |
//! | Which occurrences fire now? | [`firing`] |
//! | What must an engine keep of schedules? | [`port`] |

pub mod cron;
pub mod firing;
pub mod meaning;
pub mod port;
pub mod schedule;
pub mod timing;
mod words;

pub use firing::{Decided, NewRun, What};
pub use port::{Declared, Declarer, Fired, Firing, Kept, Moves, PutSchedule, Run, RunOutcome, Schedules};
pub use schedule::{Makes, Misfire, Overlap, Schedule, Target};
pub use timing::{Timing, When};

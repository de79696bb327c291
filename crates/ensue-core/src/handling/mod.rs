//! What happens to a delivery?
//!
//! Pure decisions about running handlers: when to try again, what to do when nothing helps, how far a group has come while
//! some of its deliveries are still under way. Time and chance are arguments.
//!
//! | question | file |
//! |---|---|
//! | When is a failed delivery tried again? | [`retry`] |
//! | What follows from how an attempt ended? | [`outcome`] |
//! | Up to where is everything done? | [`window`] |
//! | What became of an event, for one handler? | [`mod@verdict`] |
//! | Which outcome does a publish that waits answer? | [`sync_outcome`] |

pub mod outcome;
pub mod retry;
pub mod sync_outcome;
pub mod verdict;
pub mod window;

pub use outcome::{Ended, Next, OnExhausted, OwnCommit, after_attempt};
pub use retry::{Retry, RetryShape};
pub use sync_outcome::SyncOutcome;
pub use verdict::{Facts, Standing, Verdict, verdict, verdict_of_job};
pub use window::Window;

//! The pure part of Ensue: what an event is, what the log promises, and every decision about them.
//!
//! Nothing here reads a clock, opens a file, talks to a network or spawns a task: time and stored facts are
//! arguments, decisions are return values. Engines (`ensue-stores`) make the decisions durable; the loops
//! (`ensue`) carry them out. A test in `tests/purity.rs` keeps it so.
//!
//! | question | file |
//! |---|---|
//! | What may a topic or an object be called? | [`key`] |
//! | What is an event, before and after it is logged? | [`event`] |
//! | Is this JSON one that every engine can keep? | [`json`], `json_scan` |
//! | Does it read the same when it is written anew? | `json_plain` |
//! | What of the log need not be read? | [`follow`] |
//! | Which text can every engine keep? | [`text`] |
//! | How does an id tell its time? | [`id`] |
//! | Which `seq`, `prev` and `recorded_at` does a new event get? | [`plan`] |
//! | Is this log whole? | [`chain`] |
//! | Which events does a reader want? | [`filter`] |
//! | May a receiver apply this event now? | [`sequencer`] |
//! | What happens to a delivery? | [`handling`] |
//! | What can become of a job? | [`jobs`] |
//! | What is a task? | [`tasks`] |
//! | Who may not run now? | [`rules`] |
//! | Why is this not running? | [`explain`] |
//! | Where does an engine read the time? | [`clock`] |
//! | Does this subscription want this event? | [`condition`] |
//! | Which of a million subscriptions want this event? | [`matching`] |
//! | What was seen lately, in bounded memory? | [`recent`] |
//! | Which handlers does the store itself keep? | [`definitions`] |
//! | What may be forgotten? | [`retention`] |
//! | How much of what is read may be held at once? | [`room`] |
//! | What fires, and when? | [`schedules`] |
//! | What must an engine be able to do? | [`store`], [`positions`], [`jobs`], [`rules`], [`definitions`], [`schedules`] |
//! | Secret key of a store, and the codes of claims and leases | [`store_key`] |
//! | What can go wrong, and what should one do then? | [`error`] |

pub mod chain;
pub mod clock;
pub mod condition;
pub mod definitions;
pub mod error;
pub mod event;
pub mod explain;
pub mod filter;
pub mod follow;
pub mod handling;
pub mod id;
pub mod jobs;
pub mod json;
mod json_plain;
mod json_scan;
pub mod key;
pub mod matching;
pub mod plan;
pub mod positions;
pub mod recent;
pub mod retention;
pub mod room;
pub mod rules;
pub mod schedules;
pub mod sequencer;
pub mod store;
pub mod store_key;
pub mod tasks;
pub mod text;

pub use definitions::Definitions;
pub use error::{Invalid, StoreError};
pub use event::{Appended, Entry, Event, Fact, Found, NewEvent, Payload, Pending, Seq};
pub use filter::Filter;
pub use id::EventId;
pub use jiff::Timestamp;
pub use jobs::Jobs;
pub use json::Json;
pub use key::{GroupName, IdempotencyKey, ObjectKey, Topic};
pub use positions::Positions;
pub use rules::Rules;
pub use schedules::Schedules;
pub use sequencer::Sequencer;
pub use store::Store;
pub use store_key::StoreKey;

//! What must any engine do, and how do we know that it does?
//!
//! An engine's tests implement [`Factory`] and write one line, [`conformance_tests!`], which makes every behaviour of
//! the suite a test of its own; [`random::compare`], [`random_positions::compare`] and [`random_jobs::compare`] then look
//! for sequences of calls on which engine and model differ.
//!
//! ```
//! use ensue_conformance::model::ModelFactory as MyEngine;
//!
//! ensue_conformance::conformance_tests!(MyEngine);
//!
//! # fn main() {
//! ensue_conformance::random::compare(&MyEngine, 16); // in tests of their own, with more
//! ensue_conformance::random_positions::compare(&MyEngine, 16);
//! ensue_conformance::random_jobs::compare(&MyEngine, 16);
//! # }
//! ```
//!
//! | question | file |
//! |---|---|
//! | How does the suite get a store to try? | [`factory`] |
//! | What does each verb of the port mean? | [`model`] |
//! | What must every engine do? | [`suite`] |
//! | Does an engine answer as the model does, whatever it is asked? | [`random`], [`random_positions`], [`random_jobs`], [`random_schedules`] |
//! | Was anything lost, doubled, reordered or forked? | [`history`] |
//! | Do two JSON texts mean the same? | [`meaning`] |
//! | Which conditions are worth comparing with Postgres? | [`conditions`] |
//! | Does a store of an older program still know everything, and go on? | [`upgraded`] |
//! | Where does a test get a Postgres from? | [`postgres`] |
//! | Where does a test get a pooler from? | [`bouncer`] |
//! | Where does a test get a disk from that can be full? | [`mount`] |

pub mod bouncer;
pub mod conditions;
pub mod factory;
pub mod history;
pub mod meaning;
pub mod model;
pub mod mount;
pub mod postgres;
pub mod random;
pub mod random_jobs;
pub mod random_positions;
pub mod random_schedules;
pub mod suite;
pub mod upgraded;

pub use ensue_core::clock::{Clock, ManualClock};
pub use factory::{Factory, Place};

//! What must any engine do, and how do we know that it does?
//!
//! An engine's tests implement [`Factory`] and write one line, [`conformance_tests!`], which makes every behaviour of
//! the suite a test of its own; [`random::compare`] then looks for sequences of calls on which engine and model differ.
//!
//! ```ignore
//! ensue_conformance::conformance_tests!(MyEngine);
//!
//! #[test]
//! fn random_calls_have_the_answers_of_the_model() {
//!     ensue_conformance::random::compare(&MyEngine, 256);
//! }
//! ```
//!
//! | question | file |
//! |---|---|
//! | How does the suite get a store to try? | [`factory`] |
//! | What does each verb of the port mean? | [`model`] |
//! | What must every engine do? | [`suite`] |
//! | Does an engine answer as the model does, whatever it is asked? | [`random`] |
//! | Was anything lost, doubled, reordered or forked? | [`history`] |
//! | Do two JSON texts mean the same? | [`meaning`] |
//! | Which conditions are worth comparing with Postgres? | [`conditions`] |
//! | Where does a test get a Postgres from? | [`postgres`] |

pub mod conditions;
pub mod factory;
pub mod history;
pub mod meaning;
pub mod model;
pub mod postgres;
pub mod random;
pub mod suite;

pub use factory::{Clock, Factory, Place, TestClock};

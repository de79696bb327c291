//! The embedded engine beyond what every engine must do.

#![cfg(feature = "sqlite")]

mod changes;
mod conformance;
mod crash;
mod damaged;
mod disk;
mod old;
mod positions;
mod runtime;
mod transaction;
mod writer;

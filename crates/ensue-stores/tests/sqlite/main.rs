//! The embedded engine beyond what every engine must do.

#![cfg(feature = "sqlite")]

mod changes;
mod conformance;
mod crash;
mod damaged;
mod disk;
#[cfg(unix)]
mod lock;
mod old;
mod positions;
mod runtime;
mod transaction;
mod writer;

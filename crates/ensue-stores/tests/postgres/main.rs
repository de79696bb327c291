//! The Postgres engine beyond what every engine must do.

#![cfg(feature = "postgres")]

mod append;
mod cancel;
mod conformance;
mod disk;
mod hang;
mod ids;
mod jobs;
mod loss;
mod open;
mod partitions;
mod positions;
mod read;
mod settle;
mod standby;
mod support;
mod tls;

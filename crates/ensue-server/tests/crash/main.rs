//! The program killed and starved: what it acknowledged is still there.

#[path = "../cli/support/mod.rs"]
mod cli_support;
mod descriptors;
mod disk;
mod nodes;
mod postgres;
mod programs;
mod schedules;
mod sqlite;
mod support;

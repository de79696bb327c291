//! Ensue for other programs: the HTTP API.
//!
//! [`router`] mounts it in an axum application; the `ensue` binary serves it by itself.

// Output goes through `cli::output`, which escapes it.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod bench;
pub mod cli;
pub mod config;
pub mod executors;
pub mod http;
mod reload;
mod scaler;
pub mod serve;

pub use http::{Hosts, HttpOptions, Tokens, router, router_with};

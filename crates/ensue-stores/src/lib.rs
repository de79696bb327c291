//! The engines behind the `Store` port: one folder each, one cargo feature each.

pub mod clock;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod room;
#[cfg(feature = "sqlite")]
pub mod sqlite;

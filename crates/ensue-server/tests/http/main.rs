//! The server in the test's own process, over HTTP.

mod bad_input;
mod command;
mod conditions;
mod events;
mod groups;
mod groups_input;
mod groups_postgres;
mod handlers;
mod handlers_support;
mod openapi;
mod pages;
mod postgres;
mod stream;
mod support;
mod tokens;
mod webhook;

//! The program as a user runs it.

mod client;
mod group;
mod handlers;
mod job;
mod list;
mod reload;
mod schedule;
mod serve;
mod settings;
mod support;
mod tail;
mod task;
mod verify_and_doctor;

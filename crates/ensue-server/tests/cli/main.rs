//! The program as a user runs it.

mod application;
mod client;
mod group;
mod handlers;
mod job;
mod list;
mod migrate;
mod pause;
mod reload;
mod schedule;
mod serve;
mod settings;
mod support;
mod tail;
mod task;
mod verify_and_doctor;
mod work;

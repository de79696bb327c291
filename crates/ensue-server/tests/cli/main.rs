//! The program as a user runs it.

mod application;
mod browser;
mod client;
mod exit_codes;
mod group;
mod handlers;
mod job;
mod list;
mod migrate;
mod pause;
mod reload;
mod schedule;
mod secrets;
mod serve;
mod settings;
mod support;
mod tail;
mod task;
mod unprintable;
mod verify_and_doctor;
mod work;

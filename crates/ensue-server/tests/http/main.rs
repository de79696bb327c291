//! The server in the test's own process, over HTTP.

mod bad_input;
mod command;
mod conditions;
mod events;
mod explain;
mod groups;
mod groups_input;
mod groups_postgres;
mod handlers;
mod handlers_defined;
mod handlers_support;
mod jobs;
mod jobs_claim;
mod jobs_input;
mod jobs_postgres;
mod openapi;
mod openapi_jobs;
mod pages;
mod postgres;
mod rules;
mod schedules;
mod stream;
mod support;
mod tokens;
mod webhook;
mod webhook_tls;

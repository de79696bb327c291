//! The Postgres engine beyond what every engine must do.

#![cfg(feature = "postgres")]

mod append;
mod bell;
mod bouncer;
mod cancel;
mod conformance;
mod connections;
mod crowd;
mod disk;
mod drift;
mod hang;
mod ids;
mod install;
mod job_places;
mod jobs;
mod jobs_together;
mod locks;
mod loss;
mod old;
mod open;
mod outbox;
mod outbox_checks;
mod outbox_many;
mod outbox_together;
mod partitions;
mod positions;
mod read;
mod schedules;
mod settle;
mod sql_claims;
mod sql_conditions;
mod sql_consume;
mod sql_definers;
mod sql_isolation;
mod sql_keys;
mod sql_mutants;
mod sql_operate;
mod sql_roles;
mod sql_tables;
mod sql_text;
mod standby;
mod support;
mod tls;
mod upgrade;
mod workers_together;

//! Jobs and rules: work that is sent straight to a handler, and what keeps it from running.

mod crash;
mod elsewhere;
mod freeze;
mod live;
mod many;
mod notices;
mod offers;
mod own_transactions;
mod own_transactions_postgres;
mod pull;
mod quiet;
mod rules;
mod run;
mod schedules;
mod schedules_many;
mod steer;
mod support;

//! The bus without handlers: publishing, streams, transactions, groups, upkeep.

mod conditions;
mod failover;
mod failover_consumers;
mod failover_postgres;
mod failover_standby;
mod newest;
mod options_postgres;
mod own_postgres;
mod retention_groups;
mod retention_postgres;
mod runtimes;
mod settings_postgres;
mod stream;
mod transaction;
mod transaction_postgres;
mod unit;
mod upkeep;

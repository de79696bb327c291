//! Handlers: everything that should follow from an event runs, in order for each object.

mod batches;
mod binding;
mod bounds;
mod commits_together;
mod commits_together_postgres;
mod crash;
mod crash_once;
mod defined;
mod group_gone;
mod idle;
mod many;
mod order;
mod parents_and_sync;
mod parked;
mod rebind;
mod replay;
mod restart;
mod retries;
mod settle;
mod skips;
mod slots;
mod slow;
mod support;
mod sync_waits;
mod waiting;

//! Handlers: everything that should follow from an event runs, in order for each object.

mod batches;
mod bounds;
mod crash;
mod many;
mod order;
mod restart;
mod settle;
mod slots;
mod waiting;
mod whole;

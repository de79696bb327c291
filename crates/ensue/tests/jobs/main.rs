//! Jobs and rules: work that is sent straight to a handler, and what keeps it from running.

mod crash;
mod elsewhere;
mod freeze;
mod live;
mod many;
mod notices;
mod offers;
mod pull;
mod rules;
mod run;
mod steer;
mod support;

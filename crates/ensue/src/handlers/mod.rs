//! What is a handler, and how is one bound?
//!
//! | question | file |
//! |---|---|
//! | What does handler code look like? | `handler.rs` |
//! | What does it get to know and do while it runs? | `context.rs` |
//! | How is it bound to events, and how is it run? | `builder.rs` |
//! | How do deliveries become jobs? | `pull.rs` |
//! | Which handlers does the store itself keep? | `defined.rs` |
//! | What of one can change while it runs? | `limits.rs` |
//! | How do handlers come and go while the bus runs? | `rebind.rs` |
//! | What is to be said about one? | `info.rs` |
//! | Which handlers does a bus have? | `registry.rs` |

mod builder;
mod context;
mod defined;
mod handler;
mod info;
mod limits;
mod pull;
mod rebind;
mod registry;

pub use builder::{Binding, HandlerBuilder, Mode};
pub use context::{Context, Settles};
pub use defined::PullHandler;
pub use handler::{BatchHandler, Handler, HandlerError, Outcome};
pub use info::HandlerInfo;
pub use limits::HandlerLimits;
pub use rebind::Rebinding;

pub(crate) use builder::{HandlerFilter, Spec, SplitBy};
#[cfg(feature = "postgres")]
pub(crate) use context::StoreHere;
pub(crate) use context::{ClaimKey, ContextParts, DeliveryWork, LINES_MAX, Settlement, States, Work, done_mark};
pub(crate) use handler::{ErasedHandler, Run, Typed, run_one};
pub(crate) use info::info;
pub(crate) use registry::{Registry, parents_of};

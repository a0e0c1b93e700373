//! What an extension implements, and the runtime that calls it.
//!
//! - [`Plugin`] is an extension: one type that registers what it contributes with a [`Registrar`].
//! - [`points`] are the stages of a turn as typed hook points; [`HookRuntime`] calls them in order.
//! - [`contracts`] are the things a plugin can bring: channels, tools, models, runners. A runner reaches the host only
//!   through [`contracts::RunApi`].
//!
//! Built-ins register exactly as plugins do. Nothing here knows a concrete channel, model or store.

pub mod args;
mod chain;
pub mod contracts;
mod error;
mod extensions;
mod handler;
mod inbound;
mod lifespan;
mod model_stage;
mod onboard;
mod plugin;
mod point;
pub mod points;
mod registry;
mod runtime;
mod secrets;
mod state;
mod trace;

pub use chain::{LlmDecision, ToolDecision};
pub use error::{BoxError, HookFailure, HookResult, Reason};
pub use extensions::Extensions;
pub use handler::{AsyncHandler, SyncHandler};
pub use inbound::{CameAt, HearsOnlyAnswer, Inbound, RawPayload};
pub use lifespan::{Lifespan, LifespanScope};
pub use model_stage::{Decided, EventStream};
pub use plugin::{LoadFailure, Plugin};
pub use point::{Aggregation, Argument, Async, Mode, Phase, Point, PointInfo, Sync};
pub use registry::{HookListing, Implementor, Registrar, Registry};
pub use runtime::{Deadlines, HookRuntime};
pub use secrets::{MaskedStream, Secrets};
pub use state::State;
pub use trace::{Answer, Trace, TraceEvent};

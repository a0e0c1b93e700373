//! What an extension implements, and the runtime that calls it.
//!
//! - [`Plugin`] is an extension: one type that registers what it contributes with a [`Registrar`].
//! - [`points`] are the stages of a turn as typed hook points; [`HookRuntime`] calls them in order.
//! - [`contracts`] are the things a plugin can bring: channels, tools, models, runners. A runner reaches the host only
//!   through [`contracts::RunApi`].
//!
//! Built-ins register exactly as plugins do. Nothing here knows a concrete channel, model or store.

pub mod args;
pub mod contracts;
mod error;
mod extension_map;
mod handler;
mod hook_point;
mod inbound_event;
mod interception;
mod lifespan;
mod model_stage;
mod onboard_config;
mod plugin;
pub mod points;
mod registry;
mod runtime;
mod secrets;
mod trace;
mod turn_state;

pub use error::{BoxError, HookError, HookErrorReason, HookResult};
pub use extension_map::ExtensionMap;
pub use handler::{AsyncHandler, SyncHandler};
pub use hook_point::{
    AsyncMode, HookAggregation, HookArgument, HookMode, HookPhase, HookPoint, HookPointInfo, SyncMode,
};
pub use inbound_event::{InboundEvent, RawPayload, ReplyOnlyCaller};
pub use interception::{LlmDecision, ToolDecision};
pub use lifespan::{LifespanHandler, TurnLifespan};
pub use model_stage::{EventStream, HookDecision};
pub use plugin::{Plugin, PluginLoadFailure};
pub use registry::{HookImplementor, HookListing, HookRegistrar, Registry};
pub use runtime::{HookDeadlines, HookRuntime};
pub use secrets::{MaskingStream, SecretMasker};
pub use trace::{HookTraceEvent, HookTraceResult, HookTracer};
pub use turn_state::TurnState;

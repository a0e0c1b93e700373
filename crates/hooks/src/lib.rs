//! The extension interface of the host: hook points, the contracts of plugin objects, and the runtime that
//! calls them.
//!
//! - [`Plugin`] is an extension: one type that registers its contributions with a [`HookRegistrar`].
//! - [`points`] are the stages of a turn as typed hook points; [`HookRuntime`] calls their implementations in order.
//! - [`HookHandle`] is how a hook acts on its turn beyond answering, within the [`HookPermissions`] of its plugin.
//! - [`contracts`] are the traits behind channels, tools, models and runners. A runner reaches the host only through
//!   [`contracts::RunApi`].
//!
//! Built-ins register exactly as plugins do. The crate knows no concrete channel, model or store, and no turn: the
//! order of the stages is in `capstan-turn`.

pub mod args;
mod caller;
mod context_model;
pub mod contracts;
mod error;
mod extension_map;
mod handler;
mod hook_handle;
mod hook_permissions;
mod hook_point;
mod inbound_event;
mod interception;
mod lifespan;
mod model_stage;
mod onboard_config;
mod plugin;
mod plugin_registration;
pub mod points;
mod registrar;
mod registry;
mod runtime;
mod secrets;
mod trace;
mod turn_state;

pub use args::EventStream;
pub use caller::HookDeadlines;
/// Definitions of commands; see [`contracts::CliCommand`].
pub use clap;
pub use context_model::{ContextModel, ContextModelAccess};
pub use error::{BoxError, HookError, HookErrorReason, HookResult};
pub use extension_map::ExtensionMap;
pub use handler::{AsyncHandler, SyncHandler};
pub use hook_handle::{
    HookAction, HookEffect, HookHandle, HookRefusal, HookTurn, MAX_HOOK_EFFECT_BYTES, MAX_HOOK_EFFECTS,
};
pub use hook_permissions::{HookPermission, HookPermissions, PluginGrant};
pub use hook_point::{
    AsyncMode, HookAggregation, HookArgument, HookMode, HookPhase, HookPoint, HookPointInfo, SyncMode,
};
pub use inbound_event::{InboundEvent, RawPayload, ReplyOnlyCaller};
pub use interception::{InterceptorChain, LlmDecision, ToolDecision};
pub use lifespan::{LifespanHandler, TurnLifespan};
pub use model_stage::run_model_stage;
pub use onboard_config::merge_onboard_config;
pub use plugin::{Plugin, PluginIdentity, PluginLoadFailure};
pub use plugin_registration::{PluginConfig, PluginRegistration};
pub use registrar::HookRegistrar;
pub use registry::{HookImplementor, HookListing, Registry};
pub use runtime::{HookDecision, HookRuntime};
pub use secrets::{MaskingStream, SecretMasker, visit_secret_texts};
pub use trace::{HookTraceEvent, HookTraceResult, HookTracer};
pub use turn_state::TurnState;

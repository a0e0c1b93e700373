//! The vocabulary of Capstan as plain data.
//!
//! Everything that crosses a boundary (a channel, a plugin process, the store, the HTTP API) is one of these types:
//! [`Event`], [`Outbound`], [`Content`], [`StreamEvent`], [`RunContext`], [`RunResult`], [`Binding`], [`Descriptor`],
//! [`Grant`], and the ids that name them. The crate does no I/O and holds no logic beyond what keeps a value valid.
//!
//! The JSON Schemas of these types are generated into `schema/` by [`schema::documents`] and checked in.

mod action;
mod admission;
mod authority;
mod binding;
mod content;
mod context;
mod envelope;
mod error;
mod event;
mod grant;
mod ids;
mod message;
mod model;
mod operations;
mod outbound;
mod outcome;
mod reading;
mod required;
mod result;
mod runner;
pub mod schema;
mod stream;
mod time;
mod tool;

pub use action::ActionSpec;
pub use admission::AdmissionMode;
pub use authority::{
    ArtifactUse, Authority, EventUse, HistoryUse, KnowledgeUse, ModelUse, Reach, StateScope, StorageArea, ToolUse, Uses,
};
pub use binding::{Binding, BindingScope, DeliveryPolicy, Filter, ResourcePolicy, StatePolicy};
pub use content::{Content, ContentPart, ImageUrl, KnownPart};
pub use context::{Adapter, ContextAccess, ConversationContext, Resources, RunContext, RuntimeContext, Trigger};
pub use envelope::EnvelopeError;
pub use error::{ApiError, ApiErrorCode};
pub use event::{ActorRef, Delivery, Event, Input, RawRef, SubjectRef, command_line, event_type};
pub use grant::{Access, ApprovalDecision, ApprovalRule, Grant, StateLimits, TapeAccess};
pub use ids::{
    ActionId, ArtifactId, BindingId, BlobHash, ChannelName, ChatId, EntryId, EventId, IdError, PluginName, RunId,
    RunnerId, SessionId, TapeName, WorkspaceId,
};
pub use message::{ChatMessage, Role};
pub use model::{ModelId, ModelOptions, ModelOutput, ModelRequest, Reasoning};
pub use operations::{Operation, Operations};
pub use outbound::{Outbound, OutboundKind};
pub use outcome::{EventKey, Outcome};
pub use reading::ResultFault;
pub use result::{ActionRequest, ResultBody, RunResult};
pub use runner::{Capabilities, Descriptor, HostState, Label, PluginRef, RunnerSource};
pub use stream::{StreamEvent, Usage};
pub use time::Timestamp;
pub use tool::{ToolCall, ToolFunction, ToolName, ToolOutput, ToolSpec};

/// An open JSON object: the `extra` of a type, the state of an anchor, the metadata of an event.
pub type Map = serde_json::Map<String, serde_json::Value>;

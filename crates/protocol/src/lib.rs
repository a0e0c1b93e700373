//! Data types of Capstan: everything that crosses a boundary (channel, plugin process, store, HTTP API).
//!
//! - [`Event`], [`OutboundMessage`], [`Content`], [`StreamEvent`]: traffic with channels;
//! - [`Binding`], [`Descriptor`], [`PermissionSet`], [`Grant`]: assignment and authority of runners;
//! - [`RunContext`], [`RunResult`] and [`run_api`]: input, output and host calls of a run;
//! - [`ErrorCode`] and the ids.
//!
//! The crate does no I/O and has no logic beyond validation. [`Clock`] and [`RetryBackoff`] are here because every
//! crate that depends on time takes them as arguments, and [`is_file_limit_error`] because every crate that opens
//! connections or starts processes waits on it. [`schema::schema_files`] generates the JSON Schemas that are
//! checked in under `schema/`.

mod action;
mod admission_mode;
mod api_error;
mod artifact;
mod binding;
mod chat_message;
mod clock;
mod content;
mod descriptor;
mod envelope;
mod error_code;
mod event;
mod event_origin;
mod file_limit;
mod grant;
mod ids;
mod inline_file;
mod missing_permissions;
mod model;
mod operation_set;
mod outbound;
mod outbox_status;
mod outcome;
mod permission_set;
mod public_address;
mod result_parse;
mod retry_backoff;
pub mod run_api;
mod run_context;
mod run_result;
pub mod schema;
mod stream_event;
mod timestamp;
mod tool;
mod truncation;
mod visible_text;

pub use action::ActionSpec;
pub use admission_mode::AdmissionMode;
pub use api_error::{ApiError, ApiErrorCode};
pub use artifact::Artifact;
pub use binding::{Binding, BindingScope, DeliveryPolicy, EventFilter, ResourcePolicy, StatePolicy};
pub use chat_message::{ChatMessage, MessageRole};
pub use clock::Clock;
pub use content::{Content, ContentPart, ImageUrl, KnownPart};
pub use descriptor::{Descriptor, HostStateRequirement, LocalizedText, PluginRef, RunnerCapabilities, RunnerSource};
pub use envelope::EnvelopeError;
pub use error_code::{CodeOwner, CodedError, ErrorCode, ExitClass, FailureCode};
pub use event::{
    ActorRef, ConversationKind, DeliveryTarget, Event, EventInput, EventTime, RawPayloadRef, SubjectRef, event_type,
    parse_command_line,
};
pub use event_origin::EventOrigin;
pub use file_limit::{FILE_LIMIT_BACKOFF, is_file_limit_error};
pub use grant::{AllowList, ApprovalDecision, ApprovalRule, CommandAccess, Grant, StateLimits, TapeAccess};
pub use ids::{
    ActionId, ArtifactId, BindingId, BlobHash, ChannelName, ChatId, EntryId, EventId, IdError, PluginName, RunId,
    RunnerId, SessionId, TapeName, WorkspaceId, time_ordered_uuid,
};
pub use inline_file::InlineFile;
pub use model::{ModelId, ModelOptions, ModelOutput, ModelRequest, RESERVED_BODY_KEYS, Reasoning};
pub use operation_set::{OperationSet, ResourceOperation};
pub use outbound::{OutboundKind, OutboundMessage};
pub use outbox_status::OutboxStatus;
pub use outcome::{EventKey, Outcome};
pub use permission_set::{
    ArtifactOperation, EventOperation, HistoryOperation, KnowledgeOperation, ModelOperation, PermissionSet, ReadScope,
    ResourceAccess, StateScope, StorageArea, ToolOperation,
};
pub use public_address::is_public_address;
pub use result_parse::ResultParseError;
pub use retry_backoff::RetryBackoff;
pub use run_context::{
    AdapterContext, ConversationContext, HistoryHandles, RunContext, RunResources, RunTrigger, RuntimeContext,
};
pub use run_result::{ActionRequest, ResultBody, RunResult};
pub use stream_event::{StreamEvent, Usage};
pub use timestamp::Timestamp;
pub use tool::{ToolCall, ToolFunction, ToolName, ToolOutput, ToolSpec};
pub use truncation::{truncate_bytes, truncate_chars};
pub use visible_text::{HiddenCharDetector, escape_json_text, escape_line, escape_text, push_escape};

/// JSON object without a fixed structure: the `extra` of a type, the state of an anchor, the metadata of an event.
pub type JsonObject = serde_json::Map<String, serde_json::Value>;

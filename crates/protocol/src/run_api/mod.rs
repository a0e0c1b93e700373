//! Run API as data: the requests of runners to the host, and the responses.
//!
//! [`run_api_methods!`](crate::run_api_methods) in `methods.rs` is the one list of methods. Derived from it are:
//!
//! - [`ApiMethod`], the names of the methods and their documentation;
//! - [`ApiRequest`] and [`ApiResponse`], with one variant for each method, as on the wire;
//! - the JSON Schemas of both, in `schema/`;
//! - the typed facade for in-process runners, `capstan_hooks::contracts::RunApi`;
//! - the table of methods in `docs/run-api.md`.
//!
//! The other files define the requests and responses, by group.

mod artifacts;
mod base64_bytes;
mod child_runs;
mod cursor_page;
mod events;
mod history;
mod knowledge;
mod messages;
mod methods;
mod models;
mod sessions;
mod state;
mod storage;
mod tape;
mod tools;

pub use artifacts::{ArtifactDescribeCall, ArtifactListCall, ArtifactPart, ArtifactReadCall, NewArtifact};
pub use child_runs::{
    ChildRunCall, ChildRunOutcome, ChildSession, RunCancelCall, RunEventsCall, RunGetCall, RunListCall, RunSummary,
};
pub use cursor_page::{CursorPage, EntryOrder, PageRequest};
pub use events::{EventGetCall, EventLogItem, EventRecord, RawPayloadCall, RawPayloadPart};
pub use history::{HistoryMessage, HistorySearchCall, MessageEvent, SteeredMessage};
pub use knowledge::{KnowledgeBase, KnowledgePassage, RetrieveCall, RetrievedPage};
pub use messages::{ApiMethod, ApiRequest, ApiResponse, UnknownMethod};
pub use models::{ModelCall, ModelDirectory, ModelEvent, RerankCall, RerankScore, TokenCount, tool_spec_bytes};
pub use sessions::{ContinuationCall, ModelChoiceCall};
pub use state::{StateEntry, StateKeyCall, StateListCall, StateSetCall};
pub use storage::{StorageEntry, StorageListCall, StorageNameCall, StoragePutCall, StoredContent};
pub use tape::{
    AnchorsCall, ForkCall, ForkSummary, HandoffCall, NoteCall, ResetCall, SayCall, TapeEntry, TapeSearchCall,
    TapeSummary,
};
pub use tools::{CommandCall, CommandRefusalCall, ToolDetailCall, ToolStepCall};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Request of a method that takes no arguments: an empty object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EmptyCall {}

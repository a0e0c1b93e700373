//! Params and results of the methods. Unknown fields are ignored.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::run_api::KnowledgePassage;
use crate::{Content, JsonObject, ModelRequest, OutboundMessage, RunContext, RunId};

/// Declares the params and results of methods.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }
    )*};
}

messages! {
    /// Name and version of a program, for logs.
    PluginPeerInfo {
        /// Name of the program.
        name: String,
        /// Its version.
        version: String,
    }

    /// Id and version of a plugin.
    PluginIdVersion {
        /// Author and name of the plugin.
        id: String,
        /// Its version.
        version: String,
    }

    /// Params of `initialize`.
    PluginInitialize {
        /// Version of the protocol that the host will use.
        protocol: u64,
        /// The host.
        host: PluginPeerInfo,
        /// Identity of the plugin, from its manifest.
        plugin: PluginIdVersion,
        /// Settings of the plugin, valid for its schema.
        #[serde(default)]
        settings: JsonObject,
        /// Limits of the host.
        #[serde(default)]
        limits: PluginConnectionLimits,
        /// Data folder of the plugin.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data_dir: Option<String>,
    }

    /// Result of `initialize`: the contributions that the program implements.
    PluginInitialized {
        /// Version of the protocol.
        protocol: u64,
        /// Author and name of the plugin.
        id: String,
        /// Version of the plugin.
        version: String,
        /// Names of its runners.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        runners: Vec<String>,
        /// Its hooks, with the arguments that they want.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        hooks: BTreeMap<String, Vec<String>>,
        /// Names of its tools.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tools: Vec<String>,
        /// Names of its channels.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        channels: Vec<String>,
        /// Ids of its knowledge sources.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        knowledge: Vec<String>,
        /// Names of its model providers.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        models: Vec<String>,
        /// Limits of the plugin.
        #[serde(default)]
        limits: PluginConnectionLimits,
        /// SDK of the plugin, for logs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sdk: Option<PluginPeerInfo>,
    }

    /// Params of `shutdown`.
    PluginShutdown {
        /// Time until the process is killed.
        deadline_ms: u64,
    }

    /// Params of `run.start`.
    PluginRunStart {
        /// Run; also the name of the stream of its results.
        run_id: RunId,
        /// Name of the runner in the manifest.
        runner: String,
        /// Context of the run.
        context: Box<RunContext>,
        /// Credit for results.
        credit: u32,
        /// Time until the host ends the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_ms: Option<u64>,
    }

    /// Params of `run.cancel`.
    PluginRunCancel {
        /// The run.
        run_id: RunId,
        /// Reason of the end.
        #[serde(default)]
        reason: PluginCancelReason,
        /// Time for the last results; 0: the run is closed.
        #[serde(default)]
        grace_ms: u64,
    }

    /// Params of `run.result`.
    PluginRunResult {
        /// Run that the result belongs to.
        run_id: RunId,
        /// A `RunResult`. The host validates it.
        #[schemars(with = "crate::RunResult")]
        result: Value,
    }

    /// Params of `run.call`: a call of the run API under the authority of a run, or of a hook or tool call.
    PluginRunCall {
        /// Run whose authority is used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// Call whose authority is used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// Method of the run API.
        method: String,
        /// Request of the method.
        #[serde(default)]
        params: JsonObject,
        /// Name of the stream, for a streaming method.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stream: Option<String>,
        /// Credit for the items of the stream.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        credit: Option<u32>,
    }

    /// Params of `hook.call`.
    PluginHookCall {
        /// Id of the call.
        call_id: String,
        /// Name of the hook.
        hook: String,
        /// Declared arguments.
        arguments: JsonObject,
        /// Time until the call has failed.
        deadline_ms: u64,
    }

    /// Result of `hook.call`.
    PluginHookAnswer {
        /// Value of the hook; absent: no answer.
        #[serde(default)]
        value: Option<Value>,
        /// Patch of the turn state; `null` removes a key.
        #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
        state: JsonObject,
        /// Effects that are committed with the turn.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        effects: Vec<PluginHookEffect>,
        /// Message for the user, from `on_error`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notice: Option<String>,
        /// Puts the message into the outbox, from `dispatch_outbound`.
        #[serde(default)]
        stage: bool,
    }

    /// Params of `tool.call`. The result is a `ToolOutput`.
    PluginToolCall {
        /// Id of the call.
        call_id: String,
        /// Run that the call belongs to; gives no authority.
        run_id: RunId,
        /// Name of the tool in the manifest.
        tool: String,
        /// Arguments of the call.
        arguments: JsonObject,
        /// Folder of the workspace.
        workspace: String,
        /// Time until the call is ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_ms: Option<u64>,
    }

    /// Params of `channel.start`.
    PluginChannelStart {
        /// Name of the channel in the manifest.
        channel: String,
        /// Credit for events.
        credit: u32,
    }

    /// Params of `channel.event`.
    PluginChannelEvent {
        /// The channel.
        channel: String,
        /// Event envelope.
        #[schemars(with = "crate::Event")]
        event: Value,
        /// Payload of the platform, in base64.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw: Option<String>,
    }

    /// Data of the error of `channel.event`.
    PluginIntakeError {
        /// Error code.
        code: String,
        /// Message for users.
        message: String,
        /// True if the same event may be accepted later.
        #[serde(default)]
        retryable: bool,
    }

    /// Params of `channel.send`.
    PluginChannelSend {
        /// The channel.
        channel: String,
        /// The message.
        message: OutboundMessage,
        /// Time until the outcome counts as unknown.
        deadline_ms: u64,
    }

    /// Data of the error of `channel.send`.
    PluginChannelError {
        /// Known effect on the platform.
        #[serde(default)]
        kind: PluginChannelErrorKind,
    }

    /// Params of `channel.stop`.
    PluginChannelStop {
        /// The channel.
        channel: String,
        /// Time until the host stops waiting.
        deadline_ms: u64,
    }

    /// Params of `channel.ended`.
    PluginChannelEnded {
        /// The channel.
        channel: String,
        /// Reason of a failure; absent: the channel ended as intended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    }

    /// Params of `knowledge.search`.
    PluginKnowledgeSearch {
        /// Id of the knowledge source.
        source: String,
        /// Text to search for.
        text: String,
        /// Number of passages to skip.
        offset: usize,
        /// Maximum number of passages.
        limit: usize,
        /// Time until the search has failed.
        deadline_ms: u64,
    }

    /// Result of `knowledge.search`.
    PluginKnowledgePassages {
        /// Passages, best first.
        passages: Vec<KnowledgePassage>,
        /// Parts that were not searched, with the reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        skipped: Option<String>,
    }

    /// Params of `model.stream`.
    PluginModelStream {
        /// Name of the provider in the manifest.
        provider: String,
        /// Request to the model.
        request: ModelRequest,
        /// Name of the stream.
        stream: String,
        /// Credit for the items of the stream.
        credit: u32,
        /// Time until the call has failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_ms: Option<u64>,
    }

    /// Data of the error of `model.stream`.
    PluginModelError {
        /// Kind of failure, such as `rate_limited`; unknown kinds count as `broken`.
        kind: String,
    }

    /// Params of `stream.item`.
    PluginStreamItem {
        /// Name of the stream.
        stream: String,
        /// The item.
        item: Value,
    }

    /// Params of `stream.credit`.
    PluginStreamCredit {
        /// Name of the stream.
        stream: String,
        /// Added credit.
        credit: u32,
    }

    /// Params of `request.cancel`.
    PluginRequestCancel {
        /// Id of the request: a number or a text.
        id: Value,
    }

    /// Params of `log`.
    PluginLog {
        /// `error`, `warn`, `info`, `debug` or `trace`; others count as `info`.
        #[serde(default)]
        level: String,
        /// The message.
        message: String,
        /// Run that the message is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// Call that the message is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// Further data.
        #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
        fields: JsonObject,
    }

    /// Params of `progress`.
    PluginProgress {
        /// Run that makes progress.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// Call that makes progress.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// Present activity.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// Finished part, from 0 to 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fraction: Option<f64>,
    }
}

/// Limits of a side of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PluginConnectionLimits {
    /// Maximum length of a line, in bytes.
    pub max_frame_bytes: usize,
    /// Maximum nesting of a message.
    pub max_frame_depth: usize,
    /// Maximum number of requests that are served at a time.
    pub max_concurrent_requests: usize,
}

impl Default for PluginConnectionLimits {
    fn default() -> Self {
        Self {
            max_frame_bytes: super::DEFAULT_MAX_FRAME_BYTES,
            max_frame_depth: super::DEFAULT_MAX_FRAME_DEPTH,
            max_concurrent_requests: super::DEFAULT_MAX_CONCURRENT_REQUESTS,
        }
    }
}

/// Reason why a run is cancelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PluginCancelReason {
    /// The deadline of the run has passed.
    Deadline,
    /// The host is stopping.
    HostStopping,
    /// The run was cancelled. Unknown reasons count as this one.
    #[default]
    #[serde(other)]
    Cancelled,
}

/// Known effect of a failed `channel.send`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PluginChannelErrorKind {
    /// Not sent; can be retried.
    NotSent,
    /// Not sent, and a retry would fail too.
    Permanent,
    /// Possibly sent. Unknown kinds count as this one.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Effect that a hook requests in its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PluginHookEffect {
    /// Writes a note on the tape.
    Note {
        /// Name of the note.
        name: String,
        /// Its data.
        #[serde(default)]
        data: Value,
    },
    /// Writes an anchor.
    Anchor {
        /// Name of the anchor.
        name: String,
        /// Its state.
        #[serde(default)]
        state: JsonObject,
    },
    /// Sends a message that is not the reply.
    Send {
        /// Channel that sends it.
        channel: String,
        /// Chat that receives it.
        chat_id: String,
        /// Its content.
        content: Content,
    },
}

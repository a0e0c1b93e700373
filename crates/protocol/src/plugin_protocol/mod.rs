//! Protocol of plugins that run as processes of their own: the manifest and the messages.
//!
//! `docs/plugin-protocol.md` is the specification. The manifest (`plugin.toml`) is read without starting the plugin and
//! alone decides what the plugin contributes: [`PluginManifest::from_json`]. The messages are the params and results of
//! the methods in [`method`], sent as JSON-RPC 2.0, one object per line.

mod hook_catalog;
mod manifest;
mod manifest_error;
mod manifest_parse;
mod manifest_table;
mod messages;
pub mod method;

pub use self::hook_catalog::{RemoteHook, remote_hook};
pub use self::manifest::{
    PluginAccessRequest, PluginChannelCapabilities, PluginChannelManifest, PluginDebounce, PluginHookManifest,
    PluginIntake, PluginKnowledgeManifest, PluginManifest, PluginModelManifest, PluginPromptMode, PluginRunnerManifest,
    PluginToolEffect, PluginToolManifest,
};
pub use self::manifest_error::ManifestError;
pub use self::messages::{
    PluginCancelReason, PluginChannelEnded, PluginChannelError, PluginChannelErrorKind, PluginChannelEvent,
    PluginChannelSend, PluginChannelStart, PluginChannelStop, PluginConnectionLimits, PluginHookAnswer, PluginHookCall,
    PluginHookEffect, PluginIdVersion, PluginInitialize, PluginInitialized, PluginIntakeError, PluginKnowledgePassages,
    PluginKnowledgeSearch, PluginLog, PluginModelError, PluginModelStream, PluginPeerInfo, PluginProgress,
    PluginRequestCancel, PluginRunCall, PluginRunCancel, PluginRunResult, PluginRunStart, PluginShutdown,
    PluginStreamCredit, PluginStreamItem, PluginToolCall,
};

/// Version of the protocol.
pub const PLUGIN_PROTOCOL_VERSION: u64 = 1;
/// Name of the manifest in the folder of a plugin.
pub const PLUGIN_MANIFEST_FILE: &str = "plugin.toml";
/// Maximum length of a line, in bytes, unless the receiver announces another.
pub const DEFAULT_MAX_FRAME_BYTES: usize = 8 * 1024 * 1024;
/// Maximum nesting of a message, unless the receiver announces another.
pub const DEFAULT_MAX_FRAME_DEPTH: usize = 128;
/// Maximum number of requests that a side serves at a time, unless it announces another.
pub const DEFAULT_MAX_CONCURRENT_REQUESTS: usize = 256;
/// Bytes of an item that cost one credit more.
pub const CREDIT_ITEM_BYTES: usize = 64 * 1024;
/// Maximum credit that opens a stream.
pub const MAX_OPENING_CREDIT: u32 = 1024;

/// Cost of an item of a stream, by the length of its line in bytes.
pub fn credit_cost(line_bytes: usize) -> u32 {
    u32::try_from(line_bytes / CREDIT_ITEM_BYTES).unwrap_or(u32::MAX - 1) + 1
}

/// Name of the stream of a channel's events.
pub fn channel_stream_name(channel: &str) -> String {
    format!("channel:{channel}")
}

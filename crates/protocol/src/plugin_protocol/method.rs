//! Names of the methods, as they are sent.

/// Opens the connection; host to plugin.
pub const INITIALIZE: &str = "initialize";
/// Asks for a sign of life; both directions.
pub const PING: &str = "ping";
/// Announces the end of the connection; host to plugin.
pub const SHUTDOWN: &str = "shutdown";
/// Starts a run; host to plugin.
pub const RUN_START: &str = "run.start";
/// Cancels or closes a run; notification, host to plugin.
pub const RUN_CANCEL: &str = "run.cancel";
/// Calls a hook; host to plugin.
pub const HOOK_CALL: &str = "hook.call";
/// Calls a tool; host to plugin.
pub const TOOL_CALL: &str = "tool.call";
/// Starts a channel; host to plugin.
pub const CHANNEL_START: &str = "channel.start";
/// Stops a channel; host to plugin.
pub const CHANNEL_STOP: &str = "channel.stop";
/// Sends a message; host to plugin.
pub const CHANNEL_SEND: &str = "channel.send";
/// Searches a knowledge source; host to plugin.
pub const KNOWLEDGE_SEARCH: &str = "knowledge.search";
/// Calls a model; host to plugin.
pub const MODEL_STREAM: &str = "model.stream";
/// Yields a result of a run; notification under credit, plugin to host.
pub const RUN_RESULT: &str = "run.result";
/// Calls the run API; plugin to host.
pub const RUN_CALL: &str = "run.call";
/// Submits an event; request under credit, plugin to host.
pub const CHANNEL_EVENT: &str = "channel.event";
/// Reports the end of a channel; notification, plugin to host.
pub const CHANNEL_ENDED: &str = "channel.ended";
/// Reports progress; notification, plugin to host.
pub const PROGRESS: &str = "progress";
/// Writes to the log of the host; notification, plugin to host.
pub const LOG: &str = "log";
/// Cancels a request; notification, both directions.
pub const REQUEST_CANCEL: &str = "request.cancel";
/// Gives credit to the sender of a stream; notification, both directions.
pub const STREAM_CREDIT: &str = "stream.credit";
/// Carries an item of a stream; notification under credit, both directions.
pub const STREAM_ITEM: &str = "stream.item";

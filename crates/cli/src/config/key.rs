//! The plain configuration keys, with their defaults and trust rules.

use WorkspaceRule::{Forbidden, LowerOnly};

use crate::open_files::DEFAULT_ACTIVE_TURNS;

/// Permission of an untrusted workspace to change a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceRule {
    /// May set the value.
    Allowed,
    /// May only lower it.
    LowerOnly,
    /// May not set it.
    Forbidden,
}

/// A configuration key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigKey {
    /// Name in files; the environment variable is `CAPSTAN_` and the name in capitals.
    pub name: &'static str,
    /// Default value.
    pub default: Option<&'static str>,
    /// Never shown, logged or printed.
    pub secret: bool,
    /// Permission of an untrusted workspace. Without it, the author of a workspace could have an agent run commands as the
    /// user, spend the user's money, or move the user's tapes.
    pub workspace: WorkspaceRule,
    /// The highest value of a workspace if the user has set none, for a limit without a fixed default.
    pub max_default: Option<u64>,
    /// The value 0 means no limit.
    pub zero_is_unlimited: bool,
    /// A list: an array in files, separated by commas elsewhere.
    pub is_list: bool,
    /// Short description, a noun phrase.
    pub description: &'static str,
}

const fn plain_key(name: &'static str, default: Option<&'static str>, description: &'static str) -> ConfigKey {
    let (secret, workspace, is_list) = (false, WorkspaceRule::Allowed, false);
    let (max_default, zero_is_unlimited) = (None, false);
    ConfigKey { name, default, secret, workspace, max_default, zero_is_unlimited, is_list, description }
}

/// A limit, which a workspace may only lower.
const fn limit_key(name: &'static str, default: &'static str, description: &'static str) -> ConfigKey {
    ConfigKey { workspace: LowerOnly, ..plain_key(name, Some(default), description) }
}

/// All configuration keys outside of tables.
pub const CONFIG_KEYS: &[ConfigKey] = &[
    ConfigKey { workspace: Forbidden, ..plain_key("model", Some("demo:"), "model, as PROVIDER:NAME") },
    ConfigKey { workspace: Forbidden, secret: true, ..plain_key("api_key", None, "API key of the model provider") },
    ConfigKey {
        workspace: Forbidden,
        ..plain_key("api_base", None, "base URL of the model provider, if not its default")
    },
    ConfigKey {
        workspace: Forbidden,
        ..plain_key("fallback_models", None, "models to try if the first one fails, separated by commas")
    },
    ConfigKey {
        workspace: Forbidden,
        ..plain_key("reasoning", None, "reasoning effort of the model: none, low, medium, high")
    },
    limit_key("model_timeout_seconds", "300", "maximum wait for the first part of a model's reply, and between parts"),
    limit_key("model_retries", "3", "maximum retries of a model call that failed before its first output"),
    limit_key("max_steps", "50", "maximum number of steps of a run"),
    ConfigKey { workspace: LowerOnly, ..plain_key("max_tokens", None, "maximum number of tokens of a reply") },
    ConfigKey {
        workspace: LowerOnly,
        ..plain_key("max_run_tokens", None, "maximum number of tokens of a run, including its subagents")
    },
    limit_key("max_run_results", "1000000", "maximum number of results of a run"),
    limit_key("max_run_result_bytes", "67108864", "maximum total size of the results of a run"),
    limit_key(
        "max_run_artifact_bytes",
        "268435456",
        "maximum total size of the artifacts that a run creates, including its subagents",
    ),
    limit_key("max_run_entries", "20000", "maximum number of results of a run on the tape, which excludes deltas"),
    limit_key("result_delta_bytes", "1048576", "maximum size of a message delta streamed by a runner"),
    limit_key("result_message_bytes", "10485760", "maximum size of a message of a runner"),
    limit_key(
        "result_tool_bytes",
        "4194304",
        "maximum size of a call of a runner's own tool, of its output, and of a platform's answer to an action",
    ),
    limit_key("result_state_bytes", "1048576", "maximum size of a state update or an action request"),
    limit_key("result_artifact_bytes", "16777216", "maximum size of an artifact in a result"),
    limit_key("api_calls_per_second", "1000", "maximum rate of run-API calls of a run"),
    limit_key("api_calls_in_flight", "64", "maximum number of concurrent run-API calls of a run"),
    limit_key("api_payload_bytes", "1048576", "maximum payload of one run-API call"),
    limit_key(
        "api_content_bytes",
        "67108864",
        "maximum payload of a run-API call with contents: model requests, files, messages",
    ),
    limit_key("action_timeout_seconds", "60", "timeout of a platform action of a channel"),
    limit_key("tool_timeout_seconds", "600", "timeout of a tool call"),
    limit_key("spill_bytes", "32768", "maximum size of a tool result that is not stored as an artifact"),
    limit_key("max_message_bytes", "1048576", "maximum size of a message"),
    limit_key("run_timeout_seconds", "3600", "timeout of a run"),
    limit_key("cancel_grace_seconds", "2", "time for a cancelled run to yield its last results"),
    limit_key("session_wait_seconds", "60", "maximum wait for a session that another process works on"),
    ConfigKey {
        zero_is_unlimited: true,
        ..limit_key(
            "delivery_stale_after",
            "86400",
            "seconds after which an unsent message is held for the operator; 0: never",
        )
    },
    limit_key("session_queue", "64", "maximum number of queued messages of a session"),
    ConfigKey {
        workspace: LowerOnly,
        max_default: Some(DEFAULT_ACTIVE_TURNS),
        ..plain_key("max_active_turns", None, "maximum number of turns at a time, by default up to 1000")
    },
    // Without the header, a remote message could imitate that of another sender.
    ConfigKey {
        workspace: Forbidden,
        ..plain_key("message_context", Some("true"), "origin and time of each message in the prompt")
    },
    limit_key("stop_grace_seconds", "30", "time for running turns to finish when serving stops"),
    ConfigKey {
        workspace: Forbidden,
        is_list: true,
        ..plain_key("enabled_channels", Some("all"), "channels that `capstan serve` listens on: names, all, !NAME")
    },
    ConfigKey {
        workspace: Forbidden,
        ..plain_key("tape_store", Some("sqlite"), "storage of tape entries: sqlite or jsonl")
    },
    ConfigKey {
        workspace: Forbidden,
        is_list: true,
        ..plain_key("allow_paths", None, "files and folders outside the workspace that the file tools may access")
    },
    ConfigKey {
        workspace: Forbidden,
        is_list: true,
        ..plain_key("bash_environment", None, "additional environment variables passed to commands")
    },
    ConfigKey {
        workspace: Forbidden,
        is_list: true,
        ..plain_key("web_allow_private", None, "private hosts that web.fetch may reach, as HOST or HOST:PORT")
    },
    ConfigKey { workspace: Forbidden, secret: true, ..plain_key("web_proxy", None, "HTTP proxy of web.fetch") },
    ConfigKey {
        workspace: Forbidden,
        ..plain_key("trust_workspace", Some("false"), "trust in every workspace: its settings, AGENTS.md and skills")
    },
];

/// The key with this name.
pub(crate) fn find_key(name: &str) -> Option<&'static ConfigKey> {
    CONFIG_KEYS.iter().find(|key| key.name == name)
}

/// The most similar known name, if one is similar enough to be a typo.
pub(crate) fn nearest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = known.into_iter().map(|known| (strsim::osa_distance(known, name), known));
    distances.filter(|(distance, _)| *distance <= 3).min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

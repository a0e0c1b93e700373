//! What can be set.

use WorkspaceRule::{Forbidden, LowerOnly};

/// What a workspace may do with a setting where the user does not trust it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceRule {
    /// Set it.
    Allowed,
    /// Make it less than it is.
    LowerOnly,
    /// Nothing.
    Forbidden,
}

/// A setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigKey {
    /// Its name in a file; in the environment it is `CAPSTAN_` and the name in capitals.
    pub name: &'static str,
    /// What it is when nobody sets it.
    pub default: Option<&'static str>,
    /// Whether it must never be shown.
    pub secret: bool,
    /// Whether a workspace may set it: whoever can write there could otherwise have an agent of their own run commands
    /// as the user, have the user pay for it, or move the user's tapes.
    pub workspace: WorkspaceRule,
    /// Whether it is a list: one in a file, separated by commas elsewhere.
    pub is_list: bool,
    /// What it is for.
    pub description: &'static str,
}

const fn plain_key(name: &'static str, default: Option<&'static str>, about: &'static str) -> ConfigKey {
    ConfigKey { name, default, secret: false, workspace: WorkspaceRule::Allowed, is_list: false, description: about }
}

/// A limit, which a workspace may only make smaller.
const fn limit_key(name: &'static str, default: &'static str, about: &'static str) -> ConfigKey {
    ConfigKey { workspace: LowerOnly, ..plain_key(name, Some(default), about) }
}

/// Everything that can be set.
pub const CONFIG_KEYS: &[ConfigKey] = &[
    ConfigKey { workspace: Forbidden, ..plain_key("model", Some("demo:"), "the model, as provider:name") },
    ConfigKey { workspace: Forbidden, secret: true, ..plain_key("api_key", None, "the provider's key") },
    ConfigKey {
        workspace: Forbidden,
        ..plain_key("api_base", None, "the provider's address, where it is not the usual one")
    },
    ConfigKey {
        workspace: Forbidden,
        ..plain_key("fallback_models", None, "the models to try when that one fails, with commas between them")
    },
    ConfigKey {
        workspace: Forbidden,
        ..plain_key("reasoning", None, "how much the model should think before it answers: none, low, medium, high")
    },
    plain_key(
        "model_timeout_seconds",
        Some("300"),
        "how long to wait for a model's first word, and then for each next one",
    ),
    limit_key("model_retries", "3", "how often a model is asked again that failed before its first word"),
    limit_key("max_steps", "50", "how many steps a run may take"),
    ConfigKey { workspace: LowerOnly, ..plain_key("max_tokens", None, "how many tokens a reply may have") },
    ConfigKey {
        workspace: LowerOnly,
        ..plain_key("max_run_tokens", None, "how many tokens a run may use, those of its subagents included")
    },
    limit_key("max_run_results", "1000000", "how many results a runner may give in one run"),
    limit_key("max_run_result_bytes", "67108864", "how large the results of one run may be together"),
    limit_key("max_run_entries", "20000", "how many results of one run may stand on the tape: all but deltas"),
    limit_key("result_delta_bytes", "1048576", "how long a piece of a message that a runner streams may be"),
    limit_key("result_message_bytes", "10485760", "how long a message of a runner may be"),
    limit_key("result_tool_bytes", "4194304", "how large a call of a runner's own tools and its answer may be"),
    limit_key("result_state_bytes", "1048576", "how large an update of state and a request of an action may be"),
    limit_key("result_artifact_bytes", "16777216", "how large an artifact that a runner hands over as a result may be"),
    limit_key("api_calls_per_second", "1000", "how many calls of the run API a run may make in a second"),
    limit_key("api_calls_in_flight", "64", "how many calls of the run API a run may make at the same time"),
    limit_key("api_payload_bytes", "1048576", "how large what a call of the run API brings may be"),
    limit_key(
        "api_content_bytes",
        "67108864",
        "the same where contents are handed over: model requests, files, messages",
    ),
    limit_key("action_timeout_seconds", "60", "how long a channel may take to do an action on its platform"),
    limit_key("tool_timeout_seconds", "600", "how long a tool may take to answer"),
    limit_key("spill_bytes", "32768", "how long a tool's answer may be before it is kept as an artifact"),
    plain_key("max_message_bytes", Some("1048576"), "how large a message may be"),
    limit_key("run_timeout_seconds", "3600", "how long a run may take"),
    plain_key("session_wait_seconds", Some("60"), "how long a message waits for a busy session"),
    plain_key("session_queue", Some("64"), "how many messages of a session may wait for their turn"),
    plain_key("message_context", Some("true"), "whether a message tells the model where it came from and when"),
    plain_key("stop_grace_seconds", Some("30"), "how long running turns may take to end when serving is stopped"),
    ConfigKey {
        workspace: Forbidden,
        ..plain_key("tape_store", Some("sqlite"), "where tapes are kept: sqlite or jsonl")
    },
    ConfigKey {
        workspace: Forbidden,
        is_list: true,
        ..plain_key("allow_paths", None, "folders beside the workspace that the file tools may use")
    },
    ConfigKey {
        workspace: Forbidden,
        is_list: true,
        ..plain_key("bash_environment", None, "variables that commands get beside the usual ones")
    },
    ConfigKey {
        workspace: Forbidden,
        is_list: true,
        ..plain_key("web_allow_private", None, "private hosts that web.fetch may reach, as host:port")
    },
    ConfigKey {
        workspace: Forbidden,
        secret: true,
        ..plain_key("web_proxy", None, "the proxy that web.fetch goes through")
    },
    ConfigKey {
        workspace: Forbidden,
        ..plain_key("trust_workspace", Some("false"), "whether a workspace may set everything")
    },
];

/// The setting of this name.
pub(crate) fn find_key(name: &str) -> Option<&'static ConfigKey> {
    CONFIG_KEYS.iter().find(|key| key.name == name)
}

/// The name that is nearest to this one, if one is near.
pub(crate) fn nearest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|known| (strsim::osa_distance(known, name), known));
    near.filter(|(distance, _)| *distance <= 3).min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

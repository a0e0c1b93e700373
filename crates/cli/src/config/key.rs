//! What can be set.

use Workspace::{Lowers, MayNot};

/// What a workspace may do with a setting where the user does not trust it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workspace {
    /// Set it.
    May,
    /// Make it less than it is.
    Lowers,
    /// Nothing.
    MayNot,
}

/// A setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its name in a file; in the environment it is `CAPSTAN_` and the name in capitals.
    pub name: &'static str,
    /// What it is when nobody sets it.
    pub default: Option<&'static str>,
    /// Whether it must never be shown.
    pub secret: bool,
    /// Whether a workspace may set it: whoever can write there could otherwise have an agent of their own run commands
    /// as the user, have the user pay for it, or move the user's tapes.
    pub workspace: Workspace,
    /// Whether it is a list: one in a file, separated by commas elsewhere.
    pub list: bool,
    /// What it is for.
    pub about: &'static str,
}

const fn key(name: &'static str, default: Option<&'static str>, about: &'static str) -> Key {
    Key { name, default, secret: false, workspace: Workspace::May, list: false, about }
}

/// A limit, which a workspace may only make smaller.
const fn lowered(name: &'static str, default: &'static str, about: &'static str) -> Key {
    Key { workspace: Lowers, ..key(name, Some(default), about) }
}

/// Everything that can be set.
pub const KEYS: &[Key] = &[
    Key { workspace: MayNot, ..key("model", Some("demo:"), "the model, as provider:name") },
    Key { workspace: MayNot, secret: true, ..key("api_key", None, "the provider's key") },
    Key { workspace: MayNot, ..key("api_base", None, "the provider's address, where it is not the usual one") },
    Key {
        workspace: MayNot,
        ..key("fallback_models", None, "the models to try when that one fails, with commas between them")
    },
    Key {
        workspace: MayNot,
        ..key("reasoning", None, "how much the model should think before it answers: none, low, medium, high")
    },
    key("model_timeout_seconds", Some("300"), "how long to wait for a model's first word, and then for each next one"),
    lowered("model_retries", "3", "how often a model is asked again that failed before its first word"),
    lowered("max_steps", "50", "how many steps a run may take"),
    Key { workspace: Lowers, ..key("max_tokens", None, "how many tokens a reply may have") },
    Key {
        workspace: Lowers,
        ..key("max_run_tokens", None, "how many tokens a run may use, those of its subagents included")
    },
    lowered("max_run_results", "1000000", "how many results a runner may give in one run"),
    lowered("max_run_result_bytes", "67108864", "how large the results of one run may be together"),
    lowered("max_run_entries", "20000", "how many results of one run may stand on the tape: all but deltas"),
    lowered("result_delta_bytes", "1048576", "how long a piece of a message that a runner streams may be"),
    lowered("result_message_bytes", "10485760", "how long a message of a runner may be"),
    lowered("result_tool_bytes", "4194304", "how large a call of a runner's own tools and its answer may be"),
    lowered("result_state_bytes", "1048576", "how large an update of state and a request of an action may be"),
    lowered("result_artifact_bytes", "16777216", "how large an artifact that a runner hands over as a result may be"),
    lowered("api_calls_per_second", "1000", "how many calls of the run API a run may make in a second"),
    lowered("api_calls_in_flight", "64", "how many calls of the run API a run may make at the same time"),
    lowered("api_payload_bytes", "1048576", "how large what a call of the run API brings may be"),
    lowered(
        "api_content_bytes",
        "67108864",
        "the same where contents are handed over: model requests, files, messages",
    ),
    lowered("action_timeout_seconds", "60", "how long a channel may take to do an action on its platform"),
    lowered("tool_timeout_seconds", "600", "how long a tool may take to answer"),
    lowered("spill_bytes", "32768", "how long a tool's answer may be before it is kept as an artifact"),
    key("max_message_bytes", Some("1048576"), "how large a message may be"),
    lowered("run_timeout_seconds", "3600", "how long a run may take"),
    key("session_wait_seconds", Some("60"), "how long a message waits for a busy session"),
    key("session_queue", Some("64"), "how many messages of a session may wait for their turn"),
    key("message_context", Some("true"), "whether a message tells the model where it came from and when"),
    key("stop_grace_seconds", Some("30"), "how long running turns may take to end when serving is stopped"),
    Key { workspace: MayNot, ..key("tape_store", Some("sqlite"), "where tapes are kept: sqlite or jsonl") },
    Key {
        workspace: MayNot,
        list: true,
        ..key("allow_paths", None, "folders beside the workspace that the file tools may use")
    },
    Key {
        workspace: MayNot,
        list: true,
        ..key("bash_environment", None, "variables that commands get beside the usual ones")
    },
    Key {
        workspace: MayNot,
        list: true,
        ..key("web_allow_private", None, "private hosts that web.fetch may reach, as host:port")
    },
    Key { workspace: MayNot, secret: true, ..key("web_proxy", None, "the proxy that web.fetch goes through") },
    Key { workspace: MayNot, ..key("trust_workspace", Some("false"), "whether a workspace may set everything") },
];

/// The setting of this name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The name that is nearest to this one, if one is near.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|known| (strsim::osa_distance(known, name), known));
    near.filter(|(distance, _)| *distance <= 3).min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

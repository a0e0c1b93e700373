//! Hooks that a plugin process can implement, with the arguments that it may declare.

/// Hook of a plugin process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteHook {
    /// Name of the hook.
    pub name: &'static str,
    /// Arguments that may be declared.
    pub arguments: &'static [&'static str],
    /// Surrounds model or tool calls, and may be declared fail-closed.
    pub is_interception: bool,
}

const fn hook(name: &'static str, arguments: &'static [&'static str]) -> RemoteHook {
    RemoteHook { name, arguments, is_interception: false }
}

const fn interception(name: &'static str, arguments: &'static [&'static str]) -> RemoteHook {
    RemoteHook { name, arguments, is_interception: true }
}

impl RemoteHook {
    /// Name of the hook whose answer the manifest may contain.
    pub const SYSTEM_PROMPT: &str = "system_prompt";

    /// Every hook of plugin processes, in the order of a turn.
    pub const HOOKS: &[Self] = &[
        hook("resolve_session", &["message"]),
        hook("admit_message", &["message", "session_id", "busy"]),
        hook("load_state", &["message", "session_id", "handle"]),
        hook("build_prompt", &["message", "session_id", "state", "tools", "handle"]),
        hook("continue_prompt", &["step", "session_id", "state"]),
        hook("save_state", &["session_id", "state", "message", "model_output", "failure", "handle"]),
        hook("render_outbound", &["message", "session_id", "state", "model_output", "model_content", "handle"]),
        hook("dispatch_outbound", &["message", "inbound"]),
        hook(Self::SYSTEM_PROMPT, &["prompt", "session_id", "state"]),
        interception("before_llm_call", &["request", "session_id", "state"]),
        interception("after_llm_call", &["request", "outcome", "session_id", "state"]),
        interception("before_tool_call", &["call", "session_id", "state"]),
        interception("after_tool_call", &["call", "outcome", "session_id", "state"]),
        hook("on_error", &["stage", "error", "message", "notice", "handle"]),
    ];
}

/// Hook with this name.
pub fn remote_hook(name: &str) -> Option<&'static RemoteHook> {
    RemoteHook::HOOKS.iter().find(|hook| hook.name == name)
}

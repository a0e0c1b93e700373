//! Run API of the current run, guarded by its authority.

use capstan_hooks::contracts::RunApi;
use capstan_protocol::{ApiError, Content, PermissionSet, TapeAccess, ToolOperation};
use capstan_tape::TapeEvent;

use crate::agent_config::AgentConfig;

/// Run API handle with the permissions of the run.
///
/// On a read-only tape the agent works without its notes; the host journals messages and calls itself.
pub(crate) struct RunHandle {
    pub(crate) api: RunApi,
    pub(crate) authority: PermissionSet,
    /// Configuration of the run, from its binding.
    pub(crate) config: AgentConfig,
}

impl RunHandle {
    /// Returns true if the run may write to its tape.
    pub(crate) fn can_write_tape(&self) -> bool {
        self.authority.tape >= TapeAccess::Write
    }

    /// Returns true if the model may call a tool of this name: the run may call tools, and the binding offers this one.
    /// The host checks each call against the grant.
    pub(crate) fn can_call_tool(&self, name: &str) -> bool {
        self.authority.tools.allows_any(ToolOperation::Call) && self.config.offers_tool(name)
    }

    /// Appends an event to the tape, if it is writable.
    pub(crate) async fn note(&self, event: TapeEvent) -> Result<(), ApiError> {
        if self.can_write_tape() { self.api.tape.note(event.name(), event.data()).await } else { Ok(()) }
    }

    /// Appends a message for the model to the tape, if it is writable.
    pub(crate) async fn tell_model(&self, content: Content) -> Result<(), ApiError> {
        if self.can_write_tape() { self.api.tape.say(content).await } else { Ok(()) }
    }

    /// System prompt: that of the host, unless the run may not read it, with the prompt of the binding.
    pub(crate) async fn system_prompt(&self) -> Result<String, ApiError> {
        let is_read = self.authority.prompt && self.config.uses_host_prompt();
        let host = if is_read { self.api.prompt.system().await? } else { String::new() };
        Ok(self.config.system_prompt(host))
    }

    /// Prompt of the host for a further step, if there is one and the run may read it.
    pub(crate) async fn continuation_prompt(&self, step: u32) -> Result<Option<Content>, ApiError> {
        if self.authority.prompt { self.api.prompt.continuation(step).await } else { Ok(None) }
    }

    /// Takes the pending steering messages, if the run may receive them.
    pub(crate) async fn take_steering(&self) -> Result<Vec<Content>, ApiError> {
        if self.authority.steering { self.api.steering.take().await } else { Ok(Vec::new()) }
    }
}

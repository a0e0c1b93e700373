//! What a run was given.

use capstan_hooks::contracts::RunApi;
use capstan_protocol::{ApiError, Authority, Content, TapeAccess, ToolUse};
use serde_json::Value;

/// A run's handle, with what it may be used for.
///
/// Where the tape may only be read, the agent works without its notes: what was said and done is put there by the host.
pub(crate) struct Given {
    pub(crate) api: RunApi,
    pub(crate) may: Authority,
}

impl Given {
    /// Whether the tape may be written to.
    pub(crate) fn writes(&self) -> bool {
        self.may.tape >= TapeAccess::Write
    }

    /// Whether there is any tool that may be called.
    pub(crate) fn calls(&self) -> bool {
        self.may.tools.allows_any(ToolUse::Call)
    }

    /// Puts a note on the tape, where it may be written to.
    pub(crate) async fn note(&self, name: &str, data: Value) -> Result<(), ApiError> {
        if self.writes() { self.api.tape.note(name, data).await } else { Ok(()) }
    }

    /// Tells the model something, where the tape may be written to.
    pub(crate) async fn say(&self, content: Content) -> Result<(), ApiError> {
        if self.writes() { self.api.tape.say(content).await } else { Ok(()) }
    }

    /// What came meanwhile, where the run may take it in.
    pub(crate) async fn take_steered(&self) -> Result<Vec<Content>, ApiError> {
        if self.may.steering { self.api.steering.take().await } else { Ok(Vec::new()) }
    }
}

//! What a run was given.

use capstan_hooks::contracts::RunApi;
use capstan_protocol::{ApiError, Content, PermissionSet, TapeAccess, ToolOperation};
use capstan_tape::TapeEvent;

/// A run's handle, with what it may be used for.
///
/// Where the tape may only be read, the agent works without its notes: what was said and done is put there by the host.
pub(crate) struct RunHandle {
    pub(crate) api: RunApi,
    pub(crate) authority: PermissionSet,
}

impl RunHandle {
    /// Whether the tape may be written to.
    pub(crate) fn can_write_tape(&self) -> bool {
        self.authority.tape >= TapeAccess::Write
    }

    /// Whether there is any tool that may be called.
    pub(crate) fn can_call_tools(&self) -> bool {
        self.authority.tools.allows_any(ToolOperation::Call)
    }

    /// Puts an event on the tape, where it may be written to.
    pub(crate) async fn note(&self, event: TapeEvent) -> Result<(), ApiError> {
        if self.can_write_tape() { self.api.tape.note(event.name(), event.data()).await } else { Ok(()) }
    }

    /// Tells the model something, where the tape may be written to.
    pub(crate) async fn tell_model(&self, content: Content) -> Result<(), ApiError> {
        if self.can_write_tape() { self.api.tape.say(content).await } else { Ok(()) }
    }

    /// What came meanwhile, where the run may take it in.
    pub(crate) async fn take_steering(&self) -> Result<Vec<Content>, ApiError> {
        if self.authority.steering { self.api.steering.take().await } else { Ok(Vec::new()) }
    }
}

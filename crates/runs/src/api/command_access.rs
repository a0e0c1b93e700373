//! Check of comma commands against the grant of a run.

use capstan_hooks::contracts::Tool;
use capstan_protocol::{ApiError, ApiErrorCode, CommandAccess, ErrorCode};

use crate::run::Run;

/// Refuses the command of a tool that changes something, if the grant covers commands of read-only tools only.
pub(super) fn check_command_access(run: &Run, tool: &dyn Tool) -> Result<(), ApiError> {
    if run.grant().commands == CommandAccess::All || tool.is_read_only() {
        return Ok(());
    }
    let name = tool.spec().name;
    let message = format!("the command {name} is not allowed here: from a remote source, commands may only read");
    Err(ApiError::new(ApiErrorCode::Unauthorized, message).with_cause(ErrorCode::CommandDenied))
}

//! `quit`: ends a chat.

use capstan_hooks::contracts::{FnTool, ToolContext};
use capstan_protocol::ToolOutput;

use super::typed_tool::{NoArguments, typed_tool};

/// Creates the `quit` tool. The terminal chat handles this command itself; elsewhere there is no chat to end.
pub(super) fn tool() -> FnTool {
    let description = "Ends the chat at the terminal. Only for people, as a command.";
    typed_tool("quit", description, |_: NoArguments, _: ToolContext| async move {
        Ok(ToolOutput::ok("There is no chat to leave here; the conversation is saved."))
    })
}

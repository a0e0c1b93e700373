//! `fs.write`: writes a complete file.

use capstan_hooks::contracts::ToolError;
use capstan_protocol::ToolOutput;
use schemars::JsonSchema;
use serde::Deserialize;

use super::FileToolContext;
use crate::paths::{WriteOutcome, path_error};
use crate::tools::count_noun;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileWriteArgs {
    /// File, relative to the workspace.
    pub(super) path: String,
    /// Complete text of the file.
    pub(super) content: String,
}

pub(super) fn write_file(context: FileToolContext<'_>, arguments: &FileWriteArgs) -> Result<ToolOutput, ToolError> {
    let target = context.bounds.resolve_for_write(context.workspace, &arguments.path)?;
    let outcome = target.write(arguments.content.as_bytes()).map_err(|error| path_error(target.requested(), &error))?;
    let action = match outcome {
        WriteOutcome::Created => "created",
        WriteOutcome::Overwrote => "overwrote",
    };
    let (lines, bytes) = (arguments.content.lines().count(), arguments.content.len());
    let size = format!("{}, {}", count_noun(lines as u64, "line"), count_noun(bytes as u64, "byte"));
    Ok(ToolOutput::ok(format!("{action} {} ({size})", target.requested())))
}

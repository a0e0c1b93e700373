//! `fs.write`.

use capstan_hooks::contracts::ToolError;
use capstan_protocol::ToolOutput;
use schemars::JsonSchema;
use serde::Deserialize;

use super::FileToolContext;
use super::bounded_path::WriteOutcome;
use super::path_bounds::path_error;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileWriteArgs {
    /// The file, relative to the workspace.
    pub(super) path: String,
    /// The whole text of the file.
    pub(super) content: String,
}

pub(super) fn write_file(ground: FileToolContext<'_>, arguments: &FileWriteArgs) -> Result<ToolOutput, ToolError> {
    let place = ground.bounds.resolve_path(ground.workspace, &arguments.path)?;
    let written = place.write(arguments.content.as_bytes()).map_err(|error| path_error(place.requested(), &error))?;
    let what = match written {
        WriteOutcome::Created => "created",
        WriteOutcome::Overwrote => "overwrote",
    };
    let (lines, bytes) = (arguments.content.lines().count(), arguments.content.len());
    Ok(ToolOutput::ok(format!("{what} {} ({lines} lines, {bytes} bytes)", place.requested())))
}

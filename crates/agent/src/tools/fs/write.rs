//! `fs.write`.

use capstan_hooks::contracts::ToolError;
use capstan_protocol::ToolOutput;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Ground;
use super::bounds::cannot;
use super::place::Written;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Write {
    /// The file, relative to the workspace.
    pub(super) path: String,
    /// The whole text of the file.
    pub(super) content: String,
}

pub(super) fn write_file(ground: Ground<'_>, arguments: &Write) -> Result<ToolOutput, ToolError> {
    let place = ground.bounds.place(ground.workspace, &arguments.path)?;
    let written = place.write(arguments.content.as_bytes()).map_err(|error| cannot(place.asked(), &error))?;
    let what = match written {
        Written::Created => "created",
        Written::Overwrote => "overwrote",
    };
    let (lines, bytes) = (arguments.content.lines().count(), arguments.content.len());
    Ok(ToolOutput::ok(format!("{what} {} ({lines} lines, {bytes} bytes)", place.asked())))
}

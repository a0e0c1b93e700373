//! `fs.read`, `fs.write`, `fs.edit`: the files of the workspace, and of no other place unless the user allows it.

mod bounds;
mod diff;
mod edit;
mod lines;
mod place;
mod read;
mod write;

use std::path::Path;

use capstan_hooks::Secrets;
use capstan_hooks::contracts::{FnTool, ToolContext, ToolError, Touches};
use capstan_protocol::{Map, ToolOutput};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use bounds::Bounds;

use super::typed::tool;

pub(super) fn read(bounds: Bounds) -> FnTool {
    let description = "Reads a text file of the workspace by lines, or shows an image. \
        Long files are read in pieces with offset and limit.";
    file_tool("fs.read", description, bounds, read::read_file)
}

pub(super) fn write(bounds: Bounds) -> FnTool {
    let description = "Writes a whole text file of the workspace, and makes the folders it needs. \
        What was there is replaced: change a part of a file with fs.edit.";
    file_tool("fs.write", description, bounds, write::write_file).that_touches(file)
}

pub(super) fn edit(bounds: Bounds) -> FnTool {
    let description = "Replaces a text in a file of the workspace. \
        It must stand there exactly as given, and once, unless replace_all is set.";
    file_tool("fs.edit", description, bounds, edit::edit_file).that_touches(file)
}

/// The one file that a call changes, by whatever name it is called. Of a path that means none, nobody knows what it will
/// mean when the calls before it are made.
fn file(arguments: &Map, workspace: &Path) -> Touches {
    let path = arguments.get("path").and_then(Value::as_str);
    let file = path.and_then(|path| bounds::file(workspace, path));
    file.map_or(Touches::Anything, |file| Touches::One(file.to_string_lossy().into_owned()))
}

/// Where a file tool works, and what it must not cut through.
#[derive(Clone, Copy)]
struct Ground<'a> {
    bounds: &'a Bounds,
    workspace: &'a Path,
    secrets: &'a Secrets,
}

/// A tool that works on files. File systems block; the turn's other work must not.
fn file_tool<A: DeserializeOwned + JsonSchema + Send + 'static>(
    name: &'static str,
    description: &str,
    bounds: Bounds,
    action: fn(Ground<'_>, &A) -> Result<ToolOutput, ToolError>,
) -> FnTool {
    tool(name, description, move |arguments: A, context: ToolContext| {
        let bounds = bounds.clone();
        async move {
            let ToolContext { workspace, secrets, .. } = context;
            let work = tokio::task::spawn_blocking(move || {
                action(Ground { bounds: &bounds, workspace: &workspace, secrets: &secrets }, &arguments)
            });
            work.await.map_err(|error| ToolError::new(error.to_string()))?
        }
    })
}

#[cfg(test)]
mod tests;

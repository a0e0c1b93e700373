//! `fs.read`, `fs.write`, `fs.edit`: the files of the workspace, and of no other place unless the user allows it.

mod bounded_line;
mod bounded_path;
mod edit;
mod edit_diff;
mod path_bounds;
mod read;
mod write;

use std::path::Path;

use capstan_hooks::SecretMasker;
use capstan_hooks::contracts::{FnTool, ToolContext, ToolEffect, ToolError};
use capstan_protocol::{JsonObject, ToolOutput};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use path_bounds::PathBounds;

use super::typed_tool::typed_tool;

pub(super) fn read(bounds: PathBounds) -> FnTool {
    let description = "Reads a text file of the workspace by lines, or shows an image. \
        Long files are read in pieces with offset and limit.";
    file_tool("fs.read", description, bounds, read::read_file)
}

pub(super) fn write(bounds: PathBounds) -> FnTool {
    let description = "Writes a whole text file of the workspace, and makes the folders it needs. \
        What was there is replaced: change a part of a file with fs.edit.";
    file_tool("fs.write", description, bounds, write::write_file).with_effect(file)
}

pub(super) fn edit(bounds: PathBounds) -> FnTool {
    let description = "Replaces a text in a file of the workspace. \
        It must stand there exactly as given, and once, unless replace_all is set.";
    file_tool("fs.edit", description, bounds, edit::edit_file).with_effect(file)
}

/// The one file that a call changes, by whatever name it is called. Of a path that means none, nobody knows what it will
/// mean when the calls before it are made.
fn file(arguments: &JsonObject, workspace: &Path) -> ToolEffect {
    let path = arguments.get("path").and_then(Value::as_str);
    let file = path.and_then(|path| path_bounds::file(workspace, path));
    file.map_or(ToolEffect::Unrestricted, |file| ToolEffect::Writes(file.to_string_lossy().into_owned()))
}

/// Where a file tool works, and what it must not cut through.
#[derive(Clone, Copy)]
struct FileToolContext<'a> {
    bounds: &'a PathBounds,
    workspace: &'a Path,
    secrets: &'a SecretMasker,
}

/// A tool that works on files. File systems block; the turn's other work must not.
fn file_tool<A: DeserializeOwned + JsonSchema + Send + 'static>(
    name: &'static str,
    description: &str,
    bounds: PathBounds,
    action: fn(FileToolContext<'_>, &A) -> Result<ToolOutput, ToolError>,
) -> FnTool {
    typed_tool(name, description, move |arguments: A, context: ToolContext| {
        let bounds = bounds.clone();
        async move {
            let ToolContext { workspace, secrets, .. } = context;
            let work = tokio::task::spawn_blocking(move || {
                action(FileToolContext { bounds: &bounds, workspace: &workspace, secrets: &secrets }, &arguments)
            });
            work.await.map_err(|error| ToolError::new(error.to_string()))?
        }
    })
}

#[cfg(test)]
mod tests;

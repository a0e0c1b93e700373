//! `fs.read`, `fs.write`, `fs.edit`: file tools for the workspace and for paths the user allows.

mod bounded_line;
mod edit;
mod edit_diff;
mod read;
mod write;

use std::path::Path;

use capstan_hooks::SecretMasker;
use capstan_hooks::contracts::{FnTool, ToolContext, ToolEffect, ToolError};
use capstan_protocol::{JsonObject, ToolOutput};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::typed_tool::typed_tool;
use super::work_slots::WorkSlots;
use crate::paths::{self, PathBounds};

/// Maximum number of files that a host changes at the same time: an edit holds a file and its copies in memory.
const MAX_CONCURRENT_CHANGES: usize = 4;

/// Maximum number of files that a host reads at the same time: an image is held in memory.
const MAX_CONCURRENT_READS: usize = 8;

/// Slots for changes of files, shared by the tools that change files.
pub(super) fn change_slots() -> WorkSlots {
    WorkSlots::new(MAX_CONCURRENT_CHANGES)
}

pub(super) fn read(bounds: PathBounds) -> FnTool {
    let description = "Reads a text file in the workspace by lines, or shows an image. \
        Read long files in parts with offset and limit.";
    file_tool("fs.read", description, bounds, WorkSlots::new(MAX_CONCURRENT_READS), read::read_file)
}

pub(super) fn write(bounds: PathBounds, slots: &WorkSlots) -> FnTool {
    let description = "Writes a complete text file in the workspace and creates missing folders. \
        An existing file is replaced; use fs.edit to change part of a file.";
    file_tool("fs.write", description, bounds, slots.clone(), write::write_file).with_effect(changed_file)
}

pub(super) fn edit(bounds: PathBounds, slots: &WorkSlots) -> FnTool {
    let description = "Replaces a text in a file in the workspace. \
        The text must occur exactly as given, and exactly once unless replace_all is set.";
    file_tool("fs.edit", description, bounds, slots.clone(), edit::edit_file).with_effect(changed_file)
}

/// Returns the file that a call changes, independent of the path used to name it. If the path does not resolve now, an
/// earlier call may change its meaning, so the effect is unrestricted.
fn changed_file(arguments: &JsonObject, workspace: &Path) -> ToolEffect {
    let path = arguments.get("path").and_then(Value::as_str);
    let file = path.and_then(|path| paths::resolve_target(workspace, path));
    file.map_or(ToolEffect::Unrestricted, |file| ToolEffect::Writes(file.to_string_lossy().into_owned()))
}

/// Environment of a file tool: paths it may use and secrets that must not be cut in two.
#[derive(Clone, Copy)]
struct FileToolContext<'a> {
    bounds: &'a PathBounds,
    workspace: &'a Path,
    secrets: &'a SecretMasker,
}

/// Creates a file tool. File systems block, so the action runs on a blocking thread, in one of the slots.
fn file_tool<A: DeserializeOwned + JsonSchema + Send + 'static>(
    name: &'static str,
    description: &str,
    bounds: PathBounds,
    slots: WorkSlots,
    action: fn(FileToolContext<'_>, &A) -> Result<ToolOutput, ToolError>,
) -> FnTool {
    typed_tool(name, description, move |arguments: A, context: ToolContext| {
        let (bounds, slots) = (bounds.clone(), slots.clone());
        async move {
            let ToolContext { workspace, secrets, .. } = context;
            let work = move || {
                action(FileToolContext { bounds: &bounds, workspace: &workspace, secrets: &secrets }, &arguments)
            };
            slots.run_blocking(work).await?
        }
    })
}

#[cfg(test)]
mod tests;

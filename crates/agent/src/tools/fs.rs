//! `fs.read`: a file of the workspace.

use std::path::{Path, PathBuf};

use capstan_hooks::contracts::{FnTool, ToolContext, ToolError};
use capstan_protocol::ToolOutput;
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed::tool;

/// The largest file that is read.
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// How many lines are shown when nobody says.
const LINE_LIMIT: usize = 2000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Read {
    /// The file, relative to the workspace.
    path: String,
    /// The first line to show, from 1 on.
    offset: Option<usize>,
    /// How many lines to show at most.
    limit: Option<usize>,
}

pub(super) fn read() -> FnTool {
    tool("fs.read", "Reads a text file of the workspace.", |arguments: Read, context: ToolContext| async move {
        let workspace = context.workspace.clone();
        // File systems block; the turn's other work must not.
        let read = tokio::task::spawn_blocking(move || read_file(&workspace, &arguments)).await;
        read.map_err(|error| ToolError::new(error.to_string()))?.map(ToolOutput::ok)
    })
}

fn read_file(workspace: &Path, arguments: &Read) -> Result<String, ToolError> {
    let path = inside(workspace, &arguments.path)?;
    let failed = |error: std::io::Error| ToolError::new(format!("cannot read {}: {error}", arguments.path));
    let size = std::fs::metadata(&path).map_err(failed)?.len();
    if size > MAX_BYTES {
        return Err(ToolError::new(format!("{} has {size} bytes, more than the {MAX_BYTES} allowed", arguments.path)));
    }
    let text = String::from_utf8(std::fs::read(&path).map_err(failed)?);
    let text = text.map_err(|_| ToolError::new(format!("{} is not a UTF-8 text file", arguments.path)))?;
    let skipped = arguments.offset.unwrap_or(1).saturating_sub(1);
    let limit = arguments.limit.unwrap_or(LINE_LIMIT);
    let total = text.lines().count();
    let shown: Vec<&str> = text.lines().skip(skipped).take(limit).collect();
    let end = skipped + shown.len();
    let output = shown.join("\n");
    if end >= total {
        return Ok(output);
    }
    Ok(format!("{output}\n[lines {}-{end} of {total}; read on with offset={}]", skipped + 1, end + 1))
}

/// The file a path means, links followed, if it lies in the workspace.
fn inside(workspace: &Path, path: &str) -> Result<PathBuf, ToolError> {
    let cannot = |error: std::io::Error| ToolError::new(format!("cannot read {path}: {error}"));
    let root = workspace.canonicalize().map_err(cannot)?;
    let file = root.join(path).canonicalize().map_err(cannot)?;
    if file.starts_with(&root) { Ok(file) } else { Err(ToolError::new(format!("{path} lies outside the workspace"))) }
}

#[cfg(test)]
mod tests {
    use super::{Read, read_file};

    fn asked(path: &str) -> Read {
        Read { path: path.to_owned(), offset: None, limit: None }
    }

    #[test]
    fn a_file_is_read_by_lines() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), "one\ntwo\nthree\n").unwrap();
        assert_eq!(read_file(folder.path(), &asked("a.txt")).unwrap(), "one\ntwo\nthree");
        let part = Read { offset: Some(2), limit: Some(1), ..asked("a.txt") };
        assert_eq!(read_file(folder.path(), &part).unwrap(), "two\n[lines 2-2 of 3; read on with offset=3]");
    }

    #[test]
    fn what_lies_outside_the_workspace_is_refused_also_through_a_link() {
        let outside = tempfile::NamedTempFile::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("link")).unwrap();
        for path in ["/etc/passwd", "../../../../etc/passwd", "link"] {
            let refused = read_file(folder.path(), &asked(path)).unwrap_err().to_string();
            assert!(refused.contains("outside the workspace"), "{path}: {refused}");
        }
        assert!(read_file(folder.path(), &asked("missing")).unwrap_err().to_string().contains("cannot read missing"));
    }
}

//! `fs.edit`.

use std::io::Read as _;

use capstan_hooks::contracts::ToolError;
use capstan_protocol::ToolOutput;
use schemars::JsonSchema;
use serde::Deserialize;

use super::FileToolContext;
use super::edit_diff::EditDiff;
use super::path_bounds::path_error;

/// The largest file that is edited.
const MAX_EDIT_FILE_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileEditArgs {
    /// The file, relative to the workspace.
    pub(super) path: String,
    /// The text to replace, exactly as it stands in the file, with enough around it to be unique.
    pub(super) old: String,
    /// The text to put in its place.
    pub(super) new: String,
    /// Whether to replace it everywhere in the file.
    #[serde(default)]
    pub(super) replace_all: bool,
}

pub(super) fn edit_file(ground: FileToolContext<'_>, arguments: &FileEditArgs) -> Result<ToolOutput, ToolError> {
    let place = ground.bounds.resolve_path(ground.workspace, &arguments.path)?;
    let path = place.requested();
    let failed = |error: std::io::Error| path_error(path, &error);
    // Another edit that begins before this one ends would take this one's text for the old one and undo it.
    let held = place.lock_dir().map_err(failed)?;
    let mut bytes = Vec::new();
    place.open().map_err(failed)?.take(MAX_EDIT_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_EDIT_FILE_BYTES {
        return Err(ToolError::new(format!(
            "{path} has more than the {MAX_EDIT_FILE_BYTES} bytes allowed; `sed` in bash can"
        )));
    }
    let text = String::from_utf8(bytes).map_err(|_| ToolError::new(format!("{path} is no UTF-8 text")))?;
    let edited = EditResult::apply(&text, arguments).map_err(|reason| ToolError::new(format!("{path}: {reason}")))?;
    place.write_locked(&held, edited.text.as_bytes()).map_err(failed)?;
    let times = match edited.positions.len() {
        1 => String::new(),
        count => format!(" in {count} places"),
    };
    let diff = EditDiff { text: &text, old: &edited.old, new: &edited.new, secrets: ground.secrets };
    Ok(ToolOutput::ok(format!("edited {path}{times}\n{}", diff.render(&edited.positions))))
}

/// A text after an edit, and where it was edited.
struct EditResult {
    text: String,
    old: String,
    new: String,
    /// Where the old text stood.
    positions: Vec<usize>,
}

impl EditResult {
    fn apply(text: &str, edit: &FileEditArgs) -> Result<Self, String> {
        if edit.old.is_empty() {
            return Err("the text to replace is empty; fs.write writes a whole file".to_owned());
        }
        if edit.old == edit.new {
            return Err("the text to replace and the new one are the same".to_owned());
        }
        // fs.read shows lines without the carriage returns some files have, so what is given back lacks them.
        let bare = |text: &str| text.contains('\n') && !text.contains('\r');
        let (mut old, mut new) = (edit.old.clone(), edit.new.clone());
        if !text.contains(&old) && text.contains("\r\n") && (bare(&old) || bare(&new)) {
            (old, new) = (old.replace('\n', "\r\n"), new.replace('\n', "\r\n"));
        }
        let at: Vec<usize> = text.match_indices(&old).map(|(position, _)| position).collect();
        match at.len() {
            0 => Err("the text to replace is not there; read the file again and give it exactly".to_owned()),
            1 => Ok(()),
            _ if edit.replace_all => Ok(()),
            count => Err(format!(
                "the text to replace is there {count} times; give more of what is around it, or set replace_all"
            )),
        }?;
        Ok(Self { text: text.replace(&old, &new), old, new, positions: at })
    }
}

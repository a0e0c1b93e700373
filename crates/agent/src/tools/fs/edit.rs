//! `fs.edit`.

use std::io::Read as _;

use capstan_hooks::contracts::ToolError;
use capstan_protocol::ToolOutput;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Ground;
use super::bounds::cannot;
use super::diff::Diff;

/// The largest file that is edited.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
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

pub(super) fn edit_file(ground: Ground<'_>, arguments: &Edit) -> Result<ToolOutput, ToolError> {
    let place = ground.bounds.place(ground.workspace, &arguments.path)?;
    let path = place.asked();
    let failed = |error: std::io::Error| cannot(path, &error);
    // Another edit that begins before this one ends would take this one's text for the old one and undo it.
    let held = place.hold().map_err(failed)?;
    let mut bytes = Vec::new();
    place.open().map_err(failed)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ToolError::new(format!("{path} has more than the {MAX_BYTES} bytes allowed; `sed` in bash can")));
    }
    let text = String::from_utf8(bytes).map_err(|_| ToolError::new(format!("{path} is no UTF-8 text")))?;
    let edited = Edited::of(&text, arguments).map_err(|reason| ToolError::new(format!("{path}: {reason}")))?;
    place.write_in(&held, edited.text.as_bytes()).map_err(failed)?;
    let times = match edited.at.len() {
        1 => String::new(),
        count => format!(" in {count} places"),
    };
    let diff = Diff { text: &text, old: &edited.old, new: &edited.new, secrets: ground.secrets };
    Ok(ToolOutput::ok(format!("edited {path}{times}\n{}", diff.at(&edited.at))))
}

/// A text after an edit, and where it was edited.
struct Edited {
    text: String,
    old: String,
    new: String,
    /// Where the old text stood.
    at: Vec<usize>,
}

impl Edited {
    fn of(text: &str, edit: &Edit) -> Result<Self, String> {
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
        Ok(Self { text: text.replace(&old, &new), old, new, at })
    }
}

//! `fs.edit`: replaces a text in a file.

use std::io::Read as _;

use capstan_hooks::contracts::ToolError;
use capstan_protocol::ToolOutput;
use schemars::JsonSchema;
use serde::Deserialize;

use super::FileToolContext;
use super::edit_diff::EditDiff;
use crate::paths::path_error;

/// Maximum size of a file to edit.
const MAX_EDIT_FILE_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileEditArgs {
    /// File, relative to the workspace.
    pub(super) path: String,
    /// Text to replace, exactly as in the file, with enough context to be unique.
    pub(super) old: String,
    /// Replacement text.
    pub(super) new: String,
    /// Replace all occurrences.
    #[serde(default)]
    pub(super) replace_all: bool,
}

pub(super) fn edit_file(context: FileToolContext<'_>, arguments: &FileEditArgs) -> Result<ToolOutput, ToolError> {
    let target = context.bounds.resolve_for_write(context.workspace, &arguments.path)?;
    let path = target.requested();
    let failed = |error: std::io::Error| path_error(path, &error);
    // Without the lock, a concurrent edit could read the old text and undo this edit.
    let lock = target.lock_dir().map_err(failed)?;
    let mut bytes = Vec::new();
    target.open().map_err(failed)?.take(MAX_EDIT_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_EDIT_FILE_BYTES {
        return Err(ToolError::new(format!(
            "{path} is larger than the {MAX_EDIT_FILE_BYTES} bytes allowed; use `sed` in bash"
        )));
    }
    let text = String::from_utf8(bytes).map_err(|_| ToolError::new(format!("{path} is not UTF-8 text")))?;
    let replacement = TextReplacement::find(&text, arguments, MAX_EDIT_FILE_BYTES)
        .map_err(|reason| ToolError::new(format!("{path}: {reason}")))?;
    target.write_locked(&lock, replacement.apply(&text).as_bytes()).map_err(failed)?;
    let TextReplacement { old, new, count, .. } = &replacement;
    let count_note = match count {
        1 => String::new(),
        count => format!(" in {count} places"),
    };
    let diff = EditDiff { text: &text, old, new, secrets: context.secrets };
    Ok(ToolOutput::ok(format!("edited {path}{count_note}\n{}", diff.render(*count))))
}

/// Replacement of a text in a file. Its positions are found again when they are needed: there may be millions.
struct TextReplacement {
    old: String,
    new: String,
    /// Number of occurrences of the old text.
    count: usize,
    /// Length of the file with the new text.
    edited_len: usize,
}

impl TextReplacement {
    /// Finds what an edit replaces, if it may be replaced.
    fn find(text: &str, edit: &FileEditArgs, max_bytes: u64) -> Result<Self, String> {
        if edit.old.is_empty() {
            return Err("the text to replace is empty; fs.write writes a whole file".to_owned());
        }
        if edit.old == edit.new {
            return Err("the text to replace and the new text are the same".to_owned());
        }
        // fs.read shows lines without carriage returns, so a text copied from its output lacks them.
        let lacks_carriage_returns = |text: &str| text.contains('\n') && !text.contains('\r');
        let (mut old, mut new) = (edit.old.clone(), edit.new.clone());
        if !text.contains(&old)
            && text.contains("\r\n")
            && (lacks_carriage_returns(&old) || lacks_carriage_returns(&new))
        {
            (old, new) = (old.replace('\n', "\r\n"), new.replace('\n', "\r\n"));
        }
        let count = text.matches(&old).count();
        match count {
            0 => Err("the text to replace was not found; read the file again and copy the text exactly".to_owned()),
            1 => Ok(()),
            _ if edit.replace_all => Ok(()),
            count => Err(format!("the text to replace occurs {count} times; include more context, or set replace_all")),
        }?;
        // Checked before the text is built: many occurrences and a long replacement can exceed the memory.
        let removed = count as u128 * old.len() as u128;
        let edited_len = text.len() as u128 - removed + count as u128 * new.len() as u128;
        match usize::try_from(edited_len) {
            Ok(len) if len as u64 <= max_bytes => Ok(Self { old, new, count, edited_len: len }),
            _ => Err(format!("the edited file would be larger than the {max_bytes} bytes allowed")),
        }
    }

    /// Builds the text with the replacement.
    fn apply(&self, text: &str) -> String {
        let mut edited = String::with_capacity(self.edited_len);
        let mut copied_to = 0;
        for (position, found) in text.match_indices(&self.old) {
            edited.push_str(&text[copied_to..position]);
            edited.push_str(&self.new);
            copied_to = position + found.len();
        }
        edited.push_str(&text[copied_to..]);
        edited
    }
}

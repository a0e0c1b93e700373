//! `capstan plugin new`: a plugin with a runner and a test, in Python without dependencies.

use std::fs;
use std::path::{Path, PathBuf};

use capstan_plugins::read_manifest;
use capstan_protocol::ErrorCode;

use crate::CommandError;

/// Files of a new plugin.
const TEMPLATE: [(&str, &str); 4] = [
    ("plugin.toml", include_str!("template/plugin.toml")),
    ("main.py", include_str!("template/main.py")),
    ("test_main.py", include_str!("template/test_main.py")),
    ("binding.toml", include_str!("template/binding.toml")),
];

/// Creates the folder of a plugin. An existing one is left alone.
pub(super) fn create_plugin(parent: &Path, author: &str, name: &str) -> Result<PathBuf, CommandError> {
    let is_name = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.len() <= 64
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'))
    };
    for text in [author, name] {
        if !is_name(text) {
            let message = format!("{text:?} is not a valid name");
            let hint = "use lower case letters, digits, - and _, beginning with a letter, at most 64 characters";
            return Err(CommandError::new(ErrorCode::Usage, message).with_hint(hint));
        }
    }
    let folder = parent.join(name);
    let failed = |error: std::io::Error| {
        CommandError::new(ErrorCode::Usage, format!("cannot create {}: {error}", folder.display()))
            .with_hint("choose another name, or another folder with --workspace")
    };
    fs::create_dir(&folder).map_err(failed)?;
    for (file, text) in TEMPLATE {
        let text = text.replace("@AUTHOR@", author).replace("@NAME@", name);
        fs::write(folder.join(file), text).map_err(failed)?;
    }
    read_manifest(&folder)?;
    Ok(folder)
}

//! Editing and atomic writing of configuration files in the home.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use capstan_protocol::JsonObject;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde_json::Value;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike};

use super::{CONFIG_FILE, SECRETS_FILE};

/// Applies settings to the text of a configuration file. Keeps everything else, including comments; `null` removes a setting.
pub(crate) fn edit_toml(text: &str, settings: &JsonObject) -> Result<String, toml_edit::TomlError> {
    let mut document: DocumentMut = text.parse()?;
    set_settings(document.as_table_mut(), settings);
    Ok(document.to_string())
}

fn set_settings(table: &mut dyn TableLike, settings: &JsonObject) {
    for (key, value) in settings {
        match value {
            Value::Null => {
                table.remove(key);
            }
            Value::Object(settings) => {
                let child = table.entry(key).or_insert(Item::None);
                if !child.is_table_like() {
                    let mut new = Table::new();
                    // A table with only subtables needs no header.
                    new.set_implicit(true);
                    *child = Item::Table(new);
                }
                if let Some(child) = child.as_table_like_mut() {
                    set_settings(child, settings);
                }
            }
            value => set_value(table, key, value),
        }
    }
}

fn set_value(table: &mut dyn TableLike, key: &str, value: &Value) {
    let Some(mut new) = to_toml(value) else { return };
    match table.get_mut(key).and_then(Item::as_value_mut) {
        // Keep spaces and comments around the value.
        Some(current) => {
            *new.decor_mut() = current.decor().clone();
            *current = new;
        }
        None => {
            table.insert(key, Item::Value(new));
        }
    }
}

fn to_toml(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => (*flag).into(),
        Value::String(text) => text.as_str().into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(fraction)) => fraction.into(),
            (None, None) => return None,
        },
        Value::Array(values) => values.iter().filter_map(to_toml).collect::<Array>().into(),
        Value::Object(settings) => {
            let pairs = settings.iter().filter_map(|(key, value)| Some((key.as_str(), to_toml(value)?)));
            pairs.collect::<InlineTable>().into()
        }
    })
}

/// Temporary files of [`write_private_file`] that dead processes left in a folder. They may hold secrets.
pub(crate) fn find_abandoned_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_abandoned = |name: &str| {
        let process = [CONFIG_FILE, SECRETS_FILE].iter().find_map(|file| {
            let number = name.strip_prefix('.')?.strip_prefix(file)?.strip_prefix('.')?;
            Pid::from_raw(number.parse().ok()?)
        });
        process.is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH))
    };
    let abandoned = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_abandoned));
    abandoned.map(|entry| entry.path()).collect()
}

/// Replaces a file atomically with one that only its owner may read.
pub(crate) fn write_private_file(path: &Path, text: &str) -> io::Result<()> {
    // Write through links, because users may keep their configuration elsewhere.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    let written = create_private_file(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is the one to report.
        let _unremoved = std::fs::remove_file(&temporary);
        return written;
    }
    // Some file systems cannot sync a directory.
    let _unsynced = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

fn create_private_file(path: &Path, text: &str) -> io::Result<()> {
    // A file of a dead process may have other permissions.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::{edit_toml, find_abandoned_files, write_private_file};

    #[test]
    fn h02_edit_changes_only_the_given_settings() {
        let before = "# mine\nmodel = \"demo:\" # for now\nmax_steps = 5\n\n[channels.stdio]\nadmission = \"steer\"\n";
        let settings = json!({"model": "openai:x", "api_base": "http://127.0.0.1/v1", "max_steps": null,
            "channels": {"stdio": {"debounce_seconds": 1.5}, "phone": {"admission": "drop"}}});
        let after = edit_toml(before, settings.as_object().unwrap()).unwrap();
        insta::assert_snapshot!(after);
        assert_eq!(edit_toml(&after, settings.as_object().unwrap()).unwrap(), after, "a second edit changes nothing");
    }

    #[test]
    fn h02_private_file_is_replaced_atomically_with_mode_0600() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets.toml");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        write_private_file(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file remains");
    }

    #[test]
    fn x06_temporary_files_of_dead_processes_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let (dead, living) = (ended.id(), std::process::id());
        let names = [format!(".secrets.toml.{dead}"), format!(".config.toml.{living}"), ".secrets.toml.bak".to_owned()];
        for name in &names {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(find_abandoned_files(folder.path()), [folder.path().join(&names[0])]);
    }
}

//! Reader of one table of a manifest, which knows the path of its keys.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ManifestError;
use crate::{JsonObject, escape_line};

const TYPE_HINT: &str = "correct the value; docs/plugin-protocol.md lists the keys with their types";
const MISSING_HINT: &str = "add the key; docs/plugin-protocol.md lists the required ones";
const UNKNOWN_HINT: &str = "remove the key or correct its name; docs/plugin-protocol.md lists the keys";
/// Maximum length of text of a manifest that an error repeats.
const MAX_QUOTED_CHARS: usize = 60;
/// Maximum edits between an unknown name and the one that is suggested.
const MAX_SUGGESTION_DISTANCE: usize = 2;

/// Table of a manifest. Each key is taken once; [`finish`](Self::finish) refuses those that are left.
pub(super) struct ManifestTable {
    path: String,
    fields: JsonObject,
    known: Vec<&'static str>,
}

impl ManifestTable {
    /// Reads a value as a table.
    pub(super) fn new(path: impl Into<String>, value: Value) -> Result<Self, ManifestError> {
        let path = path.into();
        match value {
            Value::Object(fields) => Ok(Self { path, fields, known: Vec::new() }),
            other => Err(ManifestError::new(path, format!("must be a table, not {}", type_name(&other)), TYPE_HINT)),
        }
    }

    /// Path of a key.
    pub(super) fn key_path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Error at a key.
    pub(super) fn error(&self, key: &str, reason: impl Into<String>) -> ManifestError {
        ManifestError::new(self.key_path(key), reason, TYPE_HINT)
    }

    /// Value of a key.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.fields.shift_remove(key)
    }

    fn required(&mut self, key: &'static str) -> Result<Value, ManifestError> {
        self.take(key).ok_or_else(|| ManifestError::new(self.key_path(key), "is missing", MISSING_HINT))
    }

    /// Text of a key, not empty.
    pub(super) fn text(&mut self, key: &'static str) -> Result<String, ManifestError> {
        let value = self.required(key)?;
        self.read_text(key, value)
    }

    /// Text of a key that may be absent.
    pub(super) fn optional_text(&mut self, key: &'static str) -> Result<Option<String>, ManifestError> {
        self.take(key).map(|value| self.read_text(key, value)).transpose()
    }

    fn read_text(&self, key: &str, value: Value) -> Result<String, ManifestError> {
        match value {
            Value::String(text) if text.trim().is_empty() => Err(self.error(key, "must not be empty")),
            Value::String(text) if text.contains('\0') => Err(self.error(key, "must not contain the character NUL")),
            Value::String(text) => Ok(text),
            other => Err(self.error(key, format!("must be a text, not {}", type_name(&other)))),
        }
    }

    /// List of texts; empty if the key is absent.
    pub(super) fn texts(&mut self, key: &'static str) -> Result<Vec<String>, ManifestError> {
        let items = self.list(key)?;
        let read = |(index, value)| self.read_text(&format!("{key}[{index}]"), value);
        items.into_iter().enumerate().map(read).collect()
    }

    /// List of any values; empty if the key is absent.
    pub(super) fn list(&mut self, key: &'static str) -> Result<Vec<Value>, ManifestError> {
        match self.take(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(self.error(key, format!("must be a list, not {}", type_name(&other)))),
        }
    }

    /// List of tables, each read by a function; empty if the key is absent.
    pub(super) fn tables<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut ManifestTable) -> Result<T, ManifestError>,
    ) -> Result<Vec<T>, ManifestError> {
        let mut items = Vec::new();
        for (index, value) in self.list(key)?.into_iter().enumerate() {
            let mut table = ManifestTable::new(self.key_path(&format!("{key}[{index}]")), value)?;
            items.push(read(&mut table)?);
            table.finish()?;
        }
        Ok(items)
    }

    /// Table of a key; an empty one if the key is absent.
    pub(super) fn table(&mut self, key: &'static str) -> Result<ManifestTable, ManifestError> {
        let value = self.take(key).unwrap_or_else(|| Value::Object(JsonObject::new()));
        ManifestTable::new(self.key_path(key), value)
    }

    /// Boolean of a key; false if it is absent.
    pub(super) fn flag(&mut self, key: &'static str) -> Result<bool, ManifestError> {
        match self.take(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(self.error(key, format!("must be true or false, not {}", type_name(&other)))),
        }
    }

    /// Positive integer of a key that may be absent.
    pub(super) fn optional_count(&mut self, key: &'static str) -> Result<Option<u64>, ManifestError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match value.as_u64() {
            Some(count) if count > 0 => Ok(Some(count)),
            _ => Err(self.error(key, format!("must be an integer of at least 1, not {}", quote(&value.to_string())))),
        }
    }

    /// Positive integer of a key.
    pub(super) fn count(&mut self, key: &'static str) -> Result<u64, ManifestError> {
        let value = self.optional_count(key)?;
        value.ok_or_else(|| ManifestError::new(self.key_path(key), "is missing", MISSING_HINT))
    }

    /// Value of one of these names.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
    ) -> Result<Option<T>, ManifestError> {
        let Some(name) = self.optional_text(key)? else { return Ok(None) };
        let choice = choices.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        choice.map(Some).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(known, _)| *known).collect();
            self.error(key, format!("{} is none of {}{}", quote(&name), names.join(", "), suggestion(&name, &names)))
        })
    }

    /// Value of a type that reads itself; `None` if the key is absent.
    pub(super) fn parse<T: DeserializeOwned>(&mut self, key: &'static str) -> Result<Option<T>, ManifestError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        serde_json::from_value(value).map(Some).map_err(|error| self.error(key, error.to_string()))
    }

    /// Table of a type whose unknown keys would be ignored; `default` has every key.
    pub(super) fn parse_fields<T>(&mut self, key: &'static str, default: &T) -> Result<T, ManifestError>
    where
        T: DeserializeOwned + serde::Serialize,
    {
        let table = self.table(key)?;
        let Ok(Value::Object(defaults)) = serde_json::to_value(default) else {
            return Err(self.error(key, "cannot be read"));
        };
        for (field, value) in &table.fields {
            let names: Vec<&str> = defaults.keys().map(String::as_str).collect();
            if !names.contains(&field.as_str()) {
                return Err(table.unknown_key(field, &names));
            }
            // One field at a time, so that the error has its path.
            let single = JsonObject::from_iter([(field.clone(), value.clone())]);
            let mut merged = defaults.clone();
            merged.extend(single);
            serde_json::from_value::<T>(Value::Object(merged))
                .map_err(|error| table.error(field, error.to_string()))?;
        }
        let mut merged = defaults;
        merged.extend(table.fields.clone());
        serde_json::from_value(Value::Object(merged)).map_err(|error| self.error(key, error.to_string()))
    }

    /// Refuses keys that were not taken.
    pub(super) fn finish(&self) -> Result<(), ManifestError> {
        match self.fields.keys().next() {
            None => Ok(()),
            Some(key) => Err(self.unknown_key(key, &self.known)),
        }
    }

    fn unknown_key(&self, key: &str, known: &[&str]) -> ManifestError {
        let key_path = self.key_path(&quote_key(key));
        ManifestError::new(key_path, format!("unknown key{}", suggestion(key, known)), UNKNOWN_HINT)
    }
}

/// Text of a manifest for an error, in quotation marks and on one line.
pub(super) fn quote(text: &str) -> String {
    format!("\"{}\"", quote_key(text))
}

fn quote_key(text: &str) -> String {
    let short: String = text.chars().take(MAX_QUOTED_CHARS).collect();
    let end = if short.len() < text.len() { "..." } else { "" };
    format!("{}{end}", escape_line(&short))
}

/// Names the known name that is most similar, if there is one.
pub(super) fn suggestion(name: &str, known: &[&str]) -> String {
    let distances = known.iter().map(|known| (strsim::osa_distance(known, name), known));
    let nearest = distances.filter(|(distance, _)| *distance <= MAX_SUGGESTION_DISTANCE).min();
    nearest.map_or_else(String::new, |(_, known)| format!("; did you mean {known}?"))
}

/// Type of a value, for errors.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

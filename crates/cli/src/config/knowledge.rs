//! Knowledge bases: `[knowledge.NAME]` in a file, `CAPSTAN_KNOWLEDGE__NAME__KEY` in the environment.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::ConfigError;
use super::key::nearest;
use super::layer::Layers;
use super::tools::path;

/// The table of all knowledge bases.
pub(super) const TABLE: &str = "knowledge";
/// What separates the parts of a name in a variable.
const SEPARATOR: &str = "__";

const PATH: &str = "path";
const DESCRIPTION: &str = "description";
/// Everything that can be set for a knowledge base.
const KEYS: &[&str] = &[PATH, DESCRIPTION];
/// How long a name may be.
const LONGEST_NAME: usize = 64;

/// A folder that agents can be allowed to search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnowledgeConfig {
    /// What bindings grant it by.
    pub name: String,
    /// What it is about, for people and models.
    pub description: String,
    /// The folder.
    pub path: PathBuf,
}

/// A setting of a knowledge base; written `knowledge.NAME.KEY`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KnowledgeKey {
    base: String,
    key: &'static str,
}

impl fmt::Display for KnowledgeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TABLE}.{}.{}", self.base, self.key)
    }
}

impl KnowledgeKey {
    fn new(base: &str, key: &str) -> Option<Self> {
        let key = KEYS.iter().copied().find(|known| *known == key)?;
        is_name(base).then(|| Self { base: base.to_owned(), key })
    }

    /// The setting of this name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (base, key) = name.strip_prefix(TABLE)?.strip_prefix('.')?.rsplit_once('.')?;
        Self::new(base, key)
    }

    /// The setting of a variable, without the prefix and in small letters.
    pub(super) fn of_variable(name: &str) -> Option<Self> {
        let (base, key) = name.strip_prefix(TABLE)?.strip_prefix(SEPARATOR)?.rsplit_once(SEPARATOR)?;
        Self::new(base, key)
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_plain)
}

/// The settings of a file's table of knowledge bases, as text.
pub(super) fn of_table(path: &str, table: toml::Value) -> Result<Vec<(KnowledgeKey, String)>, ConfigError> {
    let broken = |detail: String| ConfigError::Broken { path: path.to_owned(), detail };
    let toml::Value::Table(bases) = table else {
        return Err(broken(format!("{TABLE} must be a table of knowledge bases, as in [{TABLE}.docs]")));
    };
    let mut settings = Vec::new();
    for (base, table) in bases {
        if !is_name(&base) {
            let detail =
                format!("the name of {TABLE}.{base:?} must have 1 to {LONGEST_NAME} letters, digits and - _ .");
            return Err(broken(detail));
        }
        let toml::Value::Table(table) = table else {
            return Err(broken(format!("{TABLE}.{base} must be a table with a {PATH}")));
        };
        if table.is_empty() {
            return Err(broken(format!("{TABLE}.{base} has no {PATH}")));
        }
        for (key, value) in table {
            let name = format!("{TABLE}.{base}.{key}");
            let Some(known) = KnowledgeKey::new(&base, &key) else {
                let nearest = nearest(&key, KEYS.iter().copied()).map(str::to_owned);
                return Err(ConfigError::UnknownKey { path: path.to_owned(), key: name, nearest });
            };
            let toml::Value::String(text) = value else {
                return Err(broken(format!("{name} must be a text")));
            };
            settings.push((known, text));
        }
    }
    Ok(settings)
}

/// The knowledge bases that are set, by name; `~` is the user's own folder.
pub(super) fn bases(layers: &Layers, user: Option<&Path>) -> Result<Vec<KnowledgeConfig>, ConfigError> {
    let names: BTreeSet<String> = layers.knowledge_keys().into_iter().map(|key| key.base).collect();
    let base = |name: String| {
        let key = |key| KnowledgeKey { base: name.clone(), key }.to_string();
        let description = layers.text(&key(DESCRIPTION));
        let Some(text) = layers.text(&key(PATH)) else {
            let reason = format!("it means nothing without {}", key(PATH));
            return Err(layers.invalid(&key(DESCRIPTION), &reason));
        };
        let path = path(text, user).ok_or_else(|| layers.invalid(&key(PATH), "it must begin with / or ~/"))?;
        Ok(KnowledgeConfig { description: description.unwrap_or_else(|| name.clone()), name, path })
    };
    names.into_iter().map(base).collect()
}

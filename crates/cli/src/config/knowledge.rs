//! Knowledge bases: `[knowledge.NAME]` in a file, `CAPSTAN_KNOWLEDGE__NAME__KEY` in the environment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::ConfigError;
use super::key::Workspace;
use super::layer::Layers;
use super::tables::{Form, Table, TableKey};
use super::tools::path;

const PATH: &str = "path";
const DESCRIPTION: &str = "description";

/// The table of all knowledge bases.
pub(super) static TABLE: Table = Table {
    name: "knowledge",
    of: ("knowledge bases", "docs"),
    keys: &[TableKey::new(PATH, Form::Text), TableKey::new(DESCRIPTION, Form::Text)],
    required: Some(PATH),
    is_name,
    name_rule: "must have 1 to 64 letters, digits and - _ .",
    spelled: str::to_owned,
    workspace: Workspace::MayNot,
};
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

fn is_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_plain)
}

/// The knowledge bases that are set, by name; `~` is the user's own folder.
pub(super) fn bases(layers: &Layers, user: Option<&Path>) -> Result<Vec<KnowledgeConfig>, ConfigError> {
    let names: BTreeSet<String> = layers.settings(&TABLE).into_iter().map(|setting| setting.of).collect();
    let base = |name: String| {
        let key = |key| TABLE.name_of(&name, key);
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

//! Knowledge bases: `[knowledge.NAME]` in a file, `CAPSTAN_KNOWLEDGE__NAME__KEY` in the environment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::ConfigError;
use super::key::WorkspaceRule;
use super::layer::ConfigLayers;
use super::tables::{ConfigTable, TableKey, ValueForm};
use super::tools::expand_path;

const PATH_FIELD: &str = "path";
const DESCRIPTION_FIELD: &str = "description";

/// The table of all knowledge bases.
pub(super) static KNOWLEDGE_TABLE: ConfigTable = ConfigTable {
    name: "knowledge",
    kind_and_example: ("knowledge bases", "docs"),
    keys: &[TableKey::new(PATH_FIELD, ValueForm::Text), TableKey::new(DESCRIPTION_FIELD, ValueForm::Text)],
    required: Some(PATH_FIELD),
    is_valid_name,
    name_rule: "must consist of 1 to 64 letters, digits and - _ .",
    canonical_name: str::to_owned,
    workspace: WorkspaceRule::Forbidden,
};
/// Maximum length of a name.
const MAX_KNOWLEDGE_NAME_LEN: usize = 64;

/// A folder that agents can be allowed to search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnowledgeConfig {
    /// Name in bindings.
    pub name: String,
    /// Subject, for users and models.
    pub description: String,
    /// Path of the folder.
    pub path: PathBuf,
}

fn is_valid_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (1..=MAX_KNOWLEDGE_NAME_LEN).contains(&name.len()) && name.chars().all(is_plain)
}

/// Loads the configured knowledge bases, by name; `~` is the user's home directory.
pub(super) fn knowledge_bases(layers: &ConfigLayers, user: Option<&Path>) -> Result<Vec<KnowledgeConfig>, ConfigError> {
    let names: BTreeSet<String> =
        layers.table_settings(&KNOWLEDGE_TABLE).into_iter().map(|setting| setting.item).collect();
    let base = |name: String| {
        let key = |key| KNOWLEDGE_TABLE.setting_name(&name, key);
        let description = layers.text(&key(DESCRIPTION_FIELD));
        let Some(text) = layers.text(&key(PATH_FIELD)) else {
            let reason = format!("requires {}", key(PATH_FIELD));
            return Err(layers.invalid_error(&key(DESCRIPTION_FIELD), &reason));
        };
        let path =
            expand_path(text, user).ok_or_else(|| layers.invalid_error(&key(PATH_FIELD), "must start with / or ~/"))?;
        Ok(KnowledgeConfig { description: description.unwrap_or_else(|| name.clone()), name, path })
    };
    names.into_iter().map(base).collect()
}

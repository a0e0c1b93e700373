//! The spaces that runners keep things in, by whom they belong to.

use capstan_protocol::{RunnerId, StateScope, StorageArea};
use capstan_tape::blob_hash;
use serde_json::{Value, json};

/// How many letters of a hash name a space for people.
const NAMESPACE_ID_LEN: usize = 12;
const STATE_PREFIX: &str = "state:";
const STORAGE_PREFIX: &str = "storage:";

/// A space that runners keep things in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerNamespace {
    /// Values of one runner.
    State {
        /// The runner.
        runner: RunnerId,
        /// For whom.
        scope: StateScope,
        /// Whom that means: a tape, an actor of a source, a binding, a workspace; null for the runner itself.
        owner: Value,
    },
    /// Contents.
    Storage {
        /// Where.
        area: StorageArea,
        /// Whom that means: a plugin, a workspace, a binding.
        owner: Value,
    },
}

impl RunnerNamespace {
    /// Its name in the store. As JSON, so that no two owners are written alike.
    pub fn stored_name(&self) -> String {
        match self {
            Self::State { runner, scope, owner } => format!("{STATE_PREFIX}{}", json!([runner, scope, owner])),
            Self::Storage { area, owner } => format!("{STORAGE_PREFIX}{}", json!([area, owner])),
        }
    }

    /// A short name for people.
    pub fn id(&self) -> String {
        blob_hash(self.stored_name().as_bytes()).as_str().chars().take(NAMESPACE_ID_LEN).collect()
    }

    /// The space of a name in the store; none for a space of the host itself.
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(state) = name.strip_prefix(STATE_PREFIX) {
            let (runner, scope, owner) = serde_json::from_str(state).ok()?;
            return Some(Self::State { runner, scope, owner });
        }
        let (area, owner) = serde_json::from_str(name.strip_prefix(STORAGE_PREFIX)?).ok()?;
        Some(Self::Storage { area, owner })
    }

    /// Whom it belongs to.
    pub fn owner(&self) -> &Value {
        match self {
            Self::State { owner, .. } | Self::Storage { owner, .. } => owner,
        }
    }

    /// Whom it belongs to, in a word; the source and the id of an actor have a colon between them.
    pub fn owner_label(&self) -> String {
        fn words(owner: &Value) -> Option<String> {
            match owner {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                Value::Array(parts) => Some(parts.iter().filter_map(words).collect::<Vec<_>>().join(":")),
                other => Some(other.to_string()),
            }
        }
        words(self.owner()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{StateScope, StorageArea};
    use serde_json::{Value, json};

    use super::RunnerNamespace;

    #[test]
    fn g06_a_space_is_read_as_it_was_written_and_no_two_are_alike() {
        let state = |scope, owner| RunnerNamespace::State { runner: "plugin:a/b/c".into(), scope, owner };
        let spaces = [
            state(StateScope::Actor, json!(["telegram", null, "4:2"])),
            state(StateScope::Actor, json!(["telegram", "4", "2"])),
            state(StateScope::Runner, Value::Null),
            state(StateScope::Binding, json!("b")),
            RunnerNamespace::Storage { area: StorageArea::Binding, owner: json!("b") },
            RunnerNamespace::Storage { area: StorageArea::Plugin, owner: json!(["a", "b"]) },
        ];
        for (number, space) in spaces.iter().enumerate() {
            assert_eq!(RunnerNamespace::parse(&space.stored_name()).as_ref(), Some(space));
            assert!(
                !spaces[..number]
                    .iter()
                    .any(|other| other.stored_name() == space.stored_name() || other.id() == space.id())
            );
        }
        assert_eq!(spaces[1].owner_label(), "telegram:4:2");
        for foreign in ["bindings", "state:", "state:[1]", "storage:{}", ""] {
            assert_eq!(RunnerNamespace::parse(foreign), None, "{foreign}");
        }
    }
}

//! Namespaces of stored state and storage, by runner, scope and owner.

use capstan_protocol::{RunnerId, StateScope, StorageArea};
use capstan_tape::blob_hash;
use serde_json::{Value, json};

/// Number of hash characters in the short id of a namespace.
const NAMESPACE_ID_LEN: usize = 12;
const STATE_PREFIX: &str = "state:";
const STORAGE_PREFIX: &str = "storage:";

/// A key-value namespace of runners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerNamespace {
    /// Values of one runner.
    State {
        /// The runner.
        runner: RunnerId,
        /// The kind of owner.
        scope: StateScope,
        /// The owner: a tape, an actor of a source, a binding or a workspace; null for the runner itself.
        owner: Value,
    },
    /// Contents.
    Storage {
        /// The kind of owner.
        area: StorageArea,
        /// The owner: a plugin, a workspace or a binding.
        owner: Value,
    },
}

impl RunnerNamespace {
    /// Name in the store. Written as JSON, so that the names of two owners always differ.
    pub fn stored_name(&self) -> String {
        match self {
            Self::State { runner, scope, owner } => format!("{STATE_PREFIX}{}", json!([runner, scope, owner])),
            Self::Storage { area, owner } => format!("{STORAGE_PREFIX}{}", json!([area, owner])),
        }
    }

    /// Short id for people.
    pub fn id(&self) -> String {
        blob_hash(self.stored_name().as_bytes()).as_str().chars().take(NAMESPACE_ID_LEN).collect()
    }

    /// Parses a name in the store; `None` for a namespace of the host itself.
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(state) = name.strip_prefix(STATE_PREFIX) {
            let (runner, scope, owner) = serde_json::from_str(state).ok()?;
            return Some(Self::State { runner, scope, owner });
        }
        let (area, owner) = serde_json::from_str(name.strip_prefix(STORAGE_PREFIX)?).ok()?;
        Some(Self::Storage { area, owner })
    }

    /// The owner, as JSON.
    pub fn owner(&self) -> &Value {
        match self {
            Self::State { owner, .. } | Self::Storage { owner, .. } => owner,
        }
    }

    /// The owner as one word; the source and the id of an actor are separated by a colon.
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
    fn g06_a_namespace_survives_a_round_trip_and_ids_are_unique() {
        let state = |scope, owner| RunnerNamespace::State { runner: "plugin:a/b/c".into(), scope, owner };
        let namespaces = [
            state(StateScope::Actor, json!(["telegram", null, "4:2"])),
            state(StateScope::Actor, json!(["telegram", "4", "2"])),
            state(StateScope::Runner, Value::Null),
            state(StateScope::Binding, json!("b")),
            RunnerNamespace::Storage { area: StorageArea::Binding, owner: json!("b") },
            RunnerNamespace::Storage { area: StorageArea::Plugin, owner: json!(["a", "b"]) },
        ];
        for (number, namespace) in namespaces.iter().enumerate() {
            assert_eq!(RunnerNamespace::parse(&namespace.stored_name()).as_ref(), Some(namespace));
            assert!(
                !namespaces[..number]
                    .iter()
                    .any(|other| other.stored_name() == namespace.stored_name() || other.id() == namespace.id())
            );
        }
        assert_eq!(namespaces[1].owner_label(), "telegram:4:2");
        for foreign in ["bindings", "state:", "state:[1]", "storage:{}", ""] {
            assert_eq!(RunnerNamespace::parse(foreign), None, "{foreign}");
        }
    }
}

//! What nobody uses any more, and how much may be kept.

use std::fmt;

use capstan_protocol::{Binding, BindingId, Descriptor, PluginRef, RunnerId, StateLimits, StateScope, StorageArea};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::Space;
use crate::queries::is_pipeline;

/// Why nobody uses a space any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unused {
    /// No binding names its runner, or a runner of its plugin.
    Runner,
    /// Its binding is gone.
    Binding,
}

impl fmt::Display for Unused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Runner => "no binding names its runner",
            Self::Binding => "its binding is gone",
        })
    }
}

impl Serialize for Unused {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Who uses what is kept.
#[derive(Debug, Clone, Copy)]
pub struct Users<'a> {
    /// All bindings, also those that are out of force: they can be put back.
    pub bindings: &'a [Binding],
    /// The runners that are there.
    pub runners: &'a [Descriptor],
    /// Under which binding which runner ran lately: that of a query comes with it and is kept nowhere else.
    pub lately: &'a [(BindingId, RunnerId)],
}

impl Users<'_> {
    /// The runners that a binding names, or a query named lately.
    fn runner_ids(&self) -> impl Iterator<Item = &RunnerId> {
        let queries = self.lately.iter().filter(|(binding, _)| is_pipeline(binding.as_str())).map(|(_, runner)| runner);
        self.bindings.iter().map(|binding| &binding.runner_id).chain(queries)
    }
}

/// Whether nobody uses a space any more. The storage of a workspace belongs to all runners, and is always used. So is what
/// belongs to a pipeline of another host, which may ask again at any time.
pub fn unused(space: &Space, users: Users<'_>) -> Option<Unused> {
    let is_known = |binding: &Binding, owner: &Value| json!(binding.binding_id) == *owner;
    let has_binding = |owner: &Value| {
        owner.as_str().is_some_and(is_pipeline) || users.bindings.iter().any(|binding| is_known(binding, owner))
    };
    match space {
        Space::State { runner, .. } if !users.runner_ids().any(|named| named == runner) => Some(Unused::Runner),
        Space::State { scope: StateScope::Binding, owner, .. }
        | Space::Storage { area: StorageArea::Binding, owner }
            if !has_binding(owner) =>
        {
            Some(Unused::Binding)
        }
        Space::Storage { area: StorageArea::Plugin, owner } => {
            let owns = |runner: &RunnerId| {
                let plugin = plugin_of(runner, users.runners);
                json!(runner) == *owner || plugin.is_some_and(|(author, name)| json!([author, name]) == *owner)
            };
            (!users.runner_ids().any(owns)).then_some(Unused::Runner)
        }
        Space::State { .. } | Space::Storage { .. } => None,
    }
}

/// The plugin a runner comes from: what it says itself, or, for one that is not there just now, what its id says.
fn plugin_of(id: &RunnerId, runners: &[Descriptor]) -> Option<(String, String)> {
    if let Some(runner) = runners.iter().find(|runner| runner.id == *id) {
        return runner.plugin.as_ref().map(|PluginRef { author, name, .. }| (author.clone(), name.clone()));
    }
    let mut parts = id.as_str().strip_prefix("plugin:")?.split('/');
    Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
}

/// How much a space may have: the most that a binding allows its runner there. None where no binding does.
pub fn limits_of(space: &Space, bindings: &[Binding]) -> Option<StateLimits> {
    let Space::State { runner, scope, owner } = space else { return None };
    let allows = |binding: &&Binding| {
        binding.runner_id == *runner
            && binding.cap().state.contains(scope)
            && (*scope != StateScope::Binding || json!(binding.binding_id) == *owner)
    };
    let most = |a: StateLimits, b: StateLimits| StateLimits {
        keys: a.keys.max(b.keys),
        value_bytes: a.value_bytes.max(b.value_bytes),
        total_bytes: a.total_bytes.max(b.total_bytes),
    };
    bindings.iter().filter(allows).map(|binding| binding.state_policy.limits).reduce(most)
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{Binding, Descriptor, PluginRef, StateLimits, StatePolicy, StateScope, StorageArea};
    use serde_json::{Value, json};

    use super::{Unused, Users, limits_of, unused};
    use crate::default_binding;
    use crate::keeping::Space;

    fn binding(id: &str, runner: &str, keys: u64) -> Binding {
        let limits = StateLimits { keys, ..StateLimits::default() };
        let state_policy = StatePolicy { enabled: true, scopes: None, limits };
        Binding { binding_id: id.into(), runner_id: runner.into(), state_policy, ..default_binding() }
    }

    fn state(runner: &str, scope: StateScope, owner: Value) -> Space {
        Space::State { runner: runner.into(), scope, owner }
    }

    #[test]
    fn g06_what_belongs_to_a_runner_or_a_binding_that_is_gone_is_unused() {
        let bindings =
            [binding("one", "plugin:a/b/c", 5), Binding { enabled: false, ..binding("off", "plugin:a/b/d", 5) }];
        let plugin = PluginRef { author: "x".into(), name: "y".into(), version: None };
        let known = [Descriptor { plugin: Some(plugin), ..Descriptor::new("plugin:a/b/d", "d") }];
        let storage = |area, owner| Space::Storage { area, owner };
        let table = [
            (state("plugin:a/b/c", StateScope::Conversation, json!("tape")), None),
            (state("plugin:a/b/d", StateScope::Runner, Value::Null), None),
            (state("plugin:a/b/e", StateScope::Runner, Value::Null), Some(Unused::Runner)),
            (state("plugin:a/b/c", StateScope::Binding, json!("one")), None),
            (state("plugin:a/b/c", StateScope::Binding, json!("two")), Some(Unused::Binding)),
            (storage(StorageArea::Binding, json!("one")), None),
            (storage(StorageArea::Binding, json!("two")), Some(Unused::Binding)),
            (storage(StorageArea::Workspace, json!("w")), None),
            (storage(StorageArea::Plugin, json!(["a", "b"])), None),
            (storage(StorageArea::Plugin, json!(["x", "y"])), None),
            (storage(StorageArea::Plugin, json!("plugin:a/b/c")), None),
            (storage(StorageArea::Plugin, json!(["a", "z"])), Some(Unused::Runner)),
        ];
        for (space, expected) in table {
            let users = Users { bindings: &bindings, runners: &known, lately: &[] };
            assert_eq!(unused(&space, users), expected, "{space:?}");
        }
    }

    #[test]
    fn g06_what_a_query_was_answered_with_lately_is_used_although_no_binding_names_it() {
        let lately = [("pipeline:p".into(), "plugin:a/b/c".into()), ("gone".into(), "plugin:x/y/z".into())];
        let users = Users { bindings: &[], runners: &[], lately: &lately };
        let storage = |area, owner| Space::Storage { area, owner };
        let table = [
            (state("plugin:a/b/c", StateScope::Actor, json!(["http", null, "1"])), None),
            (state("plugin:a/b/c", StateScope::Binding, json!("pipeline:p")), None),
            (storage(StorageArea::Binding, json!("pipeline:p")), None),
            (storage(StorageArea::Binding, json!("pipeline:asks again next year")), None),
            (storage(StorageArea::Plugin, json!(["a", "b"])), None),
            (state("plugin:x/y/z", StateScope::Runner, Value::Null), Some(Unused::Runner)),
            (storage(StorageArea::Binding, json!("gone")), Some(Unused::Binding)),
            (storage(StorageArea::Plugin, json!(["x", "y"])), Some(Unused::Runner)),
        ];
        for (space, expected) in table {
            assert_eq!(unused(&space, users), expected, "{space:?}");
        }
    }

    #[test]
    fn g06_the_limits_of_a_space_are_the_most_that_a_binding_allows() {
        let bindings = [binding("one", "r", 5), binding("two", "r", 7), default_binding()];
        let keys = |space: Space| limits_of(&space, &bindings).map(|limits| limits.keys);
        assert_eq!(keys(state("r", StateScope::Actor, json!(["cli", null, "x"]))), Some(7));
        assert_eq!(keys(state("r", StateScope::Binding, json!("one"))), Some(5));
        assert_eq!(keys(state("builtin:agent", StateScope::Runner, Value::Null)), None, "it may keep nothing");
    }
}

//! What nobody uses any more, and how much may be kept.

use std::fmt;

use capstan_protocol::{Binding, BindingId, Descriptor, PluginRef, RunnerId, StateLimits, StateScope, StorageArea};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::RunnerNamespace;
use capstan_policy::bindings::is_pipeline_binding;

/// Why nobody uses a space any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnusedReason {
    /// No binding names its runner, or a runner of its plugin.
    Runner,
    /// Its binding is gone.
    Binding,
}

impl fmt::Display for UnusedReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Runner => "no binding names its runner",
            Self::Binding => "its binding is gone",
        })
    }
}

impl Serialize for UnusedReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Who uses what is kept.
#[derive(Debug, Clone, Copy)]
pub struct NamespaceUsers<'a> {
    /// All bindings, also those that are out of force: they can be put back.
    pub bindings: &'a [Binding],
    /// The runners that are there.
    pub runners: &'a [Descriptor],
    /// Under which binding which runner ran lately: that of a query comes with it and is kept nowhere else.
    pub recent_runs: &'a [(BindingId, RunnerId)],
}

impl NamespaceUsers<'_> {
    /// The runners that a binding names, or a query named lately.
    fn runner_ids(&self) -> impl Iterator<Item = &RunnerId> {
        let queries = self
            .recent_runs
            .iter()
            .filter(|(binding, _)| is_pipeline_binding(binding.as_str()))
            .map(|(_, runner)| runner);
        self.bindings.iter().map(|binding| &binding.runner_id).chain(queries)
    }
}

/// Whether nobody uses a space any more. The storage of a workspace belongs to all runners, and is always used. So is what
/// belongs to a pipeline of another host, which may ask again at any time.
pub fn unused_reason(space: &RunnerNamespace, users: NamespaceUsers<'_>) -> Option<UnusedReason> {
    let is_known = |binding: &Binding, owner: &Value| json!(binding.binding_id) == *owner;
    let has_binding = |owner: &Value| {
        owner.as_str().is_some_and(is_pipeline_binding) || users.bindings.iter().any(|binding| is_known(binding, owner))
    };
    match space {
        RunnerNamespace::State { runner, .. } if !users.runner_ids().any(|named| named == runner) => {
            Some(UnusedReason::Runner)
        }
        RunnerNamespace::State { scope: StateScope::Binding, owner, .. }
        | RunnerNamespace::Storage { area: StorageArea::Binding, owner }
            if !has_binding(owner) =>
        {
            Some(UnusedReason::Binding)
        }
        RunnerNamespace::Storage { area: StorageArea::Plugin, owner } => {
            let owns = |runner: &RunnerId| {
                let plugin = runner_plugin(runner, users.runners);
                json!(runner) == *owner || plugin.is_some_and(|(author, name)| json!([author, name]) == *owner)
            };
            (!users.runner_ids().any(owns)).then_some(UnusedReason::Runner)
        }
        RunnerNamespace::State { .. } | RunnerNamespace::Storage { .. } => None,
    }
}

/// The plugin a runner comes from: what it says itself, or, for one that is not there just now, what its id says.
fn runner_plugin(id: &RunnerId, runners: &[Descriptor]) -> Option<(String, String)> {
    if let Some(runner) = runners.iter().find(|runner| runner.id == *id) {
        return runner.plugin.as_ref().map(|PluginRef { author, name, .. }| (author.clone(), name.clone()));
    }
    let mut parts = id.as_str().strip_prefix("plugin:")?.split('/');
    Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
}

/// How much a space may have: the most that a binding allows its runner there. None where no binding does.
pub fn namespace_limits(space: &RunnerNamespace, bindings: &[Binding]) -> Option<StateLimits> {
    let RunnerNamespace::State { runner, scope, owner } = space else { return None };
    let allows = |binding: &&Binding| {
        binding.runner_id == *runner
            && binding.max_permissions().state.contains(scope)
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
    use capstan_policy::default_binding;
    use capstan_protocol::{Binding, Descriptor, PluginRef, StateLimits, StatePolicy, StateScope, StorageArea};
    use serde_json::{Value, json};

    use super::{NamespaceUsers, UnusedReason, namespace_limits, unused_reason};
    use crate::state_admin::RunnerNamespace;

    fn binding_with_key_limit(id: &str, runner: &str, keys: u64) -> Binding {
        let limits = StateLimits { keys, ..StateLimits::default() };
        let state_policy = StatePolicy { enabled: true, scopes: None, limits };
        Binding { binding_id: id.into(), runner_id: runner.into(), state_policy, ..default_binding() }
    }

    fn state_namespace(runner: &str, scope: StateScope, owner: Value) -> RunnerNamespace {
        RunnerNamespace::State { runner: runner.into(), scope, owner }
    }

    #[test]
    fn g06_what_belongs_to_a_runner_or_a_binding_that_is_gone_is_unused() {
        let bindings = [
            binding_with_key_limit("one", "plugin:a/b/c", 5),
            Binding { enabled: false, ..binding_with_key_limit("off", "plugin:a/b/d", 5) },
        ];
        let plugin = PluginRef { author: "x".into(), name: "y".into(), version: None };
        let known = [Descriptor { plugin: Some(plugin), ..Descriptor::new("plugin:a/b/d", "d") }];
        let storage = |area, owner| RunnerNamespace::Storage { area, owner };
        let table = [
            (state_namespace("plugin:a/b/c", StateScope::Conversation, json!("tape")), None),
            (state_namespace("plugin:a/b/d", StateScope::Runner, Value::Null), None),
            (state_namespace("plugin:a/b/e", StateScope::Runner, Value::Null), Some(UnusedReason::Runner)),
            (state_namespace("plugin:a/b/c", StateScope::Binding, json!("one")), None),
            (state_namespace("plugin:a/b/c", StateScope::Binding, json!("two")), Some(UnusedReason::Binding)),
            (storage(StorageArea::Binding, json!("one")), None),
            (storage(StorageArea::Binding, json!("two")), Some(UnusedReason::Binding)),
            (storage(StorageArea::Workspace, json!("w")), None),
            (storage(StorageArea::Plugin, json!(["a", "b"])), None),
            (storage(StorageArea::Plugin, json!(["x", "y"])), None),
            (storage(StorageArea::Plugin, json!("plugin:a/b/c")), None),
            (storage(StorageArea::Plugin, json!(["a", "z"])), Some(UnusedReason::Runner)),
        ];
        for (space, expected) in table {
            let users = NamespaceUsers { bindings: &bindings, runners: &known, recent_runs: &[] };
            assert_eq!(unused_reason(&space, users), expected, "{space:?}");
        }
    }

    #[test]
    fn g06_what_a_query_was_answered_with_lately_is_used_although_no_binding_names_it() {
        let lately = [("pipeline:p".into(), "plugin:a/b/c".into()), ("gone".into(), "plugin:x/y/z".into())];
        let users = NamespaceUsers { bindings: &[], runners: &[], recent_runs: &lately };
        let storage = |area, owner| RunnerNamespace::Storage { area, owner };
        let table = [
            (state_namespace("plugin:a/b/c", StateScope::Actor, json!(["http", null, "1"])), None),
            (state_namespace("plugin:a/b/c", StateScope::Binding, json!("pipeline:p")), None),
            (storage(StorageArea::Binding, json!("pipeline:p")), None),
            (storage(StorageArea::Binding, json!("pipeline:asks again next year")), None),
            (storage(StorageArea::Plugin, json!(["a", "b"])), None),
            (state_namespace("plugin:x/y/z", StateScope::Runner, Value::Null), Some(UnusedReason::Runner)),
            (storage(StorageArea::Binding, json!("gone")), Some(UnusedReason::Binding)),
            (storage(StorageArea::Plugin, json!(["x", "y"])), Some(UnusedReason::Runner)),
        ];
        for (space, expected) in table {
            assert_eq!(unused_reason(&space, users), expected, "{space:?}");
        }
    }

    #[test]
    fn g06_the_limits_of_a_space_are_the_most_that_a_binding_allows() {
        let bindings =
            [binding_with_key_limit("one", "r", 5), binding_with_key_limit("two", "r", 7), default_binding()];
        let keys = |space: RunnerNamespace| namespace_limits(&space, &bindings).map(|limits| limits.keys);
        assert_eq!(keys(state_namespace("r", StateScope::Actor, json!(["cli", null, "x"]))), Some(7));
        assert_eq!(keys(state_namespace("r", StateScope::Binding, json!("one"))), Some(5));
        assert_eq!(
            keys(state_namespace("builtin:agent", StateScope::Runner, Value::Null)),
            None,
            "it may keep nothing"
        );
    }
}

//! Detection of unused namespaces, and the limits of a namespace.

use std::fmt;

use capstan_hooks::PluginIdentity;
use capstan_policy::bindings::is_pipeline_binding;
use capstan_protocol::{Binding, BindingId, Descriptor, PluginRef, RunnerId, StateLimits, StateScope, StorageArea};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::RunnerNamespace;

/// Reason why a namespace is no longer in use.
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

/// The bindings and runners that decide whether a namespace is in use.
#[derive(Debug, Clone, Copy)]
pub struct NamespaceUsers<'a> {
    /// All bindings, including disabled ones: those can be enabled again.
    pub bindings: &'a [Binding],
    /// The available runners.
    pub runners: &'a [Descriptor],
    /// The registered plugins. The storage of a plugin is in use as long as the plugin is there, for its tools.
    pub plugins: &'a [PluginIdentity],
    /// Binding and runner of recent runs. The binding of a LangBot query is recorded only there.
    pub recent_runs: &'a [(BindingId, RunnerId)],
}

impl NamespaceUsers<'_> {
    /// Runners that a binding names, or a recent query named.
    fn runner_ids(&self) -> impl Iterator<Item = &RunnerId> {
        let queries = self
            .recent_runs
            .iter()
            .filter(|(binding, _)| is_pipeline_binding(binding.as_str()))
            .map(|(_, runner)| runner);
        self.bindings.iter().map(|binding| &binding.runner_id).chain(queries)
    }
}

/// Reason why a namespace is no longer in use; `None` if it is in use. The storage of a workspace belongs to all
/// runners and is always in use, and so is data of a LangBot pipeline, which may send its next query at any time.
pub fn unused_reason(namespace: &RunnerNamespace, users: NamespaceUsers<'_>) -> Option<UnusedReason> {
    let is_owner = |binding: &Binding, owner: &Value| json!(binding.binding_id) == *owner;
    let has_binding = |owner: &Value| {
        owner.as_str().is_some_and(is_pipeline_binding) || users.bindings.iter().any(|binding| is_owner(binding, owner))
    };
    match namespace {
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
            let is_registered = users.plugins.iter().any(|plugin| json!([plugin.author, plugin.name]) == *owner);
            (!is_registered && !users.runner_ids().any(owns)).then_some(UnusedReason::Runner)
        }
        RunnerNamespace::State { .. } | RunnerNamespace::Storage { .. } => None,
    }
}

/// The plugin of a runner: from its descriptor or, if the runner is not available, from its id.
fn runner_plugin(id: &RunnerId, runners: &[Descriptor]) -> Option<(String, String)> {
    if let Some(runner) = runners.iter().find(|runner| runner.id == *id) {
        return runner.plugin.as_ref().map(|PluginRef { author, name, .. }| (author.clone(), name.clone()));
    }
    let mut parts = id.as_str().strip_prefix("plugin:")?.split('/');
    Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
}

/// Limits of a namespace: the largest that a binding grants its runner there. `None` if no binding does.
pub fn namespace_limits(namespace: &RunnerNamespace, bindings: &[Binding]) -> Option<StateLimits> {
    let RunnerNamespace::State { runner, scope, owner } = namespace else { return None };
    let allows = |binding: &&Binding| {
        binding.runner_id == *runner
            && binding.max_permissions().state.contains(scope)
            && (*scope != StateScope::Binding || json!(binding.binding_id) == *owner)
    };
    let largest = |a: StateLimits, b: StateLimits| StateLimits {
        keys: a.keys.max(b.keys),
        value_bytes: a.value_bytes.max(b.value_bytes),
        total_bytes: a.total_bytes.max(b.total_bytes),
    };
    bindings.iter().filter(allows).map(|binding| binding.state_policy.limits).reduce(largest)
}

#[cfg(test)]
mod tests {
    use capstan_hooks::PluginIdentity;
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
    fn g06_a_namespace_is_unused_once_its_runner_or_binding_is_gone() {
        let bindings = [
            binding_with_key_limit("one", "plugin:a/b/c", 5),
            Binding { enabled: false, ..binding_with_key_limit("off", "plugin:a/b/d", 5) },
        ];
        let plugin = PluginRef { author: "x".into(), name: "y".into(), version: None };
        let known = [Descriptor { plugin: Some(plugin), ..Descriptor::new("plugin:a/b/d", "d") }];
        let plugins = [PluginIdentity { name: "tools".into(), author: "a".to_owned(), is_builtin: false }];
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
            (storage(StorageArea::Plugin, json!(["a", "tools"])), None),
            (storage(StorageArea::Plugin, json!(["a", "z"])), Some(UnusedReason::Runner)),
        ];
        for (namespace, expected) in table {
            let users = NamespaceUsers { bindings: &bindings, runners: &known, plugins: &plugins, recent_runs: &[] };
            assert_eq!(unused_reason(&namespace, users), expected, "{namespace:?}");
        }
    }

    #[test]
    fn g06_a_namespace_of_a_recent_query_is_in_use_without_a_saved_binding() {
        let recent_runs = [("pipeline:p".into(), "plugin:a/b/c".into()), ("gone".into(), "plugin:x/y/z".into())];
        let users = NamespaceUsers { bindings: &[], runners: &[], plugins: &[], recent_runs: &recent_runs };
        let storage = |area, owner| RunnerNamespace::Storage { area, owner };
        let table = [
            (state_namespace("plugin:a/b/c", StateScope::Actor, json!(["http", null, "1"])), None),
            (state_namespace("plugin:a/b/c", StateScope::Binding, json!("pipeline:p")), None),
            (storage(StorageArea::Binding, json!("pipeline:p")), None),
            (storage(StorageArea::Binding, json!("pipeline:without a recent query")), None),
            (storage(StorageArea::Plugin, json!(["a", "b"])), None),
            (state_namespace("plugin:x/y/z", StateScope::Runner, Value::Null), Some(UnusedReason::Runner)),
            (storage(StorageArea::Binding, json!("gone")), Some(UnusedReason::Binding)),
            (storage(StorageArea::Plugin, json!(["x", "y"])), Some(UnusedReason::Runner)),
        ];
        for (namespace, expected) in table {
            assert_eq!(unused_reason(&namespace, users), expected, "{namespace:?}");
        }
    }

    #[test]
    fn g06_a_namespace_has_the_largest_limits_that_a_binding_grants() {
        let bindings =
            [binding_with_key_limit("one", "r", 5), binding_with_key_limit("two", "r", 7), default_binding()];
        let keys = |namespace: RunnerNamespace| namespace_limits(&namespace, &bindings).map(|limits| limits.keys);
        assert_eq!(keys(state_namespace("r", StateScope::Actor, json!(["cli", null, "x"]))), Some(7));
        assert_eq!(keys(state_namespace("r", StateScope::Binding, json!("one"))), Some(5));
        assert_eq!(
            keys(state_namespace("builtin:agent", StateScope::Runner, Value::Null)),
            None,
            "its binding does not enable state"
        );
    }
}

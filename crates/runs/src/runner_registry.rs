//! Registry of runners. The identity of a runner is that of the plugin that provides it, not what the runner declares.

use std::fmt;
use std::sync::Arc;

use capstan_hooks::contracts::Runner;
use capstan_hooks::points::ProvideRunners;
use capstan_hooks::{HookRuntime, PluginIdentity};
use capstan_policy::bindings::RunnerConfigValidator;
use capstan_protocol::{Descriptor, PluginName, RunnerId, RunnerSource};

/// Beginning of the ids of the host's own runners.
const BUILTIN_ID_PREFIX: &str = "builtin:";

/// A runner with the descriptor that it was registered with: it cannot change its identity later.
pub(crate) struct RegisteredRunner {
    pub(crate) descriptor: Descriptor,
    /// Validator of its configuration.
    pub(crate) config_validator: RunnerConfigValidator,
    pub(crate) runner: Arc<dyn Runner>,
}

/// A runner that was not registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRunner {
    /// Plugin that provides the runner.
    pub plugin: PluginName,
    /// Id that the runner declares.
    pub id: RunnerId,
    /// Reason of the refusal.
    pub reason: String,
}

impl fmt::Display for RefusedRunner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the runner {} of the plugin {} is refused: {}", self.id, self.plugin, self.reason)
    }
}

/// Runners that bindings can name.
#[derive(Default)]
pub struct RunnerRegistry {
    runners: Vec<Arc<RegisteredRunner>>,
    refused: Vec<RefusedRunner>,
}

impl RunnerRegistry {
    /// Registers the runners that plugins provide. A runner with the identity of another plugin is refused, and so are
    /// runners with the same id.
    pub fn from_hooks(hooks: &HookRuntime) -> Self {
        let mut registry = Self::default();
        let mut candidates: Vec<(PluginName, Arc<RegisteredRunner>)> = Vec::new();
        for (plugin, runner) in hooks.collect_all_provided::<ProvideRunners, Arc<dyn Runner>>() {
            let descriptor = runner.descriptor();
            let config_validator = RunnerConfigValidator::new(&descriptor);
            let runner = Arc::new(RegisteredRunner { descriptor, config_validator, runner });
            match identity_error(&runner.descriptor, hooks.registry().identity(&plugin)) {
                None => candidates.push((plugin, runner)),
                Some(reason) => registry.refuse(plugin, &runner, reason),
            }
        }
        for (plugin, runner) in &candidates {
            let has_same_id = |(_, other): &&(_, Arc<RegisteredRunner>)| other.descriptor.id == runner.descriptor.id;
            if candidates.iter().filter(has_same_id).count() == 1 {
                registry.runners.push(Arc::clone(runner));
            } else {
                registry.refuse(plugin.clone(), runner, "another runner has the same id".to_owned());
            }
        }
        registry
    }

    fn refuse(&mut self, plugin: PluginName, runner: &RegisteredRunner, reason: String) {
        let refused = RefusedRunner { plugin, id: runner.descriptor.id.clone(), reason };
        tracing::error!("{refused}");
        self.refused.push(refused);
    }

    /// Descriptors of the registered runners.
    pub fn descriptors(&self) -> Vec<Descriptor> {
        self.runners.iter().map(|runner| runner.descriptor.clone()).collect()
    }

    /// Runners that were not registered.
    pub fn refused(&self) -> &[RefusedRunner] {
        &self.refused
    }

    /// Runner by id.
    pub(crate) fn runner(&self, id: &RunnerId) -> Option<&Arc<RegisteredRunner>> {
        self.runners.iter().find(|runner| runner.descriptor.id == *id)
    }
}

/// Reason why a runner of this plugin cannot have the identity that it declares, if there is one.
fn identity_error(declared: &Descriptor, plugin: Option<&PluginIdentity>) -> Option<String> {
    let Some(plugin) = plugin else {
        return Some("its plugin is not registered, so that its identity is unknown".to_owned());
    };
    let PluginIdentity { name, author, is_builtin } = plugin;
    if *is_builtin {
        let has_own_id = declared.id.as_str().strip_prefix(BUILTIN_ID_PREFIX).is_some_and(|runner| !runner.is_empty());
        return (!has_own_id).then(|| format!("the id of a runner of the host begins with {BUILTIN_ID_PREFIX}"));
    }
    let prefix = format!("plugin:{author}/{name}/");
    let runner_name = declared.id.as_str().strip_prefix(&prefix);
    if runner_name.is_none_or(|runner| runner.is_empty() || runner.contains('/')) {
        return Some(format!("the id must be {prefix}NAME, after the author and the name of its plugin"));
    }
    if declared.source != RunnerSource::Plugin {
        return Some("only runners of the host itself have the source host_adapter".to_owned());
    }
    let is_foreign = declared.plugin.as_ref().is_some_and(|it| it.author != *author || it.name != name.as_str());
    is_foreign.then(|| format!("it names another plugin than {author}/{name}, which provides it"))
}

#[cfg(test)]
mod tests {
    use capstan_hooks::PluginIdentity;
    use capstan_protocol::{Descriptor, PluginRef, RunnerSource};

    use super::identity_error;

    fn identity(is_builtin: bool) -> PluginIdentity {
        PluginIdentity { name: "greeter".into(), author: "ann".to_owned(), is_builtin }
    }

    fn error_of(declared: &Descriptor) -> Option<String> {
        identity_error(declared, Some(&identity(false)))
    }

    #[test]
    fn g15_a_runner_has_the_identity_of_its_plugin() {
        let own = Descriptor::new("plugin:ann/greeter/hello", "Hello");
        let plugin = |author: &str, name: &str| {
            Some(PluginRef { author: author.to_owned(), name: name.to_owned(), version: None })
        };
        assert_eq!(error_of(&own), None);
        assert_eq!(error_of(&Descriptor { plugin: plugin("ann", "greeter"), ..own.clone() }), None);
        let foreign_ids = [
            "builtin:agent",
            "plugin:bob/greeter/hello",
            "plugin:ann/other/hello",
            "plugin:ann/greeter/",
            "plugin:ann/greeter/a/b",
            "plugin:ann/greeter",
            "hello",
            "",
        ];
        for id in foreign_ids {
            assert!(error_of(&Descriptor { id: id.into(), ..own.clone() }).is_some(), "{id}");
        }
        assert!(error_of(&Descriptor { source: RunnerSource::HostAdapter, ..own.clone() }).is_some());
        for (author, name) in [("bob", "greeter"), ("ann", "other")] {
            assert!(error_of(&Descriptor { plugin: plugin(author, name), ..own.clone() }).is_some());
        }
    }

    #[test]
    fn g15_a_runner_whose_plugin_is_unknown_is_refused() {
        for id in ["builtin:agent", "plugin:ann/greeter/hello"] {
            assert!(identity_error(&Descriptor::new(id, "x"), None).is_some(), "{id}");
        }
    }

    #[test]
    fn g15_ids_of_the_host_are_those_of_its_own_plugin() {
        let builtin = |id: &str| identity_error(&Descriptor::new(id, "x"), Some(&identity(true)));
        assert_eq!(builtin("builtin:agent"), None);
        assert!(builtin("builtin:").is_some() && builtin("plugin:ann/greeter/hello").is_some());
    }
}

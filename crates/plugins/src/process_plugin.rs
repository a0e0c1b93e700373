//! A plugin process as a plugin of the host.

use std::path::PathBuf;
use std::sync::Arc;

use capstan_hooks::contracts::{Channel, KnowledgeSource, Runner, Tool};
use capstan_hooks::points::{ProvideChannels, ProvideKnowledge, ProvideRunners, ProvideTools, SystemPrompt};
use capstan_hooks::{BoxError, HookPermission, HookPermissions, HookPoint, HookRegistrar, Plugin, SyncMode};
use capstan_protocol::plugin_protocol::{PluginManifest, PluginPromptMode};
use serde_json::Value;

use crate::plugin_process::ProcessSpec;
use crate::proxies::{ChannelProxy, KnowledgeProxy, RunnerProxy, ToolProxy, register_hook};
use crate::{PluginOptions, PluginProcess};

/// Plugin whose contributions are served by a process of its own.
pub struct ProcessPlugin {
    manifest: Arc<PluginManifest>,
    folder: PathBuf,
    data_dir: PathBuf,
    options: PluginOptions,
}

impl ProcessPlugin {
    /// Plugin in a folder, with a data folder of its own.
    pub fn new(manifest: PluginManifest, folder: PathBuf, data_dir: PathBuf, options: PluginOptions) -> Self {
        Self { manifest: Arc::new(manifest), folder, data_dir, options }
    }
}

impl ProcessPlugin {
    /// Refuses what the protocol specifies and this version does not serve, instead of leaving it out silently.
    fn refuse_unsupported(&self) -> Result<(), BoxError> {
        let unsupported =
            [(!self.manifest.models.is_empty(), "model providers"), (self.manifest.required, "required = true")];
        match unsupported.iter().find(|(is_used, _)| *is_used) {
            Some((_, feature)) => {
                Err(format!("its manifest has {feature}, which this version of the host does not support").into())
            }
            None => Ok(()),
        }
    }
}

/// Registers the proxies of one kind, if there are any.
fn provide<P, M, T>(hooks: &mut HookRegistrar, point: P, entries: &[M], proxy: impl Fn(&M) -> T)
where
    P: HookPoint<Mode = SyncMode, Args = (), Output = Vec<T>>,
    T: Clone + Send + Sync + 'static,
{
    let proxies: Vec<T> = entries.iter().map(proxy).collect();
    if !proxies.is_empty() {
        hooks.on_sync(point, move || Ok(Some(proxies.clone())));
    }
}

impl Plugin for ProcessPlugin {
    fn name(&self) -> &str {
        self.manifest.name()
    }

    fn author(&self) -> &str {
        self.manifest.author()
    }

    fn config_schema(&self) -> Option<Value> {
        self.manifest.config_schema.clone()
    }

    fn permissions(&self) -> HookPermissions {
        self.manifest.permissions.iter().filter_map(|name| HookPermission::parse(name)).collect()
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let process = PluginProcess::new(ProcessSpec {
            manifest: Arc::clone(&self.manifest),
            folder: self.folder.clone(),
            data_dir: self.data_dir.clone(),
            settings: hooks.config().clone(),
            options: self.options.clone(),
        });
        self.refuse_unsupported()?;
        let manifest = &self.manifest;
        provide(hooks, ProvideRunners, &manifest.runners, |it| {
            Arc::new(RunnerProxy::new(process.clone(), it)) as Arc<dyn Runner>
        });
        provide(hooks, ProvideTools, &manifest.tools, |it| {
            Arc::new(ToolProxy::new(process.clone(), it)) as Arc<dyn Tool>
        });
        provide(hooks, ProvideChannels, &manifest.channels, |it| {
            Arc::new(ChannelProxy::new(process.clone(), it)) as Arc<dyn Channel>
        });
        provide(hooks, ProvideKnowledge, &manifest.knowledge, |it| {
            Arc::new(KnowledgeProxy::new(process.clone(), it)) as Arc<dyn KnowledgeSource>
        });
        let (closed, open): (Vec<_>, Vec<_>) = manifest.hooks.iter().partition(|hook| hook.fail_closed);
        for hook in open {
            match (hook.mode, hook.text.clone()) {
                (PluginPromptMode::Static, Some(text)) => {
                    hooks.on_sync(SystemPrompt, move || Ok(Some(text.clone())));
                }
                _ => register_hook(hooks, &process, hook)?,
            }
        }
        if !closed.is_empty() {
            hooks.fail_closed();
        }
        for hook in closed {
            register_hook(hooks, &process, hook)?;
        }
        hooks.on_stop(move || {
            let process = process.clone();
            async move { process.stop().await }
        });
        Ok(())
    }
}

/// Plugin whose manifest cannot be used: listed with the reason, without contributions.
pub struct FailedPlugin {
    name: String,
    reason: String,
}

impl FailedPlugin {
    /// Plugin with the name of its folder.
    pub fn new(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.into(), reason: reason.into() }
    }
}

impl Plugin for FailedPlugin {
    fn name(&self) -> &str {
        &self.name
    }

    fn register(&self, _: &mut HookRegistrar) -> Result<(), BoxError> {
        Err(self.reason.clone().into())
    }
}

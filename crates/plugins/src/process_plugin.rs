//! A plugin process as a plugin of the host.

use std::path::PathBuf;
use std::sync::Arc;

use capstan_hooks::contracts::Runner;
use capstan_hooks::points::{ProvideRunners, SystemPrompt};
use capstan_hooks::{BoxError, HookPermission, HookPermissions, HookRegistrar, Plugin};
use capstan_protocol::plugin_protocol::{PluginManifest, PluginPromptMode};
use serde_json::Value;

use crate::plugin_process::ProcessSpec;
use crate::proxies::RunnerProxy;
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
        if !self.manifest.runners.is_empty() {
            let runner = |it| Arc::new(RunnerProxy::new(process.clone(), it)) as Arc<dyn Runner>;
            let runners: Vec<Arc<dyn Runner>> = self.manifest.runners.iter().map(runner).collect();
            hooks.on_sync(ProvideRunners, move || Ok(Some(runners.clone())));
        }
        for hook in &self.manifest.hooks {
            if let (PluginPromptMode::Static, Some(text)) = (hook.mode, hook.text.clone()) {
                hooks.on_sync(SystemPrompt, move || Ok(Some(text.clone())));
            }
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

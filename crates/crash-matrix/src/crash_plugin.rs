//! Plugin of the host under test: channels, tools, the state runner and admission.

use std::sync::Arc;

use capstan::hooks::args::PromptContent;
use capstan::hooks::contracts::Channel;
use capstan::hooks::points::{
    AdmissionDecision, AdmitMessage, LoadState, ProvideChannels, ProvideRunners, ProvideTools, RenderOutbound,
    RenderedOutbound, RunModel,
};
use capstan::hooks::{BoxError, HookRegistrar, InboundEvent, Plugin};
use capstan::protocol::AdmissionMode;
use serde_json::Value;

use crate::channel::PlatformChannel;
use crate::state_runner::StateRunner;
use crate::tools::{self, wait_for_barrier};
use crate::trial_dir::TrialDir;

/// Metadata key of an event with its admission mode.
pub const ADMISSION_KEY: &str = "admission";
/// Metadata key of an event: key of the barrier at which its turn waits before anything else.
pub const WAITS_AT_KEY: &str = "waits_at";
/// Name under which an effect that the host does not see is recorded, and the task of a prompt that requests one.
pub const UNSEEN_EFFECT: &str = "unseen-effect";
/// Marker of a message that must not be answered.
pub const SILENT_MARKER: &str = "[hush]";

/// Plugin of the host under test.
pub struct CrashPlugin {
    /// Directory shared with the test.
    pub trial_dir: TrialDir,
    /// The plugin answers in place of the agent, with effects that the host does not see.
    pub replaces_agent: bool,
}

impl CrashPlugin {
    /// Name of the plugin.
    pub const PLUGIN_NAME: &str = "crash";
}

impl Plugin for CrashPlugin {
    fn name(&self) -> &'static str {
        Self::PLUGIN_NAME
    }

    fn author(&self) -> &'static str {
        "capstan"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let trial_dir = self.trial_dir.clone();
        hooks.on_sync(ProvideChannels, move || {
            let channels = [PlatformChannel::chat(trial_dir.clone()), PlatformChannel::caller(trial_dir.clone())];
            Ok(Some(channels.map(|channel| Arc::new(channel) as Arc<dyn Channel>).into()))
        });
        let trial_dir = self.trial_dir.clone();
        hooks.on_sync(ProvideTools, move || Ok(Some(tools::crash_tools(&trial_dir))));
        hooks.on_sync(ProvideRunners, || Ok(Some(vec![StateRunner::runner()])));
        hooks.on(AdmitMessage, |message: InboundEvent| async move {
            let mode = message.metadata.get(ADMISSION_KEY).cloned();
            let mode = mode.and_then(|mode| serde_json::from_value::<AdmissionMode>(mode).ok());
            Ok(mode.map(AdmissionDecision::WithMode))
        });
        let trial_dir = self.trial_dir.clone();
        hooks.on(LoadState, move |message: InboundEvent| {
            let trial_dir = trial_dir.clone();
            async move {
                if let Some(key) = message.metadata.get(WAITS_AT_KEY).and_then(Value::as_str) {
                    wait_for_barrier(&trial_dir, key).await;
                }
                Ok(None)
            }
        });
        hooks.on(RenderOutbound, |message: InboundEvent| async move {
            Ok(message.input.plain_text().contains(SILENT_MARKER).then_some(RenderedOutbound::Silent))
        });
        if self.replaces_agent {
            let trial_dir = self.trial_dir.clone();
            hooks.on(RunModel, move |prompt: PromptContent| run_unseen_effects(trial_dir.clone(), prompt.text()));
        }
        Ok(())
    }
}

/// Executes the tasks `[unseen-effect KEY]` and `[unseen-effect-and-wait KEY]` of the prompt, bypassing the host.
async fn run_unseen_effects(trial_dir: TrialDir, prompt: String) -> Result<Option<String>, BoxError> {
    let mut has_run = false;
    for task in prompt.split('[').filter_map(|text| text.split_once(']')).map(|(task, _)| task) {
        match task.split_once(' ') {
            Some((UNSEEN_EFFECT, key)) => trial_dir.record_execution(UNSEEN_EFFECT, key)?,
            Some(("unseen-effect-and-wait", key)) => {
                trial_dir.record_execution(UNSEEN_EFFECT, key)?;
                wait_for_barrier(&trial_dir, key).await;
            }
            _ => continue,
        }
        has_run = true;
    }
    Ok(has_run.then(|| format!("Done without the host: {prompt}")))
}

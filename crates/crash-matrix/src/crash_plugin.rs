//! What the plugin of a host to be killed registers.

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
use crate::tools::{self, wait_for_gate};
use crate::trial_dir::TrialDir;

/// The key of an event's metadata that says how it is admitted.
pub const ADMISSION_KEY: &str = "admission";
/// The key of an event's metadata that names a gate which its turn waits at before anything else.
pub const WAITS_AT_KEY: &str = "waits_at";
/// What a message says that is to have no reply.
pub const SILENT_MARKER: &str = "[hush]";

/// The plugin of a host to be killed.
pub struct CrashPlugin {
    /// Where the outside is.
    pub trial_dir: TrialDir,
    /// Whether it answers in place of the agent, with effects that the host does not see.
    pub replaces_agent: bool,
}

impl Plugin for CrashPlugin {
    fn name(&self) -> &'static str {
        "crash"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let place = self.trial_dir.clone();
        hooks.on_sync(ProvideChannels, move || {
            let lines = [PlatformChannel::chat(place.clone()), PlatformChannel::caller(place.clone())];
            Ok(Some(lines.map(|line| Arc::new(line) as Arc<dyn Channel>).into()))
        });
        let place = self.trial_dir.clone();
        hooks.on_sync(ProvideTools, move || Ok(Some(tools::crash_tools(&place))));
        hooks.on_sync(ProvideRunners, || Ok(Some(vec![StateRunner::runner()])));
        hooks.on(AdmitMessage, |message: InboundEvent| async move {
            let mode = message.metadata.get(ADMISSION_KEY).cloned();
            let mode = mode.and_then(|mode| serde_json::from_value::<AdmissionMode>(mode).ok());
            Ok(mode.map(AdmissionDecision::WithMode))
        });
        let place = self.trial_dir.clone();
        hooks.on(LoadState, move |message: InboundEvent| {
            let place = place.clone();
            async move {
                if let Some(key) = message.metadata.get(WAITS_AT_KEY).and_then(Value::as_str) {
                    wait_for_gate(&place, key).await;
                }
                Ok(None)
            }
        });
        hooks.on(RenderOutbound, |message: InboundEvent| async move {
            Ok(message.input.plain_text().contains(SILENT_MARKER).then_some(RenderedOutbound::Silent))
        });
        if self.replaces_agent {
            let place = self.trial_dir.clone();
            hooks.on(RunModel, move |prompt: PromptContent| run_stand_in(place.clone(), prompt.text()));
        }
        Ok(())
    }
}

/// Does what the prompt asks for with `[own KEY]` and `[own-watch KEY]`, without the host.
async fn run_stand_in(place: TrialDir, prompt: String) -> Result<Option<String>, BoxError> {
    let mut done = false;
    for task in prompt.split('[').filter_map(|text| text.split_once(']')).map(|(task, _)| task) {
        match task.split_once(' ') {
            Some(("own", key)) => place.record_execution("own", key)?,
            Some(("own-watch", key)) => {
                place.record_execution("own", key)?;
                wait_for_gate(&place, key).await;
            }
            _ => continue,
        }
        done = true;
    }
    Ok(done.then(|| format!("Done by myself: {prompt}")))
}

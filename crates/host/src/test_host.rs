//! Fixtures for the tests of this crate.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capstan_hooks::args::PromptContent;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway, IntakeOptions};
use capstan_hooks::contracts::{ResultStream, RunApi, Runner};
use capstan_hooks::points::{ProvideChannels, ProvideRunners, RunModel};
use capstan_hooks::{BoxError, HookDeadlines, HookRegistrar, HookRuntime, Plugin, Registry};
use capstan_protocol::{AdmissionMode, ChannelName, Clock, Descriptor, ModelOptions, OutboundMessage, RunContext};
use futures::StreamExt as _;

use crate::{HostOptions, LeaseOwner, SecretMasker, WorkspaceDir};

/// Plugin with the default stages, a channel `phone` that wants messages dropped during a turn, and a model that echoes
/// its prompt.
struct EchoStagesPlugin;

impl Plugin for EchoStagesPlugin {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        crate::builtin::register(hooks);
        hooks
            .on(RunModel, |prompt: PromptContent| async move { Ok(Some(prompt.text())) })
            .on_sync(ProvideChannels, || Ok(Some(vec![Arc::new(PhoneTestChannel) as Arc<dyn Channel>])))
            .on_sync(ProvideRunners, || Ok(Some(vec![Arc::new(IdleTestRunner) as Arc<dyn Runner>])));
        Ok(())
    }
}

struct PhoneTestChannel;

#[async_trait]
impl Channel for PhoneTestChannel {
    fn name(&self) -> ChannelName {
        "phone".into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities::default()
    }

    fn intake_options(&self) -> IntakeOptions {
        IntakeOptions { admission: Some(AdmissionMode::Drop), debounce: None }
    }

    async fn start(&self, _: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, _: &OutboundMessage) -> Result<(), ChannelError> {
        Ok(())
    }
}

/// Runner that the echo model replaces.
struct IdleTestRunner;

impl Runner for IdleTestRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor::new("builtin:agent", "idle")
    }

    fn run(&self, _: RunContext, _: RunApi) -> ResultStream {
        futures::stream::empty().boxed()
    }
}

pub(crate) fn echo_hooks() -> HookRuntime {
    let mut registry = Registry::new();
    registry.register(&EchoStagesPlugin);
    HookRuntime::new(registry, HookDeadlines::default())
}

pub(crate) fn host_options() -> HostOptions {
    HostOptions {
        workspace: WorkspaceDir { path: PathBuf::from("/workspace") },
        model: "demo:echo".parse().unwrap(),
        fallback_models: Vec::new(),
        model_options: ModelOptions::default(),
        max_message_bytes: 1 << 20,
        run_timeout: Duration::from_mins(1),
        session_wait_timeout: Duration::from_secs(1),
        intake_overrides: Default::default(),
        max_queued_events: 64,
        limits: Default::default(),
        secret_masker: SecretMasker::new(Vec::new()),
        lease_owner: LeaseOwner::anonymous(),
        clock: Clock::system(),
    }
}

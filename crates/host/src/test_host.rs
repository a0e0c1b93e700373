//! What hosts in the tests of this crate are made of.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capstan_hooks::args::Prompt;
use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway, Intake};
use capstan_hooks::contracts::{ResultStream, RunApi, Runner};
use capstan_hooks::points::{ProvideChannels, ProvideRunners, RunModel};
use capstan_hooks::{BoxError, Deadlines, HookRuntime, Inbound, Plugin, Registrar, Registry};
use capstan_protocol::{
    AdmissionMode, ChannelName, Descriptor, EntryId, Event, EventKey, ModelOptions, Outbound, RunContext,
};
use capstan_turn::Arrival;
use futures::StreamExt as _;

use crate::sessions::item::Item;
use crate::{Clock, Owner, Secrets, Settings, Workspace};

/// The built-in stages, a channel `phone` that wants messages dropped during a turn, and a model that says what it was
/// told.
struct Echo;

impl Plugin for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
        crate::builtin::register(hooks);
        hooks
            .on(RunModel, |prompt: Prompt| async move { Ok(Some(prompt.text())) })
            .on_sync(ProvideChannels, || Ok(Some(vec![Arc::new(Phone) as Arc<dyn Channel>])))
            .on_sync(ProvideRunners, || Ok(Some(vec![Arc::new(Nobody) as Arc<dyn Runner>])));
        Ok(())
    }
}

struct Phone;

#[async_trait]
impl Channel for Phone {
    fn name(&self) -> ChannelName {
        "phone".into()
    }

    fn capabilities(&self) -> ChannelCapabilities {
        ChannelCapabilities::default()
    }

    fn intake(&self) -> Intake {
        Intake { admission: Some(AdmissionMode::Drop), debounce: None }
    }

    async fn start(&self, _: Arc<dyn Gateway>) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn stop(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn send(&self, _: &Outbound) -> Result<(), ChannelError> {
        Ok(())
    }
}

/// The runner that the model stands in for.
struct Nobody;

impl Runner for Nobody {
    fn descriptor(&self) -> Descriptor {
        Descriptor::new("builtin:agent", "nobody")
    }

    fn run(&self, _: RunContext, _: RunApi) -> ResultStream {
        futures::stream::empty().boxed()
    }
}

pub(crate) fn hooks() -> HookRuntime {
    let mut registry = Registry::new();
    registry.register(&Echo);
    HookRuntime::new(registry, Deadlines::default())
}

/// An event in its session, which arrives like this.
pub(crate) fn item(arrival: Arrival) -> Item {
    let inbound = Inbound::new(Event::message("phone", "1", "hello"));
    Item {
        key: EventKey::from(&*inbound),
        session: inbound.fallback_session(),
        inbound,
        entry: EntryId(1),
        arrival,
        message: None,
        leads: false,
        caller: None,
        place: None,
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        workspace: Workspace { path: PathBuf::from("/workspace") },
        model: "demo:echo".parse().unwrap(),
        fallback_models: Vec::new(),
        model_options: ModelOptions::default(),
        max_message_bytes: 1 << 20,
        run_timeout: Duration::from_mins(1),
        session_wait: Duration::from_secs(1),
        intakes: Default::default(),
        session_queue: 64,
        limits: Default::default(),
        secrets: Secrets::new(Vec::new()),
        owner: Owner::anonymous(),
        clock: Clock::system(),
    }
}

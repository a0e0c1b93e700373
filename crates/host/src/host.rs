//! A running host: takes events in, and ends in order.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::contracts::{Channel, ChannelError, Gateway, IntakeError};
use capstan_hooks::{HookRuntime, InboundEvent};
use capstan_policy::BindingStore;
use capstan_protocol::{Binding, ChannelName, Descriptor, Event, OutboundMessage, Outcome, RunId, SessionId, Usage};
use capstan_tape::{Store, TapeRepository};
use capstan_turn::{TurnError, TurnPipeline};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tokio::time::{Instant, timeout, timeout_at};

use crate::engine::Engine;
use crate::intake::channel_listeners::ChannelListeners;
use crate::runs::orchestrator::Orchestrator;
use crate::services::Services;
use crate::sessions::accepted_event::WaitingCaller;
use crate::{HostError, HostOptions};

/// A running host. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    pub(crate) engine: Arc<Engine>,
    /// The channels that listen.
    channel_listeners: Arc<ChannelListeners>,
}

/// How long turns may take to end when the host stops and nobody says.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// How long turns are let end at most: of much longer times a clock cannot tell when they are over.
const MAX_STOP_GRACE: Duration = Duration::from_hours(24 * 365);
/// How long turns that were cancelled may take to end, and callers to take what they are told of it.
const STOP_CANCEL_GRACE: Duration = Duration::from_secs(3);
/// How long what is left may take to be written then, and the tape store to close.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// An event that is handed to the host, with the binding it comes with.
#[derive(Debug, Clone)]
pub struct IncomingEvent {
    /// The event.
    pub event: InboundEvent,
    /// Its own binding, which is recorded with it; without one the host resolves a binding.
    pub binding: Option<Binding>,
}

impl From<InboundEvent> for IncomingEvent {
    fn from(event: InboundEvent) -> Self {
        Self { event, binding: None }
    }
}

impl From<Event> for IncomingEvent {
    fn from(event: Event) -> Self {
        InboundEvent::from(event).into()
    }
}

/// What became of an event.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedEvent {
    /// Its session.
    pub session: SessionId,
    /// The run that served it, if there was one.
    pub run_id: Option<RunId>,
    /// The output of the model stage.
    pub output: String,
    /// Everything that was sent, or was to be sent.
    pub outbounds: Vec<OutboundMessage>,
    /// What the run used, as far as known.
    pub usage: Option<Usage>,
    /// How the event ended; absent while it is still in flight elsewhere.
    pub outcome: Option<Outcome>,
    /// Why the turn failed, if it did.
    pub error: Option<TurnError>,
    /// Why messages could not be delivered, if some could not.
    pub delivery_errors: Vec<String>,
    /// It had been accepted before; this is what became of it then.
    pub is_duplicate: bool,
}

impl ServedEvent {
    /// Nothing is known yet of an event of this session.
    pub(crate) fn in_flight(session: SessionId) -> Self {
        Self {
            session,
            run_id: None,
            output: String::new(),
            outbounds: Vec::new(),
            usage: None,
            outcome: None,
            error: None,
            delivery_errors: Vec::new(),
            is_duplicate: false,
        }
    }
}

impl Host {
    /// Starts a host: asks the start-up hooks for what it runs on.
    pub async fn start(hooks: HookRuntime, store: Arc<dyn Store>, settings: HostOptions) -> Result<Self, HostError> {
        let workspace = settings.workspace.to_text();
        let services = Arc::new(Services::start(hooks.clone(), store, settings).await?);
        let orchestrator = Orchestrator { services: Arc::clone(&services) };
        let engine = Arc::new(Engine::new(services, TurnPipeline::new(hooks, orchestrator, &workspace)));
        engine.tasks.spawn(Arc::clone(&engine).watch_cancellations());
        Ok(Self { engine, channel_listeners: Arc::default() })
    }

    /// The tapes of this host.
    pub fn tapes(&self) -> &TapeRepository {
        &self.engine.services.tapes
    }

    /// Which runner serves which events.
    pub fn bindings(&self) -> &BindingStore {
        &self.engine.services.bindings
    }

    /// What every runner says of itself.
    pub fn runners(&self) -> Vec<Descriptor> {
        self.engine.services.runners()
    }

    /// The hooks of this host.
    pub fn hooks(&self) -> &HookRuntime {
        &self.engine.services.hooks
    }

    /// The channels of this host.
    pub fn channels(&self) -> &[Arc<dyn Channel>] {
        self.engine.services.channels.all()
    }

    /// Cancels every run of this host: each ends with its outcome recorded.
    pub fn cancel(&self) {
        self.engine.cancel_token.cancel();
    }

    /// Lets these channels listen: what they hear is served. A channel that fails does not affect the others.
    ///
    /// From then on the host also takes up what dead processes left in its workspace for these channels, and for
    /// callers that are gone. A channel that listens already goes on; one that failed may be let listen again.
    pub async fn listen(&self, names: &[ChannelName]) {
        let chosen = self.channels().iter().filter(|channel| names.contains(&channel.name()));
        let directory = &self.engine.services.channels;
        let begun: Vec<Arc<dyn Channel>> =
            chosen.filter(|channel| directory.mark_listening(&channel.name())).map(Arc::clone).collect();
        // Before anything new is heard: what was left is older.
        self.engine.sweep_orphans().await;
        self.engine.start_sweeper();
        // What the channels hold must not hold the channels' tasks.
        let gateway: Arc<dyn Gateway> = Arc::new(Self { channel_listeners: Arc::default(), ..self.clone() });
        for channel in begun {
            self.channel_listeners.start_channel(channel, Arc::clone(&gateway), directory.clone());
        }
    }

    /// Returns when every channel that listens has ended, with what made those end that failed.
    pub async fn wait_for_channels(&self) -> Vec<ChannelError> {
        self.channel_listeners.wait_for_all().await
    }

    /// Returns when no session has anything left to do: what was accepted or taken up has its outcome, and so has what
    /// processes left that died beside one that looks for such.
    pub async fn wait_until_idle(&self) {
        if self.engine.is_sweeping() {
            self.engine.sweep_orphans().await;
        }
        self.engine.session_tasks.close();
        self.engine.session_tasks.wait().await;
    }

    /// How many events have no outcome that this process could have brought to it: its own, and what dead processes left
    /// for channels that listen here.
    pub async fn count_unsettled(&self) -> Result<usize, HostError> {
        let (services, me) = (&self.engine.services, self.engine.services.options.lease_owner.name());
        let mut count = 0;
        let mut events = services.tapes.store().in_flight_events(None);
        while let Some(event) = events.next().await? {
            let is_mine = event.owner.as_deref() == Some(me) || self.engine.is_orphaned_event(&event).await?;
            let is_ours = match services.tapes.record(&event.tape).await? {
                Some(record) => self.engine.is_workspace_tape(&record),
                None => false,
            };
            count += usize::from(is_mine && is_ours);
        }
        Ok(count)
    }

    /// Tells the channels that listen to take nothing more. Turns go on, and are answered.
    pub async fn stop_listening(&self) {
        self.channel_listeners.request_stop().await;
    }

    /// Ends the running scope, giving turns ten seconds; see [`stop_within`](Self::stop_within).
    pub async fn stop(self) -> Result<(), HostError> {
        self.stop_within(STOP_GRACE).await
    }

    /// Ends the running scope: channels that listen are stopped, turns that go on are let end for this long and then
    /// cancelled, what waits stays on disk for the next start, and what was provided for the scope is closed.
    ///
    /// It takes five seconds more than that at most, whatever channels and turns do. What has no outcome by then is taken
    /// up at the next start; a caller that has not taken its answer by then is given up.
    pub async fn stop_within(self, grace: Duration) -> Result<(), HostError> {
        let now = Instant::now();
        let patience = now + grace.min(MAX_STOP_GRACE);
        let engine = &self.engine;
        let at_leisure = async {
            self.stop_listening().await;
            self.wait_for_channels().await;
            engine.stop_token.cancel();
            self.wait_for_tasks().await;
        };
        if timeout_at(patience, at_leisure).await.is_err() {
            engine.stop_token.cancel();
            engine.cancel_token.cancel();
            if timeout(STOP_CANCEL_GRACE, self.wait_for_tasks()).await.is_err() {
                engine.abort_token.cancel();
                if timeout(FINAL_WRITE_TIMEOUT, self.wait_for_tasks()).await.is_err() {
                    tracing::warn!("not everything ended in time; what has no outcome is taken up at the next start");
                }
            }
        }
        self.channel_listeners.abort();
        let closing = timeout_at(patience.max(Instant::now() + FINAL_WRITE_TIMEOUT), self.tapes().close());
        if let Ok(closed) = closing.await {
            return Ok(closed?);
        }
        tracing::warn!("the tape store did not close in time");
        Ok(())
    }

    /// Ends the running scope at once, for whoever was told already that the store fails: what it does not take now is taken
    /// up at the next start.
    pub async fn abort(self) -> Result<(), HostError> {
        self.engine.abort_token.cancel();
        self.stop_within(Duration::ZERO).await
    }

    /// Returns when neither a channel nor a task of this host goes on.
    async fn wait_for_tasks(&self) {
        self.wait_for_channels().await;
        self.engine.tasks.close();
        self.engine.tasks.wait().await;
    }

    /// Takes an event all the way: acceptance, turn, outcome, and a first attempt to deliver.
    ///
    /// An error means that the event was not accepted, or that the store failed, or that the host stopped before its
    /// turn. Whatever goes wrong in the turn itself is in what is returned.
    pub async fn serve(&self, incoming: impl Into<IncomingEvent>) -> Result<ServedEvent, HostError> {
        let (caller, served) = oneshot::channel();
        self.accept_in_order(incoming.into(), Some(caller)).await?;
        served.await.unwrap_or(Err(HostError::Stopping))
    }

    /// Begins acceptance at once; its place in line is taken before this returns.
    fn accept_in_order(
        &self,
        incoming: IncomingEvent,
        caller: Option<WaitingCaller>,
    ) -> impl Future<Output = Result<(), HostError>> + Send + 'static {
        let engine = Arc::clone(&self.engine);
        let mut place = engine.intake_queues.join(&incoming.event);
        // A task of its own: neither its place in line nor its end depends on whether whoever asked still waits. An event
        // that is on disk must not be left without a session that knows of it.
        let accepting = self.engine.tasks.spawn(async move {
            place.wait_for_predecessor().await;
            engine.accept(incoming, caller, place).await
        });
        async move {
            match accepting.await.map_err(JoinError::try_into_panic) {
                Ok(accepted) => accepted,
                Err(Ok(panic)) => std::panic::resume_unwind(panic),
                Err(Err(_)) => Err(HostError::Stopping),
            }
        }
    }
}

impl Gateway for Host {
    fn submit(&self, event: InboundEvent) -> BoxFuture<'static, Result<(), IntakeError>> {
        let refused = |error: HostError| IntakeError { code: error.code(), message: error.to_string() };
        self.accept_in_order(event.into(), None).map(move |accepted| accepted.map_err(refused)).boxed()
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;

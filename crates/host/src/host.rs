//! A running host: takes events in, and ends in order.

use std::sync::Arc;
use std::time::Duration;

use capstan_delivery::ChannelDirectory;
use capstan_hooks::contracts::{Channel, ChannelError, Gateway, IntakeError};
use capstan_hooks::points::ProvideChannels;
use capstan_hooks::{HookRuntime, InboundEvent};
use capstan_policy::BindingStore;
use capstan_protocol::{ChannelName, Descriptor, SessionId};
use capstan_runs::{BindingResolver, CancelWatcher, Orchestrator, RunDependencies, RunEnvironment, ToolCatalog};
use capstan_sessions::{HostLifecycle, SessionDependencies, SessionService};
use capstan_tape::{Store, TapeAddress, TapeRepository};
use capstan_turn::TurnPipeline;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use crate::channel_listeners::ChannelListeners;
use crate::tapes::{open_tapes, resolve_workspace_id};
use crate::{HostError, HostOptions, IncomingEvent, SYSTEM_SESSION, ServedEvent};

/// A running host. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    sessions: SessionService,
    environment: Arc<RunEnvironment>,
    hooks: HookRuntime,
    tapes: TapeRepository,
    bindings: BindingResolver,
    channels: ChannelDirectory,
    /// Channels that listen.
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

impl Host {
    /// Starts a host with the channels, runners, models and tools that the start-up hooks provide.
    pub async fn start(hooks: HookRuntime, store: Arc<dyn Store>, settings: HostOptions) -> Result<Self, HostError> {
        let workspace_id = resolve_workspace_id(store.as_ref(), &settings.workspace.to_text()).await?;
        let tapes = open_tapes(&hooks, store)?;
        let channels: Vec<Arc<dyn Channel>> =
            hooks.collect_provided::<ProvideChannels, _>(|channel: &Arc<dyn Channel>| channel.name().to_string());
        let system_tape = TapeAddress { workspace: workspace_id.clone(), session: SYSTEM_SESSION.into() };
        let binding_store = BindingStore::new(tapes.clone(), settings.clock.clone(), system_tape)
            .with_channels(channels.iter().map(|channel| channel.name()).collect());
        let bindings = BindingResolver::new(binding_store);
        let run_dependencies = RunDependencies {
            hooks: hooks.clone(),
            tapes: tapes.clone(),
            workspace_id: workspace_id.clone(),
            bindings: bindings.clone(),
            channels: &channels,
        };
        let environment = Arc::new(RunEnvironment::from_hooks(run_dependencies, settings.run_options())?);
        let channels = ChannelDirectory::new(channels);
        let orchestrator = Orchestrator { environment: Arc::clone(&environment) };
        let session_dependencies = SessionDependencies {
            hooks: hooks.clone(),
            tapes: tapes.clone(),
            workspace_id,
            channels: channels.clone(),
            bindings: bindings.clone(),
            tools: Arc::clone(environment.tools()),
            active_runs: environment.active_runs().clone(),
            turn_pipeline: TurnPipeline::new(hooks.clone(), orchestrator, &settings.workspace.to_text()),
        };
        let sessions = SessionService::new(session_dependencies, settings.session_options());
        let cancel_watcher = CancelWatcher {
            active_runs: environment.active_runs().clone(),
            tapes: tapes.clone(),
            stop_token: sessions.lifecycle().stop_token.clone(),
        };
        sessions.lifecycle().tasks.spawn(cancel_watcher.run());
        Ok(Self { sessions, environment, hooks, tapes, bindings, channels, channel_listeners: Arc::default() })
    }

    /// The tapes of this host.
    pub fn tapes(&self) -> &TapeRepository {
        &self.tapes
    }

    /// Which runner serves which events.
    pub fn bindings(&self) -> &BindingStore {
        self.bindings.store()
    }

    /// What every runner says of itself.
    pub fn runners(&self) -> Vec<Descriptor> {
        self.environment.runners()
    }

    /// The hooks of this host.
    pub fn hooks(&self) -> &HookRuntime {
        &self.hooks
    }

    /// The channels of this host.
    pub fn channels(&self) -> &[Arc<dyn Channel>] {
        self.channels.all()
    }

    /// Cancels every run of this host: each ends with its outcome recorded.
    pub fn cancel(&self) {
        self.lifecycle().cancel_token.cancel();
    }

    /// Lets these channels listen: what they hear is served. A channel that fails does not affect the others.
    ///
    /// From then on the host also takes up what dead processes left in its workspace for these channels, and for
    /// callers that are gone. A channel that listens already goes on; one that failed may be let listen again.
    pub async fn listen(&self, names: &[ChannelName]) {
        let chosen = self.channels().iter().filter(|channel| names.contains(&channel.name()));
        let directory = &self.channels;
        let begun: Vec<Arc<dyn Channel>> =
            chosen.filter(|channel| directory.mark_listening(&channel.name())).map(Arc::clone).collect();
        // Before anything new is heard: what was left is older.
        self.sessions.sweeper().sweep().await;
        self.sessions.sweeper().start();
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
        if self.sessions.sweeper().is_sweeping() {
            self.sessions.sweeper().sweep().await;
        }
        self.lifecycle().session_tasks.close();
        self.lifecycle().session_tasks.wait().await;
    }

    /// How many events have no outcome that this process could have brought to it: its own, and what dead processes left
    /// for channels that listen here.
    pub async fn count_unsettled(&self) -> Result<usize, HostError> {
        self.sessions.count_unsettled().await
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
        let lifecycle = self.lifecycle();
        let at_leisure = async {
            self.stop_listening().await;
            self.wait_for_channels().await;
            lifecycle.stop_token.cancel();
            self.wait_for_tasks().await;
        };
        if timeout_at(patience, at_leisure).await.is_err() {
            lifecycle.stop_token.cancel();
            lifecycle.cancel_token.cancel();
            if timeout(STOP_CANCEL_GRACE, self.wait_for_tasks()).await.is_err() {
                lifecycle.abort_token.cancel();
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
        self.lifecycle().abort_token.cancel();
        self.stop_within(Duration::ZERO).await
    }

    /// Returns when neither a channel nor a task of this host goes on.
    async fn wait_for_tasks(&self) {
        self.wait_for_channels().await;
        self.lifecycle().tasks.close();
        self.lifecycle().tasks.wait().await;
    }

    /// Takes an event all the way: acceptance, turn, outcome, and a first attempt to deliver.
    ///
    /// An error means that the event was not accepted, or that the store failed, or that the host stopped before its
    /// turn. Whatever goes wrong in the turn itself is in what is returned.
    pub async fn serve(&self, incoming: impl Into<IncomingEvent>) -> Result<ServedEvent, HostError> {
        let (caller, served) = oneshot::channel();
        self.sessions.intake().accept_in_order(incoming.into(), Some(caller)).await?;
        served.await.unwrap_or(Err(HostError::Stopping))
    }

    /// Lets a channel serve one session: orphaned events of the session are recovered, and shown on the channel. Other
    /// sessions are left to hosts that [listen](Self::listen).
    pub async fn attend_session(&self, channel: &ChannelName, session: &SessionId) -> Result<(), HostError> {
        self.channels.mark_listening(channel);
        self.sessions.recover_session(session).await
    }

    /// Cancels the running turn of a session in this process: it ends with its outcome recorded, and queued events get
    /// their turns. Returns whether there was one.
    pub fn cancel_session_turn(&self, session: &SessionId) -> bool {
        self.sessions.cancel_turn(session)
    }

    /// Tools that models are offered.
    pub(crate) fn tools(&self) -> &ToolCatalog {
        self.environment.tools()
    }

    fn lifecycle(&self) -> &HostLifecycle {
        self.sessions.lifecycle()
    }
}

impl Gateway for Host {
    fn submit(&self, event: InboundEvent) -> BoxFuture<'static, Result<(), IntakeError>> {
        let refused = |error: HostError| IntakeError { code: error.code(), message: error.to_string() };
        self.sessions
            .intake()
            .accept_in_order(event.into(), None)
            .map(move |accepted| accepted.map_err(refused))
            .boxed()
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;

//! A running host: serves events and channels; stops in the sequence below.
//!
//! # Stop sequence
//!
//! 1. Grace period: channels stop listening, no further turn begins, and running turns end.
//! 2. After the grace period the runs are cancelled, and their turns get a short time to end.
//! 3. Then the host aborts: it waits neither for waiting callers nor for a failing store.
//! 4. Plugins end what they have started, and the tape store is closed. Events without an outcome are recovered at the next start.

use std::sync::Arc;
use std::time::Duration;

use capstan_delivery::ChannelDirectory;
use capstan_hooks::contracts::{Channel, ChannelError, Gateway, IntakeError};
use capstan_hooks::points::ProvideChannels;
use capstan_hooks::{HookRuntime, InboundEvent};
use capstan_policy::BindingStore;
use capstan_protocol::{ChannelName, Descriptor, Event, EventOrigin, PluginName, SessionId};
use capstan_runs::{CancelWatcher, Orchestrator, RefusedRunner, RunDependencies, RunEnvironment, ToolCatalog};
use capstan_sessions::{ChannelGateway, HostLifecycle, SessionDependencies, SessionService};
use capstan_tape::{Store, TapeAddress, TapeRepository};
use capstan_turn::TurnPipeline;
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
    bindings: Arc<BindingStore>,
    channels: ChannelDirectory,
    /// Channels whose events have a trusted origin.
    trusted_channels: Arc<[ChannelName]>,
    /// Listening channels.
    channel_listeners: Arc<ChannelListeners>,
}

/// Default time for running turns to end when the host stops.
const DEFAULT_STOP_GRACE: Duration = Duration::from_secs(10);
/// Maximum time for running turns to end; a much longer one would overflow the clock.
const MAX_STOP_GRACE: Duration = Duration::from_hours(24 * 365);
/// Time for cancelled turns to end, and for their callers to receive the replies.
const STOP_CANCEL_GRACE: Duration = Duration::from_secs(3);
/// Time for the final writes after an abort, and for the tape store to close.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(1);

impl Host {
    /// Starts a host with the channels, runners, models and tools that the start-up hooks provide.
    pub async fn start(hooks: HookRuntime, store: Arc<dyn Store>, options: HostOptions) -> Result<Self, HostError> {
        if let Some(failure) = hooks.registry().load_failures().iter().find(|failure| failure.is_required) {
            let (plugin, reason) = (failure.plugin.clone(), failure.reason.clone());
            return Err(HostError::RequiredPlugin { plugin, reason });
        }
        let workspace_id = resolve_workspace_id(store.as_ref(), &options.workspace.to_text()).await?;
        let tapes = open_tapes(&hooks, store)?;
        let provided = hooks
            .collect_provided_with_plugin::<ProvideChannels, Arc<dyn Channel>>(|channel| channel.name().to_string());
        let is_trusted = |(plugin, channel): &&(PluginName, Arc<dyn Channel>)| {
            options
                .trusted_channels
                .iter()
                .any(|trusted| trusted.plugin == *plugin && trusted.channel == channel.name())
        };
        let trusted_channels = provided.iter().filter(is_trusted).map(|(_, channel)| channel.name()).collect();
        let channels: Vec<Arc<dyn Channel>> = provided.into_iter().map(|(_, channel)| channel).collect();
        let system_tape = TapeAddress { workspace: workspace_id.clone(), session: SYSTEM_SESSION.into() };
        let binding_store = BindingStore::new(tapes.clone(), options.clock.clone(), system_tape)
            .with_channels(channels.iter().map(|channel| channel.name()).collect())
            .with_model_providers(capstan_runs::model_provider_names(&hooks))
            .with_tools(capstan_runs::tool_names(&hooks));
        let bindings = Arc::new(binding_store);
        let run_dependencies = RunDependencies {
            hooks: hooks.clone(),
            tapes: tapes.clone(),
            workspace_id: workspace_id.clone(),
            bindings: Arc::clone(&bindings),
            channels: &channels,
        };
        let environment = Arc::new(RunEnvironment::from_hooks(run_dependencies, options.run_options()));
        let channels = ChannelDirectory::new(channels);
        let orchestrator = Orchestrator { environment: Arc::clone(&environment) };
        let session_dependencies = SessionDependencies {
            hooks: hooks.clone(),
            tapes: tapes.clone(),
            workspace_id,
            channels: channels.clone(),
            bindings: Arc::clone(&bindings),
            tools: Arc::clone(environment.tools()),
            active_runs: environment.active_runs().clone(),
            turn_pipeline: TurnPipeline::new(hooks.clone(), orchestrator, &options.workspace.to_text()),
        };
        let sessions = SessionService::new(session_dependencies, options.session_options());
        let cancel_watcher = CancelWatcher {
            active_runs: environment.active_runs().clone(),
            tapes: tapes.clone(),
            stop_token: sessions.lifecycle().stop_token.clone(),
        };
        sessions.lifecycle().tasks.spawn(cancel_watcher.run());
        let stop_token = sessions.lifecycle().stop_token.clone();
        sessions.lifecycle().tasks.spawn(options.lease_owner.keep_lock_file(stop_token));
        Ok(Self {
            sessions,
            environment,
            hooks,
            tapes,
            bindings,
            channels,
            trusted_channels,
            channel_listeners: Arc::default(),
        })
    }

    /// Tapes of this host.
    pub fn tapes(&self) -> &TapeRepository {
        &self.tapes
    }

    /// Bindings of this host, which map events to runners.
    pub fn bindings(&self) -> &BindingStore {
        &self.bindings
    }

    /// Returns true if a knowledge base has this id.
    pub(crate) fn has_knowledge_base(&self, id: &str) -> bool {
        self.environment.knowledge_base_ids().any(|known| known == id)
    }

    /// Descriptors of all runners.
    pub fn runners(&self) -> Vec<Descriptor> {
        self.environment.runners().descriptors()
    }

    /// Runners of plugins that were not registered, with the reason.
    pub fn refused_runners(&self) -> &[RefusedRunner] {
        self.environment.runners().refused()
    }

    /// Hooks of this host.
    pub fn hooks(&self) -> &HookRuntime {
        &self.hooks
    }

    /// Channels of this host.
    pub fn channels(&self) -> &[Arc<dyn Channel>] {
        self.channels.all()
    }

    /// Cancels every run of this host. Each ends with its outcome recorded.
    pub fn cancel_all_runs(&self) {
        self.lifecycle().cancel_token.cancel();
    }

    /// Starts these channels and serves the events that they submit. A failed channel does not affect the others.
    ///
    /// From then on the host also recovers orphaned events of its workspace, for these channels and for disconnected
    /// callers. A channel that listens already is not started again; a failed one is.
    pub async fn listen(&self, names: &[ChannelName]) {
        let chosen = self.channels().iter().filter(|channel| names.contains(&channel.name()));
        let directory = &self.channels;
        let starting: Vec<Arc<dyn Channel>> =
            chosen.filter(|channel| directory.mark_listening(&channel.name())).map(Arc::clone).collect();
        // Before new events arrive: orphaned events are older.
        self.sessions.sweeper().sweep().await;
        self.sessions.sweeper().start();
        for channel in starting {
            // Without the host itself: a channel holds the gateway, and the host holds the task of the channel, so
            // neither would be dropped.
            let gateway = self.gateway(self.channel_origin(&channel.name()));
            self.channel_listeners.start_channel(channel, Arc::new(gateway), directory.clone());
        }
    }

    /// Origin of the events that a channel submits.
    fn channel_origin(&self, name: &ChannelName) -> EventOrigin {
        if self.trusted_channels.contains(name) { EventOrigin::Trusted } else { EventOrigin::Remote }
    }

    /// Gateway for events of this origin.
    pub(crate) fn gateway(&self, origin: EventOrigin) -> ChannelGateway {
        ChannelGateway::new(self.sessions.clone(), origin)
    }

    /// Waits until every listening channel has ended, and returns the errors of those that failed.
    pub async fn wait_for_channels(&self) -> Vec<ChannelError> {
        self.channel_listeners.wait_for_all().await
    }

    /// Waits until no session is active: accepted and recovered events have their outcomes. A host that sweeps for orphaned
    /// events sweeps once more first.
    pub async fn wait_until_idle(&self) {
        if self.sessions.sweeper().is_sweeping() {
            self.sessions.sweeper().sweep().await;
        }
        self.lifecycle().session_tasks.close();
        self.lifecycle().session_tasks.wait().await;
    }

    /// Number of events without an outcome that this process could settle: its own, and orphaned ones of channels that
    /// listen here.
    pub async fn count_unsettled(&self) -> Result<usize, HostError> {
        self.sessions.count_unsettled().await
    }

    /// Stops the listening channels. Turns continue, and their replies are delivered.
    pub async fn stop_listening(&self) {
        self.channel_listeners.request_stop().await;
    }

    /// Stops the host with ten seconds for running turns; see [`stop_within`](Self::stop_within).
    pub async fn stop(self) -> Result<(), HostError> {
        self.stop_within(DEFAULT_STOP_GRACE).await
    }

    /// Stops the host: channels stop listening, running turns may end within `grace` and are then cancelled, queued events
    /// stay in the store for the next start, and the tape store is closed.
    ///
    /// The stop takes at most five seconds more than `grace`, regardless of channels and turns. Events without an outcome
    /// are recovered at the next start. A caller that has no reply when the stop ends gets it only by sending the same
    /// event id again.
    pub async fn stop_within(self, grace: Duration) -> Result<(), HostError> {
        let now = Instant::now();
        let deadline = now + grace.min(MAX_STOP_GRACE);
        let lifecycle = self.lifecycle();
        let graceful_stop = async {
            self.stop_listening().await;
            self.wait_for_channels().await;
            lifecycle.stop_token.cancel();
            self.wait_for_tasks().await;
        };
        if timeout_at(deadline, graceful_stop).await.is_err() {
            lifecycle.stop_token.cancel();
            lifecycle.cancel_token.cancel();
            if timeout(STOP_CANCEL_GRACE, self.wait_for_tasks()).await.is_err() {
                lifecycle.abort_token.cancel();
                if timeout(FINAL_WRITE_TIMEOUT, self.wait_for_tasks()).await.is_err() {
                    tracing::warn!(
                        "some tasks did not end in time; events without an outcome are recovered at the next start"
                    );
                }
            }
        }
        self.channel_listeners.abort();
        let last_deadline = deadline.max(Instant::now() + FINAL_WRITE_TIMEOUT);
        let stopping = timeout_at(last_deadline, self.hooks.registry().stop_plugins());
        let (stopped, closed) = tokio::join!(stopping, timeout_at(last_deadline, self.tapes().close()));
        if stopped.is_err() {
            tracing::warn!("some plugins did not stop in time");
        }
        if let Ok(closed) = closed {
            return Ok(closed?);
        }
        tracing::warn!("the tape store did not close in time");
        Ok(())
    }

    /// Stops the host without a grace period, for a failure that waiting callers were notified of. Events that
    /// cannot be settled now are recovered at the next start.
    pub async fn abort(self) -> Result<(), HostError> {
        self.lifecycle().abort_token.cancel();
        self.stop_within(Duration::ZERO).await
    }

    /// Waits until all channels and tasks of this host have ended.
    async fn wait_for_tasks(&self) {
        self.wait_for_channels().await;
        self.lifecycle().tasks.close();
        self.lifecycle().tasks.wait().await;
    }

    /// Serves an event from its acceptance to its outcome and the first attempt to deliver its messages.
    ///
    /// An error means that the event was not accepted, that the store failed, or that the host stopped before its turn.
    /// Failures of the turn itself are part of the returned [`ServedEvent`].
    pub async fn serve(&self, incoming: impl Into<IncomingEvent>) -> Result<ServedEvent, HostError> {
        let (caller, served) = oneshot::channel();
        self.sessions.intake().accept_in_order(incoming.into(), Some(caller)).await?;
        served.await.unwrap_or(Err(HostError::Stopping))
    }

    /// Recovers the orphaned events of one session and delivers their replies on `channel`, for a host that does not
    /// [listen](Self::listen).
    pub async fn recover_session_on(&self, channel: &ChannelName, session: &SessionId) -> Result<(), HostError> {
        self.channels.mark_listening(channel);
        self.sessions.recover_session(session).await
    }

    /// Events of a channel with waiting callers that dead processes left in this session without a reply.
    /// [Serving](Self::serve) one of them again recovers it, and delivers its reply here.
    pub async fn orphaned_events(&self, channel: &ChannelName, session: &SessionId) -> Result<Vec<Event>, HostError> {
        self.sessions.orphaned_events(channel, session).await
    }

    /// Cancels the running turn of a session in this process: it ends with its outcome recorded, and queued events get
    /// their turns. Returns true if a turn was running.
    pub fn cancel_session_turn(&self, session: &SessionId) -> bool {
        self.sessions.cancel_turn(session)
    }

    /// Tools of this host.
    pub(crate) fn tools(&self) -> &ToolCatalog {
        self.environment.tools()
    }

    fn lifecycle(&self) -> &HostLifecycle {
        self.sessions.lifecycle()
    }
}

/// Accepts events of remote origin.
impl Gateway for Host {
    fn submit(&self, event: InboundEvent) -> BoxFuture<'static, Result<(), IntakeError>> {
        self.gateway(EventOrigin::Remote).submit(event)
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;

//! A running host: takes events in, and ends in order.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_hooks::contracts::{Channel, ChannelError, Gateway, Refusal};
use capstan_hooks::{HookRuntime, Inbound};
use capstan_protocol::{ChannelName, Outbound, Outcome, RunId, SessionId, Usage};
use capstan_tape::{Store, Tapes};
use capstan_turn::{Turn, TurnError};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};

use crate::engine::Engine;
use crate::item::Caller;
use crate::orchestrator::Orchestrator;
use crate::services::Services;
use crate::{HostError, Settings, delivery};

/// A running host. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    engine: Arc<Engine>,
    /// The channels that listen. Locked only to begin and to end.
    listening: Arc<tokio::sync::Mutex<JoinSet<()>>>,
    /// What ended a channel that should have gone on.
    failures: Arc<Mutex<Vec<ChannelError>>>,
}

/// How long channels may take to end after they were stopped, and turns after that, and again after they were
/// cancelled.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// What became of an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    /// Its session.
    pub session: SessionId,
    /// The run that served it, if there was one.
    pub run_id: Option<RunId>,
    /// The output of the model stage.
    pub output: String,
    /// Everything that was sent, or was to be sent.
    pub outbounds: Vec<Outbound>,
    /// What the run used, as far as known.
    pub usage: Option<Usage>,
    /// How the event ended; absent while it is still in flight elsewhere.
    pub outcome: Option<Outcome>,
    /// Why the turn failed, if it did.
    pub error: Option<TurnError>,
    /// Why messages could not be delivered, if some could not.
    pub undelivered: Vec<String>,
    /// It had been accepted before; this is what became of it then.
    pub duplicate: bool,
}

impl Served {
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
            undelivered: Vec::new(),
            duplicate: false,
        }
    }
}

impl Host {
    /// Starts a host: asks the start-up hooks for what it runs on.
    pub async fn start(hooks: HookRuntime, store: Arc<dyn Store>, settings: Settings) -> Result<Self, HostError> {
        let workspace = settings.workspace.as_text();
        let services = Arc::new(Services::start(hooks.clone(), store, settings).await?);
        let orchestrator = Arc::new(Orchestrator { services: Arc::clone(&services) });
        let engine = Arc::new(Engine::new(services, Turn::new(hooks, orchestrator, &workspace)));
        engine.tasks.spawn(Arc::clone(&engine).heed_cancellations());
        Ok(Self { engine, listening: Arc::default(), failures: Arc::default() })
    }

    /// The tapes of this host.
    pub fn tapes(&self) -> &Tapes {
        &self.engine.services.tapes
    }

    /// The hooks of this host.
    pub fn hooks(&self) -> &HookRuntime {
        &self.engine.services.hooks
    }

    /// The channels of this host.
    pub fn channels(&self) -> &[Arc<dyn Channel>] {
        self.engine.services.channels()
    }

    /// Cancels every run of this host: each ends with its outcome recorded.
    pub fn cancel(&self) {
        self.engine.cancelled.cancel();
    }

    /// Cancels every run of this host and begins no other: what waits stays on disk for the next start.
    pub fn cancel_and_begin_no_more(&self) {
        self.engine.stopping.cancel();
        self.engine.cancelled.cancel();
    }

    /// Lets these channels listen: what they hear is served. A channel that fails does not affect the others.
    ///
    /// From then on the host also takes up what dead processes left in its workspace for these channels, and for
    /// callers that are gone.
    pub async fn listen(&self, names: &[ChannelName]) {
        self.engine.listening().extend(names.iter().cloned());
        // Before anything new is heard: what was left is older.
        self.engine.look_for_left().await;
        self.engine.tasks.spawn(Arc::clone(&self.engine).sweep());
        // What the channels hold must not hold the channels' tasks.
        let gateway: Arc<dyn Gateway> = Arc::new(Self { listening: Arc::default(), ..self.clone() });
        let mut listening = self.listening.lock().await;
        let chosen = self.channels().iter().filter(|channel| names.contains(&channel.name()));
        for channel in chosen.map(Arc::clone) {
            let (gateway, failures) = (Arc::clone(&gateway), Arc::clone(&self.failures));
            listening.spawn(async move {
                let started = AssertUnwindSafe(channel.start(gateway)).catch_unwind().await;
                let ended = started.unwrap_or_else(|_| Err(ChannelError::new(channel.name(), "it crashed")));
                if let Err(error) = ended {
                    tracing::error!(%error, "a channel failed");
                    failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
                }
            });
        }
    }

    /// Returns when every channel that listens has ended, with what made those end that failed.
    pub async fn ended(&self) -> Vec<ChannelError> {
        let mut listening = self.listening.lock().await;
        while listening.join_next().await.is_some() {}
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the running scope: channels that listen are stopped, turns that go on are let end, for a while, and then
    /// cancelled; what waits stays on disk for the next start; what was provided for the scope is closed.
    pub async fn stop(self) -> Result<(), HostError> {
        let mut listening = std::mem::take(&mut *self.listening.lock().await);
        if !listening.is_empty() {
            for channel in self.channels() {
                delivery::stop(channel.as_ref()).await;
            }
            let joined = async { while listening.join_next().await.is_some() {} };
            if tokio::time::timeout(STOP_DEADLINE, joined).await.is_err() {
                tracing::warn!("a channel went on listening after it was stopped, and was ended");
            }
        }
        self.engine.stopping.cancel();
        self.engine.tasks.close();
        if tokio::time::timeout(STOP_DEADLINE, self.engine.tasks.wait()).await.is_err() {
            self.engine.cancelled.cancel();
            if tokio::time::timeout(STOP_DEADLINE, self.engine.tasks.wait()).await.is_err() {
                tracing::warn!("a turn did not end after it was cancelled; its events are taken up at the next start");
            }
        }
        Ok(self.tapes().close().await?)
    }

    /// Takes an event all the way: acceptance, turn, outcome, and a first attempt to deliver.
    ///
    /// An error means that the event was not accepted, or that the store failed, or that the host stopped before its
    /// turn. Whatever goes wrong in the turn itself is in what is returned.
    pub async fn serve(&self, inbound: impl Into<Inbound>) -> Result<Served, HostError> {
        let (caller, served) = oneshot::channel();
        self.accept_in_order(inbound.into(), Some(caller)).await?;
        served.await.unwrap_or(Err(HostError::Stopping))
    }

    /// Begins acceptance at once; its place in line is taken before this returns.
    fn accept_in_order(
        &self,
        inbound: Inbound,
        caller: Option<Caller>,
    ) -> impl Future<Output = Result<(), HostError>> + Send + 'static {
        let engine = Arc::clone(&self.engine);
        let mut place = engine.lines.enter(&inbound);
        // A task of its own: neither its place in line nor its end depends on whether whoever asked still waits. An event
        // that is on disk must not be left without a session that knows of it.
        let accepting = self.engine.tasks.spawn(async move {
            place.reached().await;
            engine.accept(inbound, caller, place).await
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
    fn submit(&self, event: Inbound) -> BoxFuture<'static, Result<(), Refusal>> {
        let refused = |error: HostError| Refusal { code: error.code(), message: error.to_string() };
        self.accept_in_order(event, None).map(move |accepted| accepted.map_err(refused)).boxed()
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;

//! A running host: takes an event all the way.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_hooks::args::Stage;
use capstan_hooks::contracts::{Channel, Gateway, Refusal};
use capstan_hooks::{HookRuntime, Inbound, Lifespan};
use capstan_protocol::{ChannelName, ChatMessage, Outbound, OutboundKind, Outcome, RunId, SessionId, Timestamp, Usage};
use capstan_tape::{Batch, Draft, Fact, Fence, NewOutbound, Store, StoreError, Tapes};
use capstan_turn::{Dispatched, Turn, TurnError, TurnReport};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::gateway::{Accepted, Next};
use crate::journal::Journal;
use crate::orchestrator::{Orchestrator, RunReport, TurnRun};
use crate::services::Services;
use crate::staging::Staging;
use crate::{HostError, Settings, delivery};

/// A running host. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    services: Arc<Services>,
    turn: Turn,
    cancelled: CancellationToken,
    /// The channels that listen. Locked only to begin and to end.
    listening: Arc<tokio::sync::Mutex<JoinSet<ChannelName>>>,
}

/// How long channels may take to end after they were stopped.
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

impl Host {
    /// Starts a host: asks the start-up hooks for what it runs on.
    pub async fn start(hooks: HookRuntime, store: Arc<dyn Store>, settings: Settings) -> Result<Self, HostError> {
        let workspace = settings.workspace.as_text();
        let services = Arc::new(Services::start(hooks.clone(), store, settings).await?);
        let orchestrator = Arc::new(Orchestrator { services: Arc::clone(&services) });
        let turn = Turn::new(hooks, orchestrator, &workspace);
        Ok(Self { services, turn, cancelled: CancellationToken::new(), listening: Arc::default() })
    }

    /// The tapes of this host.
    pub fn tapes(&self) -> &Tapes {
        &self.services.tapes
    }

    /// The hooks of this host.
    pub fn hooks(&self) -> &HookRuntime {
        &self.services.hooks
    }

    /// The channels of this host.
    pub fn channels(&self) -> &[Arc<dyn Channel>] {
        self.services.channels()
    }

    /// Cancels every run of this host: each ends with its outcome recorded.
    pub fn cancel(&self) {
        self.cancelled.cancel();
    }

    /// Lets these channels listen: what they hear is served. A channel that fails does not affect the others.
    pub async fn listen(&self, names: &[ChannelName]) {
        // What the channels hold must not hold the channels' tasks.
        let gateway: Arc<dyn Gateway> = Arc::new(Self { listening: Arc::default(), ..self.clone() });
        let mut listening = self.listening.lock().await;
        let chosen = self.services.channels().iter().filter(|channel| names.contains(&channel.name()));
        for channel in chosen.map(Arc::clone) {
            let gateway = Arc::clone(&gateway);
            listening.spawn(async move {
                let name = channel.name();
                if let Err(error) = channel.start(gateway).await {
                    tracing::error!(channel = %name, %error, "a channel failed");
                }
                name
            });
        }
    }

    /// Returns when every channel that listens has ended by itself.
    pub async fn ended(&self) {
        let mut listening = self.listening.lock().await;
        while listening.join_next().await.is_some() {}
    }

    /// Ends the running scope: channels that listen are stopped, and what was provided for the scope is closed.
    pub async fn stop(self) -> Result<(), HostError> {
        let mut listening = std::mem::take(&mut *self.listening.lock().await);
        if !listening.is_empty() {
            for channel in self.services.channels() {
                delivery::stop(channel.as_ref()).await;
            }
            let joined = async { while listening.join_next().await.is_some() {} };
            if tokio::time::timeout(STOP_DEADLINE, joined).await.is_err() {
                tracing::warn!("a channel went on listening after it was stopped, and was ended");
            }
        }
        Ok(self.tapes().close().await?)
    }

    /// Takes an event all the way: acceptance, turn, outcome, delivery.
    ///
    /// An error means that the event was not accepted, or that the store failed. Whatever goes wrong in the turn itself
    /// is in what is returned.
    pub async fn serve(&self, inbound: impl Into<Inbound>) -> Result<Served, HostError> {
        let inbound = inbound.into();
        let channel = inbound.channel();
        if self.services.channel(&channel).is_none() {
            let known: Vec<String> = self.channels().iter().map(|channel| channel.name().to_string()).collect();
            return Err(HostError::UnknownChannel { channel, known: known.join(", ") });
        }
        let accepted = self.services.accept(inbound).await?;
        match &accepted.next {
            Next::Duplicate(record) => Ok(self.again(&accepted, record.outcome.clone()).await?),
            Next::Dropped => Ok(accepted.served(Some(Outcome::Dropped))),
            Next::Refused(failure) => self.without_turn(&accepted, failure.clone().into()).await,
            Next::Turn(Some(fence)) => self.turn(&accepted, fence.clone()).await,
            Next::Turn(None) => match self.services.wait_for_lease(&accepted.claim, &self.cancelled).await {
                Ok(fence) => self.turn(&accepted, fence).await,
                Err(error) => self.without_turn(&accepted, error).await,
            },
        }
    }

    /// An event that must not have a turn, or could not get one: the observers and the user are told.
    async fn without_turn(&self, accepted: &Accepted, error: TurnError) -> Result<Served, HostError> {
        let staging = Staging::default();
        accepted.inbound.extensions().insert(staging.clone());
        self.hooks().notify_error(Stage::Turn, error.fault(), Some(accepted.inbound.clone())).await;
        self.settle(accepted, Ended { turn: Err(error), staging, run: None, journal: None }).await
    }

    async fn turn(&self, accepted: &Accepted, fence: Fence) -> Result<Served, HostError> {
        let clock = self.services.settings.clock.clone();
        let journal = Arc::new(Journal::new(self.tapes().clone(), accepted.tape.clone(), fence, clock));
        let staging = Staging::default();
        accepted.inbound.extensions().insert(staging.clone());
        accepted.inbound.extensions().insert(TurnRun {
            journal: Arc::clone(&journal),
            cancelled: self.cancelled.child_token(),
            begins_after: accepted.head,
            report: Mutex::default(),
        });
        let turn = self.turn.process(accepted.inbound.clone(), accepted.session.clone()).await;
        self.close_lifespan(accepted, turn.as_ref().err()).await;
        let run = accepted.inbound.extensions().get::<TurnRun>();
        let run = run.and_then(|run| run.report.lock().unwrap_or_else(PoisonError::into_inner).clone());
        self.settle(accepted, Ended { turn, staging, run, journal: Some(journal) }).await
    }

    /// A turn that failed before its prompt had no `save_state`, which would have closed the lifespan.
    async fn close_lifespan(&self, accepted: &Accepted, error: Option<&TurnError>) {
        if let Some(lifespan) = accepted.inbound.extensions().get::<Lifespan>() {
            let failure = error.map(ToString::to_string);
            if let Err(error) = lifespan.close(failure.as_deref()).await {
                tracing::warn!(%error, "the lifespan of a message did not close");
            }
        }
    }

    /// Commits the outcome with everything that belongs to it, then delivers.
    async fn settle(&self, accepted: &Accepted, mut ended: Ended) -> Result<Served, HostError> {
        let notice = self.dispatch_notice(accepted, &ended.staging).await;
        let outbounds = ended.staging.outbounds();
        let now = self.services.settings.clock.now();
        let run_id = ended.run.as_ref().map(|run| run.run_id.clone());
        let mut facts = ended.entries(accepted, notice.as_ref(), now);
        for message in outbounds.clone() {
            facts.push(Fact::Enqueue(NewOutbound {
                message,
                event: accepted.key.clone(),
                at: now,
                owner: self.services.settings.owner.name().to_owned(),
            }));
        }
        let mut outcome = ended.outcome();
        facts.push(Fact::Settle { key: accepted.key.clone(), outcome: outcome.clone(), run_id: run_id.clone() });
        match self.commit_end(accepted, &ended, facts).await {
            Err(StoreError::Fenced { tape }) => {
                let error = TurnError::Store(StoreError::Fenced { tape });
                outcome = Outcome::Failed { notice: error.public() };
                self.settle_unfenced(accepted, &outcome).await?;
                ended.turn = Err(error);
            }
            done => done?,
        }
        let undelivered = delivery::send_waiting(&self.services, &accepted.key).await.unwrap_or_else(|error| {
            // The outcome stands; what became of the message is not known to the store, so it still waits there.
            tracing::warn!(%error, "the fate of a message could not be recorded");
            Vec::new()
        });
        Ok(Served {
            session: accepted.session.clone(),
            run_id,
            output: ended.turn.as_ref().map(|report| report.output.clone()).unwrap_or_default(),
            outbounds,
            usage: ended.run.and_then(|run| run.usage),
            outcome: Some(outcome),
            error: ended.turn.err(),
            undelivered,
            duplicate: false,
        })
    }

    async fn commit_end(&self, accepted: &Accepted, ended: &Ended, mut facts: Vec<Fact>) -> Result<(), StoreError> {
        let Some(journal) = &ended.journal else {
            return self.tapes().commit(Batch { facts, ..Batch::new() }).await.map(drop);
        };
        facts.push(accepted.claim.release());
        journal.extend(facts);
        journal.flush().await
    }

    /// A turn that lost its lease may write nothing more on the tape, but its event must not be left without an outcome.
    async fn settle_unfenced(&self, accepted: &Accepted, outcome: &Outcome) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        batch.push(Fact::Settle { key: accepted.key.clone(), outcome: outcome.clone(), run_id: None });
        self.tapes().commit(batch).await.map(drop)
    }

    /// The one notice of the turn takes the same way as a reply. A failure on that way is logged: there is no other.
    async fn dispatch_notice(&self, accepted: &Accepted, staging: &Staging) -> Option<Dispatched> {
        let outbound = Outbound::notice(&accepted.inbound, accepted.session.clone(), staging.notice()?);
        match self.turn.dispatch_outbound(&accepted.inbound, outbound.clone()).await {
            Ok(dispatched) => Some(dispatched),
            Err(error) => {
                tracing::warn!(%error, "the notice could not be dispatched by the hooks");
                staging.stage(outbound);
                None
            }
        }
    }

    /// The same event again: what became of it is told, nothing is done twice.
    async fn again(
        &self,
        accepted: &Accepted,
        outcome: Option<(Outcome, Option<RunId>)>,
    ) -> Result<Served, StoreError> {
        let rows = self.tapes().store().outbox(&accepted.key).await?;
        let (outcome, run_id) = outcome.map_or((None, None), |(outcome, run_id)| (Some(outcome), run_id));
        let output = if let Some(Outcome::Replied { text }) = &outcome { text.clone() } else { String::new() };
        let outbounds = rows.into_iter().map(|row| row.message).collect();
        Ok(Served { run_id, output, outbounds, duplicate: true, ..accepted.served(outcome) })
    }
}

impl Gateway for Host {
    fn submit(&self, event: Inbound) -> BoxFuture<'static, Result<(), Refusal>> {
        let host = self.clone();
        let refused = |error: HostError| Refusal { code: error.code(), message: error.to_string() };
        Box::pin(async move { host.serve(event).await.map(drop).map_err(refused) })
    }
}

impl Accepted {
    /// An event that ended without a turn.
    fn served(&self, outcome: Option<Outcome>) -> Served {
        Served {
            session: self.session.clone(),
            run_id: None,
            output: String::new(),
            outbounds: Vec::new(),
            usage: None,
            outcome,
            error: None,
            undelivered: Vec::new(),
            duplicate: false,
        }
    }
}

/// A turn that has ended, before that is committed.
struct Ended {
    turn: Result<TurnReport, TurnError>,
    staging: Staging,
    run: Option<RunReport>,
    /// The turn's journal; an event without a turn has none.
    journal: Option<Arc<Journal>>,
}

impl Ended {
    fn outcome(&self) -> Outcome {
        match &self.turn {
            Ok(report) => {
                let outbounds = report.dispatched.iter().map(|dispatched| &dispatched.outbound);
                let replies = outbounds.filter(|outbound| outbound.kind == OutboundKind::Reply);
                let texts: Vec<String> = replies.map(|reply| reply.content.text()).collect();
                if texts.is_empty() { Outcome::Silent } else { Outcome::Replied { text: texts.join("\n\n") } }
            }
            Err(TurnError::Cancelled) => Outcome::Cancelled,
            Err(error) => Outcome::Failed { notice: self.staging.notice().unwrap_or_else(|| error.public()) },
        }
    }

    /// What the end of a turn adds to the tape: a reply no run has said, a failure no run has told, and what became of
    /// each message that was dispatched.
    fn entries(&self, accepted: &Accepted, notice: Option<&Dispatched>, now: Timestamp) -> Vec<Fact> {
        let mut entries = Vec::new();
        match &self.turn {
            Ok(report) => {
                if self.run.as_ref().is_some_and(|run| run.without_output) {
                    entries.push(Draft::message(&ChatMessage::assistant(report.output.as_str())));
                }
                entries.extend(report.dispatched.iter().map(sent_flags));
            }
            // The run has told of its own failure.
            Err(TurnError::Run(_)) => {}
            Err(error) => entries.push(Draft::error("turn", &error.public())),
        }
        entries.extend(notice.map(sent_flags));
        let append = |entry: Draft| {
            let entry = match &self.run {
                Some(run) => entry.of_run(&run.run_id),
                None => entry,
            };
            Fact::Append { tape: accepted.tape.clone(), entry: Draft { date: Some(now.into()), ..entry } }
        };
        entries.into_iter().map(append).collect()
    }
}

/// Who said that a message was sent, or staged, and who that it was not.
fn sent_flags(dispatched: &Dispatched) -> Draft {
    let flags = dispatched.sent.iter().map(|(plugin, sent)| json!({ "plugin": plugin, "sent": sent }));
    let data = json!({
        "kind": dispatched.outbound.kind,
        "channel": dispatched.outbound.channel,
        "chat_id": dispatched.outbound.chat_id,
        "sent": flags.collect::<Vec<_>>(),
    });
    Draft::event("outbound", data)
}

//! The end of a turn: outcomes, entries and outbox rows in one commit, then everything goes out.

use std::sync::Arc;
use std::time::Duration;

use capstan_protocol::{
    ChatMessage, EventKey, OutboundKind, OutboundMessage, Outcome, RetryBackoff, RunId, TapeName, Timestamp,
};
use capstan_tape::{Batch, CommitReceipt, EntryDraft, Fact, FactOutput, NewOutbound, RunStatus, StoreError};
use capstan_turn::{DispatchReport, TurnError, TurnReport};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{OwnedMutexGuard, oneshot};

use super::journal::Journal;
use super::notices::dispatch_report_entry;
use super::staging::TurnStaging;
use crate::HostError;
use crate::delivery::outbox::{ChatAddress, EventDelivery, OutboxRow};
use crate::engine::{ActiveRunGuard, Engine};
use crate::runs::orchestrator::RunReport;
use crate::sessions::accepted_event::{AcceptedEvent, TurnBatch};

/// How long to wait before a commit is tried again that the disk refused.
const CLOSE_BACKOFF: RetryBackoff =
    RetryBackoff { initial_delay: Duration::from_millis(500), max_delay: Duration::from_secs(30) };

/// How long the end of a turn waits for the end of another beside it. Their order is not worth more: a disk that fails
/// must not hold up who is to be told so.
const CLOSE_ORDER_TIMEOUT: Duration = Duration::from_secs(1);

/// A turn that has ended, before that is committed.
pub(crate) struct FinishedTurn {
    pub(crate) result: Result<TurnReport, TurnError>,
    pub(crate) staging: TurnStaging,
    pub(crate) run: Option<RunReport>,
    /// Kept until the end of the run is on record.
    pub(crate) active_guard: Option<ActiveRunGuard>,
    /// The turn's journal; an event without a turn has none.
    pub(crate) journal: Option<Arc<Journal>>,
}

/// Events that have ended together.
pub(crate) struct ClosingBatch {
    /// Those the turn was for.
    pub(crate) batch: TurnBatch,
    /// Those its run took in on the way.
    pub(crate) ingested: Vec<AcceptedEvent>,
    pub(crate) tape: TapeName,
    /// Hears, for those who wait behind these events, that the store fails.
    pub(crate) store_failure: Option<oneshot::Sender<StoreError>>,
    /// Where they wait for others that end at the same time.
    pub(crate) close_order: Option<CloseOrder>,
}

/// What becomes of the session's lease in the commit that ends a turn.
pub(crate) enum LeaseChange {
    /// Nothing.
    Unchanged,
    /// This.
    Apply(Box<Fact>),
}

/// Turns of a session that end at the same time end one after the other, so that what they say goes out in the order in
/// which it was committed. It is held over one attempt to commit, and never over what may take longer.
pub(crate) type CloseOrder = Arc<tokio::sync::Mutex<()>>;

/// The end of a turn as it is on record.
struct CommittedClose {
    outcome: Outcome,
    /// The outcome of the events that the turn did not answer.
    others_outcome: Outcome,
    rows: Vec<OutboxRow>,
    /// While it is held, what goes out goes before what is committed later.
    order_guard: Option<OwnedMutexGuard<()>>,
}

/// A turn whose end is on record and on its way.
pub(crate) struct SettledTurn {
    /// The chats that something goes to.
    pub(crate) chats: Vec<ChatAddress>,
    /// What the turn wrote was refused: it had lost its lease.
    pub(crate) was_fenced: bool,
}

/// What goes out when the end of a turn is on record.
struct PendingDeliveries {
    deliveries: Vec<EventDelivery>,
    was_fenced: bool,
    order_guard: Option<OwnedMutexGuard<()>>,
}

impl Engine {
    /// Ends an event that is refused a turn: the observers and the user are told. What comes after it in its
    /// conversation waits for that, and so must not wait for a chat that takes nothing.
    pub(crate) async fn refuse_event(self: &Arc<Self>, item: AcceptedEvent, tape: &TapeName, error: TurnError) {
        let Some(group) = TurnBatch::new(vec![item]) else { return };
        match self.commit_without_turn(group, tape, error).await {
            Ok(due) => {
                for parcel in due.deliveries {
                    self.deliver_without_waiting(parcel);
                }
            }
            Err(error) => tracing::error!(%error, "an event without a turn could not be settled"),
        }
    }

    /// Ends events that could not get a turn.
    pub(crate) async fn settle_without_turn(self: &Arc<Self>, group: TurnBatch, tape: &TapeName, error: TurnError) {
        match self.commit_without_turn(group, tape, error).await {
            Ok(due) => {
                let settled = self.send_pending(due);
                self.wait_for_queue_capacity(&settled.chats).await;
            }
            Err(error) => tracing::error!(%error, "an event without a turn could not be settled"),
        }
    }

    async fn commit_without_turn(
        &self,
        group: TurnBatch,
        tape: &TapeName,
        error: TurnError,
    ) -> Result<PendingDeliveries, StoreError> {
        let staging = self.notify_observers(Some(&group.inbound), &error).await;
        let ended = FinishedTurn { result: Err(error), staging, run: None, active_guard: None, journal: None };
        let closed = ClosingBatch {
            batch: group,
            ingested: Vec::new(),
            tape: tape.clone(),
            store_failure: None,
            close_order: None,
        };
        self.commit_close(closed, ended, LeaseChange::Unchanged).await
    }

    /// Commits the outcomes with everything that belongs to them, then sends it out, and says to which chats.
    pub(crate) async fn settle_turn(
        self: &Arc<Self>,
        closed: ClosingBatch,
        ended: FinishedTurn,
        lease: LeaseChange,
    ) -> Result<SettledTurn, StoreError> {
        Ok(self.send_pending(self.commit_close(closed, ended, lease).await?))
    }

    fn send_pending(self: &Arc<Self>, due: PendingDeliveries) -> SettledTurn {
        let PendingDeliveries { deliveries: parcels, was_fenced, order_guard: in_order } = due;
        let chats = parcels.into_iter().flat_map(|parcel| self.enqueue_delivery(parcel)).collect();
        drop(in_order);
        SettledTurn { chats, was_fenced }
    }

    /// Commits the outcomes with everything that belongs to them, and gives what goes out then.
    ///
    /// A disk that refuses is tried again until it takes it or the host gives up: an event must not be left without an
    /// outcome by a process that lives.
    async fn commit_close(
        &self,
        mut closed: ClosingBatch,
        mut ended: FinishedTurn,
        lease: LeaseChange,
    ) -> Result<PendingDeliveries, StoreError> {
        let mut was_fenced = false;
        let CommittedClose { outcome, others_outcome: of_others, rows, order_guard: in_order } =
            match self.commit_finished_turn(&mut closed, &ended, lease).await {
                // Fenced, or something that can never be written: what the turn wrote is given up, its events are not.
                Err(error) if !error.is_transient() => {
                    tracing::error!(tape = %closed.tape, %error, "what a turn wrote is given up");
                    was_fenced = matches!(error, StoreError::Fenced { .. });
                    self.commit_unfenced(&closed, &mut ended, error).await?
                }
                written => written?,
            };
        drop(ended.active_guard.take());
        let (run_id, usage) = ended.run.map(|run| (run.run_id, run.usage)).unzip();
        let output = ended.result.as_ref().map(|report| report.output.clone()).unwrap_or_default();
        let error = ended.result.err();
        let others = closed.batch.others.into_iter().chain(closed.ingested);
        let mut parcels: Vec<EventDelivery> =
            others.map(|item| EventDelivery::new(item, of_others.clone(), run_id.clone())).collect();
        let parcel =
            EventDelivery::new(closed.batch.lead, outcome, run_id).with_turn_result(output, usage.flatten(), error);
        parcels.push(EventDelivery { rows, ..parcel });
        Ok(PendingDeliveries { deliveries: parcels, was_fenced, order_guard: in_order })
    }

    async fn commit_finished_turn(
        &self,
        closed: &mut ClosingBatch,
        ended: &FinishedTurn,
        lease: LeaseChange,
    ) -> Result<CommittedClose, StoreError> {
        let notice = self.dispatch_notice(&closed.batch, &ended.staging).await;
        let now = self.services.options.clock.now();
        let mut facts = ended.closing_entries(&closed.tape, notice.as_ref(), now);
        let first_row = facts.len();
        let key = &closed.batch.lead.key;
        let outbounds = self.outbound_rows(key, ended.staging.outbounds(), now);
        facts.extend(outbounds.iter().cloned().map(Fact::EnqueueOutbound));
        let outcome = ended.outcome();
        let run_id = ended.run.as_ref().map(|run| run.run_id.clone());
        let of_others = run_id.clone().map_or_else(|| outcome.clone(), |run_id| Outcome::Folded { run_id });
        let settle = |key: &EventKey, outcome: &Outcome| Fact::SettleEvent {
            key: key.clone(),
            outcome: outcome.clone(),
            run_id: run_id.clone(),
        };
        facts.push(settle(key, &outcome));
        let others = closed.batch.others.iter().chain(&closed.ingested);
        facts.extend(others.map(|item| settle(&item.key, &of_others)));
        if let LeaseChange::Apply(fact) = lease {
            facts.push(*fact);
        }
        let (assigned, in_order) = self.commit_in_order(closed, ended, facts).await?;
        Ok(CommittedClose {
            outcome,
            others_outcome: of_others,
            rows: assigned_rows(outbounds, assigned.get(first_row..)),
            order_guard: in_order,
        })
    }

    /// Messages about an event, to be put into the outbox.
    pub(crate) fn outbound_rows(
        &self,
        event: &EventKey,
        outbounds: Vec<OutboundMessage>,
        at: Timestamp,
    ) -> Vec<NewOutbound> {
        let owner = self.services.options.lease_owner.name();
        let row = |message| NewOutbound { message, event: event.clone(), staged_at: at, owner: owner.to_owned() };
        outbounds.into_iter().map(row).collect()
    }

    /// Commits the end of a turn. What goes out with it goes before what is committed later, while the guard is held.
    async fn commit_in_order(
        &self,
        closed: &mut ClosingBatch,
        ended: &FinishedTurn,
        facts: Vec<Fact>,
    ) -> Result<(Vec<FactOutput>, Option<OwnedMutexGuard<()>>), StoreError> {
        let (order, journal) = (closed.close_order.clone(), ended.journal.as_ref());
        let attempt = || {
            async {
                let in_order = acquire_close_order(order.as_ref()).await;
                let committed = if let Some(journal) = journal {
                    journal.flush_with(facts.clone()).await
                } else {
                    let batch = Batch { facts: facts.clone(), ..Batch::new() };
                    self.services.tapes.commit(batch).await.map(|committed| committed.outputs)
                };
                committed.map(|assigned| (assigned, in_order))
            }
            .boxed()
        };
        let refused = |error: &StoreError| {
            tracing::error!(%error, "the end of a turn could not be written; it is tried again");
            let tools = journal.map(|journal| journal.unrecorded_tools()).unwrap_or_default();
            closed.notify_callers(self, error, &tools);
        };
        self.retry_store(attempt, refused).await
    }

    /// A turn that lost its lease may write nothing more on the tape, but its events must not be left without an
    /// outcome, unless somebody else has taken them over, nor whoever sent them without a word.
    async fn commit_unfenced(
        &self,
        closed: &ClosingBatch,
        ended: &mut FinishedTurn,
        error: StoreError,
    ) -> Result<CommittedClose, StoreError> {
        if ended.result.is_ok() {
            let error = TurnError::Store(error);
            ended.staging = self.notify_observers(Some(&closed.batch.inbound), &error).await;
            ended.result = Err(error);
            self.dispatch_notice(&closed.batch, &ended.staging).await;
        }
        let outcome = ended.outcome();
        let lead = &closed.batch.lead.key;
        let mut notices = ended.staging.outbounds();
        notices.retain(|outbound| outbound.kind == OutboundKind::Notice);
        let notices = self.outbound_rows(lead, notices, self.services.options.clock.now());
        let me = self.services.options.lease_owner.name().to_owned();
        let mut staged = Vec::new();
        for item in closed.batch.events().chain(&closed.ingested) {
            let (key, from, owner) = (item.key.clone(), Some(me.clone()), me.clone());
            let mut batch = Batch::new();
            batch.push(Fact::AdoptEvent { key: key.clone(), from, owner, was_in_progress: false });
            batch.push(Fact::SettleEvent { key, outcome: outcome.clone(), run_id: None });
            let first_row = batch.facts.len();
            let own = if item.key == *lead { notices.clone() } else { Vec::new() };
            batch.facts.extend(own.iter().cloned().map(Fact::EnqueueOutbound));
            match self.commit_with_retry(batch).await {
                Ok(committed) => staged.extend(assigned_rows(own, committed.outputs.get(first_row..))),
                Err(StoreError::EventNotInFlight { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(run) = &ended.run {
            self.fail_unwritten_run(&run.run_id).await;
        }
        Ok(CommittedClose { others_outcome: outcome.clone(), outcome, rows: staged, order_guard: None })
    }

    /// Commits what nobody else will. A disk that refuses is tried again until it takes it or the host gives up.
    pub(crate) async fn commit_with_retry(&self, batch: Batch) -> Result<CommitReceipt, StoreError> {
        let store = self.services.tapes.store();
        let refused = |error: &StoreError| {
            tracing::error!(%error, "the end of an event could not be written; it is tried again");
        };
        self.retry_store(|| store.commit(batch.clone()).boxed(), refused).await
    }

    /// Tries again what the store may take later, until it does or the host gives up. That a host stops is no reason to
    /// give up: what ends then needs its outcome as well.
    async fn retry_store<'a, T>(
        &'a self,
        attempt: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
        mut refused: impl FnMut(&StoreError),
    ) -> Result<T, StoreError> {
        let mut attempts = 0;
        loop {
            let error = match attempt().await {
                Err(error) if error.is_transient() => error,
                done => return done,
            };
            refused(&error);
            attempts += 1;
            tokio::select! {
                () = tokio::time::sleep(CLOSE_BACKOFF.delay_after(attempts)) => {}
                () = self.abort_token.cancelled() => return Err(error),
            }
        }
    }

    /// The run of a turn that could not be written has failed, if it is on record at all.
    async fn fail_unwritten_run(&self, run_id: &RunId) {
        let store = self.services.tapes.store();
        let is_open = matches!(store.run(run_id).await, Ok(Some(run)) if run.status.is_open());
        let at = self.services.options.clock.now();
        let end = Fact::EndRun { run_id: run_id.clone(), status: RunStatus::Failed, usage: None, ended_at: at };
        if is_open && let Err(error) = store.commit(Batch { facts: vec![end], ..Batch::new() }).await {
            tracing::warn!(%error, "the end of a run could not be written");
        }
    }
}

impl ClosingBatch {
    /// Whoever waits is told that the store fails; the outcome comes when it works again.
    fn notify_callers(&mut self, engine: &Engine, error: &StoreError, unrecorded: &[String]) {
        let items = std::iter::once(&mut self.batch.lead).chain(&mut self.batch.others).chain(&mut self.ingested);
        let told = match unrecorded {
            [] => HostError::Store(error.clone()),
            tools => HostError::UnrecordedEffects { error: error.clone(), tools: tools.join(", ") },
        };
        engine.notify_delayed_callers(items, &told);
        if let Some(trouble) = self.store_failure.take() {
            let _unheard = trouble.send(error.clone());
        }
    }
}

/// Waits until those that end before are on record, for a while.
async fn acquire_close_order(order: Option<&CloseOrder>) -> Option<OwnedMutexGuard<()>> {
    tokio::time::timeout(CLOSE_ORDER_TIMEOUT, Arc::clone(order?).lock_owned()).await.ok()
}

impl FinishedTurn {
    fn outcome(&self) -> Outcome {
        match &self.result {
            Ok(report) => {
                let outbounds = report.dispatched.iter().map(|dispatched| &dispatched.outbound);
                let replies = outbounds.filter(|outbound| outbound.kind == OutboundKind::Reply);
                let texts: Vec<String> = replies.map(|reply| reply.content.text()).collect();
                if texts.is_empty() { Outcome::Silent } else { Outcome::Replied { text: texts.join("\n\n") } }
            }
            Err(TurnError::Cancelled) => Outcome::Cancelled,
            Err(error) => Outcome::Failed {
                notice: self.staging.notice().unwrap_or_else(|| error.public_message()),
                code: Some(error.code()),
            },
        }
    }

    /// What the end of a turn adds to the tape: a reply no run has said, a failure no run has told, and what became of
    /// each message that was dispatched.
    fn closing_entries(&self, tape: &TapeName, notice: Option<&DispatchReport>, now: Timestamp) -> Vec<Fact> {
        let mut entries = Vec::new();
        match &self.result {
            Ok(report) => {
                if self.run.as_ref().is_some_and(|run| run.has_no_output) {
                    entries.push(EntryDraft::message(&ChatMessage::assistant(report.output.as_str())));
                }
                entries.extend(report.dispatched.iter().map(dispatch_report_entry));
            }
            // The run has told of its own failure.
            Err(TurnError::Run(_)) => {}
            Err(error) => entries.push(EntryDraft::error("turn", &error.public_message())),
        }
        entries.extend(notice.map(dispatch_report_entry));
        let append = |entry: EntryDraft| match (&self.run, &self.journal) {
            (Some(run), Some(journal)) => journal.final_entry(&run.run_id, entry),
            _ => Fact::AppendEntry { tape: tape.clone(), entry: EntryDraft { date: Some(now.into()), ..entry } },
        };
        entries.into_iter().map(append).collect()
    }
}

/// Messages as they stand in the outbox, under the ids they were assigned.
pub(crate) fn assigned_rows(outbounds: Vec<NewOutbound>, assigned: Option<&[FactOutput]>) -> Vec<OutboxRow> {
    let staged = outbounds.into_iter().zip(assigned.unwrap_or_default());
    staged.filter_map(|(outbound, assigned)| OutboxRow::from_staged(assigned, outbound)).collect()
}

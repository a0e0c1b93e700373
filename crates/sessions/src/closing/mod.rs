//! The end of a turn: outcomes, entries and outbox rows in one commit, then everything goes out.

pub(crate) mod delay_notice;
pub(crate) mod notices;

use std::sync::Arc;
use std::time::Duration;

use capstan_delivery::{ChatAddress, EventDelivery, Outbox, OutboxRow};
use capstan_protocol::{
    ChatMessage, Clock, EventKey, OutboundKind, OutboundMessage, Outcome, RetryBackoff, RunId, TapeName, Timestamp,
};
use capstan_runs::{Journal, RunReport};
use capstan_tape::{
    Batch, CommitReceipt, EntryDraft, Fact, FactOutput, NewOutbound, RunStatus, StoreError, TapeRepository,
};
use capstan_turn::{TurnError, TurnReport};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio_util::sync::CancellationToken;

use self::delay_notice::notify_delayed_callers;
use self::notices::{NoticeDispatcher, PreparedNotice, dispatch_report_entry};
use crate::accepted_event::{AcceptedEvent, TurnBatch};
use crate::{HostError, LeaseOwner, ServedEvent};

/// How long to wait before a commit is tried again that the disk refused.
const CLOSE_BACKOFF: RetryBackoff =
    RetryBackoff { initial_delay: Duration::from_millis(500), max_delay: Duration::from_secs(30) };

/// How long the end of a turn waits for the end of another beside it. Their order is not worth more: a disk that fails
/// must not hold up who is to be told so.
const CLOSE_ORDER_TIMEOUT: Duration = Duration::from_secs(1);

/// Turns of a session that end at the same time end one after the other, so that what they say goes out in the order in
/// which it was committed. It is held over one attempt to commit, and never over what may take longer.
pub(crate) type CloseOrder = Arc<tokio::sync::Mutex<()>>;

/// Events that have ended together, before that is committed.
pub(crate) struct FinishedTurn {
    /// The events of the turn.
    pub(crate) batch: TurnBatch,
    /// Events that its run ingested on the way.
    pub(crate) ingested: Vec<AcceptedEvent>,
    pub(crate) tape: TapeName,
    /// Everything that the turn produced.
    pub(crate) report: TurnReport<RunReport>,
    /// The turn's journal; events without a turn have none.
    pub(crate) journal: Option<Arc<Journal>>,
    /// Receives the error of a store that fails, for the events that wait behind these.
    pub(crate) store_failure: Option<oneshot::Sender<StoreError>>,
    /// Orders turns that end at the same time.
    pub(crate) close_order: Option<CloseOrder>,
}

/// The end of a turn as it is on record.
pub(crate) struct CloseBatch {
    outcome: Outcome,
    /// The outcome of the events that the turn did not answer.
    others_outcome: Outcome,
    rows: Vec<OutboxRow>,
    /// The turn had lost its lease: what it wrote was refused.
    pub(crate) was_fenced: bool,
    /// While it is held, these rows go out before what is committed later.
    order_guard: Option<OwnedMutexGuard<()>>,
}

/// Ends turns: commits their outcomes, and delivers what they send.
pub(crate) struct TurnCloser {
    pub(crate) notices: NoticeDispatcher,
    pub(crate) outbox: Outbox,
    pub(crate) tapes: TapeRepository,
    pub(crate) owner: LeaseOwner,
    pub(crate) clock: Clock,
    /// Ends the retries of a commit.
    pub(crate) abort_token: CancellationToken,
}

impl TurnCloser {
    /// Ends an event that is refused a turn: the observers and the user are told. What comes after it in its
    /// conversation waits for that, and so must not wait for a chat that takes nothing.
    pub(crate) async fn refuse_event(&self, event: AcceptedEvent, tape: &TapeName, error: TurnError) {
        let mut finished = self.finish_without_turn(TurnBatch::from_event(event), tape, error).await;
        match self.close_turn(&mut finished, None).await {
            Ok(mut close) => {
                for delivery in finished.into_deliveries(&mut close) {
                    self.outbox.enqueue_or_give_up(delivery);
                }
            }
            Err(error) => tracing::error!(%error, "an event without a turn could not be settled"),
        }
    }

    /// Ends events that could not get a turn.
    pub(crate) async fn settle_without_turn(&self, batch: TurnBatch, tape: &TapeName, error: TurnError) {
        let mut finished = self.finish_without_turn(batch, tape, error).await;
        match self.close_turn(&mut finished, None).await {
            Ok(close) => {
                let chats = self.deliver_closed(finished, close);
                self.outbox.wait_for_capacity(&chats).await;
            }
            Err(error) => tracing::error!(%error, "an event without a turn could not be settled"),
        }
    }

    async fn finish_without_turn(&self, batch: TurnBatch, tape: &TapeName, error: TurnError) -> FinishedTurn {
        let notice = self.notices.notify_observers(Some(&batch.inbound), &error).await;
        FinishedTurn {
            batch,
            ingested: Vec::new(),
            tape: tape.clone(),
            report: TurnReport::failed(error, notice),
            journal: None,
            store_failure: None,
            close_order: None,
        }
    }

    /// Enqueues everything that a committed close sends out, and returns the chats it goes to.
    pub(crate) fn deliver_closed(&self, finished: FinishedTurn, mut close: CloseBatch) -> Vec<ChatAddress> {
        let deliveries = finished.into_deliveries(&mut close);
        let chats = deliveries.into_iter().flat_map(|delivery| self.outbox.enqueue(delivery)).collect();
        drop(close.order_guard);
        chats
    }

    /// Commits the outcomes with everything that belongs to them, and what becomes of the lease.
    ///
    /// A disk that refuses is tried again until it takes it or the host gives up: an event must not be left without an
    /// outcome by a process that lives.
    pub(crate) async fn close_turn(
        &self,
        finished: &mut FinishedTurn,
        lease: Option<Fact>,
    ) -> Result<CloseBatch, StoreError> {
        let notice = self.notices.dispatch_notice(&finished.batch, finished.report.notice.clone()).await;
        match self.commit_finished_turn(finished, &notice, lease).await {
            // Fenced, or something that can never be written: what the turn wrote is given up, its events are not.
            Err(error) if !error.is_transient() => {
                tracing::error!(tape = %finished.tape, %error, "what a turn wrote is given up");
                self.commit_unfenced(finished, notice, error).await
            }
            committed => committed,
        }
    }

    async fn commit_finished_turn(
        &self,
        finished: &mut FinishedTurn,
        notice: &PreparedNotice,
        lease: Option<Fact>,
    ) -> Result<CloseBatch, StoreError> {
        let now = self.clock.now();
        let mut facts = finished.closing_entries(notice, now);
        let first_row = facts.len();
        let key = &finished.batch.lead.key;
        let outbounds = self.outbound_rows(key, finished.staged_outbounds().chain(notice.outbound.clone()), now);
        facts.extend(outbounds.iter().cloned().map(Fact::EnqueueOutbound));
        let outcome = finished.outcome();
        let run_id = finished.report.run.as_ref().map(|run| run.run_id.clone());
        let others_outcome = run_id.clone().map_or_else(|| outcome.clone(), |run_id| Outcome::Folded { run_id });
        let settle = |key: &EventKey, outcome: &Outcome| Fact::SettleEvent {
            key: key.clone(),
            outcome: outcome.clone(),
            run_id: run_id.clone(),
        };
        facts.push(settle(key, &outcome));
        let others = finished.batch.others.iter().chain(&finished.ingested);
        facts.extend(others.map(|event| settle(&event.key, &others_outcome)));
        facts.extend(lease);
        let (assigned, order_guard) = self.commit_in_order(finished, facts).await?;
        let rows = assigned_rows(outbounds, assigned.get(first_row..));
        Ok(CloseBatch { outcome, others_outcome, rows, was_fenced: false, order_guard })
    }

    /// Messages about an event, to be put into the outbox.
    pub(crate) fn outbound_rows(
        &self,
        event: &EventKey,
        outbounds: impl IntoIterator<Item = OutboundMessage>,
        at: Timestamp,
    ) -> Vec<NewOutbound> {
        let owner = self.owner.name();
        let row = |message| NewOutbound { message, event: event.clone(), staged_at: at, owner: owner.to_owned() };
        outbounds.into_iter().map(row).collect()
    }

    /// Commits the end of a turn. What goes out with it goes before what is committed later, while the guard is held.
    async fn commit_in_order(
        &self,
        finished: &mut FinishedTurn,
        facts: Vec<Fact>,
    ) -> Result<(Vec<FactOutput>, Option<OwnedMutexGuard<()>>), StoreError> {
        let (order, journal) = (finished.close_order.clone(), finished.journal.clone());
        let attempt = || {
            async {
                let in_order = acquire_close_order(order.as_ref()).await;
                let committed = if let Some(journal) = &journal {
                    journal.flush_with(facts.clone()).await
                } else {
                    let batch = Batch { facts: facts.clone(), ..Batch::new() };
                    self.tapes.commit(batch).await.map(|committed| committed.outputs)
                };
                committed.map(|assigned| (assigned, in_order))
            }
            .boxed()
        };
        let refused = |error: &StoreError| {
            tracing::error!(%error, "the end of a turn could not be written; it is tried again");
            let tools = journal.as_ref().map(|journal| journal.unrecorded_tools()).unwrap_or_default();
            finished.notify_callers(&self.outbox, error, &tools);
        };
        self.retry_store(attempt, refused).await
    }

    /// A turn that lost its lease may write nothing more on the tape, but its events must not be left without an
    /// outcome, unless somebody else has taken them over, nor whoever sent them without a word.
    async fn commit_unfenced(
        &self,
        finished: &mut FinishedTurn,
        mut notice: PreparedNotice,
        error: StoreError,
    ) -> Result<CloseBatch, StoreError> {
        let was_fenced = matches!(error, StoreError::Fenced { .. });
        if finished.report.result.is_ok() {
            let error = TurnError::Store(error);
            let text = self.notices.notify_observers(Some(&finished.batch.inbound), &error).await;
            notice = self.notices.dispatch_notice(&finished.batch, text.clone()).await;
            let run = finished.report.run.take();
            finished.report = TurnReport { run, ..TurnReport::failed(error, text) };
        }
        let outcome = finished.outcome();
        let lead = &finished.batch.lead.key;
        let notices = finished.staged_outbounds().filter(|outbound| outbound.kind == OutboundKind::Notice);
        let notices = self.outbound_rows(lead, notices.chain(notice.outbound.take()), self.clock.now());
        let me = self.owner.name().to_owned();
        let mut staged = Vec::new();
        for item in finished.batch.events().chain(&finished.ingested) {
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
        if let Some(run) = &finished.report.run {
            self.fail_unwritten_run(&run.run_id).await;
        }
        Ok(CloseBatch { others_outcome: outcome.clone(), outcome, rows: staged, was_fenced, order_guard: None })
    }

    /// Commits what nobody else will. A disk that refuses is tried again until it takes it or the host gives up.
    pub(crate) async fn commit_with_retry(&self, batch: Batch) -> Result<CommitReceipt, StoreError> {
        let store = self.tapes.store();
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
        let store = self.tapes.store();
        let is_open = matches!(store.run(run_id).await, Ok(Some(run)) if run.status.is_open());
        let at = self.clock.now();
        let end = Fact::EndRun { run_id: run_id.clone(), status: RunStatus::Failed, usage: None, ended_at: at };
        if is_open && let Err(error) = store.commit(Batch { facts: vec![end], ..Batch::new() }).await {
            tracing::warn!(%error, "the end of a run could not be written");
        }
    }
}

/// Waits until those that end before are on record, for a while.
async fn acquire_close_order(order: Option<&CloseOrder>) -> Option<OwnedMutexGuard<()>> {
    tokio::time::timeout(CLOSE_ORDER_TIMEOUT, Arc::clone(order?).lock_owned()).await.ok()
}

impl FinishedTurn {
    /// Tells the callers of these events that the store fails; the outcome comes when it works again.
    fn notify_callers(&mut self, outbox: &Outbox, error: &StoreError, unrecorded: &[String]) {
        let events = std::iter::once(&mut self.batch.lead).chain(&mut self.batch.others).chain(&mut self.ingested);
        let told = match unrecorded {
            [] => HostError::Store(error.clone()),
            tools => HostError::UnrecordedEffects { error: error.clone(), tools: tools.join(", ") },
        };
        notify_delayed_callers(outbox, events, &told);
        if let Some(store_failure) = self.store_failure.take() {
            let _unheard = store_failure.send(error.clone());
        }
    }

    /// Messages of the turn that go to the outbox.
    fn staged_outbounds(&self) -> impl Iterator<Item = OutboundMessage> {
        let staged = self.report.dispatched.iter().filter(|dispatched| dispatched.is_staged);
        staged.map(|dispatched| dispatched.outbound.clone())
    }

    fn outcome(&self) -> Outcome {
        match &self.report.result {
            Ok(_) => {
                let outbounds = self.report.dispatched.iter().map(|dispatched| &dispatched.outbound);
                let replies = outbounds.filter(|outbound| outbound.kind == OutboundKind::Reply);
                let texts: Vec<String> = replies.map(|reply| reply.content.text()).collect();
                if texts.is_empty() { Outcome::Silent } else { Outcome::Replied { text: texts.join("\n\n") } }
            }
            Err(TurnError::Cancelled) => Outcome::Cancelled,
            Err(error) => Outcome::Failed {
                notice: self.report.notice.clone().unwrap_or_else(|| error.public_message()),
                code: Some(error.code()),
            },
        }
    }

    /// Entries that the end of a turn adds to the tape: a reply that no run has recorded, a failure that no run has
    /// recorded, and the dispatch flags of each message.
    fn closing_entries(&self, notice: &PreparedNotice, now: Timestamp) -> Vec<Fact> {
        let mut entries = Vec::new();
        let run = self.report.run.as_ref();
        match &self.report.result {
            Ok(output) => {
                if run.is_some_and(|run| run.has_no_output) {
                    entries.push(EntryDraft::message(&ChatMessage::assistant(output.as_str())));
                }
                entries.extend(self.report.dispatched.iter().map(dispatch_report_entry));
            }
            // The run has recorded its own failure.
            Err(TurnError::Run(_)) => {}
            Err(error) => entries.push(EntryDraft::error("turn", &error.public_message())),
        }
        entries.extend(notice.dispatch_entry.clone());
        let append = |entry: EntryDraft| match (run, &self.journal) {
            (Some(run), Some(journal)) => journal.final_entry(&run.run_id, entry),
            _ => Fact::AppendEntry { tape: self.tape.clone(), entry: EntryDraft { date: Some(now.into()), ..entry } },
        };
        entries.into_iter().map(append).collect()
    }

    /// Deliveries of a committed close, the lead's last.
    fn into_deliveries(self, close: &mut CloseBatch) -> Vec<EventDelivery> {
        let TurnReport { result, run, .. } = self.report;
        let report = |RunReport { run_id, usage, active_guard, .. }| {
            // The end of the run is on record.
            drop(active_guard);
            (run_id, usage)
        };
        let (run_id, usage) = run.map(report).unzip();
        let (output, error) = match result {
            Ok(output) => (output, None),
            Err(error) => (String::new(), Some(error)),
        };
        let others = self.batch.others.into_iter().chain(self.ingested);
        let mut deliveries: Vec<EventDelivery> =
            others.map(|event| event.into_settled(close.others_outcome.clone(), run_id.clone())).collect();
        let lead = self.batch.lead;
        let served = ServedEvent {
            run_id,
            output,
            usage: usage.flatten(),
            outcome: Some(close.outcome.clone()),
            error,
            ..ServedEvent::in_flight(lead.session.clone())
        };
        deliveries.push(lead.into_delivery(served, close.outcome.clone(), std::mem::take(&mut close.rows)));
        deliveries
    }
}

/// Messages as they stand in the outbox, under the ids they were assigned.
pub(crate) fn assigned_rows(outbounds: Vec<NewOutbound>, assigned: Option<&[FactOutput]>) -> Vec<OutboxRow> {
    let staged = outbounds.into_iter().zip(assigned.unwrap_or_default());
    staged.filter_map(|(outbound, assigned)| OutboxRow::from_staged(assigned, outbound)).collect()
}

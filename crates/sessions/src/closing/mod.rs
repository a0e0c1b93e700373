//! Closing of turns: outcomes, entries and outbox rows in one commit, then delivery.
//!
//! # Design
//!
//! [`TurnCloser::close_turn`] writes the rest of the turn's journal, the entries of its end, its outbox rows, the outcome
//! of each event and the change of the lease in one batch, and then enqueues the deliveries. A transient failure of the
//! store is retried with backoff until the host aborts, and callers are notified of the delay once. After a permanent
//! failure the content of the turn is given up: only the outcomes of its events and a notice are committed, without the
//! fence. If that fails too, callers are notified of the delay, and the next start recovers the events. The events of a turn
//! that lost its lease are recovered, and their callers get the recorded outcomes.
//!
//! # Invariants
//!
//! - A process that is not aborted leaves no event without an outcome, unless another process has adopted the event.
//! - No caller gets an outcome that is not recorded.
//! - No outbox row of a turn is sent before the end of the turn is committed.
//! - Turns of a session that end at the same time deliver in the order of their commits; see [`CloseOrder`].

pub(crate) mod delay_notice;
pub(crate) mod notices;

use std::sync::Arc;
use std::time::Duration;

use capstan_delivery::{ChatAddress, EventDelivery, Outbox, OutboxRow, QueueOverflow};
use capstan_protocol::{
    ChatMessage, Clock, EventKey, OutboundKind, OutboundMessage, Outcome, RetryBackoff, RunId, TapeName, Timestamp,
};
use capstan_runs::{Journal, RunReport};
use capstan_tape::{
    Batch, CommitDurability, CommitReceipt, EntryDraft, Fact, FactOutput, NewOutboxMessage, RunStatus, StoreError,
    TapeRepository,
};
use capstan_turn::{TurnError, TurnReport};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio_util::sync::CancellationToken;

use self::delay_notice::notify_delayed_callers;
use self::notices::{NoticeDispatcher, PreparedNotice, dispatch_report_entry};
use crate::accepted_event::{AcceptedEvent, TurnBatch};
use crate::outcome_relay::OutcomeRelay;
use crate::unserved_events::UnservedEvents;
use crate::{HostError, LeaseOwner, ServedEvent};

/// Backoff between attempts to commit the end of a turn.
const CLOSE_BACKOFF: RetryBackoff =
    RetryBackoff { initial_delay: Duration::from_millis(500), max_delay: Duration::from_secs(30) };

/// Maximum wait for another turn of the session that is being closed. After that the order is given up, because a store
/// failure must be reported soon.
const CLOSE_ORDER_TIMEOUT: Duration = Duration::from_secs(1);

/// Lock that orders turns of a session that end at the same time, so that their messages are enqueued in the order of the
/// commits. It is held for one attempt to commit and the enqueuing, never during a backoff.
pub(crate) type CloseOrder = Arc<tokio::sync::Mutex<()>>;

/// A finished turn, or events without one, before the commit of its end.
pub(crate) struct FinishedTurn {
    /// The events of the turn.
    pub(crate) batch: TurnBatch,
    /// Events that its run ingested.
    pub(crate) ingested: Vec<AcceptedEvent>,
    pub(crate) tape: TapeName,
    /// Everything that the turn produced.
    pub(crate) report: TurnReport<RunReport>,
    /// The turn's journal; events without a turn have none.
    pub(crate) journal: Option<Arc<Journal>>,
    /// Receives the error of a failing store, so that callers of queued events can be notified.
    pub(crate) store_failure: Option<oneshot::Sender<StoreError>>,
    /// Orders turns that end at the same time.
    pub(crate) close_order: Option<CloseOrder>,
}

/// A turn whose end is committed and whose deliveries are enqueued.
pub(crate) struct ClosedTurn {
    /// Chats that the deliveries go to.
    pub(crate) chats: Vec<ChatAddress>,
    /// The turn had lost its lease or one of its events, so the store refused its writes.
    pub(crate) was_fenced: bool,
}

/// Committed end of a turn.
struct CommittedClose {
    /// Outcome of the lead event, which the turn replies to.
    outcome: Outcome,
    /// Outcome of the other events.
    others_outcome: Outcome,
    rows: Vec<OutboxRow>,
    /// Events that another process has adopted, and settles.
    adopted_elsewhere: Vec<EventKey>,
    /// While held, no later commit enqueues its rows before these.
    order_guard: Option<OwnedMutexGuard<()>>,
}

/// Closes turns: commits their outcomes, and delivers their messages.
pub(crate) struct TurnCloser {
    pub(crate) notices: NoticeDispatcher,
    pub(crate) unserved_events: UnservedEvents,
    pub(crate) relay: OutcomeRelay,
    pub(crate) outbox: Outbox,
    pub(crate) tapes: TapeRepository,
    pub(crate) owner: LeaseOwner,
    pub(crate) clock: Clock,
    /// Ends the retries of a commit.
    pub(crate) abort_token: CancellationToken,
}

impl TurnCloser {
    /// Settles an event that is refused a turn, and notifies the observers and the user. Later events of the conversation
    /// wait for this, so it does not wait for the queue of a chat.
    pub(crate) async fn refuse_event(&self, event: AcceptedEvent, tape: &TapeName, error: TurnError) {
        let finished = self.finish_without_turn(TurnBatch::from_event(event), tape, error).await;
        if let Err(error) = self.close_turn(finished, None, QueueOverflow::GiveUp).await {
            tracing::error!(%error, "cannot settle an event without a turn");
        }
    }

    /// Settles events that could not get a turn; waits while the queues of their chats are full.
    pub(crate) async fn settle_without_turn(&self, batch: TurnBatch, tape: &TapeName, error: TurnError) {
        let finished = self.finish_without_turn(batch, tape, error).await;
        match self.close_turn(finished, None, QueueOverflow::Enqueue).await {
            Ok(closed) => self.outbox.wait_for_capacity(&closed.chats).await,
            Err(error) => tracing::error!(%error, "cannot settle an event without a turn"),
        }
    }

    async fn finish_without_turn(&self, batch: TurnBatch, tape: &TapeName, error: TurnError) -> FinishedTurn {
        let (notice, effects) = self.notices.notify_observers(Some(&batch), &error).await;
        FinishedTurn {
            batch,
            ingested: Vec::new(),
            tape: tape.clone(),
            report: TurnReport { effects, ..TurnReport::failed(error, notice) },
            journal: None,
            store_failure: None,
            close_order: None,
        }
    }

    /// Commits the end of a turn, with the change of the lease, and enqueues its deliveries.
    ///
    /// A transient failure of the store is retried until the host aborts: a living process must not leave an event without
    /// an outcome.
    pub(crate) async fn close_turn(
        &self,
        mut finished: FinishedTurn,
        lease: Option<Fact>,
        overflow: QueueOverflow,
    ) -> Result<ClosedTurn, StoreError> {
        let mut notice = match &finished.report.notice {
            Some(text) => self.notices.dispatch_notice(&finished.batch, text).await,
            None => PreparedNotice::default(),
        };
        let effects = std::mem::take(&mut finished.report.effects);
        notice.effects = self.notices.prepare_effects(&finished.batch, effects).await;
        let close = match self.commit_finished_turn(&mut finished, &notice, lease).await {
            Err(error) if finished.is_lost(&error) => {
                tracing::warn!(tape = %finished.tape, %error, "a turn lost its lease or an event; its events are recovered");
                self.relay_lost_turn(finished);
                return Ok(ClosedTurn { chats: Vec::new(), was_fenced: true });
            }
            // A batch that can never be written: the content of the turn is given up, its events are not.
            Err(error) if !error.is_transient() => {
                tracing::error!(tape = %finished.tape, %error, "cannot write a turn; its content is given up");
                let tools = finished.tools_with_undurable_effects();
                let committed = self.commit_outcomes(&mut finished, notice, error).await;
                committed.inspect_err(|error| finished.notify_callers(&self.outbox, error, &tools))?
            }
            committed => committed?,
        };
        let CommittedClose { outcome, others_outcome, rows, adopted_elsewhere, order_guard } = close;
        let (deliveries, adopted) = finished.into_deliveries(outcome, &others_outcome, rows, &adopted_elsewhere);
        let chats = deliveries.into_iter().flat_map(|delivery| self.outbox.enqueue(delivery, overflow)).collect();
        drop(order_guard);
        self.relay.spawn_for_lost_turn(adopted);
        Ok(ClosedTurn { chats, was_fenced: false })
    }

    /// Leaves the events of a turn that lost its lease to recovery, here or in the process that has the lease now. Their
    /// callers get the recorded outcomes: a lost lease is not an outcome.
    fn relay_lost_turn(&self, finished: FinishedTurn) {
        let FinishedTurn { batch, ingested, report, .. } = finished;
        // The run is not active any more, so recovery may end it.
        drop(report);
        let events: Vec<AcceptedEvent> = batch.into_events().into_iter().chain(ingested).collect();
        for event in &events {
            self.unserved_events.insert(event.key.clone());
        }
        self.relay.spawn_for_lost_turn(events);
    }

    /// Leaves events to the process that has adopted them. Their callers get the recorded outcomes.
    pub(crate) fn relay_adopted_events(&self, events: Vec<AcceptedEvent>) {
        self.relay.spawn_for_lost_turn(events);
    }

    /// Commits the end of a turn in one batch, with retries.
    async fn commit_finished_turn(
        &self,
        finished: &mut FinishedTurn,
        notice: &PreparedNotice,
        lease: Option<Fact>,
    ) -> Result<CommittedClose, StoreError> {
        let now = self.clock.now();
        let mut facts = finished.closing_entries(notice, now);
        let first_row = facts.len();
        let key = &finished.batch.lead.key;
        let outbounds = finished.staged_outbounds().chain(notice.outbound.clone());
        let outbounds = self.outbound_rows(key, outbounds.chain(notice.effects.outbounds.clone()), now);
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
        let (close_order, journal) = (finished.close_order.clone(), finished.journal.clone());
        let attempt = || {
            async {
                let order_guard = acquire_close_order(close_order.as_ref()).await;
                let committed = if let Some(journal) = &journal {
                    journal.flush_with(CommitDurability::Durable, Vec::new(), facts.clone()).await
                } else {
                    let batch = Batch { facts: facts.clone(), ..Batch::new() };
                    self.tapes.commit(batch).await.map(|committed| committed.outputs)
                };
                committed.map(|outputs| (outputs, order_guard))
            }
            .boxed()
        };
        let on_failure = |error: &StoreError| {
            tracing::error!(%error, "cannot write the end of a turn; retrying");
            let tools = finished.tools_with_undurable_effects();
            finished.notify_callers(&self.outbox, error, &tools);
        };
        let (outputs, order_guard) = self.retry_store(attempt, on_failure).await?;
        let rows = rows_with_ids(outbounds, outputs.get(first_row..));
        Ok(CommittedClose { outcome, others_outcome, rows, adopted_elsewhere: Vec::new(), order_guard })
    }

    /// New outbox rows for messages about an event.
    pub(crate) fn outbound_rows(
        &self,
        event: &EventKey,
        outbounds: impl IntoIterator<Item = OutboundMessage>,
        staged_at: Timestamp,
    ) -> Vec<NewOutboxMessage> {
        let owner = self.owner.name();
        let row = |message| NewOutboxMessage { message, event: event.clone(), staged_at, owner: owner.to_owned() };
        outbounds.into_iter().map(row).collect()
    }

    /// Commits the outcomes of a turn that can no longer write to its tape. Each event gets an outcome unless another
    /// process has adopted it, and the sender of the lead gets a notice.
    async fn commit_outcomes(
        &self,
        finished: &mut FinishedTurn,
        mut notice: PreparedNotice,
        error: StoreError,
    ) -> Result<CommittedClose, StoreError> {
        if finished.report.result.is_ok() {
            let error = TurnError::Store(error);
            let (text, effects) = self.notices.notify_observers(Some(&finished.batch), &error).await;
            notice = match &text {
                Some(text) => self.notices.dispatch_notice(&finished.batch, text).await,
                None => PreparedNotice::default(),
            };
            notice.effects = self.notices.prepare_effects(&finished.batch, effects).await;
            let run = finished.report.run.take();
            finished.report = TurnReport { run, ..TurnReport::failed(error, text) };
        }
        let outcome = finished.outcome();
        let lead = &finished.batch.lead.key;
        // The effects of hooks are given up with the content of the turn, except messages about failures.
        let notices = finished.staged_outbounds().chain(std::mem::take(&mut notice.effects.outbounds));
        let notices = notices.filter(|outbound| outbound.kind == OutboundKind::Notice);
        let notices = self.outbound_rows(lead, notices.chain(notice.outbound.take()), self.clock.now());
        let owner_name = self.owner.name().to_owned();
        let (mut rows, mut adopted_elsewhere) = (Vec::new(), Vec::new());
        for event in finished.batch.events().chain(&finished.ingested) {
            let (key, from, owner) = (event.key.clone(), Some(owner_name.clone()), owner_name.clone());
            let mut batch = Batch::new();
            batch.push(Fact::AdoptEvent { key: key.clone(), from, owner, was_in_progress: false });
            batch.push(Fact::SettleEvent { key, outcome: outcome.clone(), run_id: None });
            let first_row = batch.facts.len();
            let outbounds = if event.key == *lead { notices.clone() } else { Vec::new() };
            batch.facts.extend(outbounds.iter().cloned().map(Fact::EnqueueOutbound));
            match self.commit_with_retry(batch).await {
                Ok(committed) => rows.extend(rows_with_ids(outbounds, committed.outputs.get(first_row..))),
                Err(StoreError::EventNotInFlight { .. }) => adopted_elsewhere.push(event.key.clone()),
                Err(error) => return Err(error),
            }
        }
        if let Some(run) = &finished.report.run {
            self.fail_unwritten_run(&run.run_id).await;
        }
        Ok(CommittedClose { others_outcome: outcome.clone(), outcome, rows, adopted_elsewhere, order_guard: None })
    }

    /// Commits the outcome of an event. A transient failure of the store is retried until the host aborts, because no other
    /// process settles the event.
    pub(crate) async fn commit_with_retry(&self, batch: Batch) -> Result<CommitReceipt, StoreError> {
        let store = self.tapes.store();
        let on_failure = |error: &StoreError| {
            tracing::error!(%error, "cannot write the outcome of an event; retrying");
        };
        self.retry_store(|| store.commit(batch.clone()).boxed(), on_failure).await
    }

    /// Retries transient failures of the store until the host aborts. A stopping host continues to retry: turns that end
    /// during the stop need their outcomes too.
    async fn retry_store<'a, T>(
        &'a self,
        attempt: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
        mut on_failure: impl FnMut(&StoreError),
    ) -> Result<T, StoreError> {
        let mut attempts = 0;
        loop {
            let error = match attempt().await {
                Err(error) if error.is_transient() => error,
                result => return result,
            };
            on_failure(&error);
            attempts += 1;
            tokio::select! {
                () = tokio::time::sleep(CLOSE_BACKOFF.delay_after(attempts)) => {}
                () = self.abort_token.cancelled() => return Err(error),
            }
        }
    }

    /// Marks the run of a turn that could not be written as failed, if the run is recorded and open.
    async fn fail_unwritten_run(&self, run_id: &RunId) {
        let store = self.tapes.store();
        let is_open = matches!(store.run(run_id).await, Ok(Some(run)) if run.status.is_open());
        let ended_at = self.clock.now();
        let end = Fact::EndRun { run_id: run_id.clone(), status: RunStatus::Failed, usage: None, ended_at };
        if is_open && let Err(error) = store.commit(Batch { facts: vec![end], ..Batch::new() }).await {
            tracing::warn!(%error, "cannot write the end of a run");
        }
    }
}

/// Waits for turns that are just being committed; `None` after the timeout, or if there is nothing to order.
async fn acquire_close_order(close_order: Option<&CloseOrder>) -> Option<OwnedMutexGuard<()>> {
    tokio::time::timeout(CLOSE_ORDER_TIMEOUT, Arc::clone(close_order?).lock_owned()).await.ok()
}

impl FinishedTurn {
    /// Returns true if an error shows that another process has the session, or has adopted or settled an event of the
    /// turn.
    fn is_lost(&self, error: &StoreError) -> bool {
        match error {
            StoreError::Fenced { .. } => true,
            StoreError::EventNotInFlight { .. } => self.journal.is_some(),
            _ => false,
        }
    }

    /// Notifies the callers of these events that the store fails and delays their outcomes.
    fn notify_callers(&mut self, outbox: &Outbox, error: &StoreError, tools: &[String]) {
        let events = std::iter::once(&mut self.batch.lead).chain(&mut self.batch.others).chain(&mut self.ingested);
        let host_error = match tools {
            [] => HostError::Store(error.clone()),
            tools => HostError::UnrecordedEffects { error: error.clone(), tools: tools.join(", ") },
        };
        notify_delayed_callers(outbox, events, &host_error);
        if let Some(store_failure) = self.store_failure.take() {
            // The session actor may have stopped listening.
            let _closed = store_failure.send(error.clone());
        }
    }

    /// Names of tools whose effects may not be on disk.
    fn tools_with_undurable_effects(&self) -> Vec<String> {
        self.journal.as_ref().map(|journal| journal.tools_with_undurable_effects()).unwrap_or_default()
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
                let texts: Vec<String> = replies.map(|reply| reply.content.text_with_file_names()).collect();
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
    /// recorded, and the dispatch report of each message.
    fn closing_entries(&self, notice: &PreparedNotice, now: Timestamp) -> Vec<Fact> {
        let mut entries = Vec::new();
        let run = self.report.run.as_ref();
        match &self.report.result {
            Ok(output) => {
                // The prompt is the reply, which no run has recorded.
                if run.is_some_and(|run| run.replies_with_prompt) {
                    entries.push(EntryDraft::message(&ChatMessage::assistant(output.as_str())));
                }
                entries.extend(self.report.dispatched.iter().map(dispatch_report_entry));
            }
            // The run has recorded its own failure.
            Err(TurnError::Run(_)) => {}
            Err(error) => entries.push(EntryDraft::error("turn", &error.public_message())),
        }
        entries.extend(notice.dispatch_entry.clone());
        // Last, so that the next turn reads nothing of this one after an anchor.
        entries.extend(notice.effects.entries.iter().cloned());
        let append = |entry: EntryDraft| match (run, &self.journal) {
            (Some(run), Some(journal)) => journal.stamped_entry_fact(&run.run_id, entry),
            _ => Fact::AppendEntry { tape: self.tape.clone(), entry: EntryDraft { date: Some(now.into()), ..entry } },
        };
        entries.into_iter().map(append).collect()
    }

    /// Deliveries of a committed close, with that of the lead event last, and the events that another process has adopted.
    fn into_deliveries(
        self,
        outcome: Outcome,
        others_outcome: &Outcome,
        rows: Vec<OutboxRow>,
        adopted_elsewhere: &[EventKey],
    ) -> (Vec<EventDelivery>, Vec<AcceptedEvent>) {
        let TurnReport { result, run, .. } = self.report;
        let report = |RunReport { run_id, usage, command_error, active_guard, .. }| {
            // The end of the run is committed.
            drop(active_guard);
            (run_id, (usage, command_error))
        };
        let (run_id, of_run) = run.map(report).unzip();
        let (usage, command_error) = of_run.unwrap_or_default();
        let (output, error) = match result {
            Ok(output) => (output, None),
            Err(error) => (String::new(), Some(error)),
        };
        let is_adopted = |event: &AcceptedEvent| adopted_elsewhere.contains(&event.key);
        let others = self.batch.others.into_iter().chain(self.ingested);
        let (mut adopted, others): (Vec<_>, Vec<_>) = others.partition(is_adopted);
        let settled = |event: AcceptedEvent| event.into_settled(others_outcome.clone(), run_id.clone());
        let mut deliveries: Vec<EventDelivery> = others.into_iter().map(settled).collect();
        let lead = self.batch.lead;
        if is_adopted(&lead) {
            adopted.push(lead);
            return (deliveries, adopted);
        }
        let served = ServedEvent {
            run_id,
            output,
            usage,
            outcome: Some(outcome.clone()),
            command_error: command_error.filter(|_| error.is_none()),
            error,
            ..ServedEvent::in_flight(lead.session.clone())
        };
        deliveries.push(lead.into_delivery(served, outcome, rows));
        (deliveries, adopted)
    }
}

/// Outbox rows of committed messages, with their assigned ids.
pub(crate) fn rows_with_ids(outbounds: Vec<NewOutboxMessage>, outputs: Option<&[FactOutput]>) -> Vec<OutboxRow> {
    let staged = outbounds.into_iter().zip(outputs.unwrap_or_default());
    staged.filter_map(|(outbound, output)| OutboxRow::from_staged(output, outbound)).collect()
}

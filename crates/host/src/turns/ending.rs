//! The end of a turn: outcomes, entries and outbox rows in one commit, then everything goes out.

use std::sync::Arc;
use std::time::Duration;

use capstan_protocol::{ChatMessage, EventKey, Outbound, OutboundKind, Outcome, RunId, TapeName, Timestamp};
use capstan_tape::{Assigned, Batch, Committed, Draft, Fact, NewOutbound, RunStatus, StoreError};
use capstan_turn::{Dispatched, TurnError, TurnReport};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{OwnedMutexGuard, oneshot};

use super::journal::Journal;
use super::notices::sent_flags;
use super::staging::Staging;
use crate::HostError;
use crate::delivery::backoff::Backoff;
use crate::delivery::outbox::{Address, Parcel, Row};
use crate::engine::{Engine, GoesOn};
use crate::runs::orchestrator::RunReport;
use crate::sessions::item::{Group, Item};

/// How long to wait before a commit is tried again that the disk refused.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };

/// How long the end of a turn waits for the end of another beside it. Their order is not worth more: a disk that fails
/// must not hold up who is to be told so.
const IN_ORDER: Duration = Duration::from_secs(1);

/// A turn that has ended, before that is committed.
pub(crate) struct Ended {
    pub(crate) turn: Result<TurnReport, TurnError>,
    pub(crate) staging: Staging,
    pub(crate) run: Option<RunReport>,
    /// Kept until the end of the run is on record.
    pub(crate) goes_on: Option<GoesOn>,
    /// The turn's journal; an event without a turn has none.
    pub(crate) journal: Option<Arc<Journal>>,
}

/// Events that have ended together.
pub(crate) struct Closed {
    /// Those the turn was for.
    pub(crate) group: Group,
    /// Those its run took in on the way.
    pub(crate) taken: Vec<Item>,
    pub(crate) tape: TapeName,
    /// Hears, for those who wait behind these events, that the store fails.
    pub(crate) trouble: Option<oneshot::Sender<StoreError>>,
    /// Where they wait for others that end at the same time.
    pub(crate) order: Option<EndingOrder>,
}

/// What becomes of the session's lease in the commit that ends a turn.
pub(crate) enum Lease {
    /// Nothing.
    Untouched,
    /// This.
    Becomes(Box<Fact>),
}

/// Turns of a session that end at the same time end one after the other, so that what they say goes out in the order in
/// which it was committed. It is held over one attempt to commit, and never over what may take longer.
pub(crate) type EndingOrder = Arc<tokio::sync::Mutex<()>>;

/// The end of a turn as it is on record.
struct Written {
    outcome: Outcome,
    /// The outcome of the events that the turn did not answer.
    of_others: Outcome,
    rows: Vec<Row>,
    /// While it is held, what goes out goes before what is committed later.
    in_order: Option<OwnedMutexGuard<()>>,
}

/// A turn whose end is on record and on its way.
pub(crate) struct Settled {
    /// The chats that something goes to.
    pub(crate) chats: Vec<Address>,
    /// What the turn wrote was refused: it had lost its lease.
    pub(crate) was_fenced: bool,
}

/// What goes out when the end of a turn is on record.
struct Due {
    parcels: Vec<Parcel>,
    was_fenced: bool,
    in_order: Option<OwnedMutexGuard<()>>,
}

impl Engine {
    /// Ends an event that is refused a turn: the observers and the user are told. What comes after it in its
    /// conversation waits for that, and so must not wait for a chat that takes nothing.
    pub(crate) async fn refuse(self: &Arc<Self>, item: Item, tape: &TapeName, error: TurnError) {
        let Some(group) = Group::new(vec![item]) else { return };
        match self.write_without_turn(group, tape, error).await {
            Ok(due) => {
                for parcel in due.parcels {
                    self.deliver_at_once(parcel);
                }
            }
            Err(error) => tracing::error!(%error, "an event without a turn could not be settled"),
        }
    }

    /// Ends events that could not get a turn.
    pub(crate) async fn end_without_turn(self: &Arc<Self>, group: Group, tape: &TapeName, error: TurnError) {
        match self.write_without_turn(group, tape, error).await {
            Ok(due) => {
                let settled = self.send_due(due);
                self.wait_for_room(&settled.chats).await;
            }
            Err(error) => tracing::error!(%error, "an event without a turn could not be settled"),
        }
    }

    async fn write_without_turn(&self, group: Group, tape: &TapeName, error: TurnError) -> Result<Due, StoreError> {
        let staging = self.tell_observers(Some(&group.inbound), &error).await;
        let ended = Ended { turn: Err(error), staging, run: None, goes_on: None, journal: None };
        let closed = Closed { group, taken: Vec::new(), tape: tape.clone(), trouble: None, order: None };
        self.write(closed, ended, Lease::Untouched).await
    }

    /// Commits the outcomes with everything that belongs to them, then sends it out, and says to which chats.
    pub(crate) async fn settle(
        self: &Arc<Self>,
        closed: Closed,
        ended: Ended,
        lease: Lease,
    ) -> Result<Settled, StoreError> {
        Ok(self.send_due(self.write(closed, ended, lease).await?))
    }

    fn send_due(self: &Arc<Self>, due: Due) -> Settled {
        let Due { parcels, was_fenced, in_order } = due;
        let chats = parcels.into_iter().flat_map(|parcel| self.send_out(parcel)).collect();
        drop(in_order);
        Settled { chats, was_fenced }
    }

    /// Commits the outcomes with everything that belongs to them, and gives what goes out then.
    ///
    /// A disk that refuses is tried again until it takes it or the host gives up: an event must not be left without an
    /// outcome by a process that lives.
    async fn write(&self, mut closed: Closed, mut ended: Ended, lease: Lease) -> Result<Due, StoreError> {
        let mut was_fenced = false;
        let Written { outcome, of_others, rows, in_order } = match self.write_end(&mut closed, &ended, lease).await {
            // Fenced, or something that can never be written: what the turn wrote is given up, its events are not.
            Err(error) if !error.may_pass() => {
                tracing::error!(tape = %closed.tape, %error, "what a turn wrote is given up");
                was_fenced = matches!(error, StoreError::Fenced { .. });
                self.write_unfenced(&closed, &mut ended, error).await?
            }
            written => written?,
        };
        drop(ended.goes_on.take());
        let (run_id, usage) = ended.run.map(|run| (run.run_id, run.usage)).unzip();
        let output = ended.turn.as_ref().map(|report| report.output.clone()).unwrap_or_default();
        let error = ended.turn.err();
        let others = closed.group.others.into_iter().chain(closed.taken);
        let mut parcels: Vec<Parcel> = others.map(|item| Parcel::of(item, of_others.clone(), run_id.clone())).collect();
        let parcel = Parcel::of(closed.group.lead, outcome, run_id).with(output, usage.flatten(), error);
        parcels.push(Parcel { rows, ..parcel });
        Ok(Due { parcels, was_fenced, in_order })
    }

    async fn write_end(&self, closed: &mut Closed, ended: &Ended, lease: Lease) -> Result<Written, StoreError> {
        let notice = self.dispatch_notice(&closed.group, &ended.staging).await;
        let now = self.services.settings.clock.now();
        let mut facts = ended.entries(&closed.tape, notice.as_ref(), now);
        let first_row = facts.len();
        let key = &closed.group.lead.key;
        let outbounds = self.to_send(key, ended.staging.outbounds(), now);
        facts.extend(outbounds.iter().cloned().map(Fact::Enqueue));
        let outcome = ended.outcome();
        let run_id = ended.run.as_ref().map(|run| run.run_id.clone());
        let of_others = run_id.clone().map_or_else(|| outcome.clone(), |run_id| Outcome::Folded { run_id });
        let settle = |key: &EventKey, outcome: &Outcome| Fact::Settle {
            key: key.clone(),
            outcome: outcome.clone(),
            run_id: run_id.clone(),
        };
        facts.push(settle(key, &outcome));
        let others = closed.group.others.iter().chain(&closed.taken);
        facts.extend(others.map(|item| settle(&item.key, &of_others)));
        if let Lease::Becomes(fact) = lease {
            facts.push(*fact);
        }
        let (assigned, in_order) = self.commit_end(closed, ended, facts).await?;
        Ok(Written { outcome, of_others, rows: rows(outbounds, assigned.get(first_row..)), in_order })
    }

    /// Messages about an event, to be put into the outbox.
    pub(crate) fn to_send(&self, event: &EventKey, outbounds: Vec<Outbound>, at: Timestamp) -> Vec<NewOutbound> {
        let owner = self.services.settings.owner.name();
        let row = |message| NewOutbound { message, event: event.clone(), at, owner: owner.to_owned() };
        outbounds.into_iter().map(row).collect()
    }

    /// Commits the end of a turn. What goes out with it goes before what is committed later, while the guard is held.
    async fn commit_end(
        &self,
        closed: &mut Closed,
        ended: &Ended,
        facts: Vec<Fact>,
    ) -> Result<(Vec<Assigned>, Option<OwnedMutexGuard<()>>), StoreError> {
        let (order, journal) = (closed.order.clone(), ended.journal.as_ref());
        let attempt = || {
            async {
                let in_order = in_order(order.as_ref()).await;
                let committed = if let Some(journal) = journal {
                    journal.flush_with(facts.clone()).await
                } else {
                    let batch = Batch { facts: facts.clone(), ..Batch::new() };
                    self.services.tapes.commit(batch).await.map(|committed| committed.assigned)
                };
                committed.map(|assigned| (assigned, in_order))
            }
            .boxed()
        };
        let refused = |error: &StoreError| {
            tracing::error!(%error, "the end of a turn could not be written; it is tried again");
            let tools = journal.map(|journal| journal.unrecorded()).unwrap_or_default();
            closed.tell_callers(self, error, &tools);
        };
        self.insist(attempt, refused).await
    }

    /// A turn that lost its lease may write nothing more on the tape, but its events must not be left without an
    /// outcome, unless somebody else has taken them over, nor whoever sent them without a word.
    async fn write_unfenced(
        &self,
        closed: &Closed,
        ended: &mut Ended,
        error: StoreError,
    ) -> Result<Written, StoreError> {
        if ended.turn.is_ok() {
            let error = TurnError::Store(error);
            ended.staging = self.tell_observers(Some(&closed.group.inbound), &error).await;
            ended.turn = Err(error);
            self.dispatch_notice(&closed.group, &ended.staging).await;
        }
        let outcome = ended.outcome();
        let lead = &closed.group.lead.key;
        let mut notices = ended.staging.outbounds();
        notices.retain(|outbound| outbound.kind == OutboundKind::Notice);
        let notices = self.to_send(lead, notices, self.services.settings.clock.now());
        let me = self.services.settings.owner.name().to_owned();
        let mut staged = Vec::new();
        for item in closed.group.items().chain(&closed.taken) {
            let (key, from, owner) = (item.key.clone(), Some(me.clone()), me.clone());
            let mut batch = Batch::new();
            batch.push(Fact::Adopt { key: key.clone(), from, owner, was_worked_on: false });
            batch.push(Fact::Settle { key, outcome: outcome.clone(), run_id: None });
            let first_row = batch.facts.len();
            let own = if item.key == *lead { notices.clone() } else { Vec::new() };
            batch.facts.extend(own.iter().cloned().map(Fact::Enqueue));
            match self.commit_patiently(batch).await {
                Ok(committed) => staged.extend(rows(own, committed.assigned.get(first_row..))),
                Err(StoreError::NotOpen { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(run) = &ended.run {
            self.end_unwritten(&run.run_id).await;
        }
        Ok(Written { of_others: outcome.clone(), outcome, rows: staged, in_order: None })
    }

    /// Commits what nobody else will. A disk that refuses is tried again until it takes it or the host gives up.
    pub(crate) async fn commit_patiently(&self, batch: Batch) -> Result<Committed, StoreError> {
        let store = self.services.tapes.store();
        let refused = |error: &StoreError| {
            tracing::error!(%error, "the end of an event could not be written; it is tried again");
        };
        self.insist(|| store.commit(batch.clone()).boxed(), refused).await
    }

    /// Tries again what the store may take later, until it does or the host gives up. That a host stops is no reason to
    /// give up: what ends then needs its outcome as well.
    async fn insist<'a, T>(
        &'a self,
        attempt: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
        mut refused: impl FnMut(&StoreError),
    ) -> Result<T, StoreError> {
        let mut attempts = 0;
        loop {
            let error = match attempt().await {
                Err(error) if error.may_pass() => error,
                done => return done,
            };
            refused(&error);
            attempts += 1;
            tokio::select! {
                () = tokio::time::sleep(BACKOFF.after(attempts)) => {}
                () = self.giving_up.cancelled() => return Err(error),
            }
        }
    }

    /// The run of a turn that could not be written has failed, if it is on record at all.
    async fn end_unwritten(&self, run_id: &RunId) {
        let store = self.services.tapes.store();
        let is_open = matches!(store.run(run_id).await, Ok(Some(run)) if run.status.is_open());
        let at = self.services.settings.clock.now();
        let end = Fact::EndRun { run_id: run_id.clone(), status: RunStatus::Failed, usage: None, at };
        if is_open && let Err(error) = store.commit(Batch { facts: vec![end], ..Batch::new() }).await {
            tracing::warn!(%error, "the end of a run could not be written");
        }
    }
}

impl Closed {
    /// Whoever waits is told that the store fails; the outcome comes when it works again.
    fn tell_callers(&mut self, engine: &Engine, error: &StoreError, unrecorded: &[String]) {
        let items = std::iter::once(&mut self.group.lead).chain(&mut self.group.others).chain(&mut self.taken);
        let told = match unrecorded {
            [] => HostError::Store(error.clone()),
            tools => HostError::Unrecorded { error: error.clone(), tools: tools.join(", ") },
        };
        engine.tell_delayed(items, &told);
        if let Some(trouble) = self.trouble.take() {
            let _unheard = trouble.send(error.clone());
        }
    }
}

/// Waits until those that end before are on record, for a while.
async fn in_order(order: Option<&EndingOrder>) -> Option<OwnedMutexGuard<()>> {
    tokio::time::timeout(IN_ORDER, Arc::clone(order?).lock_owned()).await.ok()
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
            Err(error) => Outcome::Failed {
                notice: self.staging.notice().unwrap_or_else(|| error.public()),
                code: Some(error.code().to_owned()),
            },
        }
    }

    /// What the end of a turn adds to the tape: a reply no run has said, a failure no run has told, and what became of
    /// each message that was dispatched.
    fn entries(&self, tape: &TapeName, notice: Option<&Dispatched>, now: Timestamp) -> Vec<Fact> {
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
        let append = |entry: Draft| match (&self.run, &self.journal) {
            (Some(run), Some(journal)) => journal.last_entry(&run.run_id, entry),
            _ => Fact::Append { tape: tape.clone(), entry: Draft { date: Some(now.into()), ..entry } },
        };
        entries.into_iter().map(append).collect()
    }
}

/// Messages as they stand in the outbox, under the ids they were assigned.
pub(crate) fn rows(outbounds: Vec<NewOutbound>, assigned: Option<&[Assigned]>) -> Vec<Row> {
    let staged = outbounds.into_iter().zip(assigned.unwrap_or_default());
    staged.filter_map(|(outbound, assigned)| Row::staged(assigned, outbound)).collect()
}

//! The end of a turn: outcomes, entries and outbox rows in one commit, then everything goes out.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::args::Stage;
use capstan_protocol::{ChatMessage, EventKey, Outbound, OutboundKind, Outcome, RunId, TapeName, Timestamp};
use capstan_tape::{Assigned, Batch, Draft, Fact, NewOutbound, RunStatus, StoreError};
use capstan_turn::{Dispatched, TurnError, TurnReport};
use serde_json::json;
use tokio::sync::oneshot;

use crate::HostError;
use crate::engine::{Engine, GoesOn};
use crate::item::{Group, Item};
use crate::journal::Journal;
use crate::orchestrator::RunReport;
use crate::outbox::{Parcel, Row};
use crate::staging::Staging;

/// How long the first wait is before a commit is tried again that the disk refused; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// How long such a wait is at most.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

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
}

impl Engine {
    /// Ends an event that must not have a turn: the observers and the user are told.
    pub(crate) async fn without_turn(self: &Arc<Self>, item: Item, tape: &TapeName, error: TurnError) {
        let Some(group) = Group::new(vec![item]) else { return };
        self.end_without_turn(group, tape, error).await;
    }

    /// Ends events that could not get a turn.
    pub(crate) async fn end_without_turn(self: &Arc<Self>, group: Group, tape: &TapeName, error: TurnError) {
        let staging = Staging::default();
        group.inbound.extensions().insert(staging.clone());
        self.services.hooks.notify_error(Stage::Turn, error.fault(), Some(group.inbound.clone())).await;
        let ended = Ended { turn: Err(error), staging, run: None, goes_on: None, journal: None };
        let closed = Closed { group, taken: Vec::new(), tape: tape.clone(), trouble: None };
        if let Err(error) = self.settle(closed, ended, None).await {
            tracing::error!(%error, "an event without a turn could not be settled");
        }
    }

    /// Commits the outcomes with everything that belongs to them, then delivers. `lease` is what becomes of the
    /// session's lease in the same commit.
    ///
    /// A disk that refuses is tried again until it takes it or the host stops: an event must not be left without an
    /// outcome by a process that lives.
    pub(crate) async fn settle(
        self: &Arc<Self>,
        mut closed: Closed,
        mut ended: Ended,
        lease: Option<Fact>,
    ) -> Result<(), StoreError> {
        let notice = self.dispatch_notice(&closed.group, &ended.staging).await;
        let now = self.services.settings.clock.now();
        let mut facts = ended.entries(&closed.tape, notice.as_ref(), now);
        let first_row = facts.len();
        let key = &closed.group.lead.key;
        let owner = self.services.settings.owner.name();
        let outbounds = ended.staging.outbounds().into_iter();
        let staged = |message| NewOutbound { message, event: key.clone(), at: now, owner: owner.to_owned() };
        let outbounds: Vec<NewOutbound> = outbounds.map(staged).collect();
        facts.extend(outbounds.iter().cloned().map(Fact::Enqueue));
        let mut outcome = ended.outcome();
        let run_id = ended.run.as_ref().map(|run| run.run_id.clone());
        let folded = run_id.clone().map_or_else(|| outcome.clone(), |run_id| Outcome::Folded { run_id });
        let settle = |key: &EventKey, outcome: &Outcome| Fact::Settle {
            key: key.clone(),
            outcome: outcome.clone(),
            run_id: run_id.clone(),
        };
        facts.push(settle(key, &outcome));
        let others = closed.group.others.iter().chain(&closed.taken);
        facts.extend(others.map(|item| settle(&item.key, &folded)));
        facts.extend(lease);
        let assigned = match self.commit_end(&mut closed, &ended, facts).await {
            // Fenced, or something that can never be written: what the turn wrote is given up, its events are not.
            Err(error) if !error.may_pass() => {
                tracing::error!(tape = %closed.tape, %error, "what a turn wrote is given up");
                let error = TurnError::Store(error);
                outcome = Outcome::Failed { notice: error.public() };
                ended.turn = Err(error);
                self.settle_unfenced(&closed, &outcome).await?;
                if let Some(run) = &ended.run {
                    self.end_unwritten(&run.run_id).await;
                }
                Vec::new()
            }
            done => done?,
        };
        drop(ended.goes_on.take());
        let rows = outbounds.into_iter().enumerate();
        let rows = rows.filter_map(|(at, row)| Row::staged(assigned.get(first_row + at), row)).collect();
        let was_fenced = assigned.is_empty();
        let usage = ended.run.and_then(|run| run.usage);
        let output = ended.turn.as_ref().map(|report| report.output.clone()).unwrap_or_default();
        let error = ended.turn.err();
        for item in closed.group.others.into_iter().chain(closed.taken) {
            let outcome = if was_fenced { outcome.clone() } else { folded.clone() };
            self.deliver(Parcel::of(item, outcome, run_id.clone())).await;
        }
        let parcel = Parcel::of(closed.group.lead, outcome, run_id).with(output, usage, error);
        self.deliver(Parcel { rows, ..parcel }).await;
        Ok(())
    }

    async fn commit_end(
        &self,
        closed: &mut Closed,
        ended: &Ended,
        facts: Vec<Fact>,
    ) -> Result<Vec<Assigned>, StoreError> {
        let mut wait = FIRST_WAIT;
        loop {
            let committed = if let Some(journal) = &ended.journal {
                journal.flush_with(facts.clone()).await
            } else {
                let batch = Batch { facts: facts.clone(), ..Batch::new() };
                self.services.tapes.commit(batch).await.map(|committed| committed.assigned)
            };
            let error = match committed {
                Err(error) if error.may_pass() => error,
                done => return done,
            };
            tracing::error!(%error, "the end of a turn could not be written; it is tried again");
            let tools = ended.journal.as_ref().map(|journal| journal.unrecorded()).unwrap_or_default();
            closed.tell_callers(&error, &tools);
            tokio::select! {
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(LONGEST_WAIT),
                () = self.stopping.cancelled() => return Err(error),
            }
        }
    }

    /// A turn that lost its lease may write nothing more on the tape, but its events must not be left without an
    /// outcome, unless somebody else has taken them over.
    async fn settle_unfenced(&self, closed: &Closed, outcome: &Outcome) -> Result<(), StoreError> {
        let me = self.services.settings.owner.name().to_owned();
        for item in closed.group.items().chain(&closed.taken) {
            let mut batch = Batch::new();
            batch.push(Fact::Adopt {
                key: item.key.clone(),
                from: Some(me.clone()),
                owner: me.clone(),
                was_worked_on: false,
            });
            batch.push(Fact::Settle { key: item.key.clone(), outcome: outcome.clone(), run_id: None });
            match self.services.tapes.store().commit(batch).await {
                Ok(_) | Err(StoreError::NotOpen { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
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

    /// The one notice of the turn takes the same way as a reply. A failure on that way is logged: there is no other.
    async fn dispatch_notice(&self, group: &Group, staging: &Staging) -> Option<Dispatched> {
        let outbound = Outbound::notice(&group.inbound, group.lead.session.clone(), staging.notice()?);
        match self.turn.dispatch_outbound(&group.inbound, outbound.clone()).await {
            Ok(dispatched) => Some(dispatched),
            Err(error) => {
                tracing::warn!(%error, "the notice could not be dispatched by the hooks");
                staging.stage(outbound);
                None
            }
        }
    }
}

impl Closed {
    /// Whoever waits in this process is told that the store fails; the outcome comes when it works again.
    fn tell_callers(&mut self, error: &StoreError, unrecorded: &[String]) {
        let items = std::iter::once(&mut self.group.lead).chain(&mut self.group.others).chain(&mut self.taken);
        let told = match unrecorded {
            [] => HostError::Store(error.clone()),
            tools => HostError::Unrecorded { error: error.clone(), tools: tools.join(", ") },
        };
        tell(items, &told);
        if let Some(trouble) = self.trouble.take() {
            let _unheard = trouble.send(error.clone());
        }
    }
}

/// Tells the callers of events that the store fails. They are told once.
pub(crate) fn tell<'a>(items: impl Iterator<Item = &'a mut Item>, error: &HostError) {
    for caller in items.filter_map(|item| item.caller.take()) {
        // Whoever asked may have gone.
        let _unheard = caller.send(Err(error.clone()));
    }
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

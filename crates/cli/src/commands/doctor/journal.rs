//! The store: its version, its soundness, and whether everything in it is seen to.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_host::recovery::conservation::Conservation;
use capstan_host::{Abandoned, Bindings, Clock, Owners};
use capstan_protocol::{Binding, EntryId, RunnerId, TapeName, Timestamp, WorkspaceId};
use capstan_store::SqliteStore;
use capstan_tape::{OutboxRecord, OutboxStatus, Problem, Slice, StoreError, TapeAddress, TapeStore, Tapes};
use serde_json::json;

use super::super::{LISTENING, age};
use super::report::{Report, Section};
use crate::Failure;

/// How many of a kind are told one by one.
const TOLD: usize = 10;
/// How long a database may be locked before it is worth a warning.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a message may wait to be sent before it is worth a warning.
const PATIENCE_MILLIS: i64 = 60_000;

/// The store of a home, to be looked at.
pub(super) struct Journal<'a> {
    pub(super) database: &'a Path,
    pub(super) elsewhere: Option<Arc<dyn TapeStore>>,
    pub(super) owners: &'a Owners,
    /// Who can serve events, if that is known.
    pub(super) runners: Option<Vec<RunnerId>>,
}

/// What may be a fault, or only something that others do at this moment: told when it is there twice.
#[derive(Default)]
struct Suspicions {
    problems: Vec<Problem>,
    abandoned: Abandoned,
    /// The oldest entry of each tape that waits to be handed over.
    waiting: Vec<(TapeName, EntryId)>,
}

impl Suspicions {
    fn is_empty(&self) -> bool {
        self.problems.is_empty()
            && self.abandoned.events.is_empty()
            && self.abandoned.runs.is_empty()
            && self.waiting.is_empty()
    }

    fn still(mut self, before: &Self) -> Self {
        self.problems.retain(|problem| before.problems.contains(problem));
        self.abandoned = self.abandoned.still(&before.abandoned);
        self.waiting.retain(|waiting| before.waiting.contains(waiting));
        self
    }
}

impl Journal<'_> {
    /// Adds what is to be said about the store.
    pub(super) async fn examine(&self, report: &mut Report) {
        let version = match SqliteStore::version_of(self.database) {
            Ok(Some(version)) => version,
            Ok(None) => {
                report.add(Section::ok("database", "not there yet: the first message makes it"));
                return;
            }
            Err(error) => {
                report.add(Section::failed("database", &error.into()));
                return;
            }
        };
        let store = match self.snapshot() {
            Ok(store) => store,
            Err(error) => {
                report.add(Section::failed("database", &error.into()));
                return;
            }
        };
        report.add(database(version));
        let was_locked = self.is_locked(version, Duration::ZERO);
        let tapes = self.tapes(&store);
        self.examine_suspicions(report, &tapes).await;
        let conservation = Conservation::check(&tapes).await;
        report.add(told("conservation", conservation.as_ref().map(conserved).map_err(Clone::clone)));
        report.conservation = conservation.ok();
        report.add(told("outbox", outbox(&store, Timestamp::now()).await));
        for section in bindings(tapes, self.runners.as_deref()).await {
            report.add(section);
        }
        // A host that writes much is met in the middle of it now and then, but not for long.
        if was_locked && self.is_locked(version, PATIENCE) {
            let busy = Failure::from(StoreError::Busy { what: self.database.display().to_string() });
            report.add(Section::warning("lock", busy.message, &busy.hint));
        }
    }

    /// Whether somebody else keeps it locked. One of an older version is left alone: the next start, which migrates it, says so.
    fn is_locked(&self, version: u32, wait: Duration) -> bool {
        version == SqliteStore::SCHEMA_VERSION && SqliteStore::is_locked(self.database, wait)
    }

    /// What is wrong with the store, if it is not to be touched.
    pub(super) async fn damage(&self) -> Result<Option<&'static str>, StoreError> {
        if SqliteStore::version_of(self.database)?.is_none() {
            return Ok(None);
        }
        let tapes = self.tapes(&self.snapshot()?);
        let (_, found) = self.suspicions(&tapes).await?;
        if !found.problems.is_empty() {
            return Ok(Some("the store is damaged"));
        }
        let conservation = Conservation::check(&tapes).await?;
        Ok(if conservation.holds() { None } else { Some("not every accepted event can be accounted for") })
    }

    fn snapshot(&self) -> Result<Arc<SqliteStore>, StoreError> {
        SqliteStore::snapshot(self.database).map(Arc::new)
    }

    fn tapes(&self, store: &Arc<SqliteStore>) -> Tapes {
        let store = Arc::clone(store);
        match &self.elsewhere {
            Some(elsewhere) => Tapes::kept_by(store, Arc::clone(elsewhere)),
            None => Tapes::new(store),
        }
    }

    async fn examine_suspicions(&self, report: &mut Report, tapes: &Tapes) {
        match self.suspicions(tapes).await {
            Err(error) => report.add(Section::failed("integrity", &error.into())),
            Ok((count, found)) => {
                report.add(integrity(count, &found.problems));
                let now = Timestamp::now();
                report.add(in_flight(&found.abandoned, now));
                report.add(runs(&found.abandoned, now));
                if self.elsewhere.is_some() {
                    report.add(hand_over(&found.waiting));
                }
            }
        }
    }

    async fn suspicions(&self, tapes: &Tapes) -> Result<(usize, Suspicions), StoreError> {
        let count = tapes.list().await?.len();
        let first = self.suspect(tapes).await?;
        if first.is_empty() {
            return Ok((count, first));
        }
        let second = self.suspect(&self.tapes(&self.snapshot()?)).await?;
        Ok((count, second.still(&first)))
    }

    async fn suspect(&self, tapes: &Tapes) -> Result<Suspicions, StoreError> {
        let mut waiting = Vec::new();
        if self.elsewhere.is_some() {
            for record in tapes.store().tapes().await? {
                let oldest = Slice { limit: Some(1), ..Slice::default() };
                let oldest = tapes.store().read(&record.name, &oldest).await?.pop();
                waiting.extend(oldest.map(|entry| (record.name, entry.id)));
            }
        }
        Ok(Suspicions {
            problems: tapes.verify().await?,
            abandoned: self.owners.abandoned(tapes.store().as_ref(), Timestamp::now()).await?,
            waiting,
        })
    }
}

fn told(check: &'static str, section: Result<Section, StoreError>) -> Section {
    section.unwrap_or_else(|error| Section::failed(check, &Failure::from(error)))
}

/// The first of many lines, and how many more there are.
pub(super) fn some(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.collect();
    let more = lines.len().saturating_sub(TOLD);
    lines.truncate(TOLD);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// Bindings that cannot be read, or whose runner is gone; nothing is said where all is well with them.
async fn bindings(tapes: Tapes, runners: Option<&[RunnerId]>) -> Vec<Section> {
    // They are only looked at: nothing is told anywhere.
    let nowhere = TapeAddress { workspace: WorkspaceId::new(""), session: capstan_host::SYSTEM.into() };
    let bindings = Bindings::new(tapes, Clock::system(), nowhere);
    let found = async { Ok::<_, StoreError>((bindings.unreadable().await?, bindings.all().await?)) };
    let (unreadable, readable) = match found.await {
        Ok(found) => found,
        Err(error) => return vec![Section::failed("bindings", &error.into())],
    };
    let mut sections = Vec::new();
    if !unreadable.is_empty() {
        let message = format!("{} cannot be read: events that they could fit are refused", unreadable.len());
        let hint = "save each anew with `capstan bindings set`, or remove it with `capstan bindings remove`";
        let lines = unreadable.iter().map(|binding| format!("{}: {}", binding.binding_id, binding.reason));
        sections.push(Section::problem("bindings", message, hint).with(some(lines)));
    }
    let is_gone =
        |binding: &&Binding| binding.enabled && runners.is_some_and(|runners| !runners.contains(&binding.runner_id));
    let gone: Vec<&Binding> = readable.iter().filter(is_gone).collect();
    if !gone.is_empty() {
        let message = format!("{} in force name a runner that is not there: their events fail", gone.len());
        let hint = "bring the plugin back that has it, or name another with `capstan bindings set`";
        let lines = gone.iter().map(|binding| format!("{}: {}", binding.binding_id, binding.runner_id));
        sections.push(Section::problem("bindings", message, hint).with(some(lines)));
    }
    sections
}

fn database(version: u32) -> Section {
    let known = SqliteStore::SCHEMA_VERSION;
    let data = json!({ "schema": version, "known": known });
    if version < known {
        let message = format!("schema {version}, this program writes {known}");
        let hint = "older: migrates at the next start or with `capstan store migrate`";
        return Section::warning("database", message, hint).data(data);
    }
    Section::ok("database", format!("schema {version}")).data(data)
}

fn integrity(tapes: usize, problems: &[Problem]) -> Section {
    if problems.is_empty() {
        return Section::ok("integrity", format!("tapes: {tapes}, no damage found"));
    }
    let lines = problems.iter().map(|problem| match &problem.tape {
        Some(tape) => format!("tape {tape}: {}", problem.message),
        None => problem.message.clone(),
    });
    let hint = "restore the newest backup that `capstan store backup` made, or mend what is named";
    Section::problem("integrity", format!("tapes: {tapes}, damage found"), hint).with(some(lines))
}

fn conserved(found: &Conservation) -> Section {
    let Conservation { accepted, outcomes, in_flight, .. } = found;
    if found.holds() {
        let message = format!("{accepted} accepted = {outcomes} outcomes + {in_flight} in flight");
        return Section::ok("conservation", message);
    }
    let missing = found
        .missing
        .iter()
        .map(|one| format!("missing: event {} of {} on tape {}", one.event.event_id, one.event.source, one.tape));
    let surplus = found.surplus.iter().map(|one| {
        let (event, why) = (&one.standing.event, serde_json::to_value(one.why).unwrap_or_default());
        let why = why.as_str().unwrap_or_default().replace('_', " ");
        format!("surplus: event {} of {} on tape {} ({why})", event.event_id, event.source, one.standing.tape)
    });
    let unreadable = found.unreadable.iter().map(|one| format!("unreadable: entry {} of tape {}", one.entry, one.tape));
    let message = format!("{accepted} accepted, {outcomes} outcomes, {in_flight} in flight do not add up");
    let hint = "no event should ever be lost: keep the home as it is, restore a backup, and report it";
    Section::problem("conservation", message, hint).with(some(missing.chain(surplus).chain(unreadable)))
}

fn in_flight(abandoned: &Abandoned, now: Timestamp) -> Section {
    let events = &abandoned.events;
    if events.is_empty() {
        return Section::ok("in-flight", "every event in flight has a process that sees to it");
    }
    let line = |event: &capstan_tape::InFlight| {
        let (id, session) = (&event.key.event_id, &event.session);
        format!("event {id} of session {session}, accepted {} ago", age(event.at, now))
    };
    let lines = events.iter().map(line);
    let data = events.iter().map(|event| {
        json!({ "event": event.key, "session": event.session, "tape": event.tape, "accepted_at": event.at,
                "owner": event.owner, "adoptions": event.adoptions })
    });
    let hint = format!("taken up by the next `{LISTENING}`, or `capstan run` of that session");
    let message = format!("events whose process is gone: {}", events.len());
    let section = Section::warning("in-flight", message, &hint).with(some(lines));
    section.data(json!({ "abandoned": data.collect::<Vec<_>>() }))
}

fn runs(abandoned: &Abandoned, now: Timestamp) -> Section {
    let runs = &abandoned.runs;
    if runs.is_empty() {
        return Section::ok("runs", "every run that has not ended has a process that works on it");
    }
    let line = |run: &capstan_tape::RunRecord| {
        format!("run {} of session {}, begun {} ago", run.run_id, run.session, age(run.started_at, now))
    };
    let lines = runs.iter().map(line);
    let hint = format!("closed by the next `{LISTENING}`, or `capstan run` of that session");
    let section = Section::warning("runs", format!("runs whose process is gone: {}", runs.len()), &hint);
    let ids: Vec<_> = runs.iter().map(|run| &run.run_id).collect();
    section.with(some(lines)).data(json!({ "abandoned": ids }))
}

fn hand_over(waiting: &[(TapeName, EntryId)]) -> Section {
    if waiting.is_empty() {
        return Section::ok("hand-over", "the tape store has every entry");
    }
    let lines = waiting.iter().map(|(tape, entry)| format!("tape {tape} from entry {entry} on"));
    let hint = "handed over with the next message of that session, or by `capstan doctor --repair`";
    let message = format!("tapes with entries that wait for the tape store: {}", waiting.len());
    Section::warning("hand-over", message, hint).with(some(lines))
}

async fn outbox(store: &SqliteStore, now: Timestamp) -> Result<Section, StoreError> {
    use capstan_tape::Store as _;
    let waiting = store.waiting().await?;
    let dead = store.dead_letters(TOLD).await?;
    let oldest = waiting.iter().map(|row| row.at).min();
    let data = json!({ "waiting": waiting.len(), "oldest_waiting": oldest,
                       "undelivered": dead.count, "oldest_undelivered": dead.oldest });
    let since = |at: Option<Timestamp>| at.map(|at| format!(", the oldest {} old", age(at, now))).unwrap_or_default();
    let numbers =
        format!("waiting: {}{}; undelivered: {}{}", waiting.len(), since(oldest), dead.count, since(dead.oldest));
    let is_late = oldest.is_some_and(|at| now.as_millis().saturating_sub(at.as_millis()) > PATIENCE_MILLIS);
    if !is_late && dead.count == 0 {
        return Ok(Section::ok("outbox", numbers).data(data));
    }
    let mut lines: Vec<String> = dead.newest.iter().map(|row| given_up(row, now)).collect();
    if dead.count > lines.len() as u64 {
        lines.push(format!("and {} older ones", dead.count - lines.len() as u64));
    }
    let sent = format!("what waits is sent by `{LISTENING}`");
    let kept =
        "what was given up stands on its tape (`capstan tape show SESSION`), and `capstan doctor --repair` notes it";
    let hints = [(!waiting.is_empty()).then_some(sent.as_str()), (dead.count > 0).then_some(kept)];
    let hint = hints.into_iter().flatten().collect::<Vec<_>>().join("; ");
    Ok(Section::warning("outbox", numbers, &hint).with(lines).data(data))
}

/// A message that was given up, in a line.
pub(super) fn given_up(row: &OutboxRecord, now: Timestamp) -> String {
    let reason = match &row.status {
        OutboxStatus::Undelivered { reason } | OutboxStatus::Noted { reason } => reason.as_str(),
        OutboxStatus::Waiting { .. } | OutboxStatus::Sent { .. } => "",
    };
    let (message, when) = (&row.message, age(row.at, now));
    format!("undelivered {when} ago to {} of {}: {reason}", message.chat_id, message.channel)
}

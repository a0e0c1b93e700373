//! The store: its version, its soundness, and whether everything in it is seen to.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_host::recovery::conservation::ConservationReport;
use capstan_host::{OrphanedWork, ProcessLiveness};
use capstan_policy::BindingStore;
use capstan_protocol::{Binding, Clock, EntryId, RunnerId, TapeName, Timestamp, WorkspaceId};
use capstan_store::SqliteStore;
use capstan_tape::{
    IntegrityProblem, OutboxRecord, OutboxStatus, StoreError, TapeAddress, TapeRepository, TapeSlice, TapeStore,
};
use serde_json::json;

use super::super::{SERVE_COMMAND_EXAMPLE, format_age};
use super::report::{CheckResult, DoctorReport};
use crate::CommandError;

/// How many of a kind are told one by one.
const MAX_LISTED_FINDINGS: usize = 10;
/// How long a database may be locked before it is worth a warning.
const LOCK_WARNING_DELAY: Duration = Duration::from_secs(1);
/// How long a message may wait to be sent before it is worth a warning.
const OUTBOX_WARNING_AGE_MILLIS: i64 = 60_000;

/// The store of a home, to be looked at.
pub(super) struct StoreCheck<'a> {
    pub(super) database: &'a Path,
    pub(super) external_tapes: Option<Arc<dyn TapeStore>>,
    pub(super) owners: &'a ProcessLiveness,
    /// Who can serve events, if that is known.
    pub(super) runners: Option<Vec<RunnerId>>,
}

/// What may be a fault, or only something that others do at this moment: told when it is there twice.
#[derive(Default)]
struct SuspectedFaults {
    problems: Vec<IntegrityProblem>,
    abandoned: OrphanedWork,
    /// The oldest entry of each tape that waits to be handed over.
    unreplicated: Vec<(TapeName, EntryId)>,
}

impl SuspectedFaults {
    fn is_empty(&self) -> bool {
        self.problems.is_empty()
            && self.abandoned.events.is_empty()
            && self.abandoned.runs.is_empty()
            && self.unreplicated.is_empty()
    }

    fn retain_recurring(mut self, before: &Self) -> Self {
        self.problems.retain(|problem| before.problems.contains(problem));
        self.abandoned = self.abandoned.retain_still_orphaned(&before.abandoned);
        self.unreplicated.retain(|waiting| before.unreplicated.contains(waiting));
        self
    }
}

impl StoreCheck<'_> {
    /// Adds what is to be said about the store.
    pub(super) async fn examine(&self, report: &mut DoctorReport) {
        let version = match SqliteStore::read_schema_version(self.database) {
            Ok(Some(version)) => version,
            Ok(None) => {
                report.add(CheckResult::ok("database", "not there yet: the first message makes it"));
                return;
            }
            Err(error) => {
                report.add(CheckResult::failed("database", &error.into()));
                return;
            }
        };
        let store = match self.snapshot() {
            Ok(store) => store,
            Err(error) => {
                report.add(CheckResult::failed("database", &error.into()));
                return;
            }
        };
        report.add(check_schema(version));
        let was_locked = self.is_locked(version, Duration::ZERO);
        let tapes = self.tapes(&store);
        self.report_faults(report, &tapes).await;
        let conservation = ConservationReport::check(&tapes).await;
        report
            .add(check_or_failure("conservation", conservation.as_ref().map(check_conservation).map_err(Clone::clone)));
        report.conservation = conservation.ok();
        report.add(check_or_failure("outbox", check_outbox(&store, Timestamp::now()).await));
        for section in check_bindings(tapes, self.runners.as_deref()).await {
            report.add(section);
        }
        // A host that writes much is met in the middle of it now and then, but not for long.
        if was_locked && self.is_locked(version, LOCK_WARNING_DELAY) {
            let busy = CommandError::from(StoreError::Busy { what: self.database.display().to_string() });
            report.add(CheckResult::warning("lock", busy.message, &busy.hint));
        }
    }

    /// Whether somebody else keeps it locked. One of an older version is left alone: the next start, which migrates it, says so.
    fn is_locked(&self, version: u32, wait: Duration) -> bool {
        version == SqliteStore::SCHEMA_VERSION && SqliteStore::is_locked(self.database, wait)
    }

    /// What is wrong with the store, if it is not to be touched.
    pub(super) async fn damage(&self) -> Result<Option<&'static str>, StoreError> {
        if SqliteStore::read_schema_version(self.database)?.is_none() {
            return Ok(None);
        }
        let tapes = self.tapes(&self.snapshot()?);
        let (_, found) = self.confirm_faults(&tapes).await?;
        if !found.problems.is_empty() {
            return Ok(Some("the store is damaged"));
        }
        let conservation = ConservationReport::check(&tapes).await?;
        Ok(if conservation.is_balanced() { None } else { Some("not every accepted event can be accounted for") })
    }

    fn snapshot(&self) -> Result<Arc<SqliteStore>, StoreError> {
        SqliteStore::open_snapshot(self.database).map(Arc::new)
    }

    fn tapes(&self, store: &Arc<SqliteStore>) -> TapeRepository {
        let store = Arc::clone(store);
        match &self.external_tapes {
            Some(elsewhere) => TapeRepository::with_external_store(store, Arc::clone(elsewhere)),
            None => TapeRepository::new(store),
        }
    }

    async fn report_faults(&self, report: &mut DoctorReport, tapes: &TapeRepository) {
        match self.confirm_faults(tapes).await {
            Err(error) => report.add(CheckResult::failed("integrity", &error.into())),
            Ok((count, found)) => {
                report.add(check_integrity(count, &found.problems));
                let now = Timestamp::now();
                report.add(check_in_flight(&found.abandoned, now));
                report.add(check_runs(&found.abandoned, now));
                if self.external_tapes.is_some() {
                    report.add(check_replication(&found.unreplicated));
                }
            }
        }
    }

    async fn confirm_faults(&self, tapes: &TapeRepository) -> Result<(usize, SuspectedFaults), StoreError> {
        let count = tapes.list().await?.len();
        let first = self.scan_for_faults(tapes).await?;
        if first.is_empty() {
            return Ok((count, first));
        }
        let second = self.scan_for_faults(&self.tapes(&self.snapshot()?)).await?;
        Ok((count, second.retain_recurring(&first)))
    }

    async fn scan_for_faults(&self, tapes: &TapeRepository) -> Result<SuspectedFaults, StoreError> {
        let mut waiting = Vec::new();
        if self.external_tapes.is_some() {
            for record in tapes.store().tapes().await? {
                let oldest = TapeSlice { limit: Some(1), ..TapeSlice::default() };
                let oldest = tapes.store().read(&record.name, &oldest).await?.pop();
                waiting.extend(oldest.map(|entry| (record.name, entry.id)));
            }
        }
        Ok(SuspectedFaults {
            problems: tapes.verify().await?,
            abandoned: self.owners.find_orphaned(tapes.store().as_ref(), Timestamp::now()).await?,
            unreplicated: waiting,
        })
    }
}

fn check_or_failure(check: &'static str, section: Result<CheckResult, StoreError>) -> CheckResult {
    section.unwrap_or_else(|error| CheckResult::failed(check, &CommandError::from(error)))
}

/// The first of many lines, and how many more there are.
pub(super) fn truncate_lines(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.collect();
    let more = lines.len().saturating_sub(MAX_LISTED_FINDINGS);
    lines.truncate(MAX_LISTED_FINDINGS);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// Bindings that cannot be read, or whose runner is gone; nothing is said where all is well with them.
async fn check_bindings(tapes: TapeRepository, runners: Option<&[RunnerId]>) -> Vec<CheckResult> {
    // They are only looked at: nothing is told anywhere.
    let nowhere = TapeAddress { workspace: WorkspaceId::new(""), session: capstan_host::SYSTEM_SESSION.into() };
    let bindings = BindingStore::new(tapes, Clock::system(), nowhere);
    let found = async { Ok::<_, StoreError>((bindings.unreadable().await?, bindings.all().await?)) };
    let (unreadable, readable) = match found.await {
        Ok(found) => found,
        Err(error) => return vec![CheckResult::failed("bindings", &error.into())],
    };
    let mut sections = Vec::new();
    if !unreadable.is_empty() {
        let message = format!("{} cannot be read: events that they could fit are refused", unreadable.len());
        let hint = "save each anew with `capstan bindings set`, or remove it with `capstan bindings remove`";
        let lines = unreadable.iter().map(|binding| format!("{}: {}", binding.binding_id, binding.reason));
        sections.push(CheckResult::problem("bindings", message, hint).with_details(truncate_lines(lines)));
    }
    let is_gone =
        |binding: &&Binding| binding.enabled && runners.is_some_and(|runners| !runners.contains(&binding.runner_id));
    let gone: Vec<&Binding> = readable.iter().filter(is_gone).collect();
    if !gone.is_empty() {
        let message = format!("{} in force name a runner that is not there: their events fail", gone.len());
        let hint = "bring the plugin back that has it, or name another with `capstan bindings set`";
        let lines = gone.iter().map(|binding| format!("{}: {}", binding.binding_id, binding.runner_id));
        sections.push(CheckResult::problem("bindings", message, hint).with_details(truncate_lines(lines)));
    }
    sections
}

fn check_schema(version: u32) -> CheckResult {
    let known = SqliteStore::SCHEMA_VERSION;
    let data = json!({ "schema": version, "known": known });
    if version < known {
        let message = format!("schema {version}, this program writes {known}");
        let hint = "older: migrates at the next start or with `capstan store migrate`";
        return CheckResult::warning("database", message, hint).data(data);
    }
    CheckResult::ok("database", format!("schema {version}")).data(data)
}

fn check_integrity(tapes: usize, problems: &[IntegrityProblem]) -> CheckResult {
    if problems.is_empty() {
        return CheckResult::ok("integrity", format!("tapes: {tapes}, no damage found"));
    }
    let lines = problems.iter().map(|problem| match &problem.tape {
        Some(tape) => format!("tape {tape}: {}", problem.message),
        None => problem.message.clone(),
    });
    let hint = "restore the newest backup that `capstan store backup` made, or mend what is named";
    CheckResult::problem("integrity", format!("tapes: {tapes}, damage found"), hint).with_details(truncate_lines(lines))
}

fn check_conservation(found: &ConservationReport) -> CheckResult {
    let ConservationReport { accepted, outcomes, in_flight, .. } = found;
    if found.is_balanced() {
        let message = format!("{accepted} accepted = {outcomes} outcomes + {in_flight} in flight");
        return CheckResult::ok("conservation", message);
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
    CheckResult::problem("conservation", message, hint)
        .with_details(truncate_lines(missing.chain(surplus).chain(unreadable)))
}

fn check_in_flight(abandoned: &OrphanedWork, now: Timestamp) -> CheckResult {
    let events = &abandoned.events;
    if events.is_empty() {
        return CheckResult::ok("in-flight", "every event in flight has a process that sees to it");
    }
    let line = |event: &capstan_tape::InFlightEvent| {
        let (id, session) = (&event.key.event_id, &event.session);
        format!("event {id} of session {session}, accepted {} ago", format_age(event.accepted_at, now))
    };
    let lines = events.iter().map(line);
    let data = events.iter().map(|event| {
        json!({ "event": event.key, "session": event.session, "tape": event.tape, "accepted_at": event.accepted_at,
                "owner": event.owner, "adoptions": event.adoptions })
    });
    let hint = format!("taken up by the next `{SERVE_COMMAND_EXAMPLE}`, or `capstan run` of that session");
    let message = format!("events whose process is gone: {}", events.len());
    let section = CheckResult::warning("in-flight", message, &hint).with_details(truncate_lines(lines));
    section.data(json!({ "abandoned": data.collect::<Vec<_>>() }))
}

fn check_runs(abandoned: &OrphanedWork, now: Timestamp) -> CheckResult {
    let runs = &abandoned.runs;
    if runs.is_empty() {
        return CheckResult::ok("runs", "every run that has not ended has a process that works on it");
    }
    let line = |run: &capstan_tape::RunRecord| {
        format!("run {} of session {}, begun {} ago", run.run_id, run.session, format_age(run.started_at, now))
    };
    let lines = runs.iter().map(line);
    let hint = format!("closed by the next `{SERVE_COMMAND_EXAMPLE}`, or `capstan run` of that session");
    let section = CheckResult::warning("runs", format!("runs whose process is gone: {}", runs.len()), &hint);
    let ids: Vec<_> = runs.iter().map(|run| &run.run_id).collect();
    section.with_details(truncate_lines(lines)).data(json!({ "abandoned": ids }))
}

fn check_replication(waiting: &[(TapeName, EntryId)]) -> CheckResult {
    if waiting.is_empty() {
        return CheckResult::ok("hand-over", "the tape store has every entry");
    }
    let lines = waiting.iter().map(|(tape, entry)| format!("tape {tape} from entry {entry} on"));
    let hint = "handed over with the next message of that session, or by `capstan doctor --repair`";
    let message = format!("tapes with entries that wait for the tape store: {}", waiting.len());
    CheckResult::warning("hand-over", message, hint).with_details(truncate_lines(lines))
}

async fn check_outbox(store: &SqliteStore, now: Timestamp) -> Result<CheckResult, StoreError> {
    use capstan_tape::Store as _;
    let waiting = store.pending_outbound().await?;
    let dead = store.dead_letters(MAX_LISTED_FINDINGS).await?;
    let oldest = waiting.iter().map(|row| row.staged_at).min();
    let data = json!({ "waiting": waiting.len(), "oldest_waiting": oldest,
                       "undelivered": dead.count, "oldest_undelivered": dead.oldest });
    let since =
        |at: Option<Timestamp>| at.map(|at| format!(", the oldest {} old", format_age(at, now))).unwrap_or_default();
    let numbers =
        format!("waiting: {}{}; undelivered: {}{}", waiting.len(), since(oldest), dead.count, since(dead.oldest));
    let is_late = oldest.is_some_and(|at| now.as_millis().saturating_sub(at.as_millis()) > OUTBOX_WARNING_AGE_MILLIS);
    if !is_late && dead.count == 0 {
        return Ok(CheckResult::ok("outbox", numbers).data(data));
    }
    let mut lines: Vec<String> = dead.newest.iter().map(|row| format_dead_letter(row, now)).collect();
    if dead.count > lines.len() as u64 {
        lines.push(format!("and {} older ones", dead.count - lines.len() as u64));
    }
    let sent = format!("what waits is sent by `{SERVE_COMMAND_EXAMPLE}`");
    let kept =
        "what was given up stands on its tape (`capstan tape show SESSION`), and `capstan doctor --repair` notes it";
    let hints = [(!waiting.is_empty()).then_some(sent.as_str()), (dead.count > 0).then_some(kept)];
    let hint = hints.into_iter().flatten().collect::<Vec<_>>().join("; ");
    Ok(CheckResult::warning("outbox", numbers, &hint).with_details(lines).data(data))
}

/// A message that was given up, in a line.
pub(super) fn format_dead_letter(row: &OutboxRecord, now: Timestamp) -> String {
    let reason = match &row.status {
        OutboxStatus::Undelivered { reason } | OutboxStatus::Noted { reason } => reason.as_str(),
        OutboxStatus::Waiting { .. } | OutboxStatus::Sent { .. } => "",
    };
    let (message, when) = (&row.message, format_age(row.staged_at, now));
    format!("undelivered {when} ago to {} of {}: {reason}", message.chat_id, message.channel)
}

//! Checks of the store: schema, integrity, conservation of events, orphaned work, outbox and bindings.
//!
//! # Confirmation of faults
//!
//! Other processes may write while the checks read. A finding that could be a write in progress is reported only if a
//! second snapshot shows it again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_host::conservation::ConservationReport;
use capstan_host::{OrphanedWork, OverdueRun, ProcessLiveness};
use capstan_policy::BindingStore;
use capstan_policy::bindings::find_misfit;
use capstan_protocol::{Binding, Clock, Descriptor, EntryId, TapeName, Timestamp, WorkspaceId};
use capstan_store::{HighWaterMark, SqliteStore, is_database_locked};
use capstan_tape::{
    IntegrityProblem, OutboxRecord, OutboxStatus, OutboxStore as _, StoreError, TapeAddress, TapeRepository, TapeSlice,
    TapeStore,
};
use serde_json::json;

use super::super::{SERVE_COMMAND_EXAMPLE, format_age};
use super::log_check::check_log;
use super::report::{CheckResult, DoctorReport};
use crate::CommandError;

/// Maximum number of findings listed by one check.
const MAX_LISTED_FINDINGS: usize = 10;
/// Time a database may be locked before the check warns.
const LOCK_WARNING_DELAY: Duration = Duration::from_secs(1);
/// Age of a pending message above which the check warns.
const OUTBOX_WARNING_AGE_MILLIS: i64 = 60_000;

/// The store of a home and what is needed to check it.
pub(super) struct StoreCheck<'a> {
    pub(super) database: &'a Path,
    pub(super) external_tapes: Option<Arc<dyn TapeStore>>,
    pub(super) owners: &'a ProcessLiveness,
    /// Available runners; unknown if the configuration is invalid.
    pub(super) runners: Option<Vec<Descriptor>>,
}

/// Findings of one snapshot that may be writes in progress.
#[derive(Default)]
struct SuspectedFaults {
    problems: Vec<IntegrityProblem>,
    orphaned: OrphanedWork,
    /// Oldest unreplicated entry of each tape.
    unreplicated: Vec<(TapeName, EntryId)>,
}

impl SuspectedFaults {
    fn is_empty(&self) -> bool {
        self.problems.is_empty()
            && self.orphaned.events.is_empty()
            && self.orphaned.runs.is_empty()
            && self.unreplicated.is_empty()
    }

    fn retain_recurring(mut self, before: &Self) -> Self {
        self.problems.retain(|problem| before.problems.contains(problem));
        self.orphaned = self.orphaned.retain_still_orphaned(&before.orphaned);
        self.unreplicated.retain(|pending| before.unreplicated.contains(pending));
        self
    }
}

impl StoreCheck<'_> {
    /// Runs all checks of the store.
    pub(super) async fn examine(&self, report: &mut DoctorReport) {
        let version = match SqliteStore::read_schema_version(self.database) {
            Ok(Some(version)) if version > 0 || !has_lost_content(self.database) => version,
            Ok(_) => {
                report.add(check_missing_database(self.database));
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
        if let Some(long_log) = check_log(self.database) {
            report.add(long_log);
        }
        report.add(check_or_failure("history", check_history(self.database, &store).await));
        let was_locked = self.is_locked(version, Duration::ZERO);
        let tapes = self.tapes(&store);
        self.report_faults(report, &tapes).await;
        let conservation = ConservationReport::check(&tapes).await;
        report
            .add(check_or_failure("conservation", conservation.as_ref().map(check_conservation).map_err(Clone::clone)));
        report.conservation = conservation.ok();
        report.add(check_or_failure("outbox", check_outbox(&store, Timestamp::now()).await));
        for check in check_bindings(tapes, self.runners.as_deref()).await {
            report.add(check);
        }
        // A busy host holds the lock often, but never for long.
        if was_locked && self.is_locked(version, LOCK_WARNING_DELAY) {
            let busy = CommandError::from(StoreError::Busy { what: self.database.display().to_string() });
            report.add(CheckResult::warning("lock", busy.message, &busy.hint));
        }
    }

    /// Checks if another process locks the database. A database of an older schema is not opened for that; the next start,
    /// which migrates it, reports the lock.
    fn is_locked(&self, version: u32, wait: Duration) -> bool {
        version == SqliteStore::SCHEMA_VERSION && is_database_locked(self.database, wait)
    }

    /// Damage that forbids any repair.
    pub(super) async fn damage(&self) -> Result<Option<&'static str>, StoreError> {
        if SqliteStore::read_schema_version(self.database)?.is_none() {
            return Ok(None);
        }
        let tapes = self.tapes(&self.snapshot()?);
        let (_, faults) = self.confirm_faults(&tapes).await?;
        if !faults.problems.is_empty() {
            return Ok(Some("the store is damaged"));
        }
        let conservation = ConservationReport::check(&tapes).await?;
        Ok(if conservation.is_balanced() { None } else { Some("some accepted events are not accounted for") })
    }

    fn snapshot(&self) -> Result<Arc<SqliteStore>, StoreError> {
        SqliteStore::open_snapshot(self.database).map(Arc::new)
    }

    fn tapes(&self, store: &Arc<SqliteStore>) -> TapeRepository {
        let store = Arc::clone(store);
        match &self.external_tapes {
            Some(external) => TapeRepository::with_external_store(store, Arc::clone(external)),
            None => TapeRepository::new(store),
        }
    }

    async fn report_faults(&self, report: &mut DoctorReport, tapes: &TapeRepository) {
        match self.confirm_faults(tapes).await {
            Err(error) => report.add(CheckResult::failed("integrity", &error.into())),
            Ok((count, faults)) => {
                report.add(check_integrity(count, &faults.problems));
                let now = Timestamp::now();
                let workspaces = find_workspaces(tapes, &faults.orphaned).await;
                report.add(check_in_flight(&faults.orphaned, &workspaces, now));
                let overdue = self.owners.find_overdue(tapes.store().as_ref(), now).await;
                report
                    .add(check_or_failure("runs", overdue.map(|overdue| check_runs(&faults.orphaned, &overdue, now))));
                if self.external_tapes.is_some() {
                    report.add(check_replication(&faults.unreplicated));
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
        let mut unreplicated = Vec::new();
        if self.external_tapes.is_some() {
            let mut records = tapes.store().tapes();
            while let Some(record) = records.next().await? {
                let oldest = TapeSlice { limit: Some(1), ..TapeSlice::default() };
                let oldest = tapes.store().read(&record.name, &oldest).await?.pop();
                unreplicated.extend(oldest.map(|entry| (record.name, entry.id)));
            }
        }
        Ok(SuspectedFaults {
            problems: tapes.verify().await?,
            orphaned: self.owners.find_orphaned(tapes.store().as_ref(), Timestamp::now()).await?,
            unreplicated,
        })
    }
}

fn check_or_failure(check: &'static str, result: Result<CheckResult, StoreError>) -> CheckResult {
    result.unwrap_or_else(|error| CheckResult::failed(check, &CommandError::from(error)))
}

/// The first [`MAX_LISTED_FINDINGS`] lines, and the number of the others.
pub(super) fn truncate_lines(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.collect();
    let more = lines.len().saturating_sub(MAX_LISTED_FINDINGS);
    lines.truncate(MAX_LISTED_FINDINGS);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// Finds bindings that cannot be read, or whose runner is missing. Returns no result if all bindings are fine.
async fn check_bindings(tapes: TapeRepository, runners: Option<&[Descriptor]>) -> Vec<CheckResult> {
    // Bindings are only read, so the address for change notices is never used.
    let unused = TapeAddress { workspace: WorkspaceId::new(""), session: capstan_host::SYSTEM_SESSION.into() };
    let bindings = BindingStore::new(tapes, Clock::system(), unused);
    let loaded = async { Ok::<_, StoreError>((bindings.unreadable().await?, bindings.all().await?)) };
    let (unreadable, readable) = match loaded.await {
        Ok(loaded) => loaded,
        Err(error) => return vec![CheckResult::failed("bindings", &error.into())],
    };
    let mut results = Vec::new();
    if !unreadable.is_empty() {
        let message = format!("unreadable bindings, which reject the events they might match: {}", unreadable.len());
        let hint = "save each again with `capstan bindings set`, or remove it with `capstan bindings remove`";
        let lines = unreadable.iter().map(|binding| format!("{}: {}", binding.binding_id, binding.reason));
        results.push(CheckResult::problem("bindings", message, hint).with_details(truncate_lines(lines)));
    }
    let Some(runners) = runners else { return results };
    let is_known = |binding: &Binding| runners.iter().any(|runner| runner.id == binding.runner_id);
    let enabled = || readable.iter().filter(|binding| binding.enabled);
    let broken: Vec<&Binding> = enabled().filter(|binding| !is_known(binding)).collect();
    if !broken.is_empty() {
        let message = format!("enabled bindings with an unknown runner, whose events fail: {}", broken.len());
        let hint = "restore the plugin that provides the runner, or change it with `capstan bindings set`";
        let lines = broken.iter().map(|binding| format!("{}: {}", binding.binding_id, binding.runner_id));
        results.push(CheckResult::problem("bindings", message, hint).with_details(truncate_lines(lines)));
    }
    let misfits: Vec<String> = enabled()
        .filter_map(|binding| Some(format!("{}: {}", binding.binding_id, find_misfit(binding, runners)?)))
        .collect();
    if !misfits.is_empty() {
        let message =
            format!("enabled bindings that do not fit their runner any more, whose events fail: {}", misfits.len());
        let hint = "change each with `capstan bindings set`, or restore the settings that it was saved with";
        results.push(CheckResult::problem("bindings", message, hint).with_details(truncate_lines(misfits.into_iter())));
    }
    results
}

fn has_lost_content(database: &Path) -> bool {
    matches!(HighWaterMark::lost_entries(database), Ok(Some(_)))
}

/// Checks a home without a database, or with an empty one: either it is new, or its database was removed.
fn check_missing_database(database: &Path) -> CheckResult {
    match HighWaterMark::lost_entries(database) {
        Ok(None) => CheckResult::ok("database", "does not exist yet: the first message creates it"),
        Ok(Some(entries)) => {
            let state = if database.exists() { "empty" } else { "gone" };
            let message = format!("{} is {state}; it had {entries} entries", database.display());
            let hint = "put the file back, or restore the newest backup; until then every start is refused, unless \
                        `capstan doctor --repair` acknowledges the loss";
            CheckResult::problem("database", message, hint).data(json!({ "missing_entries": entries }))
        }
        Err(error) => CheckResult::failed("database", &error.into()),
    }
}

/// Checks that the database has all entries that it had before.
async fn check_history(database: &Path, store: &SqliteStore) -> Result<CheckResult, StoreError> {
    // The mark is read first: it never leads the database of that moment.
    let mark = HighWaterMark::read(database)?.unwrap_or_default();
    let entries = store.count_entries().await?;
    let missing_now = mark.entries.saturating_sub(entries);
    let setback = mark.setback.as_ref();
    let missing = missing_now + setback.map_or(0, |setback| setback.entries);
    if missing == 0 && mark.replaced_at.is_none() {
        return Ok(CheckResult::ok("history", format!("entries: {entries}")));
    }
    let found = setback.map(|setback| format!(", found {}", setback.found_at)).unwrap_or_default();
    let message = match mark.replaced_at.filter(|_| missing == 0) {
        Some(replaced_at) => {
            format!("the files of the database were replaced while a process used them, {replaced_at}")
        }
        None => format!("the database went back by {missing} entries{found}: an older copy took its place"),
    };
    let hint = "expected after restoring a backup: acknowledge it with `capstan doctor --repair`; otherwise put back \
                the newer file";
    let data = json!({ "missing_entries": missing, "replaced_at": mark.replaced_at });
    Ok(CheckResult::warning("history", message, hint).data(data))
}

fn check_schema(version: u32) -> CheckResult {
    let known = SqliteStore::SCHEMA_VERSION;
    let data = json!({ "schema": version, "known": known });
    if version < known {
        let message = format!("schema {version}, older than schema {known} of this program");
        let hint = "the next start migrates it, as does `capstan store migrate`";
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
    let hint = "restore the newest backup made by `capstan store backup`, or fix the named entries by hand";
    CheckResult::problem("integrity", format!("tapes: {tapes}, damage found"), hint).with_details(truncate_lines(lines))
}

fn check_conservation(report: &ConservationReport) -> CheckResult {
    let ConservationReport { accepted, outcomes, in_flight, .. } = report;
    if report.is_balanced() {
        let message = format!("{accepted} accepted = {outcomes} outcomes + {in_flight} in flight");
        return CheckResult::ok("conservation", message);
    }
    let missing = report
        .missing
        .iter()
        .map(|one| format!("missing: event {} of {} on tape {}", one.event.event_id, one.event.source, one.tape));
    let surplus = report.surplus.iter().map(|one| {
        let (event, why) = (&one.event.event, serde_json::to_value(one.why).unwrap_or_default());
        let why = why.as_str().unwrap_or_default().replace('_', " ");
        format!("surplus: event {} of {} on tape {} ({why})", event.event_id, event.source, one.event.tape)
    });
    let unreadable =
        report.unreadable.iter().map(|one| format!("unreadable: entry {} of tape {}", one.entry, one.tape));
    let message = format!("{accepted} accepted, {outcomes} outcomes, {in_flight} in flight do not add up");
    let hint = "events may be lost: keep a copy of the home, restore a backup, and report this as a bug";
    CheckResult::problem("conservation", message, hint)
        .with_details(truncate_lines(missing.chain(surplus).chain(unreadable)))
}

/// Workspaces of the tapes with orphaned events. Only a process of the same workspace recovers them.
async fn find_workspaces(tapes: &TapeRepository, orphaned: &OrphanedWork) -> BTreeMap<TapeName, WorkspaceId> {
    let mut workspaces = BTreeMap::new();
    for event in &orphaned.events {
        // A tape that cannot be read is reported by the check of the integrity.
        let record = tapes.record(&event.tape).await.ok().flatten();
        workspaces.extend(record.and_then(|record| Some((event.tape.clone(), record.workspace?))));
    }
    workspaces
}

fn check_in_flight(
    orphaned: &OrphanedWork,
    workspaces: &BTreeMap<TapeName, WorkspaceId>,
    now: Timestamp,
) -> CheckResult {
    let events = &orphaned.events;
    if events.is_empty() {
        return CheckResult::ok("in-flight", "no orphaned events");
    }
    let line = |event: &capstan_tape::InFlightEvent| {
        let (id, session) = (&event.key.event_id, &event.session);
        let workspace = workspaces.get(&event.tape).map(|workspace| format!(" in workspace {workspace}"));
        let age = format_age(event.accepted_at, now);
        format!("event {id} of session {session}{}, accepted {age} ago", workspace.unwrap_or_default())
    };
    let lines = events.iter().map(line);
    let data = events.iter().map(|event| {
        json!({ "event": event.key, "session": event.session, "tape": event.tape, "accepted_at": event.accepted_at,
                "workspace": workspaces.get(&event.tape), "owner": event.owner, "adoptions": event.adoptions })
    });
    let mut places: Vec<String> =
        events.iter().filter_map(|event| workspaces.get(&event.tape)).map(ToString::to_string).collect();
    places.sort();
    places.dedup();
    let place = if places.is_empty() { "their workspace".to_owned() } else { places.join(", ") };
    let hint =
        format!("the next `{SERVE_COMMAND_EXAMPLE}`, or `capstan run` in that session, recovers them, in {place}");
    let message = format!("orphaned events, whose process is gone: {}", events.len());
    let result = CheckResult::warning("in-flight", message, &hint).with_details(truncate_lines(lines));
    result.data(json!({ "abandoned": data.collect::<Vec<_>>() }))
}

fn check_runs(orphaned: &OrphanedWork, overdue: &[OverdueRun], now: Timestamp) -> CheckResult {
    let runs = &orphaned.runs;
    if runs.is_empty() && overdue.is_empty() {
        return CheckResult::ok("runs", "no orphaned runs");
    }
    let line = |run: &capstan_tape::RunRecord| {
        format!("run {} of session {}, started {} ago", run.run_id, run.session, format_age(run.started_at, now))
    };
    let holder = |overdue: &OverdueRun| match overdue.process_id {
        Some(id) => format!("process {id}"),
        None => format!("the process of {}", overdue.process),
    };
    let overdue_line =
        |overdue: &OverdueRun| format!("{}, is past its deadline and held by {}", line(&overdue.run), holder(overdue));
    let lines = runs.iter().map(line).chain(overdue.iter().map(overdue_line));
    let mut hints = Vec::new();
    if !runs.is_empty() {
        hints.push(format!(
            "the next `{SERVE_COMMAND_EXAMPLE}`, or `capstan run` in that session, closes orphaned runs"
        ));
    }
    if let Some(first) = overdue.first() {
        let holder = holder(first);
        hints.push(format!(
            "{holder} is stopped or hangs: resume it (`kill -CONT`) or kill it, and its events are recovered"
        ));
    }
    let message = match overdue.len() {
        0 => format!("orphaned runs, whose process is gone: {}", runs.len()),
        count => format!("orphaned runs, whose process is gone: {}; runs past their deadline: {count}", runs.len()),
    };
    let result = CheckResult::warning("runs", message, &hints.join("; "));
    let ids: Vec<_> = runs.iter().map(|run| &run.run_id).collect();
    let overdue = overdue
        .iter()
        .map(|overdue| json!({ "run_id": overdue.run.run_id, "process": overdue.process, "pid": overdue.process_id }));
    result.with_details(truncate_lines(lines)).data(json!({ "abandoned": ids, "overdue": overdue.collect::<Vec<_>>() }))
}

fn check_replication(unreplicated: &[(TapeName, EntryId)]) -> CheckResult {
    if unreplicated.is_empty() {
        return CheckResult::ok("hand-over", "the tape store has every entry");
    }
    let lines = unreplicated.iter().map(|(tape, entry)| format!("tape {tape} from entry {entry}"));
    let hint = "the next `capstan serve` or message of that session replicates them, as does `capstan doctor --repair`";
    let message = format!("tapes with entries not replicated to the tape store: {}", unreplicated.len());
    CheckResult::warning("hand-over", message, hint).with_details(truncate_lines(lines))
}

async fn check_outbox(store: &SqliteStore, now: Timestamp) -> Result<CheckResult, StoreError> {
    let (mut pending, mut oldest) = (0_usize, None::<Timestamp>);
    let mut rows = store.pending_outbound();
    while let Some(row) = rows.next().await? {
        pending += 1;
        oldest = Some(oldest.map_or(row.staged_at, |oldest| oldest.min(row.staged_at)));
    }
    let dead = store.dead_letters(MAX_LISTED_FINDINGS).await?;
    let held = store.held_messages(MAX_LISTED_FINDINGS).await?;
    let data = json!({ "waiting": pending, "oldest_waiting": oldest, "held": held.count, "oldest_held": held.oldest,
                       "undelivered": dead.count, "oldest_undelivered": dead.oldest });
    let age =
        |at: Option<Timestamp>| at.map(|at| format!(", the oldest {} old", format_age(at, now))).unwrap_or_default();
    let held_count =
        if held.count == 0 { String::new() } else { format!("; held: {}{}", held.count, age(held.oldest)) };
    let message =
        format!("pending: {pending}{}{held_count}; undelivered: {}{}", age(oldest), dead.count, age(dead.oldest));
    let is_late = oldest.is_some_and(|at| now.as_millis().saturating_sub(at.as_millis()) > OUTBOX_WARNING_AGE_MILLIS);
    if !is_late && dead.count == 0 && held.count == 0 {
        return Ok(CheckResult::ok("outbox", message).data(data));
    }
    let mut lines: Vec<String> = dead.newest.iter().map(|row| format_dead_letter(row, now)).collect();
    if dead.count > lines.len() as u64 {
        lines.push(format!("and {} older", dead.count - lines.len() as u64));
    }
    let pending_hint = format!("`{SERVE_COMMAND_EXAMPLE}` sends pending messages");
    let dead_hint =
        "`capstan tape show SESSION` shows undelivered messages, and `capstan doctor --repair` acknowledges them";
    let held_hint =
        "`capstan outbox list` shows held messages, and `capstan outbox resend` or `drop` decides about each";
    let hints = [
        (pending > 0).then_some(pending_hint.as_str()),
        (held.count > 0).then_some(held_hint),
        (dead.count > 0).then_some(dead_hint),
    ];
    let hint = hints.into_iter().flatten().collect::<Vec<_>>().join("; ");
    Ok(CheckResult::warning("outbox", message, &hint).with_details(lines).data(data))
}

/// Formats a dead letter in a line.
pub(super) fn format_dead_letter(row: &OutboxRecord, now: Timestamp) -> String {
    let reason = match &row.status {
        OutboxStatus::Undelivered { reason } | OutboxStatus::Acknowledged { reason } => reason.as_str(),
        OutboxStatus::Waiting { .. } | OutboxStatus::Sent { .. } | OutboxStatus::Held { .. } => "",
    };
    let (message, age) = (&row.message, format_age(row.staged_at, now));
    format!("undelivered for {age} to chat {} of channel {}: {reason}", message.chat_id, message.channel)
}

//! One soak: rounds of work, kills and changed files, with a check after each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use capstan_testing::disk::SeededRng;
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

use super::home_files::{self, LiveChange, OfflineChange};
use super::ledger::{ClientLedger, RecordedEvents};
use crate::support::{CliFixture, StdioServer, TEST_TIMEOUT, find_check};

/// Number of sessions of the client.
const SESSIONS: u64 = 4;
/// Maximum number of repeated events of a round, which is less than the queue of a session.
const MAX_PENDING_LINES: usize = 16;
/// Maximum number of new events of a round.
const MAX_EVENTS_PER_ROUND: u64 = 5;
/// Maximum time from the first line of a round to its kill, in milliseconds.
const MAX_KILL_DELAY_MILLIS: u64 = 400;
/// The same for one round of [`LONG_ROUND_RATIO`]: longer than a host takes to create its lock file again.
const MAX_LONG_KILL_DELAY_MILLIS: u64 = 2500;
const LONG_ROUND_RATIO: u64 = 6;
/// One round of these has a second host on the same home.
const TWO_HOSTS_RATIO: u64 = 3;
/// Maximum time from the start of a restore to its kill, in milliseconds.
const MAX_RESTORE_MILLIS: u64 = 120;

/// Result of a soak.
#[derive(Debug, Default)]
pub struct SoakSummary {
    kills: usize,
    events: usize,
    effects: usize,
    repeated_effects: usize,
    /// Reports that the state went back.
    reported_setbacks: usize,
    /// Events whose record was gone at some time, as reported.
    without_record: usize,
    refused_starts: usize,
    /// Rounds with a second host on the home.
    second_hosts: usize,
    changes: BTreeMap<String, usize>,
    pub violations: Vec<String>,
}

impl fmt::Display for SoakSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes: Vec<String> = self.changes.iter().map(|(change, count)| format!("{change} {count}")).collect();
        write!(
            f,
            "soak: {} kills, {} events, {} effects ({} repeated after a reported loss), {} reported setbacks, {} events \
             without a record then, {} refused starts, {} rounds with two hosts, {} violations; {}",
            self.kills,
            self.events,
            self.effects,
            self.repeated_effects,
            self.reported_setbacks,
            self.without_record,
            self.refused_starts,
            self.second_hosts,
            self.violations.len(),
            changes.join(", ")
        )
    }
}

/// A running soak.
pub struct SoakRun {
    fixture: CliFixture,
    /// Serves the host until the end.
    _model: ScriptedModel,
    random: SeededRng,
    ledger: ClientLedger,
    summary: SoakSummary,
    /// Newest backup.
    backup: Option<PathBuf>,
    next_event: usize,
    /// Last state of the database that was checked.
    recorded: RecordedEvents,
    /// Events that were accepted right before the newest kill and without any acknowledgement. The mark may lack their
    /// entries, so a loss of only these need not be reported.
    unacknowledged_events: BTreeSet<String>,
}

/// Model that calls a tool with an effect for each message, and then replies.
fn start_model() -> ScriptedModel {
    ScriptedModel::start_blocking_with(|request, _| {
        let messages = request["messages"].as_array().expect("messages");
        let last = messages.last().expect("a message");
        if last["role"] == "tool" {
            return ScriptedReply::text("done");
        }
        let event = last["content"].as_str().unwrap_or_default().to_owned();
        let command = json!({ "cmd": format!("echo {event} >> effects") });
        ScriptedReply::tool_calls([(format!("call-{event}"), "bash".to_owned(), command)])
    })
}

impl SoakRun {
    pub fn new(seed: u64) -> Self {
        let model = start_model();
        let fixture = CliFixture::with_model(&model).config("");
        // The migration keeps a copy to return to.
        let older = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/fixtures/schema-7.db");
        std::fs::copy(older, fixture.database()).expect("a database of an older schema");
        fixture.make_home_private();
        fixture.capstan(&["store", "migrate"]);
        Self {
            recorded: RecordedEvents::read(&fixture.database()).expect("the database is readable"),
            fixture,
            _model: model,
            random: SeededRng::new(seed),
            ledger: ClientLedger::default(),
            summary: SoakSummary::default(),
            backup: None,
            next_event: 0,
            unacknowledged_events: BTreeSet::new(),
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_below(limit)
    }

    fn choose<T: Copy>(&mut self, items: &[T]) -> T {
        let index = usize::try_from(self.below(items.len() as u64)).expect("an index");
        items[index]
    }

    pub fn run(mut self, kills: usize) -> SoakSummary {
        while self.summary.kills < kills {
            let offline = self.choose(&OfflineChange::OFFLINE_CHOICES);
            self.change_offline(offline);
            let live = self.choose(&LiveChange::LIVE_CHOICES);
            *self.summary.changes.entry(format!("live {live:?}")).or_default() += 1;
            self.serve_until_killed(live);
            self.check_state(&format!("round {} ({live:?})", self.summary.kills), live.is_harmless());
        }
        self.finish();
        let effects = self.effects();
        self.summary.repeated_effects = self.ledger.check_effects(&effects);
        self.summary.effects = effects.lines().count();
        self.summary.events = self.ledger.sent.len();
        self.summary.without_record = self.ledger.allowed_effects.len();
        self.summary.violations.append(&mut self.ledger.violations);
        self.summary
    }

    /// Changes files while no process runs, and checks that a loss is reported.
    fn change_offline(&mut self, change: OfflineChange) {
        let (home, backup) = (self.fixture.home(), self.backup.clone());
        *self.summary.changes.entry(format!("{change:?}")).or_default() += 1;
        match (change, backup) {
            (OfflineChange::TakeBackup, _) => return self.take_backup(),
            (OfflineChange::RemoveDatabase, _) => home_files::remove_database(&home),
            (OfflineChange::RemoveLog, _) => home_files::remove_log(&home),
            (OfflineChange::RemoveLocks, _) => home_files::remove_locks(&home),
            (OfflineChange::Rollback, _) => return self.roll_back(),
            (OfflineChange::CopyBackup, Some(backup)) => home_files::copy_backup(&home, &backup),
            (OfflineChange::Restore, Some(backup)) => return self.restore(&backup),
            (OfflineChange::KilledRestore, Some(backup)) => {
                let delay = Duration::from_millis(self.below(MAX_RESTORE_MILLIS));
                let backup = backup.to_str().expect("UTF-8").to_owned();
                let mut command = self.fixture.command(&["store", "restore", &backup, "--yes"]);
                let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts");
                kill_after(process, delay);
                return self.check_restored("a killed restore");
            }
            // There is nothing to do, or no backup yet.
            (OfflineChange::None, _)
            | (OfflineChange::CopyBackup | OfflineChange::Restore | OfflineChange::KilledRestore, None) => return,
        }
        self.check_state(&format!("{change:?}"), change.is_harmless());
    }

    fn take_backup(&mut self) {
        let path = PathBuf::from(self.fixture.path(&format!("backup-{}.db", self.summary.kills)));
        let output = self.fixture.capstan(&["store", "backup", "--force", path.to_str().expect("UTF-8")]);
        if output.code == Some(0) {
            self.backup = Some(path);
        } else if RecordedEvents::read(&self.fixture.database()).is_some() {
            self.ledger.violations.push(format!("no backup of an undamaged database: {}", output.stderr));
        }
    }

    /// Restores a backup with the command, whose output reports the loss.
    fn restore(&mut self, backup: &std::path::Path) {
        let output = self.fixture.capstan(&["store", "restore", backup.to_str().expect("UTF-8"), "--yes", "--json"]);
        if output.code != Some(0) {
            return self.ledger.violations.push(format!("a backup is not restored: {}", output.stderr));
        }
        self.check_restored("a restore");
        let (report, _) = self.doctor();
        if find_check(&report, "history")["status"] != "ok" {
            self.ledger.violations.push("a restore is reported as an accident".to_owned());
        }
    }

    /// Returns to the copy that a migration kept, if there is one. The output of the command reports the loss.
    fn roll_back(&mut self) {
        let output = self.fixture.capstan(&["store", "rollback", "--json"]);
        match output.code {
            Some(0) => self.check_restored("a rollback"),
            // There is no database, no migration since the last rollback, or a damaged database.
            Some(2 | 4) => self.check_state("a refused rollback", false),
            code => self.ledger.violations.push(format!("a rollback ended with {code:?}: {}", output.stderr)),
        }
    }

    /// Accepts the loss of a restore, which its command reported, or which its kill made unknown to the operator: then
    /// the doctor reports it, or the state is the old one.
    fn check_restored(&mut self, what: &str) {
        let (report, is_reported) = self.doctor();
        let Some(recorded) = RecordedEvents::read(&self.fixture.database()) else {
            return self.recover_damage(&report);
        };
        let is_whole = recorded.lost_since(&self.recorded).is_empty();
        if what == "a killed restore" && !is_whole && !is_reported && !self.is_completely_restored(&recorded) {
            self.ledger.violations.push(format!("{what} left a state that is neither old nor new"));
        }
        self.accept_setback(recorded);
    }

    /// Returns true if the database has the events of the newest backup: the restore ended before the kill.
    fn is_completely_restored(&self, recorded: &RecordedEvents) -> bool {
        let backup = self.backup.as_deref().and_then(RecordedEvents::read);
        backup.is_some_and(|backup| backup.accepted == recorded.accepted)
    }

    fn serve_until_killed(&mut self, live: LiveChange) {
        let command = self.fixture.command(&["serve", "--channel", "stdio"]);
        let Some(server) = StdioServer::start_if_ready(command) else {
            self.summary.refused_starts += 1;
            let (report, _) = self.doctor();
            return self.recover_damage(&report);
        };
        home_files::save_files(&self.fixture.home());
        let mut servers = vec![server];
        if self.below(TWO_HOSTS_RATIO) == 0 && !live.needs_single_host() {
            servers.extend(StdioServer::start_if_ready(self.fixture.command(&["serve", "--channel", "stdio"])));
            self.summary.second_hosts += 1;
        }
        self.unacknowledged_events.clear();
        self.send_lines(&mut servers);
        let is_long = self.below(LONG_ROUND_RATIO) == 0;
        let max_delay = if is_long { MAX_LONG_KILL_DELAY_MILLIS } else { MAX_KILL_DELAY_MILLIS };
        let delay = Duration::from_millis(self.below(max_delay));
        let change_at = Duration::from_millis(self.below(max_delay)).min(delay);
        let started_at = Instant::now();
        let (home, backup) = (self.fixture.home(), self.backup.clone());
        let mut is_changed = live == LiveChange::None;
        while started_at.elapsed() < delay || !is_changed {
            if !is_changed && started_at.elapsed() >= change_at {
                live.apply(&home, backup.as_deref());
                is_changed = true;
            }
            for server in &mut servers {
                if let Some(line) = server.try_recv_line(Duration::from_millis(5)) {
                    self.ledger.record_line(&line);
                }
            }
        }
        if self.below(2) == 0 {
            servers.reverse();
        }
        for server in &servers {
            server.signal("KILL");
        }
        for server in servers {
            let rest = server.wait_for_exit();
            for line in rest.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
                self.ledger.record_line(&line);
            }
        }
        self.summary.kills += 1;
        self.put_home_back(live, &home);
    }

    /// Sends the unanswered events and some new ones, each to one of the hosts or to all.
    fn send_lines(&mut self, servers: &mut [StdioServer]) {
        let mut lines: Vec<String> = self.ledger.unanswered().into_iter().take(MAX_PENDING_LINES).collect();
        for _ in 0..=self.below(MAX_EVENTS_PER_ROUND) {
            self.next_event += 1;
            lines.push(format!("e{}", self.next_event));
        }
        for id in lines {
            self.ledger.sent.insert(id.clone());
            let session = id.trim_start_matches('e').parse::<u64>().unwrap_or_default() % SESSIONS;
            let request = json!({ "id": id, "event_id": id, "session": format!("s{session}"), "text": id });
            // The last choice is every host.
            let chosen = usize::try_from(self.below(servers.len() as u64 + 1)).expect("an index");
            let is_for_all = chosen == servers.len();
            for (_, server) in servers.iter_mut().enumerate().filter(|(number, _)| is_for_all || *number == chosen) {
                // A host that has ended reads no line.
                let _is_read = server.try_send_line(&request);
            }
        }
    }

    /// Puts a moved home back, and accepts that a removed one is gone. No host may have created it again.
    fn put_home_back(&mut self, live: LiveChange, home: &std::path::Path) {
        let moved = home_files::moved_home(home);
        let was_removed = live == LiveChange::RemoveHome;
        if !(was_removed || moved.exists()) {
            return;
        }
        if home.exists() {
            self.ledger.violations.push(format!("a host created its home again ({live:?})"));
            std::fs::remove_dir_all(home).expect("the new home is removed");
        }
        if was_removed {
            // Nothing is left that could report it.
            self.accept_setback(RecordedEvents::default());
        } else {
            std::fs::rename(moved, home).expect("the home is moved back");
        }
    }

    /// Report of the doctor, and whether it says that the state went back.
    fn doctor(&self) -> (Value, bool) {
        let output = self.fixture.capstan(&["doctor", "--json"]);
        let report: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let history = checks(&report).find(|check| check["check"] == "history").map(|check| &check["data"]);
        let is_reported = history.is_some_and(|data| {
            data["missing_entries"].as_u64().is_some_and(|missing| missing > 0) || data["replaced_at"].is_string()
        });
        (report, is_reported)
    }

    /// Checks that the database has everything it had and everything the client was told, or that the loss is reported.
    fn check_state(&mut self, what: &str, is_harmless: bool) {
        let (report, is_reported) = self.doctor();
        let is_problem = checks(&report).any(|check| check["status"] == "problem");
        let recorded = RecordedEvents::read(&self.fixture.database());
        let had_events = !(self.recorded.accepted.is_empty() && self.ledger.outcomes.is_empty());
        let Some(recorded) = recorded.filter(|_| !is_problem) else {
            if is_harmless && had_events {
                self.ledger.violations.push(format!("{what}: {report}"));
            }
            return self.recover_damage(&report);
        };
        let mut lost: BTreeSet<String> = recorded.lost_since(&self.recorded);
        let is_unacknowledged =
            |id: &&String| !(self.recorded.accepted.contains(*id) || self.ledger.outcomes.contains_key(*id));
        self.unacknowledged_events.extend(recorded.accepted.iter().filter(is_unacknowledged).cloned());
        lost.extend(self.ledger.missing_in(&recorded));
        if !is_harmless && !is_reported {
            lost.retain(|id| !self.unacknowledged_events.contains(id));
        }
        if !lost.is_empty() && (is_harmless || !is_reported) {
            self.ledger.violations.push(format!("{what}: {lost:?} are lost without a report"));
        }
        if lost.is_empty() && !is_reported {
            self.recorded = recorded;
            return;
        }
        self.summary.reported_setbacks += 1;
        self.accept_setback(recorded);
        let repaired = self.fixture.capstan(&["doctor", "--repair", "--json"]);
        let report: Value = serde_json::from_str(&repaired.stdout).expect("a report");
        if find_check(&report, "history")["status"] != "ok" {
            self.ledger.violations.push(format!("{what}: the setback is reported after it was acknowledged"));
        }
    }

    fn accept_setback(&mut self, recorded: RecordedEvents) {
        let effects = self.effects();
        self.ledger.accept_setback(&recorded, &effects);
        self.recorded = recorded;
    }

    /// Effects of the tool, one event id per line.
    fn effects(&self) -> String {
        std::fs::read_to_string(self.fixture.workspace().join("effects")).unwrap_or_default()
    }

    /// Recovers from a database that is missing or damaged, which must be reported: restores the newest backup, or starts
    /// with a new home.
    fn recover_damage(&mut self, report: &Value) {
        let is_setback = |check: &Value| check["data"]["missing_entries"].as_u64().is_some_and(|missing| missing > 0);
        let is_reported = checks(report).any(|check| check["status"] == "problem" || is_setback(check));
        let has_state = !self.recorded.accepted.is_empty() || !self.ledger.outcomes.is_empty();
        if has_state && !is_reported {
            self.ledger.violations.push(format!("an unreadable database is not reported: {report}"));
        }
        self.summary.reported_setbacks += 1;
        // A host may also begin with an empty database, when the operator has acknowledged the loss.
        if !self.fixture.database().exists() && self.below(2) == 0 {
            if has_state && self.fixture.capstan(&["run", "refused"]).code == Some(0) {
                self.ledger.violations.push("a host began with an empty database".to_owned());
            }
            self.fixture.capstan(&["doctor", "--repair"]);
            // The mark counts entries: an older backup may have more of them than the new database.
            self.backup = None;
            return self.accept_setback(RecordedEvents::default());
        }
        if let Some(backup) = self.backup.clone() {
            let output = self.fixture.capstan(&["store", "restore", backup.to_str().expect("UTF-8"), "--yes"]);
            if output.code != Some(0) {
                self.ledger.violations.push(format!("damage is not repaired by a restore: {}", output.stderr));
            }
        } else {
            home_files::remove_database(&self.fixture.home());
            let _missing = std::fs::remove_file(self.fixture.home().join("capstan.db-mark"));
        }
        self.accept_setback(RecordedEvents::read(&self.fixture.database()).unwrap_or_default());
    }

    /// Serves until every event has its outcome, and checks the home.
    fn finish(&mut self) {
        let mut server = StdioServer::start(&self.fixture);
        // A session refuses lines when its queue is full.
        for ids in self.ledger.unanswered().chunks(MAX_PENDING_LINES) {
            for id in ids {
                let session = id.trim_start_matches('e').parse::<u64>().unwrap_or_default() % SESSIONS;
                server.send_line(&json!({ "id": id, "event_id": id, "session": format!("s{session}"), "text": id }));
            }
            let started_at = Instant::now();
            while ids.iter().any(|id| !self.ledger.outcomes.contains_key(id)) && started_at.elapsed() < TEST_TIMEOUT {
                if let Some(line) = server.try_recv_line(Duration::from_millis(100)) {
                    self.ledger.record_line(&line);
                }
            }
        }
        let output = server.close();
        if output.code != Some(0) {
            self.ledger.violations.push(format!("the last host failed: {}", output.stderr));
        }
        for id in self.ledger.unanswered() {
            self.ledger.violations.push(format!("event {id} has no outcome"));
        }
        self.check_state("the end", true);
        let output = self.fixture.capstan(&["doctor", "--json"]);
        if output.code != Some(0) {
            self.ledger.violations.push(format!("problems at the end: {}", output.stdout));
        }
    }
}

fn checks(report: &Value) -> impl Iterator<Item = &Value> {
    report["checks"].as_array().into_iter().flatten()
}

fn kill_after(mut process: Child, delay: Duration) {
    let started_at = Instant::now();
    while started_at.elapsed() < delay && process.try_wait().expect("a child").is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // It may have ended.
    let _ended = process.kill();
    process.wait().expect("a child");
}

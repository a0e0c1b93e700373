//! Trial: one host, killed and restarted as scripted, until all its events have ended.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use capstan::tape::OutboxStatus;
use capstan_crash_matrix::trial_dir::TrialDir;
use tempfile::TempDir;

use crate::platform::{FakePlatform, PlatformRecord};
use crate::script::{ScriptedMessage, StartCondition, TrialScript};
use crate::snapshot::{StoreReader, TrialSnapshot};

/// Not an assertion: ends a trial that would hang.
pub const TRIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Poll interval for the state of the host.
pub const TRIAL_POLL_INTERVAL: Duration = Duration::from_millis(3);

/// Moment at which a process is killed.
#[derive(Debug, Clone)]
pub enum KillPoint {
    /// At this commit.
    AtCommit(String),
    /// After this time.
    AfterDelay(Duration),
}

/// Result of a trial.
pub struct TrialReport {
    /// Snapshots taken each time the host had died.
    pub deaths: Vec<TrialSnapshot>,
    pub end: TrialSnapshot,
    pub platform: PlatformRecord,
    /// All tool executions, as `TOOL KEY`.
    pub executions: Vec<String>,
    /// Commits of each process.
    pub commits: Vec<Vec<String>>,
    /// Range of the first process's commits that belong to the kinds of turns under test.
    pub commit_range: (usize, usize),
}

/// Running trial.
pub struct CrashTrial<'a> {
    script: &'a TrialScript,
    kills: &'a [KillPoint],
    model: &'a str,
    platform: FakePlatform,
    store_reader: StoreReader,
    /// Dropped last.
    folder: TempDir,
    /// Progress, by id: events offered, events ended, and barriers opened.
    offered: BTreeSet<&'a str>,
    ended: BTreeSet<&'a str>,
    opened_barriers: BTreeSet<&'a str>,
    commit_range: (usize, usize),
}

impl<'a> CrashTrial<'a> {
    /// Creates a host with its own home; `model` is the URL of its model.
    pub fn new(script: &'a TrialScript, kills: &'a [KillPoint], model: &'a str) -> Self {
        let folder = trial_folder();
        let platform = FakePlatform::start(&TrialDir::new(folder.path(), 0).socket_path());
        let store_reader = StoreReader::open(&folder.path().join("home"), script.uses_file_tapes);
        let (offered, ended, opened_barriers) = Default::default();
        Self {
            script,
            kills,
            model,
            platform,
            store_reader,
            folder,
            offered,
            ended,
            opened_barriers,
            commit_range: (0, 0),
        }
    }

    /// Runs the trial.
    pub fn run(mut self) -> Result<TrialReport, String> {
        let started_at = Instant::now();
        let mut deaths = Vec::new();
        let (mut process, mut started) = (self.spawn_host(1), Instant::now());
        loop {
            if process.try_wait().expect("a child").is_some() {
                if deaths.len() == self.kills.len() {
                    return Err(self.failure_report("the host died by itself", deaths.len() + 1));
                }
                deaths.push(self.take_snapshot());
                (process, started) = (self.spawn_host(deaths.len() + 1), Instant::now());
            }
            if matches!(self.kills.get(deaths.len()), Some(KillPoint::AfterDelay(time)) if started.elapsed() >= *time) {
                process.kill().expect("a child can be killed");
                process.wait().expect("a child");
                continue;
            }
            if self.script.is_constrained {
                self.remove_lock_files();
            }
            self.advance(deaths.len());
            if self.is_finished() {
                break;
            }
            if started_at.elapsed() > TRIAL_TIMEOUT {
                process.kill().expect("a child can be killed");
                process.wait().expect("a child");
                return Err(self.failure_report(&self.describe_pending(), deaths.len() + 1));
            }
            std::thread::sleep(TRIAL_POLL_INTERVAL);
        }
        process.kill().expect("a child can be killed");
        process.wait().expect("a child");
        let end = self.take_snapshot();
        Ok(TrialReport {
            commits: (1..=deaths.len() + 1).map(|process| read_commits(&self.trace_file(process))).collect(),
            deaths,
            end,
            executions: self.read_executions(),
            platform: std::mem::take(&mut *self.platform.record()),
            commit_range: self.commit_range,
        })
    }

    fn spawn_host(&self, process: usize) -> Child {
        let mut command = host_command(self.folder.path(), self.model, process);
        if self.script.replaces_agent {
            command.env(TrialDir::STAND_IN_VARIABLE, "1");
        }
        if self.script.messages.iter().any(|message| message.for_state_runner) {
            command.env(TrialDir::STATE_RUNNER_VARIABLE, "1");
        }
        if self.script.is_constrained {
            // One for the busy session, one for all others.
            command.env("CAPSTAN_MAX_ACTIVE_TURNS", "2");
        }
        if self.script.uses_file_tapes {
            command.env("CAPSTAN_TAPE_STORE", "jsonl");
        }
        match self.kills.get(process - 1) {
            Some(KillPoint::AtCommit(point)) => {
                command.env("CAPSTAN_FAIL_AT", point);
            }
            // Random moments also get random scheduling.
            Some(KillPoint::AfterDelay(_)) => {
                command.env(TrialDir::THREADS_VARIABLE, "1");
            }
            None => {}
        }
        if !matches!(self.kills.first(), Some(KillPoint::AfterDelay(_))) {
            command.env("CAPSTAN_FAIL_TRACE", self.trace_file(process));
        }
        let log = File::create(self.log_file(process)).expect("the log of the host");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().expect("the host can be started")
    }

    /// Removes the lock files of the host, which it creates again, and of its dead predecessors.
    fn remove_lock_files(&self) {
        let files = std::fs::read_dir(self.folder.path().join("home/owners"));
        for file in files.into_iter().flatten().flatten() {
            // The host may remove or rename it at the same time.
            let _gone = std::fs::remove_file(file.path());
        }
    }

    fn trace_file(&self, process: usize) -> PathBuf {
        self.folder.path().join(format!("trace-{process}"))
    }

    fn log_file(&self, process: usize) -> PathBuf {
        self.folder.path().join(format!("log-{process}"))
    }

    fn failure_report(&self, reason: &str, process: usize) -> String {
        let log = std::fs::read_to_string(self.log_file(process)).unwrap_or_default();
        format!(
            "{reason}\nkilled: {:?}\ncommits: {:?}\nlog:\n{log}",
            self.kills,
            read_commits(&self.trace_file(process))
        )
    }

    /// Describes what keeps the trial from finishing.
    fn describe_pending(&self) -> String {
        let now = self.take_snapshot();
        let is_unnotified = |message: &&ScriptedMessage| {
            !if message.is_from_caller() { &now.answered } else { &now.acknowledged }.contains(&message.id)
        };
        let unnotified: Vec<&str> =
            self.script.messages.iter().filter(is_unnotified).map(|message| message.id.as_str()).collect();
        let pending =
            now.outbox_rows.values().flatten().filter(|row| matches!(row.status, OutboxStatus::Waiting { .. }));
        let pending: Vec<String> = pending.map(|row| row.message.content.text()).collect();
        let (in_flight, running, refused) = (&now.in_flight, &now.running, &self.platform.record().refused);
        format!(
            "unfinished: refused {refused:?}, offered {:?}, not notified {unnotified:?}, in flight {in_flight:?}, pending {pending:?}, running {running:?}",
            self.offered
        )
    }

    /// Takes a snapshot once the host is dead and the platform has read its last reports.
    fn take_snapshot(&self) -> TrialSnapshot {
        let started_at = Instant::now();
        while self.platform.record().connections > 0 {
            assert!(started_at.elapsed() < TRIAL_TIMEOUT, "connections of a dead host close");
            std::thread::sleep(TRIAL_POLL_INTERVAL);
        }
        self.store_reader.snapshot(&self.script.messages, &self.platform.record())
    }

    fn read_executions(&self) -> Vec<String> {
        let executions =
            std::fs::read_to_string(TrialDir::new(self.folder.path(), 0).executions_file()).unwrap_or_default();
        executions.lines().map(str::to_owned).collect()
    }

    /// Executes all due steps, in the order of the script.
    fn advance(&mut self, deaths: usize) {
        let script = self.script;
        for message in &script.messages {
            let id = message.id.as_str();
            if self.offered.contains(id) && !self.ended.contains(id) && self.store_reader.has_ended(message) {
                self.ended.insert(id);
            }
        }
        if self.is_dying(deaths + 1) {
            return;
        }
        for message in &script.messages {
            let id = message.id.as_str();
            if !self.offered.contains(id) && self.is_due(&message.when) {
                if deaths == 0 {
                    self.record_commit_range(id);
                }
                self.platform.offer(message.event());
                self.offered.insert(id);
            }
        }
        for barrier in &script.barriers {
            let when = if deaths == 0 { &barrier.when } else { &barrier.after_death };
            if !self.opened_barriers.contains(barrier.key) && self.is_due(when) {
                File::create(TrialDir::new(self.folder.path(), 0).barrier_file(barrier.key))
                    .expect("a barrier can be opened");
                self.opened_barriers.insert(barrier.key);
            }
        }
    }

    /// Returns true if a process has reached the commit it is killed at: the store's state must have no consequences
    /// before the kill, or they would depend on timing.
    fn is_dying(&self, process: usize) -> bool {
        let Some(KillPoint::AtCommit(point)) = self.kills.get(process - 1) else { return false };
        read_commits(&self.trace_file(process))
            .iter()
            .any(|commit| point.strip_prefix(commit).is_some_and(|at| at.starts_with(' ')))
    }

    fn is_due(&self, when: &StartCondition) -> bool {
        match when {
            StartCondition::Immediately => true,
            StartCondition::ToolWaiting(key, event) => {
                let executions = self.read_executions();
                let mut waits = executions.iter().filter_map(|line| line.split_once(' ')).map(|(_, waits)| waits);
                waits.any(|waits| waits == *key) || self.ended.contains(event)
            }
            StartCondition::Acknowledged(id) => self.platform.record().is_acknowledged(id),
            StartCondition::Ended(ids) => ids.iter().all(|id| self.ended.contains(id.as_str())),
        }
    }

    /// Records where the commits under test start and end.
    fn record_commit_range(&mut self, id: &str) {
        let now = read_commits(&self.trace_file(1)).len();
        if self.offered.len() == 1 {
            self.commit_range.0 = now;
        } else if id.ends_with("-after") {
            self.commit_range.1 = now;
        }
    }

    fn is_finished(&self) -> bool {
        self.ended.len() == self.script.messages.len()
            && {
                let record = self.platform.record();
                let was_notified = |message: &ScriptedMessage| {
                    if message.is_from_caller() {
                        record.is_answered(&message.id)
                    } else {
                        record.is_acknowledged(&message.id)
                    }
                };
                self.script.messages.iter().all(was_notified)
            }
            && self.store_reader.is_drained()
    }
}

/// Creates the folder of a trial, with a home and a workspace.
pub fn trial_folder() -> TempDir {
    // Only a power cut could lose data here, so memory is enough.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder for the trial");
    for name in ["home", "workspace"] {
        std::fs::create_dir(folder.path().join(name)).expect("a folder of the trial");
    }
    folder
}

/// Creates the command of a host process in this folder.
pub fn host_command(root: &Path, model: &str, process: usize) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crash-host"));
    command.current_dir(root.join("workspace")).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", root.join("user"));
    command.env("CAPSTAN_HOME", root.join("home")).env("CAPSTAN_MODEL", "openai:scripted");
    command.env("CAPSTAN_API_KEY", "none").env("CAPSTAN_API_BASE", model);
    command.env(TrialDir::DIR_VARIABLE, root).env(TrialDir::PROCESS_VARIABLE, process.to_string());
    command
}

/// Returns the commits of a trace, in order.
pub fn read_commits(trace: &Path) -> Vec<String> {
    let trace = std::fs::read_to_string(trace).unwrap_or_default();
    trace.lines().filter_map(|line| line.strip_suffix(" before")).map(str::to_owned).collect()
}

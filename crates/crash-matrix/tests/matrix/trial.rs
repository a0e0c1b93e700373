//! One host, killed and started again as often as asked, until everything that was said to it has ended.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use capstan::tape::OutboxStatus;
use capstan_crash_matrix::place::Place;
use tempfile::TempDir;

use crate::platform::{Platform, Record};
use crate::script::{Said, Script, When};
use crate::snapshot::{Outside, Snapshot};

/// No assertion: it only ends a trial that would hang.
pub const TOO_LONG: Duration = Duration::from_secs(30);
/// How often the outside looks at the host.
pub const POLL: Duration = Duration::from_millis(3);

/// How a process of the host dies.
#[derive(Debug, Clone)]
pub enum Kill {
    /// At this commit.
    At(String),
    /// So long after it was started.
    After(Duration),
}

/// What came of a trial.
pub struct Report {
    /// What the store said each time the host had died.
    pub deaths: Vec<Snapshot>,
    pub end: Snapshot,
    pub platform: Record,
    /// Every execution of a tool, as `TOOL KEY`.
    pub executions: Vec<String>,
    /// The commits of each process.
    pub commits: Vec<Vec<String>>,
    /// Which commits of the first process were made for what the trial is about.
    pub window: (usize, usize),
}

/// A trial that is going on.
pub struct Trial<'a> {
    script: &'a Script,
    kills: &'a [Kill],
    model: &'a str,
    platform: Platform,
    outside: Outside,
    /// Dropped after what is in it.
    folder: TempDir,
    /// What has happened, by id: said, ended, and gates opened by their key.
    offered: BTreeSet<&'a str>,
    ended: BTreeSet<&'a str>,
    opened: BTreeSet<&'a str>,
    window: (usize, usize),
}

impl<'a> Trial<'a> {
    /// A host with a home of its own. Its model is at this address.
    pub fn new(script: &'a Script, kills: &'a [Kill], model: &'a str) -> Self {
        let folder = folder();
        let platform = Platform::start(&Place::new(folder.path(), 0).socket());
        let outside = Outside::open(&folder.path().join("home"), script.keeps_files);
        let (offered, ended, opened) = Default::default();
        Self { script, kills, model, platform, outside, folder, offered, ended, opened, window: (0, 0) }
    }

    /// Lets it happen.
    pub fn run(mut self) -> Result<Report, String> {
        let begun = Instant::now();
        let mut deaths = Vec::new();
        let (mut process, mut started) = (self.start(1), Instant::now());
        loop {
            if process.try_wait().expect("a child").is_some() {
                if deaths.len() == self.kills.len() {
                    return Err(self.failed("the host died by itself", deaths.len() + 1));
                }
                deaths.push(self.at_death());
                (process, started) = (self.start(deaths.len() + 1), Instant::now());
            }
            if matches!(self.kills.get(deaths.len()), Some(Kill::After(time)) if started.elapsed() >= *time) {
                process.kill().expect("a child can be killed");
                process.wait().expect("a child");
                continue;
            }
            self.go_on(deaths.len());
            if self.is_over() {
                break;
            }
            if begun.elapsed() > TOO_LONG {
                process.kill().expect("a child can be killed");
                process.wait().expect("a child");
                return Err(self.failed(&self.left(), deaths.len() + 1));
            }
            std::thread::sleep(POLL);
        }
        process.kill().expect("a child can be killed");
        process.wait().expect("a child");
        let end = self.at_death();
        Ok(Report {
            commits: (1..=deaths.len() + 1).map(|process| commits(&self.trace(process))).collect(),
            deaths,
            end,
            executions: self.executions(),
            platform: std::mem::take(&mut *self.platform.record()),
            window: self.window,
        })
    }

    fn start(&self, process: usize) -> Child {
        let mut command = host(self.folder.path(), self.model, process);
        if self.script.stands_in {
            command.env(Place::STANDS_IN, "1");
        }
        if self.script.said.iter().any(|said| said.for_keeper) {
            command.env(Place::KEEPS, "1");
        }
        if self.script.keeps_files {
            command.env("CAPSTAN_TAPE_STORE", "jsonl");
        }
        match self.kills.get(process - 1) {
            Some(Kill::At(point)) => {
                command.env("CAPSTAN_FAIL_AT", point);
            }
            // Where a moment is chosen at random, so is everything else.
            Some(Kill::After(_)) => {
                command.env(Place::THREADS, "1");
            }
            None => {}
        }
        if !matches!(self.kills.first(), Some(Kill::After(_))) {
            command.env("CAPSTAN_FAIL_TRACE", self.trace(process));
        }
        let log = File::create(self.log(process)).expect("the log of the host");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().expect("the host can be started")
    }

    fn trace(&self, process: usize) -> PathBuf {
        self.folder.path().join(format!("trace-{process}"))
    }

    fn log(&self, process: usize) -> PathBuf {
        self.folder.path().join(format!("log-{process}"))
    }

    fn failed(&self, why: &str, process: usize) -> String {
        let log = std::fs::read_to_string(self.log(process)).unwrap_or_default();
        format!("{why}\nkilled: {:?}\ncommits: {:?}\nlog:\n{log}", self.kills, commits(&self.trace(process)))
    }

    /// What keeps a trial from being over.
    fn left(&self) -> String {
        let now = self.at_death();
        let told =
            |said: &&Said| !if said.is_by_caller() { &now.answered } else { &now.acknowledged }.contains(&said.id);
        let untold: Vec<&str> = self.script.said.iter().filter(told).map(|said| said.id.as_str()).collect();
        let waiting = now.rows.values().flatten().filter(|row| matches!(row.status, OutboxStatus::Waiting { .. }));
        let waiting: Vec<String> = waiting.map(|row| row.message.content.text()).collect();
        let (flying, running, refused) = (&now.in_flight, &now.running, &self.platform.record().refused);
        format!(
            "not over: refused {refused:?}, said {:?}, untold {untold:?}, in flight {flying:?}, to be sent {waiting:?}, running {running:?}",
            self.offered
        )
    }

    /// What is known once the host is dead and the platform has heard its last words.
    fn at_death(&self) -> Snapshot {
        let begun = Instant::now();
        while self.platform.record().connections > 0 {
            assert!(begun.elapsed() < TOO_LONG, "the connections of a dead host end");
            std::thread::sleep(POLL);
        }
        self.outside.snapshot(&self.script.said, &self.platform.record())
    }

    fn executions(&self) -> Vec<String> {
        let executions = std::fs::read_to_string(Place::new(self.folder.path(), 0).executions()).unwrap_or_default();
        executions.lines().map(str::to_owned).collect()
    }

    /// Lets everything happen whose time has come, in the order of the script.
    fn go_on(&mut self, deaths: usize) {
        let script = self.script;
        for said in &script.said {
            let id = said.id.as_str();
            if self.offered.contains(id) && !self.ended.contains(id) && self.outside.has_ended(said) {
                self.ended.insert(id);
            }
        }
        if self.is_dying(deaths + 1) {
            return;
        }
        for said in &script.said {
            let id = said.id.as_str();
            if !self.offered.contains(id) && self.is_time(&said.when) {
                if deaths == 0 {
                    self.mark(id);
                }
                self.platform.offer(said.event());
                self.offered.insert(id);
            }
        }
        for gate in &script.gates {
            let when = if deaths == 0 { &gate.when } else { &gate.after_death };
            if !self.opened.contains(gate.key) && self.is_time(when) {
                File::create(Place::new(self.folder.path(), 0).gate(gate.key)).expect("a gate can be opened");
                self.opened.insert(gate.key);
            }
        }
    }

    /// Whether a process has come to the commit that it dies at: what the store says by now must have no consequence
    /// before that, or it would depend on who is faster.
    fn is_dying(&self, process: usize) -> bool {
        let Some(Kill::At(point)) = self.kills.get(process - 1) else { return false };
        commits(&self.trace(process))
            .iter()
            .any(|commit| point.strip_prefix(commit).is_some_and(|at| at.starts_with(' ')))
    }

    fn is_time(&self, when: &When) -> bool {
        match when {
            When::AtOnce => true,
            When::Waits(key, event) => {
                let executions = self.executions();
                let mut waits = executions.iter().filter_map(|line| line.split_once(' ')).map(|(_, waits)| waits);
                waits.any(|waits| waits == *key) || self.ended.contains(event)
            }
            When::Acknowledged(id) => self.platform.record().is_acknowledged(id),
            When::Ended(ids) => ids.iter().all(|id| self.ended.contains(id.as_str())),
        }
    }

    /// Remembers where the commits begin and end that the trial is about.
    fn mark(&mut self, id: &str) {
        let now = commits(&self.trace(1)).len();
        if self.offered.len() == 1 {
            self.window.0 = now;
        } else if id.ends_with("-after") {
            self.window.1 = now;
        }
    }

    fn is_over(&self) -> bool {
        self.ended.len() == self.script.said.len()
            && {
                let record = self.platform.record();
                let is_told = |said: &Said| {
                    if said.is_by_caller() { record.is_answered(&said.id) } else { record.is_acknowledged(&said.id) }
                };
                self.script.said.iter().all(is_told)
            }
            && self.outside.is_drained()
    }
}

/// A folder for a trial, with a home and a workspace in it.
pub fn folder() -> TempDir {
    // What only a power cut would lose need not be on a disk.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder for the trial");
    for name in ["home", "workspace"] {
        std::fs::create_dir(folder.path().join(name)).expect("a folder of the trial");
    }
    folder
}

/// A process of a host in this folder, not started.
pub fn host(root: &Path, model: &str, process: usize) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crash-host"));
    command.current_dir(root.join("workspace")).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", root.join("user"));
    command.env("CAPSTAN_HOME", root.join("home")).env("CAPSTAN_MODEL", "openai:scripted");
    command.env("CAPSTAN_API_KEY", "none").env("CAPSTAN_API_BASE", model);
    command.env(Place::VARIABLE, root).env(Place::PROCESS, process.to_string());
    command
}

/// The commits of a trace, in order.
pub fn commits(trace: &Path) -> Vec<String> {
    let trace = std::fs::read_to_string(trace).unwrap_or_default();
    trace.lines().filter_map(|line| line.strip_suffix(" before")).map(str::to_owned).collect()
}

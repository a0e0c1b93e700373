//! Operator commands that change stored state, killed at every commit next to a busy host: their change is complete and
//! recorded, or not made at all, and the host is not affected.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Instant;

use capstan::tape::TapeSlice;
use capstan_crash_matrix::trial_dir::TrialDir;
use capstan_testing::ScriptedModel;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::platform::FakePlatform;
use crate::script::TrialScript;
use crate::snapshot::StoreReader;
use crate::trial::{self, TRIAL_POLL_INTERVAL, TRIAL_TIMEOUT};

const BINDING_JSON: &str = r#"{"binding_id": "extra", "runner_id": "builtin:agent", "scope": {"channel": "caller"}}"#;
const STATE_NAMESPACE: &str = r#"["builtin:agent", "runner", null]"#;

/// Command that changes stored state.
pub struct OperatorCommand {
    title: &'static str,
    /// Commands that run before it.
    setup: &'static [&'static [&'static str]],
    command: &'static [&'static str],
}

/// Returns all commands under test.
pub fn operator_commands() -> Vec<OperatorCommand> {
    const SAVE_BINDING: &[&str] = &["bindings", "set", "../binding.json"];
    const SET_STATE: &[&str] = &["state", "set", STATE_NAMESPACE, "key", "1"];
    let operation = |title, setup, command| OperatorCommand { title, setup, command };
    vec![
        operation("Saving the first binding", &[], SAVE_BINDING),
        operation("Disabling a binding", &[SAVE_BINDING], &["bindings", "disable", "extra"]),
        operation("Removing a binding", &[SAVE_BINDING], &["bindings", "remove", "extra"]),
        operation("Setting state", &[], SET_STATE),
        operation("Clearing state", &[SET_STATE], &["state", "clear", "c55b2c1976d9", "--yes"]),
    ]
}

/// Stored state, and the number of changes on the system tape.
#[derive(Debug, Clone, PartialEq)]
struct OperatorState {
    entries: Vec<Value>,
    change_count: usize,
}

/// Home, busy host and its platform.
struct OperatorTrial {
    platform: FakePlatform,
    store_reader: StoreReader,
    model: String,
    /// Dropped last.
    folder: TempDir,
}

impl OperatorTrial {
    fn new(model: &ScriptedModel) -> Self {
        let folder = trial::trial_folder();
        std::fs::write(folder.path().join("binding.json"), BINDING_JSON).expect("the binding of the trial");
        let platform = FakePlatform::start(&TrialDir::new(folder.path(), 0).socket_path());
        let store_reader = StoreReader::open(&folder.path().join("home"), false);
        Self { platform, store_reader, model: model.base_url(), folder }
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a command, killed at `killed_at` if given; returns true if it exited by itself.
    fn run_command(&self, arguments: &[&str], killed_at: Option<&str>) -> bool {
        let mut command = trial::host_command(self.root(), &self.model, 2);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("CAPSTAN_FAIL_TRACE", self.root().join("trace"));
        if let Some(point) = killed_at {
            command.env("CAPSTAN_FAIL_AT", point);
        }
        command.status().expect("the command can be started").code().is_some()
    }

    fn read_state(&self) -> OperatorState {
        self.store_reader.read_with(async |store| {
            let mut values = Vec::new();
            let state = store.namespaces("state:").collect().await?.into_iter().map(|namespace| namespace.space);
            for namespace in state.chain(["bindings".to_owned()]) {
                let in_namespace = store.key_values(&namespace).collect().await?;
                values.extend(in_namespace.into_iter().map(|value| json!([value.space, value.key, value.value])));
            }
            let tapes = store.tapes().collect().await?;
            let system = tapes.into_iter().find(|tape| tape.session.as_ref().is_some_and(|s| s.as_str() == "system"));
            let entries = match system {
                Some(tape) => store.read(&tape.name, &TapeSlice::all()).await?,
                None => Vec::new(),
            };
            let is_change = |name: &str| name.starts_with("binding.") || name.starts_with("state.");
            Ok(OperatorState {
                entries: values,
                change_count: entries.iter().filter_map(|entry| entry.name()).filter(|name| is_change(name)).count(),
            })
        })
    }

    /// Starts a host that is in the middle of an event.
    fn start_busy_host(&self, script: &TrialScript) -> Child {
        let log = File::create(self.root().join("log")).expect("the log of the host");
        let mut command = trial::host_command(self.root(), &self.model, 1);
        let host = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        self.platform.offer(script.messages[0].event());
        self.wait_until("the host waits", || TrialDir::new(self.root(), 0).executions_file().exists());
        host.expect("the host can be started")
    }

    fn wait_until(&self, expectation: &str, is_met: impl Fn() -> bool) {
        let started_at = Instant::now();
        while !is_met() {
            let log = || std::fs::read_to_string(self.root().join("log")).unwrap_or_default();
            assert!(started_at.elapsed() < TRIAL_TIMEOUT, "expected: {expectation}; log:\n{}", log());
            std::thread::sleep(TRIAL_POLL_INTERVAL);
        }
    }
}

/// State before and after a command, and its commits.
struct CommandEffect {
    before: OperatorState,
    after: OperatorState,
    commits: Vec<String>,
}

fn run_to_end(operation: &OperatorCommand, model: &ScriptedModel) -> CommandEffect {
    let fixture = OperatorTrial::new(model);
    operation.setup.iter().for_each(|arguments| assert!(fixture.run_command(arguments, None)));
    let before = fixture.read_state();
    let trace = fixture.root().join("trace");
    // The setup has its own trace.
    let _none = std::fs::remove_file(&trace);
    assert!(fixture.run_command(operation.command, None));
    CommandEffect { before, after: fixture.read_state(), commits: trial::read_commits(&trace) }
}

/// Returns all violations when a command is killed at `point`, and whether its change was made.
fn run_killed(
    operation: &OperatorCommand,
    complete: &CommandEffect,
    point: &str,
    model: &ScriptedModel,
) -> (bool, Vec<String>) {
    let fixture = OperatorTrial::new(model);
    let script = TrialScript::from_kinds(&[]);
    operation.setup.iter().for_each(|arguments| assert!(fixture.run_command(arguments, None)));
    let mut host = fixture.start_busy_host(&script);
    let mut problems = Vec::new();
    let mut expect = |is_met: bool, expectation: String| {
        if !is_met {
            problems.push(format!("{}, killed at {point}: {expectation}", operation.title));
        }
    };
    expect(!fixture.run_command(operation.command, Some(point)), "it was not killed".to_owned());
    let state = fixture.read_state();
    let is_done = state == complete.after;
    expect(is_done || state == complete.before, format!("it is incomplete: {state:?}"));
    fixture.run_command(operation.command, None);
    let repeated = fixture.read_state();
    expect(repeated.entries == complete.after.entries, format!("repeated, it has another result: {repeated:?}"));
    File::create(TrialDir::new(fixture.root(), 0).barrier_file("bystanding")).expect("a barrier can be opened");
    fixture.wait_until("the host answers", || fixture.store_reader.has_ended(&script.messages[0]));
    let snapshot = fixture.store_reader.snapshot(&script.messages, &fixture.platform.record());
    expect(snapshot.outcome(&script.messages[0].id) == Some("replied"), "the host was affected".to_owned());
    expect(snapshot.damage.is_empty(), format!("damage: {:?}", snapshot.damage));
    host.kill().expect("a child can be killed");
    host.wait().expect("a child");
    (is_done, problems)
}

/// Kills every command at every commit; returns the section of the table and all violations.
pub fn render_section(model: &ScriptedModel) -> (String, Vec<String>) {
    let mut text = "### Commands that change bindings and state\n\n".to_owned();
    text.push_str("| command | commit | killed before it | killed after it |\n|---|---|---|---|\n");
    let mut problems = Vec::new();
    for operation in operator_commands() {
        let complete = run_to_end(&operation, model);
        assert!(
            complete.before != complete.after && !complete.commits.is_empty(),
            "{} changes something",
            operation.title
        );
        for commit in &complete.commits {
            let words = ["before", "after"].map(|moment| {
                let (is_done, found) = run_killed(&operation, &complete, &format!("{commit} {moment}"), model);
                problems.extend(found);
                if is_done { "the change is made and recorded" } else { "nothing has changed; repeat the command" }
            });
            let label = commit.split('#').next().unwrap_or_default();
            let description = "the change is recorded, with its entry on the tape";
            writeln!(text, "| {} | {description} (`{label}`) | {} | {} |", operation.title, words[0], words[1])
                .expect("a string");
        }
    }
    text.push('\n');
    (text, problems)
}

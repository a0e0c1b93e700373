//! Commands that change what is kept, killed at every commit beside a host that is in the middle of something: what they
//! change is changed whole and told of, or not at all, and the host does not notice.

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

const BINDING_JSON: &str = r#"{"binding_id": "extra", "runner_id": "builtin:agent", "scope": {"channel": "desk"}}"#;
const STATE_NAMESPACE: &str = r#"["builtin:agent", "runner", null]"#;

/// A command that changes what is kept.
pub struct OperatorCommand {
    title: &'static str,
    /// What was done before.
    setup: &'static [&'static [&'static str]],
    command: &'static [&'static str],
}

/// Every such command.
pub fn operator_commands() -> Vec<OperatorCommand> {
    const SAVE_BINDING: &[&str] = &["bindings", "set", "../binding.json"];
    const SET_STATE: &[&str] = &["state", "set", STATE_NAMESPACE, "key", "1"];
    let operation = |title, before, command| OperatorCommand { title, setup: before, command };
    vec![
        operation("Saving the first binding", &[], SAVE_BINDING),
        operation("Disabling a binding", &[SAVE_BINDING], &["bindings", "disable", "extra"]),
        operation("Removing a binding", &[SAVE_BINDING], &["bindings", "remove", "extra"]),
        operation("Setting state", &[], SET_STATE),
        operation("Clearing state", &[SET_STATE], &["state", "clear", "c55b2c1976d9", "--yes"]),
    ]
}

/// What is kept, and how often the system tape tells of a change.
#[derive(Debug, Clone, PartialEq)]
struct OperatorState {
    entries: Vec<Value>,
    change_count: usize,
}

/// A home, a host that is in the middle of an event, and its platform.
struct OperatorTrial {
    platform: FakePlatform,
    store_reader: StoreReader,
    model: String,
    /// Dropped after what is in it.
    folder: TempDir,
}

impl OperatorTrial {
    fn new(model: &ScriptedModel) -> Self {
        let folder = trial::trial_folder();
        std::fs::write(folder.path().join("binding.json"), BINDING_JSON).expect("the binding of the trial");
        let platform = FakePlatform::start(&TrialDir::new(folder.path(), 0).socket_path());
        let outside = StoreReader::open(&folder.path().join("home"), false);
        Self { platform, store_reader: outside, model: model.base_url(), folder }
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Gives a command, to be killed there if somewhere; says whether it ended by itself.
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
            let mut kept = Vec::new();
            let state = store.namespaces("state:").collect().await?.into_iter().map(|space| space.space);
            for space in state.chain(["bindings".to_owned()]) {
                let of_space = store.key_values(&space).collect().await?;
                kept.extend(of_space.into_iter().map(|kept| json!([kept.space, kept.key, kept.value])));
            }
            let tapes = store.tapes().collect().await?;
            let system = tapes.into_iter().find(|tape| tape.session.as_ref().is_some_and(|s| s.as_str() == "system"));
            let told = match system {
                Some(tape) => store.read(&tape.name, &TapeSlice::all()).await?,
                None => Vec::new(),
            };
            let is_change = |name: &str| name.starts_with("binding.") || name.starts_with("state.");
            Ok(OperatorState {
                entries: kept,
                change_count: told.iter().filter_map(|entry| entry.name()).filter(|name| is_change(name)).count(),
            })
        })
    }

    /// A host that has an event, and waits in the middle of it.
    fn start_busy_host(&self, script: &TrialScript) -> Child {
        let log = File::create(self.root().join("log")).expect("the log of the host");
        let mut command = trial::host_command(self.root(), &self.model, 1);
        let host = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        self.platform.offer(script.messages[0].event());
        self.wait_until("the host waits", || TrialDir::new(self.root(), 0).executions_file().exists());
        host.expect("the host can be started")
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            let log = || std::fs::read_to_string(self.root().join("log")).unwrap_or_default();
            assert!(begun.elapsed() < TRIAL_TIMEOUT, "{what}, it was said:\n{}", log());
            std::thread::sleep(TRIAL_POLL_INTERVAL);
        }
    }
}

/// What an operation changes, and its commits.
struct CommandEffect {
    before: OperatorState,
    after: OperatorState,
    commits: Vec<String>,
}

fn run_to_end(operation: &OperatorCommand, model: &ScriptedModel) -> CommandEffect {
    let world = OperatorTrial::new(model);
    operation.setup.iter().for_each(|arguments| assert!(world.run_command(arguments, None)));
    let before = world.read_state();
    let trace = world.root().join("trace");
    // What came before has its own trace.
    let _none = std::fs::remove_file(&trace);
    assert!(world.run_command(operation.command, None));
    CommandEffect { before, after: world.read_state(), commits: trial::read_commits(&trace) }
}

/// Everything that does not hold when an operation is killed there, and whether it was done.
fn run_killed(
    operation: &OperatorCommand,
    whole: &CommandEffect,
    point: &str,
    model: &ScriptedModel,
) -> (bool, Vec<String>) {
    let world = OperatorTrial::new(model);
    let script = TrialScript::from_kinds(&[]);
    operation.setup.iter().for_each(|arguments| assert!(world.run_command(arguments, None)));
    let mut host = world.start_busy_host(&script);
    let mut problems = Vec::new();
    let mut expect = |holds: bool, what: String| {
        if !holds {
            problems.push(format!("{}, killed at {point}: {what}", operation.title));
        }
    };
    expect(!world.run_command(operation.command, Some(point)), "it was not killed".to_owned());
    let found = world.read_state();
    let is_done = found == whole.after;
    expect(is_done || found == whole.before, format!("it is half done: {found:?}"));
    world.run_command(operation.command, None);
    let again = world.read_state();
    expect(again.entries == whole.after.entries, format!("given again, it comes to something else: {again:?}"));
    File::create(TrialDir::new(world.root(), 0).gate_file("bystanding")).expect("a gate can be opened");
    world.wait_until("the host answers", || world.store_reader.has_ended(&script.messages[0]));
    let snapshot = world.store_reader.snapshot(&script.messages, &world.platform.record());
    expect(snapshot.outcome(&script.messages[0].id) == Some("replied"), "the host noticed".to_owned());
    expect(snapshot.damage.is_empty(), format!("damage: {:?}", snapshot.damage));
    host.kill().expect("a child can be killed");
    host.wait().expect("a child");
    (is_done, problems)
}

/// Tries every operation at every commit; gives the section of the table, and everything that does not hold.
pub fn render_section(model: &ScriptedModel) -> (String, Vec<String>) {
    let mut text = "### Commands that change bindings and state\n\n".to_owned();
    text.push_str("| command | commit | killed before it | killed after it |\n|---|---|---|---|\n");
    let mut problems = Vec::new();
    for operation in operator_commands() {
        let whole = run_to_end(&operation, model);
        assert!(whole.before != whole.after && !whole.commits.is_empty(), "{} changes something", operation.title);
        for commit in &whole.commits {
            let words = ["before", "after"].map(|moment| {
                let (is_done, found) = run_killed(&operation, &whole, &format!("{commit} {moment}"), model);
                problems.extend(found);
                if is_done { "it is done, and told of" } else { "nothing has changed; give it again" }
            });
            let label = commit.split('#').next().unwrap_or_default();
            let what = "the change is on record, with the entry that tells of it";
            writeln!(text, "| {} | {what} (`{label}`) | {} | {} |", operation.title, words[0], words[1])
                .expect("a string");
        }
    }
    text.push('\n');
    (text, problems)
}

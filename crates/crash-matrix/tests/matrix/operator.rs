//! Commands that change what is kept, killed at every commit beside a host that is in the middle of something: what they
//! change is changed whole and told of, or not at all, and the host does not notice.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Instant;

use capstan::tape::{Slice, Store as _};
use capstan_crash_matrix::place::Place;
use capstan_testing::ScriptedModel;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::platform::Platform;
use crate::script::Script;
use crate::snapshot::Outside;
use crate::trial::{self, POLL, TOO_LONG};

const BINDING: &str = r#"{"binding_id": "extra", "runner_id": "builtin:agent", "scope": {"channel": "desk"}}"#;
const SPACE: &str = r#"["builtin:agent", "runner", null]"#;

/// A command that changes what is kept.
pub struct Operation {
    title: &'static str,
    /// What was done before.
    before: &'static [&'static [&'static str]],
    command: &'static [&'static str],
}

/// Every such command.
pub fn operations() -> Vec<Operation> {
    const SAVE: &[&str] = &["bindings", "set", "../binding.json"];
    const KEEP: &[&str] = &["state", "set", SPACE, "key", "1"];
    let operation = |title, before, command| Operation { title, before, command };
    vec![
        operation("Saving the first binding", &[], SAVE),
        operation("Disabling a binding", &[SAVE], &["bindings", "disable", "extra"]),
        operation("Removing a binding", &[SAVE], &["bindings", "remove", "extra"]),
        operation("Setting state", &[], KEEP),
        operation("Clearing state", &[KEEP], &["state", "clear", "c55b2c1976d9", "--yes"]),
    ]
}

/// What is kept, and how often the system tape tells of a change.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    kept: Vec<Value>,
    told: usize,
}

/// A home, a host that is in the middle of an event, and its platform.
struct World {
    platform: Platform,
    outside: Outside,
    model: String,
    /// Dropped after what is in it.
    folder: TempDir,
}

impl World {
    fn new(model: &ScriptedModel) -> Self {
        let folder = trial::folder();
        std::fs::write(folder.path().join("binding.json"), BINDING).expect("the binding of the trial");
        let platform = Platform::start(&Place::new(folder.path(), 0).socket());
        let outside = Outside::open(&folder.path().join("home"), false);
        Self { platform, outside, model: model.base_url(), folder }
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Gives a command, to be killed there if somewhere; says whether it ended by itself.
    fn give(&self, arguments: &[&str], killed_at: Option<&str>) -> bool {
        let mut command = trial::host(self.root(), &self.model, 2);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("CAPSTAN_FAIL_TRACE", self.root().join("trace"));
        if let Some(point) = killed_at {
            command.env("CAPSTAN_FAIL_AT", point);
        }
        command.status().expect("the command can be started").code().is_some()
    }

    fn seen(&self) -> Seen {
        self.outside.read_with(async |store| {
            let mut kept = Vec::new();
            let state = store.spaces("state:").await?.into_iter().map(|space| space.space);
            for space in state.chain(["bindings".to_owned()]) {
                let of_space = store.kept_in(&space, None, usize::MAX).await?;
                kept.extend(of_space.into_iter().map(|kept| json!([kept.space, kept.key, kept.value])));
            }
            let tapes = store.tapes().await?;
            let system = tapes.into_iter().find(|tape| tape.session.as_ref().is_some_and(|s| s.as_str() == "system"));
            let told = match system {
                Some(tape) => store.read(&tape.name, &Slice::all()).await?,
                None => Vec::new(),
            };
            let is_change = |name: &str| name.starts_with("binding.") || name.starts_with("state.");
            Ok(Seen { kept, told: told.iter().filter_map(|entry| entry.name()).filter(|name| is_change(name)).count() })
        })
    }

    /// A host that has an event, and waits in the middle of it.
    fn busy_host(&self, script: &Script) -> Child {
        let log = File::create(self.root().join("log")).expect("the log of the host");
        let mut command = trial::host(self.root(), &self.model, 1);
        let host = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        self.platform.offer(script.said[0].event());
        self.wait("the host waits", || Place::new(self.root(), 0).executions().exists());
        host.expect("the host can be started")
    }

    fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            let log = || std::fs::read_to_string(self.root().join("log")).unwrap_or_default();
            assert!(begun.elapsed() < TOO_LONG, "{what}, it was said:\n{}", log());
            std::thread::sleep(POLL);
        }
    }
}

/// What an operation changes, and its commits.
struct Whole {
    before: Seen,
    after: Seen,
    commits: Vec<String>,
}

fn whole(operation: &Operation, model: &ScriptedModel) -> Whole {
    let world = World::new(model);
    operation.before.iter().for_each(|arguments| assert!(world.give(arguments, None)));
    let before = world.seen();
    let trace = world.root().join("trace");
    // What came before has its own trace.
    let _none = std::fs::remove_file(&trace);
    assert!(world.give(operation.command, None));
    Whole { before, after: world.seen(), commits: trial::commits(&trace) }
}

/// Everything that does not hold when an operation is killed there, and whether it was done.
fn killed(operation: &Operation, whole: &Whole, point: &str, model: &ScriptedModel) -> (bool, Vec<String>) {
    let world = World::new(model);
    let script = Script::of(&[]);
    operation.before.iter().for_each(|arguments| assert!(world.give(arguments, None)));
    let mut host = world.busy_host(&script);
    let mut problems = Vec::new();
    let mut expect = |holds: bool, what: String| {
        if !holds {
            problems.push(format!("{}, killed at {point}: {what}", operation.title));
        }
    };
    expect(!world.give(operation.command, Some(point)), "it was not killed".to_owned());
    let found = world.seen();
    let is_done = found == whole.after;
    expect(is_done || found == whole.before, format!("it is half done: {found:?}"));
    world.give(operation.command, None);
    let again = world.seen();
    expect(again.kept == whole.after.kept, format!("given again, it comes to something else: {again:?}"));
    File::create(Place::new(world.root(), 0).gate("bystanding")).expect("a gate can be opened");
    world.wait("the host answers", || world.outside.has_ended(&script.said[0]));
    let snapshot = world.outside.snapshot(&script.said, &world.platform.record());
    expect(snapshot.outcome(&script.said[0].id) == Some("replied"), "the host noticed".to_owned());
    expect(snapshot.damage.is_empty(), format!("damage: {:?}", snapshot.damage));
    host.kill().expect("a child can be killed");
    host.wait().expect("a child");
    (is_done, problems)
}

/// Tries every operation at every commit; gives the section of the table, and everything that does not hold.
pub fn section(model: &ScriptedModel) -> (String, Vec<String>) {
    let mut text = "### Commands that change bindings and state\n\n".to_owned();
    text.push_str("| command | commit | killed before it | killed after it |\n|---|---|---|---|\n");
    let mut problems = Vec::new();
    for operation in operations() {
        let whole = whole(&operation, model);
        assert!(whole.before != whole.after && !whole.commits.is_empty(), "{} changes something", operation.title);
        for commit in &whole.commits {
            let words = ["before", "after"].map(|moment| {
                let (is_done, found) = killed(&operation, &whole, &format!("{commit} {moment}"), model);
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

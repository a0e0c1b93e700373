//! Runners that yield what they should not: whatever it is, it costs their own run and nothing else.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use capstan::Served;
use capstan::hooks::contracts::{ResultStream, RunApi, Runner};
use capstan::hooks::points::ProvideRunners;
use capstan::hooks::{Plugin, Registrar};
use capstan::protocol::{Authority, Descriptor, Event, Map, ResultBody, RunContext, RunResult, StateScope, TapeName};
use capstan::store::SqliteStore;
use capstan::tape::{DefaultView, Entry, Slice, View as _};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::support::{Conversation, Registers};

/// How many results a run may have here.
const MOST_RESULTS: u64 = 2000;
/// How large they may be together.
const MOST_BYTES: usize = 32 << 20;

type Script = Box<dyn Fn() -> ResultStream + Send + Sync>;

/// A runner that does what the script of the message's name says, and otherwise answers.
struct Hostile {
    scripts: HashMap<&'static str, Script>,
    /// How many results were taken from it.
    taken: Arc<AtomicU64>,
}

impl Runner for Hostile {
    fn descriptor(&self) -> Descriptor {
        Descriptor { permissions: Authority::all(), ..Descriptor::new("builtin:agent", "hostile") }
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        let script = context.input.text.as_deref().and_then(|text| self.scripts.get(text));
        let results = script.map_or_else(|| these([said("honest"), done()]), |script| script());
        let taken = Arc::clone(&self.taken);
        results.inspect(move |_| _ = taken.fetch_add(1, Ordering::SeqCst)).boxed()
    }
}

fn plugin(hostile: Hostile) -> impl Plugin {
    let runner: Arc<dyn Runner> = Arc::new(hostile);
    Registers("hostile", move |hooks: &mut Registrar| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    })
}

fn these(results: impl IntoIterator<Item = RunResult, IntoIter: Send + 'static>) -> ResultStream {
    stream::iter(results).boxed()
}

/// A result again and again, always ready.
fn endless(result: RunResult) -> ResultStream {
    stream::repeat(result).boxed()
}

fn delta(text: impl Into<String>) -> RunResult {
    ResultBody::MessageDelta { delta: text.into() }.into()
}

fn said(text: impl Into<String>) -> RunResult {
    ResultBody::MessageCompleted { content: text.into().into(), provider_meta: Map::new() }.into()
}

fn wire(value: Value) -> RunResult {
    ResultBody::Unread(value).into()
}

fn done() -> RunResult {
    ResultBody::RunCompleted { silent: false }.into()
}

fn numbered(sequence: u64, text: &str) -> RunResult {
    RunResult { sequence: Some(sequence), ..said(text) }
}

/// Crashes when it is let go of.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("let go of");
    }
}

/// These results, of a runner that crashes when it is let go of.
fn explosive(results: ResultStream) -> ResultStream {
    let bomb = Bomb;
    results.inspect(move |_| _ = &bomb).boxed()
}

/// One line of the table.
struct Case {
    name: &'static str,
    script: Script,
    /// What was said, or the code of the failure.
    ends: Result<&'static str, &'static str>,
    /// What is noted.
    noted: Value,
}

fn case(
    name: &'static str,
    ends: Result<&'static str, &'static str>,
    noted: Value,
    script: impl Fn() -> ResultStream + Send + Sync + 'static,
) -> Case {
    Case { name, script: Box::new(script), ends, noted }
}

fn malformed() -> Vec<Case> {
    vec![
        case("malformed", Ok("still here"), json!({"malformed": 6}), || {
            let odd = [
                Value::Null,
                json!({"data": {}}),
                json!({"type": "message.completed", "data": {"content": 7}}),
                json!({"type": "tool.call.started", "data": {"call": "bash"}}),
                json!({"type": "tool.call.completed", "data": {"call_id": "9", "name": "n", "output": {"content": ""}}}),
                json!({"type": "message.delta", "data": {"delta": "x"}, "usage": "much"}),
            ];
            these(odd.into_iter().map(wire).chain([said("still here"), done()]))
        }),
        case("malformed effects", Ok("still here"), json!({"malformed": 3, "refused": 2}), || {
            let odd = [
                json!({"type": "state.updated", "data": {"state": {"k": 1}, "also": 1}}),
                json!({"type": "artifact.created", "data":
                    {"name": "a", "media_type": "text/plain", "content": "AA==", "path": "/etc"}}),
                json!({"type": "action.requested", "data": {"action": "a"}, "force": true}),
                json!({"type": "state.updated", "data": {"state": {"k": 1}}}),
                json!({"type": "artifact.created", "data":
                    {"name": "../a", "media_type": "text/plain", "content": "AA=="}}),
            ];
            these(odd.into_iter().map(wire).chain([said("still here"), done()]))
        }),
        case("unknown", Ok("still here"), json!({"unknown": 40}), || {
            let odd = std::iter::repeat_n(wire(json!({"type": "message.telepathy", "data": {}})), 40);
            these(odd.chain([said("still here"), done()]))
        }),
        case("malformed failure", Err("run-failed"), json!({"malformed": 1}), || {
            these([said("half"), wire(json!({"type": "run.failed", "data": 5}))])
        }),
        case("malformed end", Err("run-failed"), json!({"malformed": 1}), || {
            these([said("half"), wire(json!({"type": "run.completed", "data": {"silent": "no"}}))])
        }),
        case("failure of no known code", Err("run-failed"), json!({"malformed": 1, "too_large": 1}), || {
            let (message, code) = ("x".repeat(1 << 20), Some("\u{1b}[2J".to_owned()));
            these([ResultBody::RunFailed { message, code }.into()])
        }),
    ]
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

fn too_deep() -> Vec<Case> {
    vec![
        case("nested too deep", Ok("still here"), json!({"malformed": 6}), || {
            let deep = [
                json!({"type": "message.completed", "data": {"content": "x", "provider_meta": {"p": nested(121)}}}),
                json!({"type": "message.completed", "data": {"content": [{"type": "new", "x": nested(121)}]}}),
                json!({"type": "state.updated", "data": {"state": {"k": nested(121)}}}),
                json!({"type": "tool.call.started", "data":
                    {"call": {"id": "a", "function": {"name": "look", "arguments": "{}"}, "x": nested(121)}}}),
                json!({"type": "tool.call.started", "data":
                    {"call": {"id": "b", "function": {"name": "look", "arguments": "{}"}}}}),
                json!({"type": "tool.call.completed", "data":
                    {"call_id": "b", "name": "look", "output": {"content": [{"type": "new", "x": nested(121)}]}}}),
                json!({"type": "tool.call.completed", "data":
                    {"call_id": "a", "name": "look", "output": {"content": "answers what was left out"}}}),
            ];
            these(deep.into_iter().map(wire).chain([said("still here"), done()]))
        }),
        case("nested as deep as may be", Ok("still here"), Value::Null, || {
            let content = json!([{"type": "text", "text": "still here", "x": nested(99)}]);
            let data = json!({"content": content, "provider_meta": {"p": nested(99)}});
            these([wire(json!({"type": "message.completed", "data": data})), done()])
        }),
    ]
}

fn out_of_place() -> Vec<Case> {
    vec![
        case("duplicated", Ok("one\n\ntwo"), json!({"duplicates": 2}), || {
            these([numbered(1, "one"), numbered(1, "one"), numbered(2, "two"), numbered(2, "two"), done()])
        }),
        case("out of order", Ok("one\n\nthree"), json!({"duplicates": 1, "gaps": 1}), || {
            these([numbered(1, "one"), numbered(3, "three"), numbered(2, "two"), done()])
        }),
        case("after the end", Ok("one"), json!({"after_end": 3}), || {
            let failed = ResultBody::RunFailed { message: "no".to_owned(), code: None };
            these([said("one"), done(), said("two"), failed.into(), done()])
        }),
        case("endless after the end", Ok("one"), json!({"after_end": 64}), || {
            these([said("one"), done()]).chain(endless(said("more"))).boxed()
        }),
        case("crash after the end", Ok("one"), Value::Null, || {
            these([said("one"), done()]).chain(stream::once(async { panic!("too late") })).boxed()
        }),
        case("crash when it is let go of", Ok("one"), Value::Null, || explosive(these([said("one"), done()]))),
        case("crash at every turn", Err("run-failed"), Value::Null, || {
            explosive(these([said("one")]).chain(stream::once(async { panic!("twice") })).boxed())
        }),
        case("calls that nobody answers", Ok("bye"), json!({"malformed": 1}), || {
            let call = |id: &str| {
                wire(json!({"type": "tool.call.started", "data":
                    {"call": {"id": id, "function": {"name": "look", "arguments": "not json"}}}}))
            };
            let answer = wire(json!({"type": "tool.call.completed", "data":
                {"call_id": "a", "name": "look", "output": {"content": "seen"}}}));
            these([call("a"), call("a"), call("b"), answer.clone(), answer.clone(), answer, said("bye"), done()])
        }),
    ]
}

fn too_much() -> Vec<Case> {
    let text = |bytes: usize| "x".repeat(bytes);
    vec![
        case("too large", Ok("still here"), json!({"too_large": 4}), move || {
            let state = Map::from_iter([("k".to_owned(), json!(text(2 << 20)))]);
            let answer = json!({"call_id": "a", "name": "look", "output": {"content": text(5 << 20)}});
            these([
                delta(text(2 << 20)),
                said(text(11 << 20)),
                ResultBody::StateUpdated { scope: StateScope::Conversation, state }.into(),
                wire(json!({"type": "tool.call.started", "data":
                    {"call": {"id": "a", "function": {"name": "look", "arguments": "{}"}}}})),
                wire(json!({"type": "tool.call.completed", "data": answer})),
                said("still here"),
                done(),
            ])
        }),
        case("endless pieces", Err("run-flooded"), Value::Null, || endless(delta("x"))),
        case("endless large pieces", Err("run-flooded"), json!({"too_large": 22}), move || {
            endless(delta(text(1 << 20)))
        }),
        case("endless messages", Err("run-flooded"), Value::Null, || endless(said("x"))),
        case("endless large messages", Err("run-flooded"), Value::Null, move || endless(said(text(1 << 20)))),
        case("endless calls", Err("run-flooded"), Value::Null, || {
            endless(wire(json!({"type": "tool.call.started", "data":
                {"call": {"id": "a", "function": {"name": "look", "arguments": "{}"}}}})))
        }),
        case("endless junk", Err("run-flooded"), json!({"unknown": 1998}), || {
            these([delta("x"), said("x")]).chain(endless(wire(json!({"type": "junk"})))).boxed()
        }),
        case("endless duplicates", Err("run-flooded"), json!({"duplicates": 2000}), || endless(numbered(1, "x"))),
    ]
}

/// What is noted at the end of the run, without what is zero.
fn noted(entries: &[Entry]) -> Value {
    let told: Vec<&Entry> = entries.iter().filter(|entry| entry.name() == Some("results.noted")).collect();
    assert!(told.len() <= 1, "it is told once");
    let Some(told) = told.first() else { return Value::Null };
    let counts = told.payload["data"].as_object().unwrap().iter().filter(|(_, count)| **count != json!(0));
    Value::Object(counts.map(|(name, count)| (name.clone(), count.clone())).collect())
}

async fn tape_of(conversation: &Conversation, served: &Served) -> (TapeName, Vec<Entry>) {
    let tapes = conversation.host.tapes();
    let records = tapes.list().await.unwrap();
    let record = records.into_iter().find(|record| record.session.as_ref() == Some(&served.session)).unwrap();
    let entries = tapes.read(&record.name, &Slice::all()).await.unwrap();
    (record.name, entries)
}

#[tokio::test]
async fn x05_whatever_a_runner_yields_the_host_is_well_afterwards() {
    let (mut table, taken) = (malformed(), Arc::new(AtomicU64::new(0)));
    table.extend(out_of_place());
    table.extend(too_much());
    table.extend(too_deep());
    let mut scripts = HashMap::new();
    let mut expected = Vec::new();
    for Case { name, script, ends, noted } in table {
        scripts.insert(name, script);
        expected.push((name, ends, noted));
    }
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(folder.path().join("capstan.db")).unwrap());
    let hostile = plugin(Hostile { scripts, taken: Arc::clone(&taken) });
    let set = |builder: capstan::Builder| {
        let builder = builder.store(store).set("max_run_results", &MOST_RESULTS.to_string());
        builder.set("max_run_result_bytes", &MOST_BYTES.to_string()).plugin(hostile)
    };
    let conversation = Conversation::new(set).await;

    for (name, ends, expected) in expected {
        taken.store(0, Ordering::SeqCst);
        let served = conversation.host.serve(Event::message("cli", name, name)).await.unwrap();
        let code = served.error.as_ref().map(|error| error.code().to_owned());
        match ends {
            Ok(text) => assert_eq!((served.output.as_str(), code), (text, None), "{name}"),
            Err(wanted) => assert_eq!(code.as_deref(), Some(wanted), "{name}"),
        }
        let (tape, entries) = tape_of(&conversation, &served).await;
        assert_eq!(noted(&entries), expected, "{name}");
        let dropped = entries.iter().filter(|entry| entry.name() == Some("result.dropped")).count();
        assert!(dropped <= 16, "{name}: {dropped} are told one by one");
        let kept: usize = entries.iter().map(|entry| serde_json::to_vec(&entry.payload).unwrap().len()).sum();
        assert!(kept < MOST_BYTES + (1 << 20), "{name}: {kept} bytes are kept");
        assert!(taken.load(Ordering::SeqCst) <= MOST_RESULTS + 1, "{name}: the runner is not listened to for ever");

        let again = conversation.host.serve(Event::message("cli", name, "are you well?")).await.unwrap();
        assert_eq!(again.output, "honest", "{name}: its session goes on");
        let window = conversation.host.tapes().window(&tape).await.unwrap();
        let view = DefaultView.messages(&window);
        let open = view.iter().flat_map(|message| &message.tool_calls).count();
        let answers = view.iter().filter(|message| message.tool_call_id.is_some()).count();
        assert_eq!(open, answers, "{name}: every call of the view has its answer");
    }
    assert_eq!(conversation.host.tapes().verify().await.unwrap(), []);
    let store = conversation.host.tapes().store();
    assert!(store.in_flight(None).await.unwrap().is_empty() && store.running().await.unwrap().is_empty());
}

/// A result again and again, always ready; not so fast that there could be too many before the deadline.
fn steady(result: &RunResult) -> ResultStream {
    let result = result.clone();
    stream::iter(std::iter::repeat_with(move || {
        std::thread::sleep(Duration::from_micros(50));
        result.clone()
    }))
    .boxed()
}

/// On one thread: a runner that never lets go of it would keep everybody else waiting.
#[tokio::test]
async fn g04_a_runner_that_never_pauses_is_ended_at_its_deadline_and_others_go_on() {
    let endless_of: [(&'static str, Script); 2] =
        [("pieces", Box::new(|| steady(&delta("")))), ("junk", Box::new(|| steady(&wire(json!({"type": "junk"})))))];
    for (name, script) in endless_of {
        let hostile = plugin(Hostile { scripts: HashMap::from([(name, script)]), taken: Arc::default() });
        let set = |builder: capstan::Builder| {
            builder.set("run_timeout_seconds", "1").set("max_run_results", "1000000").plugin(hostile)
        };
        let conversation = Conversation::new(set).await;
        let host = &conversation.host;
        let busy = host.serve(Event::message("cli", "busy", name));
        let other = host.serve(Event::message("cli", "other", "hello"));
        let (busy, other) = tokio::join!(busy, other);
        assert_eq!(other.unwrap().output, "honest", "{name}");
        assert_eq!(busy.unwrap().error.unwrap().code(), "run-timeout", "{name}");
    }
}

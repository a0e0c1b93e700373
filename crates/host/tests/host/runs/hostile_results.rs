//! Runners that yield invalid, excessive or late results: only their own run is affected.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use capstan_hooks::contracts::{ResultStream, RunApi, Runner};
use capstan_hooks::points::ProvideRunners;
use capstan_hooks::{HookRegistrar, Plugin};
use capstan_host::ServedEvent;
use capstan_host::testing::{ClosurePlugin, TestEnvironment, TestHost};
use capstan_protocol::{
    Descriptor, Event, JsonObject, PermissionSet, ResultBody, RunContext, RunId, RunResult, StateScope, TapeName,
};
use capstan_tape::{DefaultView, Entry, TapeSlice};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

/// Limit on the number of results of a run.
const MAX_RUN_RESULTS: u64 = 2000;
/// Limit on the total size of the results of a run.
const MAX_RUN_RESULT_BYTES: usize = 32 << 20;

type ResultScript = Box<dyn Fn() -> ResultStream + Send + Sync>;

/// Runner that follows the script named by the message, and replies `honest` to any other message.
struct HostileRunner {
    scripts: HashMap<&'static str, ResultScript>,
    /// Number of results consumed by the host.
    consumed: Arc<AtomicU64>,
}

impl Runner for HostileRunner {
    fn descriptor(&self) -> Descriptor {
        let capabilities = super::support::broad_capabilities();
        Descriptor { permissions: PermissionSet::all(), capabilities, ..Descriptor::new("builtin:agent", "hostile") }
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        let script = context.input.text.as_deref().and_then(|text| self.scripts.get(text));
        let results =
            script.map_or_else(|| result_stream([message_result("honest"), completed_result()]), |script| script());
        let consumed = Arc::clone(&self.consumed);
        results.inspect(move |_| _ = consumed.fetch_add(1, Ordering::SeqCst)).boxed()
    }
}

fn hostile_plugin(hostile: HostileRunner) -> impl Plugin {
    let runner: Arc<dyn Runner> = Arc::new(hostile);
    ClosurePlugin::new("hostile", move |hooks: &mut HookRegistrar| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    })
}

fn result_stream(results: impl IntoIterator<Item = RunResult, IntoIter: Send + 'static>) -> ResultStream {
    stream::iter(results).boxed()
}

/// Endless stream of one result, always ready.
fn repeat_result(result: RunResult) -> ResultStream {
    stream::repeat(result).boxed()
}

fn delta_result(text: impl Into<String>) -> RunResult {
    ResultBody::MessageDelta { delta: text.into() }.into()
}

fn message_result(text: impl Into<String>) -> RunResult {
    ResultBody::MessageCompleted { content: text.into().into(), provider_meta: JsonObject::new() }.into()
}

fn raw_result(value: Value) -> RunResult {
    ResultBody::Unparsed(value).into()
}

fn completed_result() -> RunResult {
    ResultBody::RunCompleted { silent: false }.into()
}

fn numbered_message(sequence: u64, text: &str) -> RunResult {
    RunResult { sequence: Some(sequence), ..message_result(text) }
}

/// Panics when it is dropped.
struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

/// Results of a runner that panics when its stream is dropped.
fn panicking_on_drop(results: ResultStream) -> ResultStream {
    let bomb = PanicOnDrop;
    results.inspect(move |_| _ = &bomb).boxed()
}

/// Script of a hostile runner with the expected effects.
struct HostileCase {
    name: &'static str,
    script: ResultScript,
    /// Text of the reply, or the code of the failure.
    expected_end: Result<&'static str, &'static str>,
    /// Expected nonzero counts in `results.noted`.
    expected_counts: Value,
}

fn hostile_case(
    name: &'static str,
    expected_end: Result<&'static str, &'static str>,
    expected_counts: Value,
    script: impl Fn() -> ResultStream + Send + Sync + 'static,
) -> HostileCase {
    HostileCase { name, script: Box::new(script), expected_end, expected_counts }
}

fn malformed_cases() -> Vec<HostileCase> {
    vec![
        hostile_case("malformed", Ok("still here"), json!({"malformed": 6}), || {
            let malformed = [
                Value::Null,
                json!({"data": {}}),
                json!({"type": "message.completed", "data": {"content": 7}}),
                json!({"type": "tool.call.started", "data": {"call": "bash"}}),
                json!({"type": "tool.call.completed", "data": {"call_id": "9", "name": "n", "output": {"content": ""}}}),
                json!({"type": "message.delta", "data": {"delta": "x"}, "usage": "much"}),
            ];
            result_stream(
                malformed.into_iter().map(raw_result).chain([message_result("still here"), completed_result()]),
            )
        }),
        hostile_case("malformed effects", Ok("still here"), json!({"malformed": 3, "refused": 2}), || {
            let malformed = [
                json!({"type": "state.updated", "data": {"state": {"k": 1}, "also": 1}}),
                json!({"type": "artifact.created", "data":
                    {"name": "a", "media_type": "text/plain", "content": "AA==", "path": "/etc"}}),
                json!({"type": "action.requested", "data": {"action": "a"}, "force": true}),
                json!({"type": "state.updated", "data": {"state": {"k": 1}}}),
                json!({"type": "artifact.created", "data":
                    {"name": "../a", "media_type": "text/plain", "content": "AA=="}}),
            ];
            result_stream(
                malformed.into_iter().map(raw_result).chain([message_result("still here"), completed_result()]),
            )
        }),
        hostile_case("unknown", Ok("still here"), json!({"unknown": 40}), || {
            let malformed = std::iter::repeat_n(raw_result(json!({"type": "message.telepathy", "data": {}})), 40);
            result_stream(malformed.chain([message_result("still here"), completed_result()]))
        }),
        hostile_case("results of another run", Ok("still here"), json!({"malformed": 4}), || {
            let other = || Some(RunId::new("run-other"));
            let of_other = |result: RunResult| RunResult { run_id: other(), ..result };
            result_stream([
                of_other(message_result("forged")),
                raw_result(json!({"type": "message.delta", "data": {"delta": "x"}, "run_id": "run-other"})),
                of_other(numbered_message(7, "forged")),
                numbered_message(1, "still here"),
                of_other(completed_result()),
                completed_result(),
            ])
        }),
        hostile_case("malformed failure", Err("run-failed"), json!({"malformed": 1}), || {
            result_stream([message_result("half"), raw_result(json!({"type": "run.failed", "data": 5}))])
        }),
        hostile_case("malformed end", Err("run-failed"), json!({"malformed": 1}), || {
            result_stream([
                message_result("half"),
                raw_result(json!({"type": "run.completed", "data": {"silent": "no"}})),
            ])
        }),
        hostile_case(
            "failure with an unknown code",
            Err("run-failed"),
            json!({"malformed": 1, "too_large": 1}),
            || {
                let (message, code) = ("x".repeat(1 << 20), Some("\u{1b}[2J".into()));
                result_stream([ResultBody::RunFailed { message, code }.into()])
            },
        ),
    ]
}

fn nested_value(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

fn too_deep_cases() -> Vec<HostileCase> {
    vec![
        hostile_case("nested too deep", Ok("still here"), json!({"malformed": 6}), || {
            let deep = [
                json!({"type": "message.completed", "data": {"content": "x", "provider_meta": {"p": nested_value(121)}}}),
                json!({"type": "message.completed", "data": {"content": [{"type": "new", "x": nested_value(121)}]}}),
                json!({"type": "state.updated", "data": {"state": {"k": nested_value(121)}}}),
                json!({"type": "tool.call.started", "data":
                    {"call": {"id": "a", "function": {"name": "look", "arguments": "{}"}, "x": nested_value(121)}}}),
                json!({"type": "tool.call.started", "data":
                    {"call": {"id": "b", "function": {"name": "look", "arguments": "{}"}}}}),
                json!({"type": "tool.call.completed", "data":
                    {"call_id": "b", "name": "look", "output": {"content": [{"type": "new", "x": nested_value(121)}]}}}),
                json!({"type": "tool.call.completed", "data":
                    {"call_id": "a", "name": "look", "output": {"content": "answers the dropped call"}}}),
            ];
            result_stream(deep.into_iter().map(raw_result).chain([message_result("still here"), completed_result()]))
        }),
        hostile_case("nested to the limit", Ok("still here"), Value::Null, || {
            let content = json!([{"type": "text", "text": "still here", "x": nested_value(99)}]);
            let data = json!({"content": content, "provider_meta": {"p": nested_value(99)}});
            result_stream([raw_result(json!({"type": "message.completed", "data": data})), completed_result()])
        }),
    ]
}

fn out_of_order_cases() -> Vec<HostileCase> {
    vec![
        hostile_case("duplicated", Ok("one\n\ntwo"), json!({"duplicates": 2}), || {
            result_stream([
                numbered_message(1, "one"),
                numbered_message(1, "one"),
                numbered_message(2, "two"),
                numbered_message(2, "two"),
                completed_result(),
            ])
        }),
        hostile_case("out of order", Ok("one\n\nthree"), json!({"duplicates": 1, "gaps": 1}), || {
            result_stream([
                numbered_message(1, "one"),
                numbered_message(3, "three"),
                numbered_message(2, "two"),
                completed_result(),
            ])
        }),
        hostile_case("after the end", Ok("one"), json!({"after_end": 3}), || {
            let failed = ResultBody::RunFailed { message: "no".to_owned(), code: None };
            result_stream([
                message_result("one"),
                completed_result(),
                message_result("two"),
                failed.into(),
                completed_result(),
            ])
        }),
        hostile_case("endless after the end", Ok("one"), json!({"after_end": 64}), || {
            result_stream([message_result("one"), completed_result()])
                .chain(repeat_result(message_result("more")))
                .boxed()
        }),
        hostile_case("panic after the end", Ok("one"), Value::Null, || {
            result_stream([message_result("one"), completed_result()])
                .chain(stream::once(async { panic!("too late") }))
                .boxed()
        }),
        hostile_case("panic when it is dropped", Ok("one"), Value::Null, || {
            panicking_on_drop(result_stream([message_result("one"), completed_result()]))
        }),
        hostile_case("panic in the stream and when it is dropped", Err("run-failed"), Value::Null, || {
            panicking_on_drop(
                result_stream([message_result("one")]).chain(stream::once(async { panic!("twice") })).boxed(),
            )
        }),
        hostile_case("unanswered calls", Ok("bye"), json!({"malformed": 1}), || {
            let call = |id: &str| {
                raw_result(json!({"type": "tool.call.started", "data":
                    {"call": {"id": id, "function": {"name": "look", "arguments": "not json"}}}}))
            };
            let answer = raw_result(json!({"type": "tool.call.completed", "data":
                {"call_id": "a", "name": "look", "output": {"content": "seen"}}}));
            result_stream([
                call("a"),
                call("a"),
                call("b"),
                answer.clone(),
                answer.clone(),
                answer,
                message_result("bye"),
                completed_result(),
            ])
        }),
    ]
}

fn flooding_cases() -> Vec<HostileCase> {
    let text = |bytes: usize| "x".repeat(bytes);
    vec![
        hostile_case("too large", Ok("still here"), json!({"too_large": 4}), move || {
            let state = JsonObject::from_iter([("k".to_owned(), json!(text(2 << 20)))]);
            let answer = json!({"call_id": "a", "name": "look", "output": {"content": text(5 << 20)}});
            result_stream([
                delta_result(text(2 << 20)),
                message_result(text(11 << 20)),
                ResultBody::StateUpdated { scope: StateScope::Conversation, state }.into(),
                raw_result(json!({"type": "tool.call.started", "data":
                    {"call": {"id": "a", "function": {"name": "look", "arguments": "{}"}}}})),
                raw_result(json!({"type": "tool.call.completed", "data": answer})),
                message_result("still here"),
                completed_result(),
            ])
        }),
        hostile_case("endless deltas", Err("run-flooded"), Value::Null, || repeat_result(delta_result("x"))),
        hostile_case("endless large deltas", Err("run-flooded"), json!({"too_large": 22}), move || {
            repeat_result(delta_result(text(1 << 20)))
        }),
        hostile_case("endless messages", Err("run-flooded"), Value::Null, || repeat_result(message_result("x"))),
        hostile_case("endless large messages", Err("run-flooded"), Value::Null, move || {
            repeat_result(message_result(text(1 << 20)))
        }),
        hostile_case("endless calls", Err("run-flooded"), Value::Null, || {
            repeat_result(raw_result(json!({"type": "tool.call.started", "data":
                {"call": {"id": "a", "function": {"name": "look", "arguments": "{}"}}}})))
        }),
        hostile_case("endless junk", Err("run-flooded"), json!({"unknown": 1998}), || {
            result_stream([delta_result("x"), message_result("x")])
                .chain(repeat_result(raw_result(json!({"type": "junk"}))))
                .boxed()
        }),
        hostile_case("endless duplicates", Err("run-flooded"), json!({"duplicates": 2000}), || {
            repeat_result(numbered_message(1, "x"))
        }),
    ]
}

/// Nonzero counts of `results.noted`, which is written at the end of the run.
fn noted_counts(entries: &[Entry]) -> Value {
    let noted: Vec<&Entry> = entries.iter().filter(|entry| entry.name() == Some("results.noted")).collect();
    assert!(noted.len() <= 1, "the counts are recorded once");
    let Some(noted) = noted.first() else { return Value::Null };
    let counts = noted.payload["data"].as_object().unwrap().iter().filter(|(_, count)| **count != json!(0));
    Value::Object(counts.map(|(name, count)| (name.clone(), count.clone())).collect())
}

async fn session_tape(conversation: &TestHost, served: &ServedEvent) -> (TapeName, Vec<Entry>) {
    let tapes = conversation.tapes();
    let records = tapes.list().await.unwrap();
    let record = records.into_iter().find(|record| record.session.as_ref() == Some(&served.session)).unwrap();
    let entries = tapes.read(&record.name, &TapeSlice::all()).await.unwrap();
    (record.name, entries)
}

#[tokio::test]
async fn x05_the_host_keeps_working_after_any_results_of_a_runner() {
    let (mut table, consumed) = (malformed_cases(), Arc::new(AtomicU64::new(0)));
    table.extend(out_of_order_cases());
    table.extend(flooding_cases());
    table.extend(too_deep_cases());
    let mut scripts = HashMap::new();
    let mut expected = Vec::new();
    for HostileCase { name, script, expected_end, expected_counts } in table {
        scripts.insert(name, script);
        expected.push((name, expected_end, expected_counts));
    }
    let hostile = hostile_plugin(HostileRunner { scripts, consumed: Arc::clone(&consumed) });
    let environment = TestEnvironment::on_disk();
    let builder = environment.host().agent_plugin(hostile).options(|options| {
        options.limits.results.count = MAX_RUN_RESULTS;
        options.limits.results.total_bytes = MAX_RUN_RESULT_BYTES as u64;
    });
    let conversation = builder.start().await;

    for (name, expected_end, expected_counts) in expected {
        consumed.store(0, Ordering::SeqCst);
        let served = conversation.serve(Event::message("cli", name, name)).await.unwrap();
        let code = served.error.as_ref().map(|error| error.code().to_string());
        match expected_end {
            Ok(text) => assert_eq!((served.output.as_str(), code), (text, None), "{name}"),
            Err(expected) => assert_eq!(code.as_deref(), Some(expected), "{name}"),
        }
        let (tape, entries) = session_tape(&conversation, &served).await;
        assert_eq!(noted_counts(&entries), expected_counts, "{name}");
        let dropped = entries.iter().filter(|entry| entry.name() == Some("result.dropped")).count();
        assert!(dropped <= 16, "{name}: {dropped} dropped results are recorded one by one");
        let recorded_bytes: usize = entries.iter().map(|entry| serde_json::to_vec(&entry.payload).unwrap().len()).sum();
        assert!(recorded_bytes < MAX_RUN_RESULT_BYTES + (1 << 20), "{name}: {recorded_bytes} bytes are recorded");
        assert!(consumed.load(Ordering::SeqCst) <= MAX_RUN_RESULTS + 1, "{name}: consumption of results is bounded");

        let again = conversation.serve(Event::message("cli", name, "are you there?")).await.unwrap();
        assert_eq!(again.output, "honest", "{name}: the session continues");
        let window = conversation.tapes().window(&tape).await.unwrap();
        let view = DefaultView.messages(&window);
        let calls = view.iter().flat_map(|message| &message.tool_calls).count();
        let outputs = view.iter().filter(|message| message.tool_call_id.is_some()).count();
        assert_eq!(calls, outputs, "{name}: every call of the view has its output");
    }
    assert_eq!(conversation.tapes().verify().await.unwrap(), []);
    let store = conversation.tapes().store();
    assert!(
        store.in_flight_events(None).collect().await.unwrap().is_empty()
            && store.open_runs().collect().await.unwrap().is_empty()
    );
}

/// Endless stream of one result, always ready, slow enough to stay below the result limit until the deadline.
fn paced_stream(result: &RunResult) -> ResultStream {
    let result = result.clone();
    stream::iter(std::iter::repeat_with(move || {
        std::thread::sleep(Duration::from_micros(50));
        result.clone()
    }))
    .boxed()
}

/// Runs on one thread, which a runner that never yields control would block for all others.
#[tokio::test]
async fn g04_a_runner_that_never_pauses_ends_at_its_deadline_and_others_continue() {
    let scripts: [(&'static str, ResultScript); 2] = [
        ("deltas", Box::new(|| paced_stream(&delta_result("")))),
        ("junk", Box::new(|| paced_stream(&raw_result(json!({"type": "junk"}))))),
    ];
    for (name, script) in scripts {
        let hostile =
            hostile_plugin(HostileRunner { scripts: HashMap::from([(name, script)]), consumed: Arc::default() });
        let builder = TestHost::builder().agent_plugin(hostile).options(|options| {
            options.run_timeout = Duration::from_secs(1);
            options.limits.results.count = 1_000_000;
        });
        let conversation = builder.start().await;
        let host = &conversation;
        let busy = host.serve(Event::message("cli", "busy", name));
        let other = host.serve(Event::message("cli", "other", "hello"));
        let (busy, other) = tokio::join!(busy, other);
        assert_eq!(other.unwrap().output, "honest", "{name}");
        assert_eq!(busy.unwrap().error.unwrap().code(), "run-timeout", "{name}");
    }
}

//! Effects of the capabilities that a runner declares, and the grace period of a cancelled run.

use std::sync::{Arc, Mutex};

use capstan_hooks::args::BoundRunner;
use capstan_hooks::contracts::{ModelCall, ResultStream, RunApi, Runner};
use capstan_hooks::points::RunModelStream;
use capstan_host::ServedEvent;
use capstan_host::testing::TestHost;
use capstan_policy::default_binding;
use capstan_protocol::{
    ApiErrorCode, Binding, Content, ContentPart, Descriptor, Event, HostStateRequirement, Outcome, PermissionSet,
    ResultBody, RunContext, RunResult, RunnerCapabilities, StatePolicy, StateScope, StreamEvent,
};
use capstan_tape::RunStatus;
use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::json;
use tokio::sync::Notify;

use super::api_runner::permissive_binding;

/// Runner with these capabilities that repeats the parts of its input, in deltas.
struct EchoRunner(RunnerCapabilities);

impl Runner for EchoRunner {
    fn descriptor(&self) -> Descriptor {
        let (capabilities, permissions) = (self.0.clone(), PermissionSet::all());
        Descriptor { capabilities, permissions, ..Descriptor::new("builtin:agent", "echo") }
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        let prompt = context.adapter.prompt.unwrap_or_default();
        let text = format!("{} / {}", context.input.content().text(), prompt.has_media());
        let (first, second) = text.split_at(1);
        let delta = |delta: &str| ResultBody::MessageDelta { delta: delta.to_owned() };
        let results = [delta(first), delta(second), ResultBody::RunCompleted { silent: false }];
        stream::iter(results.map(RunResult::from)).boxed()
    }
}

/// Serves an event with an [`EchoRunner`]. Returns the texts of the stream as well.
async fn serve_with(capabilities: RunnerCapabilities, event: Event) -> (ServedEvent, Vec<String>) {
    let texts = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&texts);
    let host = TestHost::builder()
        .agent(EchoRunner(capabilities))
        .register("recorder", move |hooks| {
            let recorded = Arc::clone(&recorded);
            hooks.on(RunModelStream, move |runner: BoundRunner| {
                let recorded = Arc::clone(&recorded);
                async move {
                    let record = move |event: &StreamEvent| {
                        if let StreamEvent::Text { delta } = event {
                            recorded.lock().unwrap().push(delta.clone());
                        }
                    };
                    Ok(runner.start().map(|events| events.inspect(record).boxed()))
                }
            });
        })
        .start()
        .await;
    let served = host.serve(event).await.unwrap();
    let texts = texts.lock().unwrap().clone();
    (served, texts)
}

fn picture_message() -> Event {
    let mut event = Event::message("cli", "local", "look");
    event.input.contents = vec![ContentPart::from_image_url("https://example.org/a.png")];
    event
}

fn reply_text(served: &ServedEvent) -> String {
    served.outbounds.iter().map(|outbound| outbound.content.text()).collect()
}

#[tokio::test]
async fn k03_deltas_are_streamed_for_runners_with_the_capability_only() {
    for (streaming, expected) in [(true, vec!["l", "ook / false"]), (false, vec!["look / false"])] {
        let capabilities = RunnerCapabilities { streaming, ..RunnerCapabilities::default() };
        let (served, texts) = serve_with(capabilities, Event::message("cli", "local", "look")).await;
        assert_eq!(
            (reply_text(&served), texts),
            ("look / false".to_owned(), expected.iter().map(ToString::to_string).collect())
        );
    }
}

#[tokio::test]
async fn k03_attachments_are_described_to_runners_that_read_text_only() {
    for (multimodal_input, expected) in
        [(true, "look / true"), (false, "look\n[image https://example.org/a.png] / false")]
    {
        let capabilities = RunnerCapabilities { multimodal_input, ..RunnerCapabilities::default() };
        assert_eq!(reply_text(&serve_with(capabilities, picture_message()).await.0), expected);
    }
}

#[tokio::test]
async fn k03_events_other_than_messages_are_for_runners_with_event_context() {
    let joined = || {
        let envelope = json!({"event_type": "group.member_joined", "source": "cli", "input": {"text": "ann"}});
        Event::from_envelope(envelope).unwrap()
    };
    for event_context in [true, false] {
        let capabilities = RunnerCapabilities { event_context, ..RunnerCapabilities::default() };
        let (served, _) = serve_with(capabilities, joined()).await;
        assert_eq!(served.run_id.is_some(), event_context);
        assert_eq!(served.outcome == Some(Outcome::Silent), !event_context, "{:?}", served.outcome);
    }
}

#[test]
fn k03_permissions_without_their_capability_are_reported() {
    let descriptor = |capabilities| Descriptor {
        permissions: PermissionSet::all(),
        capabilities,
        ..Descriptor::new("plugin:a/b/c", "c")
    };
    let all = ["tool_calling", "knowledge_retrieval", "platform_api", "steering", "host_state"];
    assert_eq!(descriptor(RunnerCapabilities::default()).undeclared_capabilities(), all);
    let declared = RunnerCapabilities {
        tool_calling: true,
        knowledge_retrieval: true,
        platform_api: true,
        steering: true,
        host_state: HostStateRequirement::Optional,
        ..RunnerCapabilities::default()
    };
    assert!(descriptor(declared).undeclared_capabilities().is_empty());
    let none = Descriptor { permissions: PermissionSet::none(), ..descriptor(RunnerCapabilities::default()) };
    assert!(none.undeclared_capabilities().is_empty());
}

#[test]
fn k03_the_effect_of_every_capability_is_documented() {
    let serde_json::Value::Object(capabilities) = json!(RunnerCapabilities::default()) else { panic!("an object") };
    let docs = include_str!("../../../../../docs/runners.md");
    for name in capabilities.keys() {
        assert!(docs.contains(&format!("| `{name}` |")), "{name}");
    }
}

/// Runner that waits for its cancellation, tries calls, and yields its last results or never ends.
struct LastWordRunner {
    interrupt: bool,
    ends: bool,
    started: Arc<Notify>,
    codes: Arc<Mutex<Vec<Option<ApiErrorCode>>>>,
}

impl Runner for LastWordRunner {
    fn descriptor(&self) -> Descriptor {
        let capabilities = RunnerCapabilities { interrupt: self.interrupt, ..RunnerCapabilities::default() };
        Descriptor { capabilities, permissions: PermissionSet::all(), ..Descriptor::new("builtin:agent", "last word") }
    }

    fn run(&self, _: RunContext, api: RunApi) -> ResultStream {
        let (started, codes, ends) = (Arc::clone(&self.started), Arc::clone(&self.codes), self.ends);
        let finish = async move {
            started.notify_one();
            api.cancel_token.cancelled().await;
            if !ends {
                std::future::pending::<()>().await;
            }
            let state = api.state.set(StateScope::Runner, "set", json!(1)).await.err();
            let model = api.models.invoke(ModelCall::default()).await.err();
            let tools = api.tools.list().await.err();
            codes.lock().unwrap().extend([state, model, tools].map(|error| error.map(|error| error.code)));
            let state = json!({"yielded": 2}).as_object().cloned().unwrap();
            let message =
                ResultBody::MessageCompleted { content: "last word".into(), provider_meta: Default::default() };
            let update = ResultBody::StateUpdated { scope: StateScope::Runner, state };
            stream::iter([message, update, ResultBody::RunCompleted { silent: false }].map(RunResult::from))
        };
        finish.into_stream().flatten().boxed()
    }
}

/// Outcome of a cancelled run: the messages on the tape, its stored state, and the codes of its last calls.
async fn cancel_run(interrupt: bool, ends: bool) -> (Vec<String>, Vec<String>, Vec<Option<ApiErrorCode>>) {
    let (started, codes) = (Arc::new(Notify::new()), Arc::default());
    let runner = LastWordRunner { interrupt, ends, started: Arc::clone(&started), codes: Arc::clone(&codes) };
    let state_policy = StatePolicy { enabled: true, ..StatePolicy::default() };
    let host =
        TestHost::builder().agent(runner).binding(Binding { state_policy, ..permissive_binding() }).start().await;
    let (served, ()) = tokio::join!(host.send_message("go"), async {
        started.notified().await;
        host.cancel_all_runs();
    });
    assert_eq!(served.outcome, Some(Outcome::Cancelled));
    assert_eq!(served.error.unwrap().code(), "run-cancelled");
    let namespace = json!(["builtin:agent", "runner", null]).to_string();
    let records = host.tapes().store().key_values(&format!("state:{namespace}")).collect().await.unwrap();
    let keys = records.into_iter().map(|record| record.key).collect();
    let codes = codes.lock().unwrap().clone();
    (host.view().await, keys, codes)
}

#[tokio::test]
async fn g04_a_cancelled_run_records_the_last_results_of_its_runner() {
    let (view, state, codes) = cancel_run(true, true).await;
    assert!(view.iter().any(|message| message.contains("last word")), "{view:?}");
    assert_eq!(state, ["set", "yielded"]);
    let refused = Some(ApiErrorCode::DeadlineExceeded);
    assert_eq!(codes, [None, refused, refused], "state is stored; models and tools are refused");
}

#[tokio::test]
async fn g04_a_runner_without_interrupt_ends_at_once() {
    let (view, state, codes) = cancel_run(false, true).await;
    assert!(!view.iter().any(|message| message.contains("last word")), "{view:?}");
    assert!(state.is_empty() && codes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn g04_a_runner_that_ignores_its_cancellation_is_dropped_after_the_grace_period() {
    let (view, ..) = cancel_run(true, false).await;
    assert!(!view.iter().any(|message| message.contains("last word")));
}

/// Runner that reports its timeout in seconds.
struct DeadlineRunner(Option<u64>);

impl Runner for DeadlineRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor { timeout_seconds: self.0, ..Descriptor::new("builtin:agent", "deadline") }
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        let runtime = context.runtime;
        let millis = runtime.deadline.unwrap().as_millis() - runtime.started_at.as_millis();
        let seconds = Content::Text((millis / 1000).to_string());
        let message = ResultBody::MessageCompleted { content: seconds, provider_meta: Default::default() };
        stream::iter([message, ResultBody::RunCompleted { silent: false }].map(RunResult::from)).boxed()
    }
}

#[tokio::test]
async fn g04_the_deadline_of_a_run_is_the_earliest_of_host_runner_and_binding() {
    for (runner, binding, expected) in
        [(None, None, "600"), (Some(60), None, "60"), (Some(60), Some(30), "30"), (Some(60), Some(3600), "60")]
    {
        let timeout_seconds = binding;
        let host = TestHost::builder()
            .agent(DeadlineRunner(runner))
            .binding(Binding { timeout_seconds, ..default_binding() })
            .start()
            .await;
        let served = host.send_message("go").await;
        assert_eq!(reply_text(&served), expected);
        let run = host.tapes().store().run(&served.run_id.unwrap()).await.unwrap().unwrap();
        let seconds = (run.deadline.unwrap().as_millis() - run.started_at.as_millis()) / 1000;
        assert_eq!(seconds.to_string(), expected);
    }
}

/// Runner that never ends, with a timeout in seconds.
struct StalledRunner(Option<u64>);

impl Runner for StalledRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor { timeout_seconds: self.0, ..Descriptor::new("builtin:agent", "stalled") }
    }

    fn run(&self, _: RunContext, _: RunApi) -> ResultStream {
        stream::pending().boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn g04_a_run_ends_at_the_deadline_of_its_runner_or_its_binding() {
    for (runner, binding) in [(Some(60), None), (None, Some(60)), (Some(60), Some(3600)), (Some(3600), Some(60))] {
        let host = TestHost::builder()
            .agent(StalledRunner(runner))
            .binding(Binding { timeout_seconds: binding, ..default_binding() })
            .start()
            .await;
        let started_at = tokio::time::Instant::now();
        let served = host.send_message("go").await;
        assert_eq!(started_at.elapsed().as_secs(), 60, "on the paused clock of the test");
        assert_eq!(served.error.unwrap().code(), "run-timeout");
        let run = host.tapes().store().run(&served.run_id.unwrap()).await.unwrap().unwrap();
        assert_eq!(run.status, RunStatus::Timeout);
        assert!(
            served.outbounds[0].content.text().contains("did not end within its deadline"),
            "{:?}",
            served.outbounds
        );
    }
}

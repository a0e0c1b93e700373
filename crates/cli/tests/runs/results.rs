//! What each result of a runner becomes.

use capstan::hooks::points::RunModelStream;
use capstan::protocol::{Map, Outcome, ResultBody, StateScope, StreamEvent, ToolCall, ToolOutput};
use capstan::tape::Kind;
use futures::StreamExt as _;

use super::support::{Conversation, Registers, runner};

const ANCHOR: &str = "assistant: [anchor created: session/start]: {\"owner\":\"human\"}";

fn delta(text: &str) -> ResultBody {
    ResultBody::MessageDelta { delta: text.to_owned() }
}

fn completed(text: &str) -> ResultBody {
    ResultBody::MessageCompleted { content: text.into(), provider_meta: Map::new() }
}

fn started(id: &str) -> ResultBody {
    ResultBody::ToolCallStarted { call: ToolCall::new(id, "look", "{}") }
}

fn answered(id: &str) -> ResultBody {
    ResultBody::ToolCallCompleted {
        call_id: id.to_owned(),
        name: "look".to_owned(),
        output: ToolOutput::ok(format!("{id} answered")),
    }
}

fn done() -> ResultBody {
    ResultBody::RunCompleted { silent: false }
}

#[tokio::test]
async fn g04_deltas_and_the_completed_message_count_once() {
    let conversation = Conversation::with(runner(vec![delta("hel"), delta("lo"), completed("hello"), done()])).await;
    let served = conversation.say("hi").await;
    assert_eq!(served.output, "hello");
    assert_eq!(conversation.view().await, [ANCHOR, "user: hi", "assistant: hello"]);
}

#[tokio::test]
async fn g04_a_message_that_was_only_streamed_is_a_message() {
    let conversation = Conversation::with(runner(vec![delta("hel"), delta("lo"), done()])).await;
    assert_eq!(conversation.say("hi").await.output, "hello");
    assert_eq!(conversation.view().await, [ANCHOR, "user: hi", "assistant: hello"]);
}

#[tokio::test]
async fn g04_a_runner_that_ends_without_saying_how_has_failed() {
    let conversation = Conversation::with(runner(vec![completed("half")])).await;
    let served = conversation.say("hi").await;
    assert_eq!(served.error.unwrap().code(), "run-failed");
    assert!(matches!(served.outcome, Some(Outcome::Failed { .. })));
}

#[tokio::test]
async fn g04_what_follows_the_end_is_ignored() {
    let conversation = Conversation::with(runner(vec![completed("one"), done(), completed("two")])).await;
    assert_eq!(conversation.say("hi").await.output, "one");
    assert_eq!(conversation.view().await, [ANCHOR, "user: hi", "assistant: one"]);
}

#[tokio::test]
async fn p13_a_runners_own_calls_keep_their_results_in_whatever_order_they_come() {
    let script = vec![
        delta("let me look"),
        started("a"),
        started("b"),
        answered("b"),
        started("c"),
        answered("a"),
        answered("c"),
        completed("done"),
        done(),
    ];
    let conversation = Conversation::with(runner(script)).await;
    assert_eq!(conversation.say("hi").await.output, "let me look\n\ndone");
    assert_eq!(
        conversation.view().await,
        [
            ANCHOR,
            "user: hi",
            "assistant: let me look",
            "calls a b",
            "tool a: a answered",
            "tool b: b answered",
            "calls c",
            "tool c: c answered",
            "assistant: done",
        ]
    );
}

#[tokio::test]
async fn p13_a_stand_ins_calls_keep_their_results_too() {
    let call = |id: &str| StreamEvent::ToolCall { call: ToolCall::new(id, "look", "{}") };
    let result = |id: &str| StreamEvent::ToolResult {
        call_id: id.to_owned(),
        name: "look".to_owned(),
        output: ToolOutput::ok(format!("{id} answered")),
    };
    let events = vec![call("a"), call("b"), result("a"), result("b"), StreamEvent::text("done")];
    let plugin = Registers("stand-in", move |hooks: &mut capstan::hooks::Registrar| {
        let events = events.clone();
        hooks.on(RunModelStream, move || {
            let events = events.clone();
            async move { Ok(Some(futures::stream::iter(events).boxed())) }
        });
    });
    let conversation = Conversation::with(plugin).await;
    assert_eq!(conversation.say("hi").await.output, "done");
    let expected = [ANCHOR, "user: hi", "calls a b", "tool a: a answered", "tool b: b answered", "assistant: done"];
    assert_eq!(conversation.view().await, expected);
}

#[tokio::test]
async fn g04_state_is_kept_only_where_the_binding_says_so() {
    let state = Map::from_iter([("k".to_owned(), 1.into())]);
    let conversation =
        Conversation::with(runner(vec![ResultBody::StateUpdated { scope: StateScope::Conversation, state }, done()]))
            .await;
    conversation.say("hi").await;
    let kept = conversation.host.tapes().store().spaces("state:").await.unwrap();
    assert!(kept.is_empty(), "the default binding keeps none");
    assert!(conversation.events().await.contains(&"result.dropped".to_owned()));
}

#[tokio::test]
async fn g04_a_failure_stands_on_the_tape_once() {
    let failed = ResultBody::RunFailed { message: "no luck".to_owned(), code: None };
    let conversation = Conversation::with(runner(vec![failed])).await;
    conversation.say("hi").await;
    let entries = conversation.entries().await;
    let errors: Vec<_> = entries.iter().filter(|entry| entry.kind == Kind::Error).collect();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].payload["message"], "no luck");
}

#[tokio::test]
async fn g04_a_message_stands_on_its_tape_also_where_its_run_fails_at_once() {
    let failed = ResultBody::RunFailed { message: "no".to_owned(), code: Some("club-closed".to_owned()) };
    let conversation = Conversation::with(runner(vec![failed])).await;
    let served = conversation.say("hi").await;
    assert_eq!(served.error.unwrap().code(), "club-closed", "what a runner says of itself it may say");
    assert_eq!(conversation.view().await, [ANCHOR, "user: hi"]);
}

#[tokio::test]
async fn x05_a_runner_cannot_say_that_the_host_is_broken() {
    for code in ["store-corrupt", "disk-full", "tape-unknown", "runner-unknown", "run-cancelled"] {
        let failed = ResultBody::RunFailed { message: "no".to_owned(), code: Some(code.to_owned()) };
        let conversation = Conversation::with(runner(vec![failed])).await;
        let served = conversation.say("hi").await;
        assert_eq!(served.error.unwrap().code(), "run-failed", "{code}");
    }
}

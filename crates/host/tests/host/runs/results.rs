//! Effects of each kind of runner result.

use capstan_hooks::InboundEvent;
use capstan_hooks::points::{RenderOutbound, RenderedOutbound, RunModelStream};
use capstan_host::testing::{ClosurePlugin, TestHost};
use capstan_protocol::{
    JsonObject, OutboundMessage, Outcome, ResultBody, SessionId, StateScope, StreamEvent, ToolCall, ToolOutput,
};
use capstan_tape::EntryKind;
use futures::StreamExt as _;

use super::support::results_plugin;

const SESSION_START_LINE: &str = "assistant: [anchor created: session/start]: {\"owner\":\"human\"}";

fn delta_result(text: &str) -> ResultBody {
    ResultBody::MessageDelta { delta: text.to_owned() }
}

fn message_result(text: &str) -> ResultBody {
    ResultBody::MessageCompleted { content: text.into(), provider_meta: JsonObject::new() }
}

fn tool_call_started(id: &str) -> ResultBody {
    ResultBody::ToolCallStarted { call: ToolCall::new(id, "look", "{}") }
}

fn tool_call_completed(id: &str) -> ResultBody {
    ResultBody::ToolCallCompleted {
        call_id: id.to_owned(),
        name: "look".to_owned(),
        output: ToolOutput::ok(format!("{id} answered")),
    }
}

fn run_completed() -> ResultBody {
    ResultBody::RunCompleted { silent: false }
}

#[tokio::test]
async fn g04_deltas_and_their_completed_message_give_one_message() {
    let conversation = TestHost::builder()
        .agent_plugin(results_plugin(vec![
            delta_result("hel"),
            delta_result("lo"),
            message_result("hello"),
            run_completed(),
        ]))
        .start()
        .await;
    let served = conversation.send_message("hi").await;
    assert_eq!(served.output, "hello");
    assert_eq!(conversation.view().await, [SESSION_START_LINE, "user: hi", "assistant: hello"]);
}

#[tokio::test]
async fn g14_a_run_that_completes_without_a_message_is_silent() {
    let artifact = || ResultBody::ArtifactCreated {
        name: "a.txt".to_owned(),
        media_type: "text/plain".to_owned(),
        content: "Y29udGVudA==".to_owned(),
    };
    for results in [vec![run_completed()], vec![artifact(), run_completed()], vec![message_result(""), run_completed()]]
    {
        let conversation = TestHost::builder().agent_plugin(results_plugin(results)).start().await;
        let served = conversation.send_message("hi").await;
        assert_eq!(served.outcome, Some(Outcome::Silent));
        let names = conversation.event_names().await;
        assert!(!names.contains(&"outbound".to_owned()), "{names:?}");
        assert_eq!(conversation.view().await[1], "user: hi", "the message is recorded all the same");
    }
}

#[tokio::test]
async fn g14_a_plugin_may_render_a_run_without_a_message() {
    let conversation = TestHost::builder()
        .agent_plugin(results_plugin(vec![run_completed()]))
        .register("renders", |hooks| {
            hooks.on(RenderOutbound, |message: InboundEvent, session_id: SessionId| async move {
                let rendered = OutboundMessage::reply_to(&message, session_id, "rendered");
                Ok(Some(RenderedOutbound::Messages(vec![rendered])))
            });
        })
        .start()
        .await;
    let served = conversation.send_message("hi").await;
    assert_eq!(served.outcome, Some(Outcome::Replied { text: "rendered".to_owned() }));
}

#[tokio::test]
async fn g04_deltas_without_a_completed_message_give_a_message() {
    let conversation = TestHost::builder()
        .agent_plugin(results_plugin(vec![delta_result("hel"), delta_result("lo"), run_completed()]))
        .start()
        .await;
    assert_eq!(conversation.send_message("hi").await.output, "hello");
    assert_eq!(conversation.view().await, [SESSION_START_LINE, "user: hi", "assistant: hello"]);
}

#[tokio::test]
async fn g04_a_runner_that_ends_without_a_final_result_fails() {
    let conversation = TestHost::builder().agent_plugin(results_plugin(vec![message_result("half")])).start().await;
    let served = conversation.send_message("hi").await;
    assert_eq!(served.error.unwrap().code(), "run-failed");
    assert!(matches!(served.outcome, Some(Outcome::Failed { .. })));
}

#[tokio::test]
async fn g04_results_after_the_final_one_are_ignored() {
    let conversation = TestHost::builder()
        .agent_plugin(results_plugin(vec![message_result("one"), run_completed(), message_result("two")]))
        .start()
        .await;
    assert_eq!(conversation.send_message("hi").await.output, "one");
    assert_eq!(conversation.view().await, [SESSION_START_LINE, "user: hi", "assistant: one"]);
}

#[tokio::test]
async fn p13_calls_of_a_runner_keep_their_results_in_any_order() {
    let script = vec![
        delta_result("let me look"),
        tool_call_started("a"),
        tool_call_started("b"),
        tool_call_completed("b"),
        tool_call_started("c"),
        tool_call_completed("a"),
        tool_call_completed("c"),
        message_result("done"),
        run_completed(),
    ];
    let conversation = TestHost::builder().agent_plugin(results_plugin(script)).start().await;
    assert_eq!(conversation.send_message("hi").await.output, "let me look\n\ndone");
    assert_eq!(
        conversation.view().await,
        [
            SESSION_START_LINE,
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
async fn p13_calls_of_a_model_hook_keep_their_results() {
    let call = |id: &str| StreamEvent::ToolCall { call: ToolCall::new(id, "look", "{}") };
    let result = |id: &str| StreamEvent::ToolResult {
        call_id: id.to_owned(),
        name: "look".to_owned(),
        output: ToolOutput::ok(format!("{id} answered")),
    };
    let events = vec![call("a"), call("b"), result("a"), result("b"), StreamEvent::text("done")];
    let plugin = ClosurePlugin::new("model-hook", move |hooks: &mut capstan_hooks::HookRegistrar| {
        let events = events.clone();
        hooks.on(RunModelStream, move || {
            let events = events.clone();
            async move { Ok(Some(futures::stream::iter(events).boxed())) }
        });
    });
    let conversation = TestHost::builder().plugin(plugin).start().await;
    assert_eq!(conversation.send_message("hi").await.output, "done");
    let expected =
        [SESSION_START_LINE, "user: hi", "calls a b", "tool a: a answered", "tool b: b answered", "assistant: done"];
    assert_eq!(conversation.view().await, expected);
}

#[tokio::test]
async fn g04_state_is_stored_only_if_the_binding_enables_it() {
    let state = JsonObject::from_iter([("k".to_owned(), 1.into())]);
    let conversation = TestHost::builder()
        .agent_plugin(results_plugin(vec![
            ResultBody::StateUpdated { scope: StateScope::Conversation, state },
            run_completed(),
        ]))
        .start()
        .await;
    conversation.send_message("hi").await;
    let namespaces = conversation.tapes().store().namespaces("state:").collect().await.unwrap();
    assert!(namespaces.is_empty(), "the default binding stores no state");
    assert!(conversation.event_names().await.contains(&"result.dropped".to_owned()));
}

#[tokio::test]
async fn g04_a_failure_is_recorded_once() {
    let failed = ResultBody::RunFailed { message: "no luck".to_owned(), code: None };
    let conversation = TestHost::builder().agent_plugin(results_plugin(vec![failed])).start().await;
    conversation.send_message("hi").await;
    let entries = conversation.entries().await;
    let errors: Vec<_> = entries.iter().filter(|entry| entry.kind == EntryKind::Error).collect();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].payload["message"], "no luck");
}

#[tokio::test]
async fn g04_a_message_is_recorded_even_if_its_run_fails_at_once() {
    let failed = ResultBody::RunFailed { message: "no".to_owned(), code: Some("club-closed".into()) };
    let conversation = TestHost::builder().agent_plugin(results_plugin(vec![failed])).start().await;
    let served = conversation.send_message("hi").await;
    assert_eq!(served.error.unwrap().code(), "club-closed", "a runner may use its own error codes");
    assert_eq!(conversation.view().await, [SESSION_START_LINE, "user: hi"]);
}

#[tokio::test]
async fn x05_a_runner_cannot_report_error_codes_of_the_host() {
    for code in ["store-corrupt", "disk-full", "tape-unknown", "runner-unknown", "run-cancelled"] {
        let failed = ResultBody::RunFailed { message: "no".to_owned(), code: Some(code.into()) };
        let conversation = TestHost::builder().agent_plugin(results_plugin(vec![failed])).start().await;
        let served = conversation.send_message("hi").await;
        assert_eq!(served.error.unwrap().code(), "run-failed", "{code}");
    }
}

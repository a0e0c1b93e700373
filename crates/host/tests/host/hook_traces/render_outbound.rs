//! T9: choice of the outbound messages.

use capstan_hooks::InboundEvent;
use capstan_hooks::args::ModelText;
use capstan_hooks::points::{RenderOutbound, RenderedOutbound};
use capstan_protocol::{OutboundMessage, ResultBody, SessionId};

use crate::hook_traces::scenario::TurnScenario;
use crate::hook_traces::test_plugins::{register_echo, register_runner};

fn rendered_batch(message: &InboundEvent, texts: &[&str]) -> RenderedOutbound {
    let session = || SessionId::new("cli:local");
    RenderedOutbound::Messages(texts.iter().map(|text| OutboundMessage::reply_to(message, session(), *text)).collect())
}

#[tokio::test]
async fn t09_h03_batches_are_flattened_with_the_later_registered_plugin_first() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("earlier", |hooks| {
            hooks.on(
                RenderOutbound,
                |message: InboundEvent| async move { Ok(Some(rendered_batch(&message, &["three"]))) },
            );
        })
        .plugin("nothing", |hooks| {
            hooks.on(RenderOutbound, || async { Ok(None) });
        })
        .plugin("later", |hooks| {
            hooks.on(RenderOutbound, |message: InboundEvent| async move {
                Ok(Some(rendered_batch(&message, &["one", "two"])))
            });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
}

#[tokio::test]
async fn t09_when_all_batches_are_empty_the_model_output_is_sent() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("empty", |hooks| {
            hooks.on(RenderOutbound, |_: ModelText| async { Ok(Some(RenderedOutbound::Messages(Vec::new()))) });
        })
        .plugin("nothing", |hooks| {
            hooks.on(RenderOutbound, || async { Ok(None) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
}

#[tokio::test]
async fn t09_a_silent_result_of_a_hook_suppresses_the_messages_of_other_hooks() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("talker", |hooks| {
            hooks.on(
                RenderOutbound,
                |message: InboundEvent| async move { Ok(Some(rendered_batch(&message, &["hello"]))) },
            );
        })
        .plugin("hush", |hooks| {
            hooks.on(RenderOutbound, || async { Ok(Some(RenderedOutbound::Silent)) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
}

#[tokio::test]
async fn t09_a_silent_result_of_a_runner_sends_nothing() {
    let trace = TurnScenario::new()
        .agent_plugin("runner", register_runner(vec![ResultBody::RunCompleted { silent: true }]))
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
}

#[tokio::test]
async fn h04_a_failing_render_outbound_fails_the_turn_after_save_state() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("broken", |hooks| {
            hooks.on(RenderOutbound, || async { Err("no template".into()) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
}

//! T10: every message goes to every implementation, and the answer of each is recorded.

use capstan_hooks::InboundEvent;
use capstan_hooks::args::DispatchMessage;
use capstan_hooks::points::{DispatchOutbound, RenderOutbound, RenderedOutbound};
use capstan_protocol::{OutboundMessage, SessionId};

use crate::hook_traces::scenario::TurnScenario;
use crate::hook_traces::test_plugins::{RecordingChannel, register_channel, register_echo};

#[tokio::test]
async fn t10_every_outbound_goes_to_every_implementation_and_the_flags_are_recorded() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("two", |hooks| {
            hooks.on(RenderOutbound, |message: InboundEvent| async move {
                let reply = |text: &str| OutboundMessage::reply_to(&message, SessionId::new("cli:local"), text);
                Ok(Some(RenderedOutbound::Messages(vec![reply("one"), reply("two")])))
            });
        })
        .plugin("choosy", |hooks| {
            hooks.on(
                DispatchOutbound,
                |message: DispatchMessage| async move { Ok(Some(message.content.text() == "one")) },
            );
        })
        .plugin("onlooker", |hooks| {
            hooks.on(DispatchOutbound, || async { Ok(None) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test]
async fn h04_t11_a_failing_dispatch_fails_the_turn_and_the_notice_still_gets_out() {
    let scenario = TurnScenario::new();
    let screen = RecordingChannel::new(&scenario.recorder);
    let trace = scenario
        .plugin("screen", register_channel(screen))
        .plugin("echo", register_echo)
        .plugin("broken", |hooks| {
            hooks.on(DispatchOutbound, || async { Err("no route".into()) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}

//! T9: what is sent.

use capstan::hooks::Inbound;
use capstan::hooks::args::ModelText;
use capstan::hooks::points::{RenderOutbound, Rendered};
use capstan::protocol::{Outbound, ResultBody, SessionId};

use crate::scenario::Scenario;
use crate::stand_ins::{echo, runner};

fn batch(message: &Inbound, texts: &[&str]) -> Rendered {
    let session = || SessionId::new("cli:local");
    Rendered::Messages(texts.iter().map(|text| Outbound::reply_to(message, session(), *text)).collect())
}

#[tokio::test]
async fn t09_h03_batches_are_flattened_the_later_registered_plugin_first() {
    let story = Scenario::new()
        .plugin("echo", echo)
        .plugin("earlier", |hooks| {
            hooks.on(RenderOutbound, |message: Inbound| async move { Ok(Some(batch(&message, &["three"]))) });
        })
        .plugin("nothing", |hooks| {
            hooks.on(RenderOutbound, || async { Ok(None) });
        })
        .plugin("later", |hooks| {
            hooks.on(RenderOutbound, |message: Inbound| async move { Ok(Some(batch(&message, &["one", "two"]))) });
        })
        .hello()
        .await;
    insta::assert_snapshot!(story.told());
}

#[tokio::test]
async fn t09_when_all_batches_are_empty_the_model_output_is_sent() {
    let story = Scenario::new()
        .plugin("echo", echo)
        .plugin("empty", |hooks| {
            hooks.on(RenderOutbound, |_: ModelText| async { Ok(Some(Rendered::Messages(Vec::new()))) });
        })
        .plugin("nothing", |hooks| {
            hooks.on(RenderOutbound, || async { Ok(None) });
        })
        .hello()
        .await;
    insta::assert_snapshot!(story.told());
}

#[tokio::test]
async fn t09_a_hook_that_says_silent_is_obeyed_even_beside_a_message() {
    let story = Scenario::new()
        .plugin("echo", echo)
        .plugin("talker", |hooks| {
            hooks.on(RenderOutbound, |message: Inbound| async move { Ok(Some(batch(&message, &["hello"]))) });
        })
        .plugin("hush", |hooks| {
            hooks.on(RenderOutbound, || async { Ok(Some(Rendered::Silent)) });
        })
        .hello()
        .await;
    insta::assert_snapshot!(story.told());
}

#[tokio::test]
async fn t09_a_runner_that_says_silent_sends_nothing() {
    let story = Scenario::new().plugin("runner", runner(vec![ResultBody::RunCompleted { silent: true }])).hello().await;
    insta::assert_snapshot!(story.told());
}

#[tokio::test]
async fn h04_a_failing_render_outbound_fails_the_turn_after_save_state() {
    let story = Scenario::new()
        .plugin("echo", echo)
        .plugin("broken", |hooks| {
            hooks.on(RenderOutbound, || async { Err("no template".into()) });
        })
        .hello()
        .await;
    insta::assert_snapshot!(story.told());
}

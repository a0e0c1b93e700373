//! T1: the order of the stages, with everything built in and with nothing.

use capstan::hooks::points::DispatchOutbound;
use capstan::protocol::Event;

use crate::scenario::Scenario;
use crate::stand_ins::{Screen, channel, runner};

#[tokio::test]
async fn t01_a_plain_turn_takes_every_stage_in_order() {
    let story = Scenario::new().hello().await;
    insta::assert_snapshot!(story.with_tape());
}

#[tokio::test]
async fn t02_t04_t06_t09_when_nobody_answers_every_stage_falls_back() {
    let scenario = Scenario::new();
    let screen = Screen::new(&scenario.recorder);
    let story = scenario
        .plugin("bare", move |hooks| runner(Vec::new())(hooks))
        .plugin("screen", channel(screen))
        .serve_without_builtin(Event::message("cli", "local", "hello"))
        .await;
    insta::assert_snapshot!(story.with_tape());
}

#[tokio::test]
async fn h01_a_plugin_may_dispatch_in_place_of_the_builtin() {
    let scenario = Scenario::new();
    let (recorder, screen) = (scenario.recorder.clone(), Screen::new(&scenario.recorder));
    let story = scenario
        .plugin("bare", runner(Vec::new()))
        .plugin("screen", channel(screen))
        .plugin("courier", move |hooks| {
            let recorder = recorder.clone();
            hooks.on(DispatchOutbound, move |message: capstan::hooks::args::Outgoing| {
                recorder.note("  courier sends", format!("{:?}", message.content.text()));
                async { Ok(Some(true)) }
            });
        })
        .serve_without_builtin(Event::message("cli", "local", "hello"))
        .await;
    insta::assert_snapshot!(story.with_tape());
}

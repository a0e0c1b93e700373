//! T10: every message goes to every implementation, and what each said is on record.

use capstan::hooks::Inbound;
use capstan::hooks::args::Outgoing;
use capstan::hooks::points::{DispatchOutbound, RenderOutbound, Rendered};
use capstan::protocol::{Outbound, SessionId};

use crate::scenario::Scenario;
use crate::stand_ins::{Screen, channel, echo};

#[tokio::test]
async fn t10_every_outbound_goes_to_every_implementation_and_the_flags_are_recorded() {
    let story = Scenario::new()
        .plugin("echo", echo)
        .plugin("two", |hooks| {
            hooks.on(RenderOutbound, |message: Inbound| async move {
                let say = |text: &str| Outbound::reply_to(&message, SessionId::new("cli:local"), text);
                Ok(Some(Rendered::Messages(vec![say("one"), say("two")])))
            });
        })
        .plugin("choosy", |hooks| {
            hooks.on(DispatchOutbound, |message: Outgoing| async move { Ok(Some(message.content.text() == "one")) });
        })
        .plugin("onlooker", |hooks| {
            hooks.on(DispatchOutbound, || async { Ok(None) });
        })
        .hello()
        .await;
    insta::assert_snapshot!(story.with_tape());
}

#[tokio::test]
async fn h04_t11_a_failing_dispatch_fails_the_turn_and_the_notice_still_gets_out() {
    let scenario = Scenario::new();
    let screen = Screen::new(&scenario.recorder);
    let story = scenario
        .plugin("screen", channel(screen))
        .plugin("echo", echo)
        .plugin("broken", |hooks| {
            hooks.on(DispatchOutbound, || async { Err("no route".into()) });
        })
        .hello()
        .await;
    insta::assert_snapshot!(story.with_tape());
}

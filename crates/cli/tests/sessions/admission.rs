//! What becomes of a message that comes while a turn is going on (T13, C4, A9). Each test is the conversation.

use std::sync::Arc;

use capstan::hooks::contracts::{IntakeOptions, ResultStream, RunApi, Runner};
use capstan::hooks::points::{BuildPrompt, ProvideRunners, SaveState};
use capstan::hooks::{InboundEvent, Plugin};
use capstan::protocol::{AdmissionMode, Content, Descriptor, Event, Outcome, ResultBody, RunContext, Timestamp};
use capstan_testing::{ReplyBarrier, ScriptedReply};
use futures::StreamExt as _;

use crate::host_fixture::{HostFixture, boxed_plugin, format_outcome, hold_tool_plugin, submit};
use crate::scripted_conversation::{ScriptedConversation, hold_tool_reply};
use crate::test_channel::TestChannel;

#[tokio::test]
async fn t13_a_follow_up_waits_for_the_turn_and_is_the_next_one() {
    let gate = ReplyBarrier::new();
    let talk = ScriptedConversation::new(vec![
        ScriptedReply::text("one done").with_barrier(&gate),
        ScriptedReply::text("two done"),
    ])
    .await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let two = talk.send_with_admission("follow_up", "two").await;
    assert!(talk.is_open(&two).await);
    gate.release();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&two).await, "replied: two done");
    assert_ne!(talk.run_id(&one).await, talk.run_id(&two).await);
    assert_eq!(talk.requests(), [vec!["user: one"], vec!["user: one", "assistant: one done", "user: two"]]);
    talk.finish().await;
}

#[tokio::test]
async fn t13_to_process_on_a_busy_session_means_to_follow_up() {
    let gate = ReplyBarrier::new();
    let talk = ScriptedConversation::new(vec![
        ScriptedReply::text("one done").with_barrier(&gate),
        ScriptedReply::text("two done"),
    ])
    .await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let two = talk.send_with_admission("process", "two").await;
    gate.release();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&two).await, "replied: two done");
    talk.finish().await;
}

#[tokio::test]
async fn a07_a_message_that_waited_came_when_it_was_accepted() {
    let gate = ReplyBarrier::new();
    let (came, seen) = std::sync::mpsc::channel();
    let looks = boxed_plugin("looks", move |hooks| {
        let came = came.clone();
        hooks.on(BuildPrompt, move |message: InboundEvent| {
            came.send(message.accepted_at().unwrap()).unwrap();
            async { Ok(None) }
        });
    });
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("both done"), ScriptedReply::text("three done")];
    let talk = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&gate), looks]).await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let two = talk.send_with_admission("steer", "two").await;
    let three = talk.send_with_admission("follow_up", "three").await;
    let both_came = Timestamp::now();
    gate.release();
    assert_eq!(talk.outcome(&three).await, "replied: three done");
    talk.assert_folded(&two, &one).await;
    assert_eq!(seen.try_iter().filter(|came| *came <= both_came).count(), 3);
    talk.finish().await;
}

#[tokio::test]
async fn a09_steering_during_a_tool_call_is_taken_in_before_the_next_step() {
    let gate = ReplyBarrier::new();
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("both done"), ScriptedReply::text("later done")];
    let talk = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&gate)]).await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let two = talk.send_with_admission("steer", "no, two").await;
    let three = talk.send_with_admission("steer", "and three").await;
    assert!(talk.is_open(&two).await, "in flight until the run ends");
    gate.release();
    assert_eq!(talk.outcome(&one).await, "replied: both done");
    talk.assert_folded(&two, &one).await;
    talk.assert_folded(&three, &one).await;
    let later = talk.send_message("later").await;
    assert_eq!(talk.outcome(&later).await, "replied: later done");
    let told = ["user: one", "calls hold", "tool: held", "user: no, two", "user: and three"];
    assert_eq!(talk.requests()[1], told);
    assert_eq!(talk.requests()[2], [&told[..], &["assistant: both done", "user: later"]].concat(), "nothing repeated");
    talk.finish().await;
}

#[tokio::test]
async fn t13_what_is_said_after_a_command_that_waits_meets_what_the_command_did() {
    let gate = ReplyBarrier::new();
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("one done"), ScriptedReply::text("two done")];
    let talk = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&gate)]).await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let reset = talk.send_with_admission("steer", ",tape.reset").await;
    let two = talk.send_with_admission("steer", "two").await;
    gate.release();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&reset).await, "replied: the conversation starts over");
    assert_eq!(talk.outcome(&two).await, "replied: two done");
    assert_eq!(talk.requests().last().unwrap().last().unwrap(), "user: two");
    assert!(!talk.requests().last().unwrap().contains(&"user: one".to_owned()), "{:?}", talk.requests());
    talk.finish().await;
}

#[tokio::test]
async fn a09_steering_during_the_last_answer_is_answered_by_the_same_run() {
    let gate = ReplyBarrier::new();
    let talk = ScriptedConversation::new(vec![
        ScriptedReply::text("one done").with_barrier(&gate),
        ScriptedReply::text("two done"),
    ])
    .await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let two = talk.send_with_admission("steer", "two").await;
    gate.release();
    assert_eq!(talk.outcome(&one).await, "replied: one done\n\ntwo done");
    talk.assert_folded(&two, &one).await;
    assert_eq!(talk.requests()[1], ["user: one", "assistant: one done", "user: two"]);
    talk.finish().await;
}

/// Holds the end of the first turn at a gate.
fn gate_save_state(gate: &ReplyBarrier) -> Box<dyn Plugin> {
    let gate = gate.clone();
    boxed_plugin("slow-end", move |hooks| {
        let gate = gate.clone();
        hooks.on(SaveState, move || {
            let gate = gate.clone();
            async move {
                gate.wait_for_release().await;
                Ok(None)
            }
        });
    })
}

#[tokio::test]
async fn a09_steering_that_comes_after_the_last_step_has_a_turn_of_its_own() {
    let gate = ReplyBarrier::new();
    let script =
        vec![ScriptedReply::text("one done"), ScriptedReply::text("two done"), ScriptedReply::text("three done")];
    let talk = ScriptedConversation::with_plugins(script, vec![gate_save_state(&gate)]).await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let two = talk.send_with_admission("steer", "two").await;
    let three = talk.send_with_admission("follow_up", "three").await;
    gate.release();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&two).await, "replied: two done");
    assert_eq!(talk.outcome(&three).await, "replied: three done");
    talk.finish().await;
}

#[tokio::test]
async fn a09_what_could_not_be_steered_keeps_its_place_among_what_waits() {
    let gate = ReplyBarrier::new();
    let script =
        vec![ScriptedReply::text("one done"), ScriptedReply::text("two done"), ScriptedReply::text("three done")];
    let talk = ScriptedConversation::with_plugins(script, vec![gate_save_state(&gate)]).await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let two = talk.send_with_admission("follow_up", "two").await;
    let three = talk.send_with_admission("steer", "three").await;
    gate.release();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&two).await, "replied: two done", "it was said first");
    assert_eq!(talk.outcome(&three).await, "replied: three done");
    talk.finish().await;
}

/// A runner that says what it was told, once its gate is open, and cannot be steered.
struct UnsteerableRunner(ReplyBarrier);

impl Runner for UnsteerableRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor::new("builtin:agent", "deaf")
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        let gate = self.0.clone();
        let results = async move {
            gate.wait_for_release().await;
            let heard = Content::from(format!("heard {}", context.input.plain_text()));
            let said = ResultBody::MessageCompleted { content: heard, provider_meta: Default::default() };
            futures::stream::iter([said.into(), ResultBody::RunCompleted { silent: false }.into()])
        };
        futures::stream::once(results).flatten().boxed()
    }
}

#[tokio::test]
async fn a09_a_runner_that_cannot_be_steered_gets_a_follow_up() {
    let gate = ReplyBarrier::new();
    let runner: Arc<dyn Runner> = Arc::new(UnsteerableRunner(gate.clone()));
    let deaf = boxed_plugin("deaf", move |hooks| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    });
    let talk = ScriptedConversation::with_plugins(Vec::new(), vec![deaf]).await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let two = talk.send_with_admission("steer", "two").await;
    gate.release();
    assert_eq!(talk.outcome(&one).await, "replied: heard one");
    assert_eq!(talk.outcome(&two).await, "replied: heard two");
    talk.finish().await;
}

#[tokio::test]
async fn t13_what_is_collected_becomes_one_turn_which_answers_the_last() {
    let gate = ReplyBarrier::new();
    let talk = ScriptedConversation::new(vec![
        ScriptedReply::text("one done").with_barrier(&gate),
        ScriptedReply::text("all done"),
    ])
    .await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let two = talk.send_with_admission("collect", "two").await;
    let three = talk.send_with_admission("collect", "three").await;
    gate.release();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&three).await, "replied: all done");
    talk.assert_folded(&two, &three).await;
    assert_eq!(talk.requests()[1], ["user: one", "assistant: one done", "user: two\nthree"]);
    talk.finish().await;
}

#[tokio::test]
async fn t13_an_interruption_cancels_the_turn_and_has_the_next_one_with_what_waits() {
    let gate = ReplyBarrier::new();
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("stopped"), ScriptedReply::text("last done")];
    let talk = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&gate)]).await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let two = talk.send_with_admission("follow_up", "two").await;
    let three = talk.send_with_admission("steer", "three").await;
    let four = talk.send_with_admission("follow_up", "four").await;
    let stop = talk.send_with_admission("interrupt", "stop that").await;
    let last = talk.send_with_admission("follow_up", "last").await;
    assert_eq!(talk.outcome(&one).await, "cancelled");
    assert_eq!(talk.outcome(&stop).await, "replied: stopped");
    assert_eq!(talk.outcome(&last).await, "replied: last done");
    for said in [&two, &three, &four] {
        talk.assert_folded(said, &stop).await;
    }
    let requests = talk.requests();
    assert_eq!(requests[1][..2], ["user: one", "calls hold"]);
    assert!(requests[1][2].starts_with("tool: ") && requests[1][2].contains("interrupted"), "{requests:?}");
    assert_eq!(requests[1][3], "user: two\nthree\nfour\nstop that", "everything in the order it was said");
    assert_eq!(requests[2][4..], ["assistant: stopped", "user: last"]);
    assert!(talk.wait_for_answer(&one).await.messages.is_empty(), "nothing went wrong: there is no notice");
    talk.finish().await;
}

#[tokio::test]
async fn t13_of_several_interruptions_the_newest_is_answered_and_a_command_keeps_its_place() {
    let (gate, end) = (ReplyBarrier::new(), ReplyBarrier::new());
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("all done")];
    let talk = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&gate), gate_save_state(&end)]).await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let handoff = talk.send_with_admission("interrupt", ",tape.handoff name=later").await;
    end.reached().await;
    let two = talk.send_with_admission("interrupt", "two").await;
    let three = talk.send_with_admission("interrupt", "three").await;
    end.release();
    assert_eq!(talk.outcome(&one).await, "cancelled");
    assert!(talk.outcome(&handoff).await.starts_with("replied: "));
    assert_eq!(talk.outcome(&three).await, "replied: all done");
    talk.assert_folded(&two, &three).await;
    let request = talk.requests()[1].clone();
    assert!(request[0].starts_with("assistant: [Anchor created: later]"), "the command was first: {request:?}");
    assert_eq!(request[1..], ["user: two\nthree"]);
    talk.finish().await;
}

#[tokio::test]
async fn a09_what_a_run_took_in_ends_with_it_when_it_is_interrupted() {
    let (first, second) = (ReplyBarrier::new(), ReplyBarrier::new());
    let script = vec![
        hold_tool_reply("call_1"),
        ScriptedReply::text("half of it").with_barrier(&second),
        ScriptedReply::text("stopped"),
    ];
    let talk = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&first)]).await;
    let one = talk.send_message("one").await;
    first.reached().await;
    let two = talk.send_with_admission("steer", "two").await;
    first.release();
    second.reached().await;
    let stop = talk.send_with_admission("interrupt", "stop").await;
    assert_eq!(talk.outcome(&stop).await, "replied: stopped");
    assert_eq!(talk.outcome(&one).await, "cancelled");
    talk.assert_folded(&two, &one).await;
    talk.finish().await;
}

#[tokio::test]
async fn a09_a_message_that_is_being_taken_in_is_not_lost_when_the_run_is_interrupted() {
    let (tool, prompt) = (ReplyBarrier::new(), ReplyBarrier::new());
    let held = prompt.clone();
    let slow = boxed_plugin("slow", move |hooks| {
        let held = held.clone();
        hooks.on(BuildPrompt, move |message: InboundEvent| {
            let held = held.clone();
            async move {
                if message.input.plain_text() == "two" {
                    held.wait_for_release().await;
                }
                Ok(None)
            }
        });
    });
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("stopped")];
    let talk = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&tool), slow]).await;
    let one = talk.send_message("one").await;
    tool.reached().await;
    let two = talk.send_with_admission("steer", "two").await;
    let three = talk.send_with_admission("steer", "three").await;
    tool.release();
    prompt.reached().await;
    let stop = talk.send_with_admission("interrupt", "stop").await;
    assert_eq!(talk.outcome(&one).await, "cancelled");
    prompt.release();
    assert_eq!(talk.outcome(&stop).await, "replied: stopped");
    talk.assert_folded(&two, &stop).await;
    talk.assert_folded(&three, &stop).await;
    assert_eq!(talk.requests()[1].last().unwrap(), "user: two\nthree\nstop");
    talk.finish().await;
}

#[tokio::test]
async fn t13_a_message_that_may_be_dropped_is_dropped_during_a_turn_and_served_after_it() {
    let gate = ReplyBarrier::new();
    let talk = ScriptedConversation::new(vec![
        ScriptedReply::text("one done").with_barrier(&gate),
        ScriptedReply::text("three done"),
    ])
    .await;
    let one = talk.send_message("one").await;
    gate.reached().await;
    let two = talk.send_with_admission("drop", "two").await;
    assert_eq!(talk.outcome(&two).await, "dropped", "at once");
    gate.release();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    let three = talk.send_with_admission("drop", "three").await;
    assert_eq!(talk.outcome(&three).await, "replied: three done");
    assert_eq!(talk.requests()[1], ["user: one", "assistant: one done", "user: three"]);
    talk.finish().await;
}

/// What becomes of a message during a turn: the channel wants it dropped, `set` is what the configuration says.
async fn admit_during_turn(set: Option<AdmissionMode>, hook: Option<AdmissionMode>) -> Outcome {
    let gate = ReplyBarrier::new();
    let wants = |admission| IntakeOptions { admission, debounce: None };
    let desk = Arc::new(TestChannel::with_waiting_callers("desk").with_intake(wants(Some(AdmissionMode::Drop))));
    let house = HostFixture::on_disk();
    let hooked = boxed_plugin("hooked", move |hooks| {
        use capstan::hooks::points::{AdmissionDecision, AdmitMessage};
        hooks.on(AdmitMessage, move || async move { Ok(hook.map(AdmissionDecision::WithMode)) });
    });
    let building = house.host_builder().channel(&desk).plugin(hold_tool_plugin(&gate)).plugin(hooked);
    let building = building.configure(|settings| {
        settings.intake_overrides.insert("desk".into(), wants(set));
    });
    let host = building.start().await;
    let (one, two) = (Event::message("desk", "1", "[[tool:hold]]"), Event::message("desk", "1", "two"));
    submit(&host, &one).await;
    gate.reached().await;
    submit(&host, &two).await;
    if set == Some(AdmissionMode::Interrupt) {
        let answer = desk.wait_for_answer(&one.event_id).await;
        assert_eq!(format_outcome(&answer.outcome), "cancelled");
    }
    gate.release();
    let outcome = desk.wait_for_answer(&two.event_id).await.outcome;
    desk.wait_for_answer(&one.event_id).await;
    house.assert_settled().await;
    host.stop().await.unwrap();
    outcome
}

#[tokio::test]
async fn c04_the_hook_goes_before_the_configuration_and_that_before_the_channel() {
    assert_eq!(admit_during_turn(None, None).await, Outcome::Dropped, "the channel's own wish");
    let steered = admit_during_turn(Some(AdmissionMode::Steer), None).await;
    assert_eq!(steered.name(), "folded", "the configuration says otherwise");
    let interrupts = admit_during_turn(Some(AdmissionMode::Interrupt), None).await;
    assert_eq!(interrupts.name(), "replied");
    let followed = admit_during_turn(Some(AdmissionMode::Steer), Some(AdmissionMode::FollowUp)).await;
    assert_eq!(followed.name(), "replied", "the hook says otherwise");
}

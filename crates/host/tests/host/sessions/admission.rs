//! Admission of messages that arrive during a turn (T13, C4, A9). Each test is one conversation.

use std::sync::Arc;

use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::{IntakeOptions, ResultStream, RunApi, Runner};
use capstan_hooks::points::{BuildPrompt, ProvideRunners, SaveState};
use capstan_host::testing::{ClosurePlugin, TestEnvironment};
use capstan_protocol::{AdmissionMode, Content, Descriptor, Event, Outcome, ResultBody, RunContext, Timestamp};
use capstan_testing::{ReplyBarrier, ScriptedReply};
use futures::StreamExt as _;

use crate::sessions::scripted_conversation::{ScriptedConversation, hold_tool_reply};
use crate::sessions::support::{format_outcome, hold_tool_plugin};
use crate::sessions::test_channel::TestChannel;

#[tokio::test]
async fn t13_a_follow_up_waits_for_the_turn_and_gets_the_next_one() {
    let barrier = ReplyBarrier::new();
    let conversation = ScriptedConversation::new(vec![
        ScriptedReply::text("one done").with_barrier(&barrier),
        ScriptedReply::text("two done"),
    ])
    .await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let two = conversation.send_with_admission("follow_up", "two").await;
    assert!(conversation.is_open(&two).await);
    barrier.release();
    assert_eq!(conversation.outcome(&one).await, "replied: one done");
    assert_eq!(conversation.outcome(&two).await, "replied: two done");
    assert_ne!(conversation.run_id(&one).await, conversation.run_id(&two).await);
    assert_eq!(conversation.requests(), [vec!["user: one"], vec!["user: one", "assistant: one done", "user: two"]]);
    conversation.finish().await;
}

#[tokio::test]
async fn t13_process_in_a_busy_session_means_follow_up() {
    let barrier = ReplyBarrier::new();
    let conversation = ScriptedConversation::new(vec![
        ScriptedReply::text("one done").with_barrier(&barrier),
        ScriptedReply::text("two done"),
    ])
    .await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let two = conversation.send_with_admission("process", "two").await;
    barrier.release();
    assert_eq!(conversation.outcome(&one).await, "replied: one done");
    assert_eq!(conversation.outcome(&two).await, "replied: two done");
    conversation.finish().await;
}

#[tokio::test]
async fn a07_a_queued_message_keeps_its_time_of_acceptance() {
    let barrier = ReplyBarrier::new();
    let (sender, acceptance_times) = std::sync::mpsc::channel();
    let recorder = ClosurePlugin::new("recorder", move |hooks| {
        let sender = sender.clone();
        hooks.on(BuildPrompt, move |message: InboundEvent| {
            sender.send(message.accepted_at().unwrap()).unwrap();
            async { Ok(None) }
        });
    });
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("both done"), ScriptedReply::text("three done")];
    let conversation = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&barrier), recorder]).await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let two = conversation.send_with_admission("steer", "two").await;
    let three = conversation.send_with_admission("follow_up", "three").await;
    let released_at = Timestamp::now();
    barrier.release();
    assert_eq!(conversation.outcome(&three).await, "replied: three done");
    conversation.assert_folded(&two, &one).await;
    assert_eq!(acceptance_times.try_iter().filter(|time| *time <= released_at).count(), 3);
    conversation.finish().await;
}

#[tokio::test]
async fn a09_steering_during_a_tool_call_is_ingested_before_the_next_step() {
    let barrier = ReplyBarrier::new();
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("both done"), ScriptedReply::text("later done")];
    let conversation = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&barrier)]).await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let two = conversation.send_with_admission("steer", "no, two").await;
    let three = conversation.send_with_admission("steer", "and three").await;
    assert!(conversation.is_open(&two).await, "in flight until the run ends");
    barrier.release();
    assert_eq!(conversation.outcome(&one).await, "replied: both done");
    conversation.assert_folded(&two, &one).await;
    conversation.assert_folded(&three, &one).await;
    let later = conversation.send_message("later").await;
    assert_eq!(conversation.outcome(&later).await, "replied: later done");
    let expected = ["user: one", "calls hold", "tool: held", "user: no, two", "user: and three"];
    assert_eq!(conversation.requests()[1], expected);
    assert_eq!(
        conversation.requests()[2],
        [&expected[..], &["assistant: both done", "user: later"]].concat(),
        "messages are not repeated"
    );
    conversation.finish().await;
}

#[tokio::test]
async fn t13_a_message_after_a_queued_command_sees_its_effect() {
    let barrier = ReplyBarrier::new();
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("one done"), ScriptedReply::text("two done")];
    let conversation = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&barrier)]).await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let reset = conversation.send_with_admission("steer", ",tape.reset").await;
    let two = conversation.send_with_admission("steer", "two").await;
    barrier.release();
    assert_eq!(conversation.outcome(&one).await, "replied: one done");
    assert_eq!(conversation.outcome(&reset).await, "replied: the conversation was reset");
    assert_eq!(conversation.outcome(&two).await, "replied: two done");
    assert_eq!(conversation.requests().last().unwrap().last().unwrap(), "user: two");
    assert!(
        !conversation.requests().last().unwrap().contains(&"user: one".to_owned()),
        "{:?}",
        conversation.requests()
    );
    conversation.finish().await;
}

#[tokio::test]
async fn a09_steering_during_the_last_reply_is_answered_by_the_same_run() {
    let barrier = ReplyBarrier::new();
    let conversation = ScriptedConversation::new(vec![
        ScriptedReply::text("one done").with_barrier(&barrier),
        ScriptedReply::text("two done"),
    ])
    .await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let two = conversation.send_with_admission("steer", "two").await;
    barrier.release();
    assert_eq!(conversation.outcome(&one).await, "replied: one done\n\ntwo done");
    conversation.assert_folded(&two, &one).await;
    assert_eq!(conversation.requests()[1], ["user: one", "assistant: one done", "user: two"]);
    conversation.finish().await;
}

/// Plugin that holds the first turn in `save_state` until the release of `barrier`.
fn block_save_state(barrier: &ReplyBarrier) -> ClosurePlugin {
    let barrier = barrier.clone();
    ClosurePlugin::new("slow-end", move |hooks| {
        let barrier = barrier.clone();
        hooks.on(SaveState, move || {
            let barrier = barrier.clone();
            async move {
                barrier.wait_for_release().await;
                Ok(None)
            }
        });
    })
}

#[tokio::test]
async fn a09_steering_after_the_last_step_gets_its_own_turn() {
    let barrier = ReplyBarrier::new();
    let script =
        vec![ScriptedReply::text("one done"), ScriptedReply::text("two done"), ScriptedReply::text("three done")];
    let conversation = ScriptedConversation::with_plugins(script, vec![block_save_state(&barrier)]).await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let two = conversation.send_with_admission("steer", "two").await;
    let three = conversation.send_with_admission("follow_up", "three").await;
    barrier.release();
    assert_eq!(conversation.outcome(&one).await, "replied: one done");
    assert_eq!(conversation.outcome(&two).await, "replied: two done");
    assert_eq!(conversation.outcome(&three).await, "replied: three done");
    conversation.finish().await;
}

#[tokio::test]
async fn a09_late_steering_keeps_its_position_in_the_queue() {
    let barrier = ReplyBarrier::new();
    let script =
        vec![ScriptedReply::text("one done"), ScriptedReply::text("two done"), ScriptedReply::text("three done")];
    let conversation = ScriptedConversation::with_plugins(script, vec![block_save_state(&barrier)]).await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let two = conversation.send_with_admission("follow_up", "two").await;
    let three = conversation.send_with_admission("steer", "three").await;
    barrier.release();
    assert_eq!(conversation.outcome(&one).await, "replied: one done");
    assert_eq!(conversation.outcome(&two).await, "replied: two done", "the earlier message is answered first");
    assert_eq!(conversation.outcome(&three).await, "replied: three done");
    conversation.finish().await;
}

/// Runner without steering that echoes its message after the release of its barrier.
struct UnsteerableRunner(ReplyBarrier);

impl Runner for UnsteerableRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor::new("builtin:agent", "unsteerable")
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        let barrier = self.0.clone();
        let results = async move {
            barrier.wait_for_release().await;
            let reply = Content::from(format!("received {}", context.input.plain_text()));
            let message = ResultBody::MessageCompleted { content: reply, provider_meta: Default::default() };
            futures::stream::iter([message.into(), ResultBody::RunCompleted { silent: false }.into()])
        };
        futures::stream::once(results).flatten().boxed()
    }
}

#[tokio::test]
async fn a09_steering_of_an_unsteerable_runner_becomes_a_follow_up() {
    let barrier = ReplyBarrier::new();
    let runner: Arc<dyn Runner> = Arc::new(UnsteerableRunner(barrier.clone()));
    let unsteerable = ClosurePlugin::new("unsteerable", move |hooks| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    });
    let conversation =
        ScriptedConversation::with_builder(Vec::new(), |builder| builder.agent_plugin(unsteerable)).await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let two = conversation.send_with_admission("steer", "two").await;
    barrier.release();
    assert_eq!(conversation.outcome(&one).await, "replied: received one");
    assert_eq!(conversation.outcome(&two).await, "replied: received two");
    conversation.finish().await;
}

#[tokio::test]
async fn t13_collected_messages_become_one_turn_that_answers_the_last() {
    let barrier = ReplyBarrier::new();
    let conversation = ScriptedConversation::new(vec![
        ScriptedReply::text("one done").with_barrier(&barrier),
        ScriptedReply::text("all done"),
    ])
    .await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let two = conversation.send_with_admission("collect", "two").await;
    let three = conversation.send_with_admission("collect", "three").await;
    barrier.release();
    assert_eq!(conversation.outcome(&one).await, "replied: one done");
    assert_eq!(conversation.outcome(&three).await, "replied: all done");
    conversation.assert_folded(&two, &three).await;
    assert_eq!(conversation.requests()[1], ["user: one", "assistant: one done", "user: two\nthree"]);
    conversation.finish().await;
}

#[tokio::test]
async fn t13_an_interruption_cancels_the_turn_and_takes_queued_messages_along() {
    let barrier = ReplyBarrier::new();
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("stopped"), ScriptedReply::text("last done")];
    let conversation = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&barrier)]).await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let two = conversation.send_with_admission("follow_up", "two").await;
    let three = conversation.send_with_admission("steer", "three").await;
    let four = conversation.send_with_admission("follow_up", "four").await;
    let stop = conversation.send_with_admission("interrupt", "stop that").await;
    let last = conversation.send_with_admission("follow_up", "last").await;
    assert_eq!(conversation.outcome(&one).await, "cancelled");
    assert_eq!(conversation.outcome(&stop).await, "replied: stopped");
    assert_eq!(conversation.outcome(&last).await, "replied: last done");
    for message in [&two, &three, &four] {
        conversation.assert_folded(message, &stop).await;
    }
    let requests = conversation.requests();
    assert_eq!(requests[1][..2], ["user: one", "calls hold"]);
    assert!(requests[1][2].starts_with("tool: ") && requests[1][2].contains("interrupted"), "{requests:?}");
    assert_eq!(requests[1][3], "user: two\nthree\nfour\nstop that", "messages keep their order");
    assert_eq!(requests[2][4..], ["assistant: stopped", "user: last"]);
    assert!(conversation.wait_for_answer(&one).await.messages.is_empty(), "a cancelled turn has no notice");
    conversation.finish().await;
}

#[tokio::test]
async fn t13_the_newest_interruption_is_answered_and_a_command_keeps_its_place() {
    let (barrier, end) = (ReplyBarrier::new(), ReplyBarrier::new());
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("all done")];
    let conversation =
        ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&barrier), block_save_state(&end)]).await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let handoff = conversation.send_with_admission("interrupt", ",tape.handoff name=later").await;
    end.reached().await;
    let two = conversation.send_with_admission("interrupt", "two").await;
    let three = conversation.send_with_admission("interrupt", "three").await;
    end.release();
    assert_eq!(conversation.outcome(&one).await, "cancelled");
    assert!(conversation.outcome(&handoff).await.starts_with("replied: "));
    assert_eq!(conversation.outcome(&three).await, "replied: all done");
    conversation.assert_folded(&two, &three).await;
    let request = conversation.requests()[1].clone();
    assert!(request[0].starts_with("assistant: [Anchor created: later]"), "the command runs first: {request:?}");
    assert_eq!(request[1..], ["user: two\nthree"]);
    conversation.finish().await;
}

#[tokio::test]
async fn a09_ingested_messages_settle_with_their_interrupted_run() {
    let (first, second) = (ReplyBarrier::new(), ReplyBarrier::new());
    let script = vec![
        hold_tool_reply("call_1"),
        ScriptedReply::text("half of it").with_barrier(&second),
        ScriptedReply::text("stopped"),
    ];
    let conversation = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&first)]).await;
    let one = conversation.send_message("one").await;
    first.reached().await;
    let two = conversation.send_with_admission("steer", "two").await;
    first.release();
    second.reached().await;
    let stop = conversation.send_with_admission("interrupt", "stop").await;
    assert_eq!(conversation.outcome(&stop).await, "replied: stopped");
    assert_eq!(conversation.outcome(&one).await, "cancelled");
    conversation.assert_folded(&two, &one).await;
    conversation.finish().await;
}

#[tokio::test]
async fn a09_a_message_is_not_lost_when_its_run_is_interrupted_during_ingest() {
    let (tool, prompt) = (ReplyBarrier::new(), ReplyBarrier::new());
    let prompt_barrier = prompt.clone();
    let slow = ClosurePlugin::new("slow", move |hooks| {
        let prompt_barrier = prompt_barrier.clone();
        hooks.on(BuildPrompt, move |message: InboundEvent| {
            let prompt_barrier = prompt_barrier.clone();
            async move {
                if message.input.plain_text() == "two" {
                    prompt_barrier.wait_for_release().await;
                }
                Ok(None)
            }
        });
    });
    let script = vec![hold_tool_reply("call_1"), ScriptedReply::text("stopped")];
    let conversation = ScriptedConversation::with_plugins(script, vec![hold_tool_plugin(&tool), slow]).await;
    let one = conversation.send_message("one").await;
    tool.reached().await;
    let two = conversation.send_with_admission("steer", "two").await;
    let three = conversation.send_with_admission("steer", "three").await;
    tool.release();
    prompt.reached().await;
    let stop = conversation.send_with_admission("interrupt", "stop").await;
    assert_eq!(conversation.outcome(&one).await, "cancelled");
    prompt.release();
    assert_eq!(conversation.outcome(&stop).await, "replied: stopped");
    conversation.assert_folded(&two, &stop).await;
    conversation.assert_folded(&three, &stop).await;
    assert_eq!(conversation.requests()[1].last().unwrap(), "user: two\nthree\nstop");
    conversation.finish().await;
}

#[tokio::test]
async fn t13_a_droppable_message_is_dropped_during_a_turn_and_served_after_it() {
    let barrier = ReplyBarrier::new();
    let conversation = ScriptedConversation::new(vec![
        ScriptedReply::text("one done").with_barrier(&barrier),
        ScriptedReply::text("three done"),
    ])
    .await;
    let one = conversation.send_message("one").await;
    barrier.reached().await;
    let two = conversation.send_with_admission("drop", "two").await;
    assert_eq!(conversation.outcome(&two).await, "dropped", "without waiting for the turn");
    barrier.release();
    assert_eq!(conversation.outcome(&one).await, "replied: one done");
    let three = conversation.send_with_admission("drop", "three").await;
    assert_eq!(conversation.outcome(&three).await, "replied: three done");
    assert_eq!(conversation.requests()[1], ["user: one", "assistant: one done", "user: three"]);
    conversation.finish().await;
}

/// Outcome of a message during a turn: the channel asks to drop it, `configured` and `hook` may override that.
async fn admit_during_turn(configured: Option<AdmissionMode>, hook: Option<AdmissionMode>) -> Outcome {
    let barrier = ReplyBarrier::new();
    let intake = |admission| IntakeOptions { admission, debounce: None };
    let desk = Arc::new(TestChannel::with_waiting_callers("desk").with_intake(intake(Some(AdmissionMode::Drop))));
    let environment = TestEnvironment::on_disk();
    let hook_plugin = ClosurePlugin::new("hook", move |hooks| {
        use capstan_hooks::points::{AdmissionDecision, AdmitMessage};
        hooks.on(AdmitMessage, move || async move { Ok(hook.map(AdmissionDecision::WithMode)) });
    });
    let builder = environment.host().channel(&desk).plugin(hold_tool_plugin(&barrier)).plugin(hook_plugin);
    let builder = builder.options(|options| {
        options.intake_overrides.insert("desk".into(), intake(configured));
    });
    let host = builder.start().await;
    let (one, two) = (Event::message("desk", "1", "[[tool:hold]]"), Event::message("desk", "1", "two"));
    host.submit_and_wait(&one).await;
    barrier.reached().await;
    host.submit_and_wait(&two).await;
    if configured == Some(AdmissionMode::Interrupt) {
        let answer = desk.wait_for_answer(&one.event_id).await;
        assert_eq!(format_outcome(&answer.outcome), "cancelled");
    }
    barrier.release();
    let outcome = desk.wait_for_answer(&two.event_id).await.outcome;
    desk.wait_for_answer(&one.event_id).await;
    environment.assert_settled().await;
    host.stop().await.unwrap();
    outcome
}

#[tokio::test]
async fn c04_the_hook_overrides_the_configuration_which_overrides_the_channel() {
    assert_eq!(admit_during_turn(None, None).await, Outcome::Dropped, "the mode of the channel");
    let steered = admit_during_turn(Some(AdmissionMode::Steer), None).await;
    assert_eq!(steered.name(), "folded", "the configuration overrides the channel");
    let interrupted = admit_during_turn(Some(AdmissionMode::Interrupt), None).await;
    assert_eq!(interrupted.name(), "replied");
    let followed_up = admit_during_turn(Some(AdmissionMode::Steer), Some(AdmissionMode::FollowUp)).await;
    assert_eq!(followed_up.name(), "replied", "the hook overrides the configuration");
}

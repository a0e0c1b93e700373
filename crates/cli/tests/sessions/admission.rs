//! What becomes of a message that comes while a turn is going on (T13, C4, A9). Each test is the conversation.

use std::sync::Arc;

use capstan::hooks::contracts::{Intake, ResultStream, RunApi, Runner};
use capstan::hooks::points::{BuildPrompt, ProvideRunners, SaveState};
use capstan::hooks::{CameAt, Inbound, Plugin};
use capstan::protocol::{AdmissionMode, Content, Descriptor, Event, Outcome, ResultBody, RunContext, Timestamp};
use capstan_testing::{Gate, Reply};
use futures::StreamExt as _;

use crate::house::{House, holds_at, in_words, plugin, submit};
use crate::phone::Phone;
use crate::talk::{Talk, holds};

#[tokio::test]
async fn t13_a_follow_up_waits_for_the_turn_and_is_the_next_one() {
    let gate = Gate::new();
    let talk = Talk::with(vec![Reply::text("one done").held_at(&gate), Reply::text("two done")]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let two = talk.say_as("follow_up", "two").await;
    assert!(talk.is_open(&two).await);
    gate.open();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&two).await, "replied: two done");
    assert_ne!(talk.run_of(&one).await, talk.run_of(&two).await);
    assert_eq!(talk.requests(), [vec!["user: one"], vec!["user: one", "assistant: one done", "user: two"]]);
    talk.ends().await;
}

#[tokio::test]
async fn t13_to_process_on_a_busy_session_means_to_follow_up() {
    let gate = Gate::new();
    let talk = Talk::with(vec![Reply::text("one done").held_at(&gate), Reply::text("two done")]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let two = talk.say_as("process", "two").await;
    gate.open();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&two).await, "replied: two done");
    talk.ends().await;
}

#[tokio::test]
async fn a07_a_message_that_waited_came_when_it_was_accepted() {
    let gate = Gate::new();
    let (came, seen) = std::sync::mpsc::channel();
    let looks = plugin("looks", move |hooks| {
        let came = came.clone();
        hooks.on(BuildPrompt, move |message: Inbound| {
            came.send(message.extensions().get::<CameAt>().unwrap().0).unwrap();
            async { Ok(None) }
        });
    });
    let script = vec![holds("call_1"), Reply::text("both done"), Reply::text("three done")];
    let talk = Talk::and(script, vec![holds_at(&gate), looks]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let two = talk.say_as("steer", "two").await;
    let three = talk.say_as("follow_up", "three").await;
    let both_came = Timestamp::now();
    gate.open();
    assert_eq!(talk.outcome(&three).await, "replied: three done");
    talk.assert_folded(&two, &one).await;
    assert_eq!(seen.try_iter().filter(|came| *came <= both_came).count(), 3);
    talk.ends().await;
}

#[tokio::test]
async fn a09_steering_during_a_tool_call_is_taken_in_before_the_next_step() {
    let gate = Gate::new();
    let script = vec![holds("call_1"), Reply::text("both done"), Reply::text("later done")];
    let talk = Talk::and(script, vec![holds_at(&gate)]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let two = talk.say_as("steer", "no, two").await;
    let three = talk.say_as("steer", "and three").await;
    assert!(talk.is_open(&two).await, "in flight until the run ends");
    gate.open();
    assert_eq!(talk.outcome(&one).await, "replied: both done");
    talk.assert_folded(&two, &one).await;
    talk.assert_folded(&three, &one).await;
    let later = talk.say("later").await;
    assert_eq!(talk.outcome(&later).await, "replied: later done");
    let told = ["user: one", "calls hold", "tool: held", "user: no, two", "user: and three"];
    assert_eq!(talk.requests()[1], told);
    assert_eq!(talk.requests()[2], [&told[..], &["assistant: both done", "user: later"]].concat(), "nothing repeated");
    talk.ends().await;
}

#[tokio::test]
async fn t13_what_is_said_after_a_command_that_waits_meets_what_the_command_did() {
    let gate = Gate::new();
    let script = vec![holds("call_1"), Reply::text("one done"), Reply::text("two done")];
    let talk = Talk::and(script, vec![holds_at(&gate)]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let reset = talk.say_as("steer", ",tape.reset").await;
    let two = talk.say_as("steer", "two").await;
    gate.open();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&reset).await, "replied: the conversation begins anew");
    assert_eq!(talk.outcome(&two).await, "replied: two done");
    assert_eq!(talk.requests().last().unwrap().last().unwrap(), "user: two");
    assert!(!talk.requests().last().unwrap().contains(&"user: one".to_owned()), "{:?}", talk.requests());
    talk.ends().await;
}

#[tokio::test]
async fn a09_steering_during_the_last_answer_is_answered_by_the_same_run() {
    let gate = Gate::new();
    let talk = Talk::with(vec![Reply::text("one done").held_at(&gate), Reply::text("two done")]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let two = talk.say_as("steer", "two").await;
    gate.open();
    assert_eq!(talk.outcome(&one).await, "replied: one done\n\ntwo done");
    talk.assert_folded(&two, &one).await;
    assert_eq!(talk.requests()[1], ["user: one", "assistant: one done", "user: two"]);
    talk.ends().await;
}

/// Holds the end of the first turn at a gate.
fn holds_the_end(gate: &Gate) -> Box<dyn Plugin> {
    let gate = gate.clone();
    plugin("slow-end", move |hooks| {
        let gate = gate.clone();
        hooks.on(SaveState, move || {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok(None)
            }
        });
    })
}

#[tokio::test]
async fn a09_steering_that_comes_after_the_last_step_has_a_turn_of_its_own() {
    let gate = Gate::new();
    let script = vec![Reply::text("one done"), Reply::text("two done"), Reply::text("three done")];
    let talk = Talk::and(script, vec![holds_the_end(&gate)]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let two = talk.say_as("steer", "two").await;
    let three = talk.say_as("follow_up", "three").await;
    gate.open();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&two).await, "replied: two done");
    assert_eq!(talk.outcome(&three).await, "replied: three done");
    talk.ends().await;
}

#[tokio::test]
async fn a09_what_could_not_be_steered_keeps_its_place_among_what_waits() {
    let gate = Gate::new();
    let script = vec![Reply::text("one done"), Reply::text("two done"), Reply::text("three done")];
    let talk = Talk::and(script, vec![holds_the_end(&gate)]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let two = talk.say_as("follow_up", "two").await;
    let three = talk.say_as("steer", "three").await;
    gate.open();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&two).await, "replied: two done", "it was said first");
    assert_eq!(talk.outcome(&three).await, "replied: three done");
    talk.ends().await;
}

/// A runner that says what it was told, once its gate is open, and cannot be steered.
struct Deaf(Gate);

impl Runner for Deaf {
    fn descriptor(&self) -> Descriptor {
        Descriptor::new("builtin:agent", "deaf")
    }

    fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
        let gate = self.0.clone();
        let results = async move {
            gate.pass().await;
            let heard = Content::from(format!("heard {}", context.input.plain_text()));
            let said = ResultBody::MessageCompleted { content: heard, provider_meta: Default::default() };
            futures::stream::iter([said.into(), ResultBody::RunCompleted { silent: false }.into()])
        };
        futures::stream::once(results).flatten().boxed()
    }
}

#[tokio::test]
async fn a09_a_runner_that_cannot_be_steered_gets_a_follow_up() {
    let gate = Gate::new();
    let runner: Arc<dyn Runner> = Arc::new(Deaf(gate.clone()));
    let deaf = plugin("deaf", move |hooks| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    });
    let talk = Talk::and(Vec::new(), vec![deaf]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let two = talk.say_as("steer", "two").await;
    gate.open();
    assert_eq!(talk.outcome(&one).await, "replied: heard one");
    assert_eq!(talk.outcome(&two).await, "replied: heard two");
    talk.ends().await;
}

#[tokio::test]
async fn t13_what_is_collected_becomes_one_turn_which_answers_the_last() {
    let gate = Gate::new();
    let talk = Talk::with(vec![Reply::text("one done").held_at(&gate), Reply::text("all done")]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let two = talk.say_as("collect", "two").await;
    let three = talk.say_as("collect", "three").await;
    gate.open();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&three).await, "replied: all done");
    talk.assert_folded(&two, &three).await;
    assert_eq!(talk.requests()[1], ["user: one", "assistant: one done", "user: two\nthree"]);
    talk.ends().await;
}

#[tokio::test]
async fn t13_an_interruption_cancels_the_turn_and_has_the_next_one_with_what_waits() {
    let gate = Gate::new();
    let script = vec![holds("call_1"), Reply::text("stopped"), Reply::text("last done")];
    let talk = Talk::and(script, vec![holds_at(&gate)]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let two = talk.say_as("follow_up", "two").await;
    let three = talk.say_as("steer", "three").await;
    let four = talk.say_as("follow_up", "four").await;
    let stop = talk.say_as("interrupt", "stop that").await;
    let last = talk.say_as("follow_up", "last").await;
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
    assert!(talk.answer(&one).await.messages.is_empty(), "nothing went wrong: there is no notice");
    talk.ends().await;
}

#[tokio::test]
async fn t13_of_several_interruptions_the_newest_is_answered_and_a_command_keeps_its_place() {
    let (gate, end) = (Gate::new(), Gate::new());
    let script = vec![holds("call_1"), Reply::text("all done")];
    let talk = Talk::and(script, vec![holds_at(&gate), holds_the_end(&end)]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let handoff = talk.say_as("interrupt", ",tape.handoff name=later").await;
    end.reached().await;
    let two = talk.say_as("interrupt", "two").await;
    let three = talk.say_as("interrupt", "three").await;
    end.open();
    assert_eq!(talk.outcome(&one).await, "cancelled");
    assert!(talk.outcome(&handoff).await.starts_with("replied: "));
    assert_eq!(talk.outcome(&three).await, "replied: all done");
    talk.assert_folded(&two, &three).await;
    let request = talk.requests()[1].clone();
    assert!(request[0].starts_with("assistant: [Anchor created: later]"), "the command was first: {request:?}");
    assert_eq!(request[1..], ["user: two\nthree"]);
    talk.ends().await;
}

#[tokio::test]
async fn a09_what_a_run_took_in_ends_with_it_when_it_is_interrupted() {
    let (first, second) = (Gate::new(), Gate::new());
    let script = vec![holds("call_1"), Reply::text("half of it").held_at(&second), Reply::text("stopped")];
    let talk = Talk::and(script, vec![holds_at(&first)]).await;
    let one = talk.say("one").await;
    first.reached().await;
    let two = talk.say_as("steer", "two").await;
    first.open();
    second.reached().await;
    let stop = talk.say_as("interrupt", "stop").await;
    assert_eq!(talk.outcome(&stop).await, "replied: stopped");
    assert_eq!(talk.outcome(&one).await, "cancelled");
    talk.assert_folded(&two, &one).await;
    talk.ends().await;
}

#[tokio::test]
async fn a09_a_message_that_is_being_taken_in_is_not_lost_when_the_run_is_interrupted() {
    let (tool, prompt) = (Gate::new(), Gate::new());
    let held = prompt.clone();
    let slow = plugin("slow", move |hooks| {
        let held = held.clone();
        hooks.on(BuildPrompt, move |message: Inbound| {
            let held = held.clone();
            async move {
                if message.input.plain_text() == "two" {
                    held.pass().await;
                }
                Ok(None)
            }
        });
    });
    let script = vec![holds("call_1"), Reply::text("stopped")];
    let talk = Talk::and(script, vec![holds_at(&tool), slow]).await;
    let one = talk.say("one").await;
    tool.reached().await;
    let two = talk.say_as("steer", "two").await;
    let three = talk.say_as("steer", "three").await;
    tool.open();
    prompt.reached().await;
    let stop = talk.say_as("interrupt", "stop").await;
    assert_eq!(talk.outcome(&one).await, "cancelled");
    prompt.open();
    assert_eq!(talk.outcome(&stop).await, "replied: stopped");
    talk.assert_folded(&two, &stop).await;
    talk.assert_folded(&three, &stop).await;
    assert_eq!(talk.requests()[1].last().unwrap(), "user: two\nthree\nstop");
    talk.ends().await;
}

#[tokio::test]
async fn t13_a_message_that_may_be_dropped_is_dropped_during_a_turn_and_served_after_it() {
    let gate = Gate::new();
    let talk = Talk::with(vec![Reply::text("one done").held_at(&gate), Reply::text("three done")]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let two = talk.say_as("drop", "two").await;
    assert_eq!(talk.outcome(&two).await, "dropped", "at once");
    gate.open();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    let three = talk.say_as("drop", "three").await;
    assert_eq!(talk.outcome(&three).await, "replied: three done");
    assert_eq!(talk.requests()[1], ["user: one", "assistant: one done", "user: three"]);
    talk.ends().await;
}

/// What becomes of a message during a turn: the channel wants it dropped, `set` is what the configuration says.
async fn during_a_turn(set: Option<AdmissionMode>, hook: Option<AdmissionMode>) -> Outcome {
    let gate = Gate::new();
    let wants = |admission| Intake { admission, debounce: None };
    let desk = Arc::new(Phone::desk("desk").taking_in(wants(Some(AdmissionMode::Drop))));
    let house = House::on_disk();
    let hooked = plugin("hooked", move |hooks| {
        use capstan::hooks::points::{Admission, AdmitMessage};
        hooks.on(AdmitMessage, move || async move { Ok(hook.map(Admission::As)) });
    });
    let building = house.host().channel(&desk).plugin(holds_at(&gate)).plugin(hooked);
    let building = building.set(|settings| {
        settings.intakes.insert("desk".into(), wants(set));
    });
    let host = building.start().await;
    let (one, two) = (Event::message("desk", "1", "[[tool:hold]]"), Event::message("desk", "1", "two"));
    submit(&host, &one).await;
    gate.reached().await;
    submit(&host, &two).await;
    if set == Some(AdmissionMode::Interrupt) {
        let answer = desk.answer_to(&one.event_id).await;
        assert_eq!(in_words(&answer.outcome), "cancelled");
    }
    gate.open();
    let outcome = desk.answer_to(&two.event_id).await.outcome;
    desk.answer_to(&one.event_id).await;
    house.assert_tidy().await;
    host.stop().await.unwrap();
    outcome
}

#[tokio::test]
async fn c04_the_hook_goes_before_the_configuration_and_that_before_the_channel() {
    assert_eq!(during_a_turn(None, None).await, Outcome::Dropped, "the channel's own wish");
    let steered = during_a_turn(Some(AdmissionMode::Steer), None).await;
    assert_eq!(steered.name(), "folded", "the configuration says otherwise");
    let interrupts = during_a_turn(Some(AdmissionMode::Interrupt), None).await;
    assert_eq!(interrupts.name(), "replied");
    let followed = during_a_turn(Some(AdmissionMode::Steer), Some(AdmissionMode::FollowUp)).await;
    assert_eq!(followed.name(), "replied", "the hook says otherwise");
}

//! Commands while a turn is going on: those that only look run beside it, every other one waits its turn (T13).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan::hooks::Plugin;
use capstan::hooks::contracts::{FnTool, Tool, ToolContext};
use capstan::hooks::points::{BuildPrompt, ProvideTools, RunModel, RunModelStream};
use capstan::protocol::{Event, Map, ToolOutput};
use capstan_testing::{Gate, Reply};
use serde_json::json;

use crate::house::{House, holds_at, in_words, plugin, submit};
use crate::phone::Phone;
use crate::talk::{Said, Talk, holds};

#[tokio::test]
async fn t13_a_command_that_only_looks_runs_beside_the_turn() {
    let gate = Gate::new();
    let script = vec![holds("call_1"), Reply::text("one done"), Reply::text("two done")];
    let talk = Talk::and(script, vec![holds_at(&gate)]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let info = talk.say(",tape.info").await;
    assert!(talk.outcome(&info).await.starts_with("replied: "), "while the tool is at work");
    assert!(talk.is_open(&one).await);
    gate.open();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    let two = talk.say("two").await;
    assert_eq!(talk.outcome(&two).await, "replied: two done");
    assert_eq!(
        talk.requests()[2],
        ["user: one", "calls hold", "tool: held", "assistant: one done", "user: two"],
        "no view shows it"
    );
    talk.ends().await;
}

#[tokio::test]
async fn t13_a_command_is_never_steered_and_one_that_changes_something_waits() {
    let gate = Gate::new();
    let script = vec![holds("call_1"), Reply::text("one done")];
    let talk = Talk::and(script, vec![holds_at(&gate)]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let handoff = talk.say_as("steer", ",tape.handoff name=later").await;
    assert!(talk.is_open(&handoff).await);
    gate.open();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert!(talk.outcome(&handoff).await.starts_with("replied: "));
    assert_ne!(talk.run_of(&handoff).await, talk.run_of(&one).await);
    assert_eq!(talk.requests()[1], ["user: one", "calls hold", "tool: held"]);
    talk.ends().await;
}

#[tokio::test]
async fn t13_only_commands_run_beside_a_turn_whatever_a_hook_says() {
    let gate = Gate::new();
    let talk = Talk::with(vec![Reply::text("one done").held_at(&gate), Reply::text("two done")]).await;
    let one = talk.say("one").await;
    gate.reached().await;
    let two = talk.say_as("beside", "two").await;
    gate.open();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&two).await, "replied: two done");
    assert_eq!(talk.requests()[1], ["user: one", "assistant: one done", "user: two"], "one turn at a time");
    talk.ends().await;
}

/// A plugin with a tool `peek`, which only looks, for as long as a gate is closed; the number says how often it began.
fn peeks_at(gate: &Gate) -> (Box<dyn Plugin>, Arc<AtomicUsize>) {
    let begun: Arc<AtomicUsize> = Arc::default();
    let (gate, counted) = (gate.clone(), Arc::clone(&begun));
    let peek = move |_: Map, _: ToolContext| {
        let gate = gate.clone();
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            gate.pass().await;
            Ok(ToolOutput::ok("seen"))
        }
    };
    let schema = json!({"type": "object", "properties": {}});
    let tool: Arc<dyn Tool> = Arc::new(FnTool::new("peek", "Looks.", schema, peek).that_only_looks());
    let peeks = plugin("peek", move |hooks| {
        let tool = Arc::clone(&tool);
        hooks.on_sync(ProvideTools, move || Ok(Some(vec![Arc::clone(&tool)])));
    });
    (peeks, begun)
}

#[tokio::test]
async fn t13_eight_commands_run_beside_a_turn_and_the_next_one_waits() {
    let (turn, look) = (Gate::new(), Gate::new());
    let (peeks, begun) = peeks_at(&look);
    let talk = Talk::and(vec![holds("call_1"), Reply::text("one done")], vec![holds_at(&turn), peeks]).await;
    let one = talk.say("one").await;
    turn.reached().await;
    let mut said: Vec<Said> = Vec::new();
    for _ in 0..9 {
        said.push(talk.say(",peek").await);
    }
    while begun.load(Ordering::SeqCst) < 8 {
        tokio::task::yield_now().await;
    }
    look.open();
    for said in &said[..8] {
        assert_eq!(talk.outcome(said).await, "replied: seen");
    }
    assert!(talk.is_open(&said[8]).await, "it waits its turn, though there is room now");
    assert_eq!(begun.load(Ordering::SeqCst), 8);
    turn.open();
    assert_eq!(talk.outcome(&one).await, "replied: one done");
    assert_eq!(talk.outcome(&said[8]).await, "replied: seen");
    talk.ends().await;
}

/// Whether a command that only looks runs beside a turn where there is this plugin. On paused time, which passes only
/// when every task waits.
async fn runs_beside(replaces: Box<dyn Plugin>) -> bool {
    let (gate, desk, house) = (Gate::new(), Arc::new(Phone::desk("desk")), House::in_memory());
    let host = house.host().channel(&desk).plugin(holds_at(&gate)).plugin(replaces).start().await;
    let [one, info] = ["[[tool:hold]]", ",tape.info"].map(|text| Event::message("desk", "1", text));
    submit(&host, &one).await;
    gate.reached().await;
    submit(&host, &info).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let has_ended = house.outcome(&info).await.is_some();
    gate.open();
    for event in [&one, &info] {
        assert!(in_words(&desk.answer_to(&event.event_id).await.outcome).starts_with("replied: "));
    }
    host.stop().await.unwrap();
    house.assert_tidy().await;
    has_ended
}

#[tokio::test(start_paused = true)]
async fn t13_where_a_plugin_may_take_a_command_for_something_else_it_waits_its_turn() {
    assert!(runs_beside(plugin("harmless", |_| {})).await);
    let prompts = plugin("prompts", |hooks| {
        hooks.on(BuildPrompt, || async { Ok(None) });
    });
    assert!(!runs_beside(prompts).await, "the prompt may be another");
    let stands_in = plugin("stands-in", |hooks| {
        hooks.on(RunModel, || async { Ok(None) });
    });
    assert!(!runs_beside(stands_in).await, "the model stage may be another");
    let streams = plugin("streams", |hooks| {
        hooks.on(RunModelStream, || async { Ok(None) });
    });
    assert!(!runs_beside(streams).await, "and so it may with a stream");
}

//! T12: a scope that is open while a message is processed.

use async_trait::async_trait;
use capstan_hooks::points::{BuildPrompt, RunModel};
use capstan_hooks::{BoxError, InboundEvent, LifespanHandler, TurnLifespan};
use capstan_protocol::Event;

use crate::hook_traces::recorder::HookRecorder;
use crate::hook_traces::scenario::TurnScenario;
use crate::hook_traces::test_plugins::register_echo;

/// Scope that logs when it opens and closes.
struct RecordingLifespan(HookRecorder);

#[async_trait]
impl LifespanHandler for RecordingLifespan {
    async fn open(&self) -> Result<(), BoxError> {
        self.0.note("  lifespan opens", "with the message");
        Ok(())
    }

    async fn close(&self, failure: Option<&str>) -> Result<(), BoxError> {
        self.0.note("  lifespan closes", format!("failure: {failure:?}"));
        Ok(())
    }
}

fn hello_with_lifespan(recorder: &HookRecorder) -> InboundEvent {
    let inbound = InboundEvent::new(Event::message("cli", "local", "hello"));
    inbound.extensions().insert(TurnLifespan::new(RecordingLifespan(recorder.clone())));
    inbound
}

#[tokio::test]
async fn t12_a_lifespan_opens_in_load_state_and_closes_in_save_state() {
    let scenario = TurnScenario::new().plugin("echo", register_echo);
    let inbound = hello_with_lifespan(&scenario.recorder);
    insta::assert_snapshot!(scenario.serve(inbound).await.to_text());
}

#[tokio::test]
async fn t12_a_lifespan_receives_the_failure_when_it_closes() {
    let scenario = TurnScenario::new().plugin("broken", |hooks| {
        hooks.on(RunModel, || async { Err("no model".into()) });
    });
    let inbound = hello_with_lifespan(&scenario.recorder);
    insta::assert_snapshot!(scenario.serve(inbound).await.to_text());
}

#[tokio::test]
async fn t12_a_lifespan_closes_even_when_there_is_no_save_state() {
    let scenario = TurnScenario::new().plugin("broken", |hooks| {
        hooks.on(BuildPrompt, || async { Err("no words".into()) });
    });
    let inbound = hello_with_lifespan(&scenario.recorder);
    insta::assert_snapshot!(scenario.serve(inbound).await.to_text());
}

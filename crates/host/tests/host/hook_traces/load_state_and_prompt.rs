//! T3 and T4: the initial state of a turn, and its prompt.

use capstan_hooks::TurnState;
use capstan_hooks::points::{BuildPrompt, LoadState, SaveState};
use capstan_protocol::{Content, ContentPart, JsonObject};
use serde_json::json;

use crate::hook_traces::scenario::TurnScenario;
use crate::hook_traces::test_plugins::{RecordingChannel, register_channel, register_echo, register_runner};

fn state_map(values: &[(&str, &str)]) -> JsonObject {
    values.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect()
}

#[tokio::test]
async fn t03_h03_the_later_registered_plugin_wins_a_state_key() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("earlier", |hooks| {
            hooks.on(LoadState, || async { Ok(Some(state_map(&[("mood", "calm"), ("from_earlier", "yes")]))) });
        })
        .plugin("silent", |hooks| {
            hooks.on(LoadState, || async { Ok(None) });
        })
        .plugin("later", |hooks| {
            hooks.on(LoadState, || async { Ok(Some(state_map(&[("mood", "bright"), ("from_later", "yes")]))) });
            hooks.on(BuildPrompt, |state: TurnState| async move {
                let mut values = state.values();
                let workspace = values.shift_remove(TurnState::WORKSPACE_KEY);
                let workspace = if workspace.is_some_and(|path| path.is_string()) { "there" } else { "missing" };
                Ok(Some(Content::from(format!("workspace {workspace}; {}", json!(values)))))
            });
        })
        .serve_hello()
        .await;
    assert_eq!(
        trace.served.output,
        r#"workspace there; {"session_id":"cli:local","mood":"bright","from_earlier":"yes","from_later":"yes"}"#
    );
    insta::assert_snapshot!(trace.to_text());
}

#[tokio::test]
async fn h04_t08_a_failing_load_state_fails_the_turn_and_skips_save_state() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("keeper", |hooks| {
            hooks.on(SaveState, || async { Ok(Some(())) });
        })
        .plugin("broken", |hooks| {
            hooks.on(LoadState, || async { Err("the state is gone".into()) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test]
async fn t04_a_plugin_without_an_answer_leaves_the_prompt_to_the_next() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("polite", |hooks| {
            hooks.on(BuildPrompt, || async { Ok(Some("please: hello".into())) });
        })
        .plugin("shy", |hooks| {
            hooks.on(BuildPrompt, || async { Ok(None) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
}

#[tokio::test]
async fn t04_an_empty_prompt_means_the_inbound_text_and_stops_the_search() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("never asked", |hooks| {
            hooks.on(BuildPrompt, || async { Ok(Some("not this".into())) });
        })
        .plugin("blank", |hooks| {
            hooks.on(BuildPrompt, || async { Ok(Some(Content::default())) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
}

fn content_with_image(text: &str) -> Content {
    Content::Parts(vec![ContentPart::from_text(text), ContentPart::from_image_url("https://example.org/a.png")])
}

#[tokio::test]
async fn t04_a_prompt_of_parts_reaches_the_model_stage_as_parts() {
    let trace = TurnScenario::new()
        .plugin("counter", |hooks| {
            hooks.on(capstan_hooks::points::RunModel, |prompt: capstan_hooks::args::PromptContent| async move {
                let Content::Parts(parts) = prompt.0.as_ref() else { return Ok(None) };
                Ok(Some(format!("{} parts", parts.len())))
            });
        })
        .plugin("camera", |hooks| {
            hooks.on(BuildPrompt, || async { Ok(Some(content_with_image("look"))) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test]
async fn t06_without_output_a_prompt_of_parts_is_answered_with_the_inbound_text() {
    let scenario = TurnScenario::new();
    let screen = RecordingChannel::new(&scenario.recorder);
    let trace = scenario
        .agent_plugin("bare", register_runner(Vec::new()))
        .plugin("screen", register_channel(screen))
        .plugin("camera", |hooks| {
            hooks.on(BuildPrompt, || async { Ok(Some(content_with_image("look"))) });
        })
        .serve_without_builtin(capstan_protocol::Event::message("cli", "local", "hello"))
        .await;
    assert_eq!(trace.served.output, "hello");
    insta::assert_snapshot!(trace.to_text_with_tape());
}

#[tokio::test]
async fn h04_t08_a_failing_build_prompt_fails_the_turn_and_skips_save_state() {
    let trace = TurnScenario::new()
        .plugin("echo", register_echo)
        .plugin("keeper", |hooks| {
            hooks.on(SaveState, || async { Ok(Some(())) });
        })
        .plugin("broken", |hooks| {
            hooks.on(BuildPrompt, || async { Err("no words".into()) });
        })
        .serve_hello()
        .await;
    insta::assert_snapshot!(trace.to_text());
}

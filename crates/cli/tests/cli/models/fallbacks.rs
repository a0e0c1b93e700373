//! Fallback models.

use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::json;

use super::provider::fixture_with_model;
use crate::support::{CliFixture, TEST_API_KEY, entries_named};

fn refusal_reply(status: u16) -> ScriptedReply {
    ScriptedReply::status(status, r#"{"error": {"message": "not you"}}"#)
}

/// Fixture with an Anthropic model first and models of `OpenAI` and Gemini as fallbacks.
fn fixture_with_fallbacks(server: &ScriptedModel) -> CliFixture {
    let fixture = fixture_with_model(server, "anthropic:claude-sonnet-4-5").set("CAPSTAN_MODEL_RETRIES", "0");
    fixture
        .set("CAPSTAN_FALLBACK_MODELS", "openai:gpt-5, gemini:gemini-3-pro")
        .set("CAPSTAN_MODELS__OPENAI__API_BASE", &server.base_url())
        .set("OPENAI_API_KEY", "sk-of-openai-0123456789")
        .set("CAPSTAN_MODELS__GEMINI__API_BASE", &server.origin())
        .set("GEMINI_API_KEY", "key-of-gemini-0123456789")
}

#[test]
fn a08_fallback_model_answers_when_the_first_one_fails() {
    for status in [401, 404, 429, 503] {
        let server = ScriptedModel::start_blocking(vec![refusal_reply(status), ScriptedReply::text("I can")]);
        let fixture = fixture_with_fallbacks(&server);
        let output = fixture.capstan(&["run", "hello"]).succeeded();
        assert_eq!(output.stdout, "I can\n");
        assert!(output.stderr.contains("trying openai:gpt-5"), "{}", output.stderr);
        assert_eq!(server.header_values("x-api-key"), [Some(TEST_API_KEY.to_owned()), None]);
        assert_eq!(server.authorization_headers(), [None, Some("Bearer sk-of-openai-0123456789".to_owned())]);
        let calls = fixture.capstan(&["tape", "context"]).json();
        let models: Vec<&str> = calls.as_array().unwrap().iter().map(|call| call["model"].as_str().unwrap()).collect();
        assert_eq!(models, ["claude-sonnet-4-5", "gpt-5"], "each attempt is recorded");
        let statuses: Vec<String> = entries_named(&fixture.entries(), "run")
            .iter()
            .map(|run| run["payload"]["data"]["status"].to_string())
            .collect();
        assert_eq!(statuses, ["\"error\"", "\"ok\""]);
    }
}

#[test]
fn a08_fallbacks_are_tried_in_order_until_none_is_left() {
    let server = ScriptedModel::start_blocking(vec![refusal_reply(503), refusal_reply(503), refusal_reply(429)]);
    let fixture = fixture_with_fallbacks(&server);
    let output = fixture.capstan(&["run", "hello"]).refused("model-rate-limited", 1);
    assert!(output.stderr.contains("gemini: "), "the error of the last model is reported: {}", output.stderr);
    assert_eq!(server.requests().len(), 3);
    fixture.assert_undamaged();
}

#[test]
fn a08_no_fallback_after_a_rejected_request_or_a_partial_reply() {
    let server = ScriptedModel::start_blocking(vec![refusal_reply(400), ScriptedReply::text("no")]);
    fixture_with_fallbacks(&server).capstan(&["run", "hello"]).refused("model-rejected", 1);
    let server =
        ScriptedModel::start_blocking(vec![ScriptedReply::disconnect_after("half"), ScriptedReply::text("twice")]);
    fixture_with_fallbacks(&server).capstan(&["run", "hello"]).failed("model-broken", 1);
    assert_eq!(server.requests().len(), 1, "no fallback after the first word");
}

#[test]
fn a08_fallback_finishes_a_step_that_another_model_began() {
    let call = ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "echo hi"}))]).with_reasoning("hm");
    let server = ScriptedModel::start_blocking(vec![call, refusal_reply(529), ScriptedReply::text("done")]);
    let fixture = fixture_with_fallbacks(&server).set("CAPSTAN_REASONING", "low");
    assert_eq!(fixture.capstan(&["run", "go"]).succeeded().stdout, "done\n");
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn a08_unknown_provider_is_reported_with_the_known_ones() {
    let output =
        CliFixture::new().set("CAPSTAN_MODEL", "antropic:x").capstan(&["run", "hello"]).refused("model-unknown", 1);
    assert!(output.stderr.contains("\"antropic\"") && output.stderr.contains("anthropic, "), "{}", output.stderr);
}

#[test]
fn a08_fallback_replaces_an_unknown_provider() {
    let fixture = CliFixture::new().set("CAPSTAN_MODEL", "missing:x").set("CAPSTAN_FALLBACK_MODELS", "demo:echo");
    let output = fixture.capstan(&["run", "hello"]).succeeded();
    assert!(output.stdout.contains("hello") && output.stderr.contains("trying demo:echo"), "{output:?}");
}

#[test]
fn a08_unknown_fallback_keeps_the_first_error_and_is_reported_by_doctor() {
    let server = ScriptedModel::start_blocking(vec![refusal_reply(429)]);
    let fixture = fixture_with_fallbacks(&server).set("CAPSTAN_FALLBACK_MODELS", "nosuch:x, neither:y");
    let output = fixture.capstan(&["run", "hello"]).refused("model-rate-limited", 1);
    assert!(output.stderr.contains("trying neither:y"), "each fallback is tried: {output:?}");
    let doctor = fixture.capstan(&["doctor"]).stdout;
    assert!(doctor.contains("unknown model provider \"nosuch\" of nosuch:x in fallback_models"), "{doctor}");
}

//! Models that step in for another.

use std::sync::Arc;

use capstan::Capstan;
use capstan::hooks::contracts::{ResultStream, RunApi, Runner};
use capstan::hooks::points::ProvideRunners;
use capstan::hooks::{BoxError, HookRegistrar, Plugin};
use capstan::protocol::{Descriptor, Event, PermissionSet, ResourceAccess, RunContext};
use capstan::tape::MemoryStore;
use capstan_agent::{Agent, LoopOptions};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::json;

use crate::cli_support::{CliFixture, TEST_API_KEY, entries_named};
use crate::provider::fixture_with_model;

fn refusal_reply(status: u16) -> ScriptedReply {
    ScriptedReply::status(status, r#"{"error": {"message": "not you"}}"#)
}

/// A place with a first model of Anthropic and others of `OpenAI` and Gemini behind it.
fn fixture_with_fallbacks(server: &ScriptedModel) -> CliFixture {
    let place = fixture_with_model(server, "anthropic:claude-sonnet-4-5").set("CAPSTAN_MODEL_RETRIES", "0");
    place
        .set("CAPSTAN_FALLBACK_MODELS", "openai:gpt-5, gemini:gemini-3-pro")
        .set("CAPSTAN_MODELS__OPENAI__API_BASE", &server.base_url())
        .set("OPENAI_API_KEY", "sk-of-openai-0123456789")
        .set("CAPSTAN_MODELS__GEMINI__API_BASE", &server.origin())
        .set("GEMINI_API_KEY", "key-of-gemini-0123456789")
}

#[test]
fn a8_another_model_answers_when_the_first_cannot() {
    for status in [401, 404, 429, 503] {
        let server = ScriptedModel::start_blocking(vec![refusal_reply(status), ScriptedReply::text("I can")]);
        let place = fixture_with_fallbacks(&server);
        let said = place.capstan(&["run", "hello"]).succeeded();
        assert_eq!(said.stdout, "I can\n");
        assert!(said.stderr.contains("trying openai:gpt-5"), "{}", said.stderr);
        assert_eq!(server.header_values("x-api-key"), [Some(TEST_API_KEY.to_owned()), None]);
        assert_eq!(server.authorization_headers(), [None, Some("Bearer sk-of-openai-0123456789".to_owned())]);
        let calls = place.capstan(&["tape", "context"]).json();
        let models: Vec<&str> = calls.as_array().unwrap().iter().map(|call| call["model"].as_str().unwrap()).collect();
        assert_eq!(models, ["claude-sonnet-4-5", "gpt-5"], "each attempt is on record");
        let ends: Vec<String> = entries_named(&place.entries(), "run")
            .iter()
            .map(|run| run["payload"]["data"]["status"].to_string())
            .collect();
        assert_eq!(ends, ["\"error\"", "\"ok\""]);
    }
}

#[test]
fn a8_fallbacks_are_tried_in_order_until_they_end() {
    let server = ScriptedModel::start_blocking(vec![refusal_reply(503), refusal_reply(503), refusal_reply(429)]);
    let place = fixture_with_fallbacks(&server);
    let said = place.capstan(&["run", "hello"]).refused("model-rate-limited", 1);
    assert!(said.stderr.contains("gemini: "), "the last one's error is told: {}", said.stderr);
    assert_eq!(server.requests().len(), 3);
    place.assert_undamaged();
}

#[test]
fn a8_a_request_that_is_wrong_itself_goes_to_nobody_else() {
    let server = ScriptedModel::start_blocking(vec![refusal_reply(400), ScriptedReply::text("no")]);
    fixture_with_fallbacks(&server).capstan(&["run", "hello"]).refused("model-rejected", 1);
    let server =
        ScriptedModel::start_blocking(vec![ScriptedReply::disconnect_after("half"), ScriptedReply::text("twice")]);
    fixture_with_fallbacks(&server).capstan(&["run", "hello"]).failed("model-broken", 1);
    assert_eq!(server.requests().len(), 1, "not after the first word");
}

#[test]
fn a8_a_step_that_one_model_began_is_ended_by_another() {
    let call = ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "echo hi"}))]).with_reasoning("hm");
    let server = ScriptedModel::start_blocking(vec![call, refusal_reply(529), ScriptedReply::text("done")]);
    let place = fixture_with_fallbacks(&server).set("CAPSTAN_REASONING", "low");
    assert_eq!(place.capstan(&["run", "go"]).succeeded().stdout, "done\n");
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn a8_an_unknown_provider_is_named_with_those_there_are() {
    let said =
        CliFixture::new().set("CAPSTAN_MODEL", "antropic:x").capstan(&["run", "hello"]).refused("model-unknown", 1);
    assert!(said.stderr.contains("\"antropic\"") && said.stderr.contains("anthropic, "), "{}", said.stderr);
}

#[test]
fn a8_a_provider_that_is_not_there_has_its_fallback_too() {
    let place = CliFixture::new().set("CAPSTAN_MODEL", "nobody:x").set("CAPSTAN_FALLBACK_MODELS", "demo:echo");
    let said = place.capstan(&["run", "hello"]).succeeded();
    assert!(said.stdout.contains("hello") && said.stderr.contains("trying demo:echo"), "{said:?}");
}

#[test]
fn a8_a_fallback_that_nobody_provides_hides_no_cause_and_doctor_tells_of_it() {
    let server = ScriptedModel::start_blocking(vec![refusal_reply(429)]);
    let place = fixture_with_fallbacks(&server).set("CAPSTAN_FALLBACK_MODELS", "nosuch:x, neither:y");
    let said = place.capstan(&["run", "hello"]).refused("model-rate-limited", 1);
    assert!(said.stderr.contains("trying neither:y"), "each was tried: {said:?}");
    let doctor = place.capstan(&["doctor"]).stdout;
    assert!(doctor.contains("unknown model provider \"nosuch\" of nosuch:x in fallback_models"), "{doctor}");
}

/// The built-in agent, in whose place it stands, with no more models than these.
#[derive(Clone)]
struct RestrictedAgent(Vec<&'static str>);

impl Runner for RestrictedAgent {
    fn descriptor(&self) -> Descriptor {
        let permissions = PermissionSet { models: ResourceAccess::only(self.0.clone()), ..PermissionSet::all() };
        Descriptor { permissions, ..Agent::new(LoopOptions::default()).descriptor() }
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        Agent::new(LoopOptions::default()).run(context, api)
    }
}

impl Plugin for RestrictedAgent {
    fn name(&self) -> &'static str {
        "restricted"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let runner: Arc<dyn Runner> = Arc::new(self.clone());
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
        Ok(())
    }
}

#[tokio::test]
async fn g05_a_fallback_outside_of_the_grant_is_never_called() {
    let granted = ["openai:first", "openai:third"];
    for (fallbacks, called) in [("openai:second, openai:third", &granted[..]), ("openai:second", &granted[..1])] {
        let server = ScriptedModel::start_with(|request, _| match request["model"].as_str() {
            Some("first") => refusal_reply(503),
            _ => ScriptedReply::text("I can"),
        })
        .await;
        let workspace = tempfile::tempdir().unwrap();
        let builder = Capstan::builder().workspace(workspace.path()).home(workspace.path());
        let builder = builder.store(Arc::new(MemoryStore::new())).set("model_retries", "0");
        let builder = builder.set("model", "openai:first").set("api_base", &server.base_url());
        let host =
            builder.set("fallback_models", fallbacks).plugin(RestrictedAgent(granted.to_vec())).start().await.unwrap();
        let error = host.serve(Event::message("cli", "local", "hi")).await.unwrap().error;
        let asked: Vec<String> =
            server.requests().iter().map(|request| format!("openai:{}", request["model"].as_str().unwrap())).collect();
        assert_eq!(asked, called);
        assert_eq!(error.is_none(), called.len() == 2, "{error:?}");
    }
}

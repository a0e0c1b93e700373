//! Fallback models and grants.

use capstan_agent::{Agent, LoopOptions};
use capstan_hooks::contracts::{ResultStream, RunApi, Runner};
use capstan_host::testing::{TestHost, scripted_provider_options};
use capstan_models::{ProviderOptions, WireProtocol};
use capstan_protocol::{Clock, Descriptor, ErrorCode, PermissionSet, ResourceAccess, RunContext, Timestamp};
use capstan_testing::{ScriptedModel, ScriptedReply};

/// Built-in agent restricted to the listed models.
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

#[tokio::test]
async fn g05_fallback_outside_the_grant_is_never_called() {
    let granted = ["openai:first", "openai:third"];
    for (fallbacks, expected) in
        [(&["openai:second", "openai:third"][..], &granted[..]), (&["openai:second"], &granted[..1])]
    {
        let server = ScriptedModel::start_with(|request, _| match request["model"].as_str() {
            Some("first") => ScriptedReply::status(503, r#"{"error": {"message": "not you"}}"#),
            _ => ScriptedReply::text("I can"),
        })
        .await;
        let provider = ProviderOptions { retries: 0, ..scripted_provider_options(&server) };
        let builder = TestHost::builder().provider("openai", WireProtocol::OpenAi, provider).model("openai:first");
        let fallback_models = fallbacks.iter().map(|model| model.parse().unwrap()).collect();
        let builder = builder.options(|options| options.fallback_models = fallback_models);
        let host = builder.agent(RestrictedAgent(granted.to_vec())).start().await;
        let error = host.send_message("hi").await.error;
        let requested: Vec<String> =
            server.requests().iter().map(|request| format!("openai:{}", request["model"].as_str().unwrap())).collect();
        assert_eq!(requested, expected);
        assert_eq!(error.is_none(), expected.len() == 2, "{error:?}");
    }
}

/// Host whose first model and fallback have two keys each.
async fn host_with_keys(server: &ScriptedModel, clock: Clock) -> TestHost {
    let options = |prefix: &str| {
        let api_keys = (1..3).map(|number| format!("{prefix}-{number}-0123456789").into()).collect();
        ProviderOptions { api_keys, retries: 0, clock: clock.clone(), ..scripted_provider_options(server) }
    };
    let builder = TestHost::builder()
        .provider("openai", WireProtocol::OpenAi, options("first"))
        .provider("other", WireProtocol::OpenAi, options("second"))
        .model("openai:first");
    builder.options(|options| options.fallback_models = vec!["other:second".parse().unwrap()]).start().await
}

fn limited(seconds: u32) -> ScriptedReply {
    ScriptedReply::status(429, r#"{"error": {"message": "slow down"}}"#).with_header("retry-after", seconds.to_string())
}

#[tokio::test]
async fn a08_fallback_answers_while_the_keys_of_the_first_model_cool_down() {
    let replies = vec![limited(90), limited(30), ScriptedReply::text("one"), ScriptedReply::text("two")];
    let server = ScriptedModel::start(replies).await;
    let host = host_with_keys(&server, Clock::new(|| Timestamp::from_millis(0))).await;
    assert_eq!(host.send_message("hi").await.error, None);
    assert_eq!(host.send_message("again").await.error, None);
    let keys = ["first-1", "first-2", "second-1", "second-1"].map(|key| Some(format!("Bearer {key}-0123456789")));
    assert_eq!(server.authorization_headers(), keys, "cooling keys are not tried again");
}

#[tokio::test]
async fn a08_exhausted_chain_is_one_notice_with_the_earliest_retry() {
    let replies = vec![limited(90), limited(300), limited(600), limited(120), ScriptedReply::text("never")];
    let server = ScriptedModel::start(replies).await;
    let host = host_with_keys(&server, Clock::new(|| Timestamp::from_millis(0))).await;
    for _ in 0..2 {
        let error = host.send_message("hi").await.error.unwrap();
        assert_eq!(error.code(), ErrorCode::ModelExhausted);
        let notice = "no model can answer: the keys of openai:first, other:second are cooling down; a retry can \
            succeed from 1970-01-01 00:01:30 UTC on";
        assert_eq!(error.public_message(), notice, "without addresses");
    }
    assert_eq!(server.requests().len(), 4);
}

//! Fallback models and grants.

use capstan_agent::{Agent, LoopOptions};
use capstan_hooks::contracts::{ResultStream, RunApi, Runner};
use capstan_host::testing::{TestHost, scripted_provider_options};
use capstan_models::{ProviderOptions, WireProtocol};
use capstan_protocol::{Descriptor, PermissionSet, ResourceAccess, RunContext};
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

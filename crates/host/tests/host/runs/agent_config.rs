//! Configuration of the built-in agent in a binding.

use std::time::Duration;

use capstan_host::testing::{TestHost, scripted_provider_options};
use capstan_models::{ProviderOptions, WireProtocol};
use capstan_policy::default_binding;
use capstan_protocol::Binding;
use capstan_tape::{Batch, Fact, KeyValueRecord};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

fn binding(value: &Value) -> Binding {
    let mut binding = json!(default_binding());
    binding.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
    serde_json::from_value(binding).unwrap()
}

#[tokio::test]
async fn g02_the_agent_works_with_the_configuration_of_its_binding() {
    let server = ScriptedModel::start(vec![ScriptedReply::text("hi")]).await;
    let config = json!({
        "model": "openai:of-the-binding", "prompt": {"replace": "Be kind."}, "tools": ["tape.info"],
        "options": {"temperature": 0.25, "max_tokens": 77, "body": {"user": "ann"}},
    });
    let host =
        TestHost::builder().scripted_model(&server).binding(binding(&json!({"runner_config": config}))).start().await;
    assert!(host.send_message("hello").await.error.is_none());
    let request = server.requests().remove(0);
    assert_eq!(request["model"], "of-the-binding");
    assert_eq!(request["messages"][0]["content"], "Be kind.\n\nYour tools: tape_info.");
    let tools: Vec<&Value> =
        request["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(tools, ["tape_info"]);
    assert_eq!(
        (&request["temperature"], &request["max_tokens"], &request["user"]),
        (&json!(0.25), &json!(77), &json!("ann"))
    );
}

#[tokio::test]
async fn g02_a_tool_outside_of_the_configuration_is_not_called() {
    let host = TestHost::builder().binding(binding(&json!({"runner_config": {"tools": ["tape.info"]}}))).start().await;
    let served = host.send_message("[[tool:help]]").await;
    let text: String = served.outbounds.iter().map(|outbound| outbound.content.text()).collect();
    assert!(text.contains("the tool help is not allowed here"), "{text}");
}

#[tokio::test]
async fn g02_a_binding_has_fallback_models_of_its_own() {
    let model = ScriptedModel::start_with(|request, _| match request["model"].as_str() {
        Some("second") => ScriptedReply::text("I can"),
        _ => ScriptedReply::status(503, r#"{"error": {"message": "not now"}}"#),
    })
    .await;
    let config = json!({"model": "openai:first", "fallbacks": ["openai:busy", "openai:second"]});
    let provider = ProviderOptions { retries: 0, ..scripted_provider_options(&model) };
    let host = TestHost::builder()
        .provider("openai", WireProtocol::OpenAi, provider)
        .options(|options| options.fallback_models = vec!["openai:of-the-host".parse().unwrap()])
        .binding(binding(&json!({"runner_config": config})))
        .start()
        .await;
    assert_eq!(host.send_message("hello").await.output, "I can");
    let models: Vec<Value> = model.requests().iter().map(|request| request["model"].clone()).collect();
    assert_eq!(models, ["first", "busy", "second"]);
}

#[tokio::test]
async fn g02_a_model_call_ends_at_the_timeout_of_its_binding() {
    let barrier = ReplyBarrier::new();
    let model = ScriptedModel::start(vec![ScriptedReply::text("too late").with_barrier(&barrier)]).await;
    let config = json!({"options": {"timeout_seconds": 1}});
    let host =
        TestHost::builder().scripted_model(&model).binding(binding(&json!({"runner_config": config}))).start().await;
    let error = host.send_message("hello").await.error.unwrap();
    assert_eq!(error.code(), "model-unreachable");
    assert!(error.to_string().contains("did not answer within the 1 seconds of the call"), "{error}");
    assert!(barrier.is_reached());
    barrier.release();
}

#[tokio::test]
async fn g02_a_binding_under_which_every_run_would_fail_is_refused() {
    let host = TestHost::builder().start().await;
    for (value, problem) in [
        (json!({"resource_policy": {"models": {"only": ["openai:x"]}}}), "does not grant demo:"),
        (json!({"runner_config": {"model": "nowhere:x"}}), "whose provider is not there"),
        (json!({"runner_config": {"model": "x"}}), "its runner_config does not fit: model"),
        (json!({"runner_config": {"colour": "blue"}}), "'colour' was unexpected"),
        (json!({"runner_config": {"options": {"temperature": 3}}}), "options.temperature"),
        (json!({"runner_config": {"options": {"body": {"model": "y"}}}}), "options.body"),
        (json!({"runner_config": {"tools": ["bash"]}, "resource_policy": {"tools": []}}), "names the tool bash"),
        (json!({"runner_config": {"tools": ["help", "heelp"]}}), "names the tool heelp, which is not there"),
        (json!({"timeout_seconds": 0}), "timeout_seconds"),
    ] {
        let error = host.bindings().save(&binding(&value), &host.runners()).await.unwrap_err();
        assert!(error.to_string().contains(problem), "{value}: {error}");
    }
}

#[tokio::test]
async fn g02_the_step_limit_of_a_binding_includes_its_subagents() {
    let model = ScriptedModel::start_with(|request, _| {
        if request["messages"].to_string().contains("loop") {
            ScriptedReply::tool_calls([("inner", "help", json!({}))])
        } else {
            ScriptedReply::tool_calls([("call", "subagent", json!({"prompt": "loop"}))])
        }
    })
    .await;
    let binding = binding(&json!({"runner_config": {"max_steps": 3}}));
    let host = TestHost::builder().scripted_model(&model).binding(binding).start().await;
    assert_eq!(host.send_message("go").await.error.unwrap().code(), "max-steps");
    assert_eq!(model.requests().len(), 3, "model calls of the run and of its subagent");
    let view = host.view().await;
    assert!(view.last().unwrap().contains("the agent did not finish within 2 steps"), "{view:?}");
}

#[tokio::test]
async fn g02_a_chosen_model_that_the_binding_excludes_is_not_used() {
    let model = ScriptedModel::start(vec![ScriptedReply::text("hi"), ScriptedReply::text("hi again")]).await;
    let host = TestHost::builder().scripted_model(&model).start().await;
    host.send_message(",model openai:chosen").await;
    let narrow = json!({
        "resource_policy": {"models": {"only": ["openai:narrow"]}}, "runner_config": {"model": "openai:narrow"},
    });
    host.bindings().save(&binding(&narrow), &host.runners()).await.unwrap();
    assert_eq!(host.send_message("hello").await.output, "hi");
    host.bindings().save(&binding(&json!({})), &host.runners()).await.unwrap();
    assert_eq!(host.send_message("hello").await.output, "hi again");
    let models: Vec<Value> = model.requests().iter().map(|request| request["model"].clone()).collect();
    assert_eq!(models, ["narrow", "chosen"], "the choice is kept");
}

#[tokio::test]
async fn g02_a_stored_configuration_that_does_not_fit_any_more_fails_the_run() {
    let host = TestHost::builder().binding(binding(&json!({"runner_config": {"max_steps": 3}}))).start().await;
    let old = binding(&json!({"runner_config": {"mood": "kind"}}));
    let record = KeyValueRecord {
        space: "bindings".to_owned(),
        key: "default".to_owned(),
        value: json!(old),
        at: capstan_protocol::Clock::system().now(),
        by: None,
    };
    let mut batch = Batch::new();
    batch.push(Fact::PutKeyValue(record));
    host.tapes().commit(batch).await.unwrap();
    let error = host.send_message("hello").await.error.unwrap();
    assert_eq!(error.code(), "binding-invalid");
    assert!(error.to_string().contains("mood"), "{error}");
}

#[tokio::test]
async fn g04_the_built_in_agent_stops_at_once_when_it_is_cancelled() {
    let barrier = ReplyBarrier::new();
    let model = ScriptedModel::start(vec![ScriptedReply::text("half an answer").with_barrier(&barrier)]).await;
    // The test would not end within this grace period.
    let host = TestHost::builder()
        .scripted_model(&model)
        .options(|options| options.cancel_grace = Duration::from_hours(24))
        .start()
        .await;
    let (served, ()) = tokio::join!(host.send_message("hello"), async {
        barrier.reached().await;
        host.cancel_all_runs();
    });
    assert_eq!(served.error.unwrap().code(), "run-cancelled");
    barrier.release();
}

//! Built-in agent under restrictive bindings.

use std::sync::{Arc, Mutex};

use capstan_hooks::points::SystemPrompt;
use capstan_host::ServedEvent;
use capstan_host::testing::{TestHost, TestHostBuilder};
use capstan_policy::{BindingError, default_binding};
use capstan_protocol::{ApiErrorCode, Binding, Event, Outcome, PermissionSet};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

use super::api_runner::action_runner_plugin;

/// Default binding with this policy.
fn binding_with_policy(resource_policy: Value) -> Binding {
    Binding { resource_policy: serde_json::from_value(resource_policy).unwrap(), ..default_binding() }
}

async fn save_binding(conversation: &TestHost, binding: &Binding) -> Result<(), BindingError> {
    conversation.bindings().save(binding, &conversation.runners()).await
}

/// Conversation under this policy.
async fn conversation_with_policy(
    resource_policy: Value,
    configure: impl FnOnce(TestHostBuilder) -> TestHostBuilder,
) -> TestHost {
    configure(TestHost::builder().binding(binding_with_policy(resource_policy))).start().await
}

/// Output of a served event, or its error as `code: message`.
fn outcome_text(served: ServedEvent) -> String {
    match served.error {
        Some(error) => format!("{}: {}", error.code(), error.public_message()),
        None => served.output,
    }
}

#[tokio::test]
async fn g02_the_documented_example_binding_can_be_saved_and_serves_its_events() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bindings.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let greeter: Binding = toml::from_str(example).unwrap();
    let conversation = TestHost::builder().start().await;
    save_binding(&conversation, &greeter).await.unwrap();
    let joined = json!({
        "event_type": "group.member_joined", "source": "telegram", "conversation_id": "family",
        "actor": {"id": "42", "name": "Ann"}, "input": {"text": "[[tool:bash cmd=\"echo one\"]] hello"},
        "metadata": {"lang": "de"}, "delivery": {"output_channel": "cli"},
    });
    let served = conversation.serve(Event::from_envelope(joined).unwrap()).await.unwrap();
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{served:?}");
    let run = conversation.tapes().store().run(&served.run_id.unwrap()).await.unwrap().unwrap();
    assert_eq!(run.binding.as_str(), "greeter");
}

#[tokio::test]
async fn a01_the_agent_works_without_notes_under_read_only_tape_access() {
    let conversation = conversation_with_policy(json!({"tape": "read"}), |builder| builder).await;
    let served = conversation.send_message("[[tool:bash cmd=\"echo one\"]] go").await;
    assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{served:?}");
    assert_eq!(
        conversation.view().await[1..4],
        ["user: [[tool:bash cmd=\"echo one\"]] go", "calls call_1", "tool call_1: one"]
    );
    let events = conversation.event_names().await;
    assert!(!events.iter().any(|name| name.starts_with("loop.") || name == "api.refused"), "{events:?}");
    assert!(outcome_text(conversation.send_message(",tape.info").await).contains("last anchor"));
    assert_eq!(
        outcome_text(conversation.send_message(",fs.read 'open").await),
        "command-invalid: the quotes in \"'open\" do not match"
    );
}

#[tokio::test]
async fn a02_context_overflow_is_an_error_under_read_only_tape_access() {
    let model = ScriptedModel::start(vec![ScriptedReply::context_overflow(), ScriptedReply::text("never")]).await;
    let conversation =
        conversation_with_policy(json!({"tape": "read"}), |builder| builder.scripted_model(&model)).await;
    assert_eq!(conversation.send_message("go").await.error.unwrap().code(), "model-context-overflow");
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn g05_a_binding_withholds_the_prompts_of_the_host() {
    let seen = Arc::new(Mutex::new(None));
    let recorded = Arc::clone(&seen);
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            let codes = [api.prompt.system().await.err(), api.prompt.continuation(2).await.err()];
            *recorded.lock().unwrap() =
                Some((context.adapter.prompt, codes.map(|error| error.map(|error| error.code))));
        }
    });
    let conversation = conversation_with_policy(json!({"prompt": false}), |builder| builder.agent_plugin(plugin)).await;
    assert_eq!(conversation.send_message("hi").await.outcome, Some(Outcome::Silent));
    let refused = Some(ApiErrorCode::Unauthorized);
    assert_eq!(seen.lock().unwrap().take(), Some((None, [refused, refused])));
}

#[tokio::test]
async fn a01_the_agent_works_without_the_prompts_of_the_host() {
    let model = ScriptedModel::start(vec![ScriptedReply::text("done")]).await;
    let conversation = conversation_with_policy(json!({"prompt": false}), |builder| {
        builder.scripted_model(&model).register("secretive", |hooks| {
            hooks.on_sync(SystemPrompt, || Ok(Some("the secret of the workspace".to_owned())));
        })
    })
    .await;
    let served = conversation.send_message("hi").await;
    assert_eq!(served.outcome, Some(Outcome::Replied { text: "done".to_owned() }));
    assert!(!model.requests()[0].to_string().contains("the secret"), "{:?}", model.requests()[0]);
}

#[tokio::test]
async fn a04_a_call_of_a_tool_outside_the_grant_is_refused_to_the_model() {
    for policy in [json!([]), json!({"only": []}), json!(["detail"]), json!({"only": ["help"]})] {
        let conversation = conversation_with_policy(json!({"tools": policy}), |builder| builder).await;
        let served = conversation.send_message("[[tool:bash cmd=\"echo one\"]] go").await;
        assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{policy}: {served:?}");
        let view = conversation.view().await;
        assert_eq!(view[2..4], ["calls call_1", "tool call_1: the tool bash is not allowed here"], "{policy}");
    }
}

#[tokio::test]
async fn g02_a_binding_that_lacks_what_its_runner_requires_is_rejected() {
    let conversation = TestHost::builder().start().await;
    for (policy, missing) in [
        (json!({"tape": "none"}), "tape = \"read\""),
        (json!({"models": ["invoke"]}), "\"stream\" of models"),
        (json!({"models": {"only": []}}), "any of the models"),
    ] {
        let refused = save_binding(&conversation, &binding_with_policy(policy)).await.unwrap_err();
        let reason = format!("the runner builtin:agent cannot do without {missing}, which it does not grant");
        assert_eq!(refused.to_string(), format!("the binding default cannot be saved: {reason}"));
    }
}

#[tokio::test]
async fn a03_a_command_outside_the_grant_is_not_run_as_a_shell_command() {
    let conversation_with_tools = |policy: Value| conversation_with_policy(json!({"tools": policy}), |builder| builder);
    let bash = conversation_with_tools(json!({"only": ["bash"]})).await;
    for (line, expected) in [
        (",tape.reset", "command-denied: the command tape.reset is not allowed here"),
        (",help", "command-denied: the command help is not allowed here"),
        (",echo one", "one"),
    ] {
        assert_eq!(outcome_text(bash.send_message(line).await), expected);
    }
    let none = conversation_with_tools(json!([])).await;
    assert_eq!(
        outcome_text(none.send_message(",tape.info").await),
        "command-denied: the command tape.info is not allowed here"
    );
    assert_eq!(
        outcome_text(none.send_message(",ls").await),
        "command-unknown: there is no command ls; no command is allowed here"
    );
    let some = conversation_with_tools(json!({"only": ["fs.read", "tape.info"]})).await;
    let outcome = outcome_text(some.send_message(",ls").await);
    assert_eq!(outcome, "command-unknown: there is no command ls; available commands: fs.read, tape.info");
    let without_detail = conversation_with_tools(json!(["call"])).await;
    assert_eq!(
        outcome_text(without_detail.send_message(",tape.info").await),
        "command-denied: the command tape.info is not allowed here"
    );
}

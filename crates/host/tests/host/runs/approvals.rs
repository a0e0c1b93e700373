//! Approvals: the rules of a binding for single tools, and calls that are not approved.

use std::sync::{Arc, Mutex};

use capstan_hooks::args::{PendingToolCall, ToolOutcome};
use capstan_hooks::points::{AfterToolCall, BeforeToolCall, ToolCallVerdict};
use capstan_hooks::{HookRegistrar, Plugin};
use capstan_host::testing::{ClosurePlugin, TestHost};
use capstan_protocol::{ApprovalDecision, ApprovalRule, Binding, JsonObject, ResourcePolicy};
use serde_json::Value;

use super::api_runner::permissive_binding;

fn approval_rule(tool: &str, containing: Option<&str>, decision: ApprovalDecision) -> ApprovalRule {
    ApprovalRule { tool: tool.to_owned(), containing: containing.map(str::to_owned), decision }
}

/// Conversation under a binding with these rules.
async fn conversation_with_rules(rules: Vec<ApprovalRule>, plugin: impl Plugin) -> TestHost {
    let resource_policy = ResourcePolicy { approvals: rules, ..ResourcePolicy::default() };
    let binding = Binding { resource_policy, ..permissive_binding() };
    TestHost::builder().plugin(plugin).binding(binding).start().await
}

fn noop_plugin() -> impl Plugin {
    ClosurePlugin::new("nothing", |_: &mut HookRegistrar| {})
}

/// Data of the recorded refusals: method, code and detail.
async fn refused_calls(conversation: &TestHost) -> Vec<Value> {
    let entries = conversation.entries().await;
    let refusals = entries.iter().filter(|entry| entry.name() == Some("api.refused"));
    refusals.inspect(|entry| assert!(entry.is_hidden())).map(|entry| entry.payload["data"].clone()).collect()
}

/// Tool result that the model received for its call.
async fn tool_reply(conversation: &TestHost) -> String {
    let view = conversation.view().await;
    view.into_iter().rfind(|line| line.starts_with("tool call_1: ")).unwrap()
}

const WRITE_COMMAND: &str = "[[tool:bash cmd=\"echo done > done.txt\"]] go";

fn has_written(conversation: &TestHost) -> bool {
    conversation.workspace().join("done.txt").exists()
}

#[tokio::test]
async fn a11_a_denied_call_is_not_made_and_is_reported_to_model_and_tape() {
    let conversation =
        conversation_with_rules(vec![approval_rule("bash", None, ApprovalDecision::Deny)], noop_plugin()).await;
    let served = conversation.send_message(WRITE_COMMAND).await;
    assert_eq!(served.outcome.unwrap().name(), "replied", "the run continues");
    assert!(!has_written(&conversation));
    let reason = "the tool bash was not called: a rule of the binding denies this call";
    assert_eq!(tool_reply(&conversation).await, format!("tool call_1: {reason}"));
    let refused = refused_calls(&conversation).await;
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0]["method"], "tools.call");
    assert_eq!(refused[0]["code"], "unauthorized");
    assert_eq!(refused[0]["detail"], reason);
}

#[tokio::test]
async fn a11_a_call_that_needs_approval_is_refused_without_an_approver() {
    let conversation =
        conversation_with_rules(vec![approval_rule("*", Some("echo"), ApprovalDecision::Ask)], noop_plugin()).await;
    conversation.send_message(WRITE_COMMAND).await;
    assert!(!has_written(&conversation));
    let reason = "the tool bash was not called: a rule of the binding requires approval, and no one can be asked";
    assert_eq!(tool_reply(&conversation).await, format!("tool call_1: {reason}"));
    assert_eq!(refused_calls(&conversation).await[0]["detail"], reason);
}

#[tokio::test]
async fn a11_an_allow_rule_takes_precedence_over_later_rules() {
    let rules =
        vec![approval_rule("bash", None, ApprovalDecision::Allow), approval_rule("*", None, ApprovalDecision::Deny)];
    let conversation = conversation_with_rules(rules, noop_plugin()).await;
    conversation.send_message(WRITE_COMMAND).await;
    assert!(has_written(&conversation));
    assert!(refused_calls(&conversation).await.is_empty());
}

#[tokio::test]
async fn a11_commands_follow_the_same_rules() {
    let conversation =
        conversation_with_rules(vec![approval_rule("bash", None, ApprovalDecision::Deny)], noop_plugin()).await;
    let output = conversation.send_message(",bash cmd=\"echo done > done.txt\"").await.output;
    assert!(output.contains("a rule of the binding denies this call"), "{output}");
    let shell = conversation.send_message(",touch done.txt").await.output;
    assert!(shell.contains("a rule of the binding denies this call"), "{shell}");
    assert!(!has_written(&conversation));
    let refused = refused_calls(&conversation).await;
    assert!(refused.len() == 2 && refused.iter().all(|data| data["method"] == "tools.command"), "{refused:?}");
}

#[tokio::test]
async fn a11_a_subagent_follows_the_rules_of_its_parent_run() {
    let conversation =
        conversation_with_rules(vec![approval_rule("bash", None, ApprovalDecision::Deny)], noop_plugin()).await;
    conversation.send_message("[[tool:subagent prompt=\"[[tool:bash cmd='touch done.txt']]\"]] go").await;
    assert!(!has_written(&conversation));
}

#[tokio::test]
async fn a11_rules_apply_to_the_arguments_that_a_hook_substitutes() {
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&outcomes);
    let plugin = ClosurePlugin::new("changes", move |hooks: &mut HookRegistrar| {
        let recorded = Arc::clone(&recorded);
        hooks.on(BeforeToolCall, |_: PendingToolCall| async move {
            let command = ("cmd".to_owned(), Value::from("touch done.txt # secretly"));
            Ok(Some(ToolCallVerdict::Proceed(JsonObject::from_iter([command]))))
        });
        hooks.on(AfterToolCall, move |outcome: ToolOutcome| {
            recorded.lock().unwrap().push(outcome.0.text());
            async { Ok(None) }
        });
    });
    let conversation =
        conversation_with_rules(vec![approval_rule("bash", Some("secretly"), ApprovalDecision::Deny)], plugin).await;
    conversation.send_message("[[tool:bash cmd=\"echo harmless\"]] go").await;
    assert!(!has_written(&conversation));
    let reason = "the tool bash was not called: a rule of the binding denies this call";
    assert_eq!(*outcomes.lock().unwrap(), [reason], "hooks see the refusal once");
}

#[tokio::test]
async fn a11_an_invalid_rule_is_rejected_when_the_binding_is_saved() {
    let conversation = TestHost::builder().plugin(noop_plugin()).start().await;
    for invalid in [
        approval_rule("", None, ApprovalDecision::Deny),
        approval_rule("bash", Some(""), ApprovalDecision::Deny),
        approval_rule("bash", Some("git status"), ApprovalDecision::Allow),
    ] {
        let resource_policy = ResourcePolicy { approvals: vec![invalid.clone()], ..ResourcePolicy::default() };
        let binding = Binding { resource_policy, ..permissive_binding() };
        let refused = conversation.bindings().save(&binding, &conversation.runners()).await.unwrap_err();
        assert_eq!(refused.code(), "binding-invalid", "{invalid:?}");
    }
}

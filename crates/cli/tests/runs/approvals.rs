//! Approvals: what a binding says of single tools, and what becomes of a call that is not approved.

use std::sync::{Arc, Mutex};

use capstan::hooks::args::{PendingToolCall, ToolOutcome};
use capstan::hooks::points::{AfterToolCall, BeforeToolCall, ToolCallVerdict};
use capstan::hooks::{HookRegistrar, Plugin};
use capstan::protocol::{ApprovalDecision, ApprovalRule, Binding, JsonObject, ResourcePolicy};
use serde_json::Value;

use super::api_runner::permissive_binding;
use super::support::{ClosurePlugin, TestConversation};

fn approval_rule(tool: &str, containing: Option<&str>, decision: ApprovalDecision) -> ApprovalRule {
    ApprovalRule { tool: tool.to_owned(), containing: containing.map(str::to_owned), decision }
}

/// A conversation under a binding with these rules.
async fn conversation_with_rules(rules: Vec<ApprovalRule>, plugin: impl Plugin) -> TestConversation {
    let conversation = TestConversation::with_plugin(plugin).await;
    let resource_policy = ResourcePolicy { approvals: rules, ..ResourcePolicy::default() };
    let binding = Binding { resource_policy, ..permissive_binding() };
    conversation.host.bindings().save(&binding, &conversation.host.runners()).await.unwrap();
    conversation
}

fn noop_plugin() -> impl Plugin {
    ClosurePlugin("nothing", |_: &mut HookRegistrar| {})
}

/// What the tape tells of calls that were refused: method, code and detail.
async fn refused_calls(conversation: &TestConversation) -> Vec<Value> {
    let entries = conversation.entries().await;
    let told = entries.iter().filter(|entry| entry.name() == Some("api.refused"));
    told.inspect(|entry| assert!(entry.is_hidden())).map(|entry| entry.payload["data"].clone()).collect()
}

/// What the model was told of its call.
async fn tool_reply(conversation: &TestConversation) -> String {
    let view = conversation.view().await;
    view.into_iter().rfind(|line| line.starts_with("tool call_1: ")).unwrap()
}

const WRITE_COMMAND: &str = "[[tool:bash cmd=\"echo done > done.txt\"]] go";

fn has_written(conversation: &TestConversation) -> bool {
    conversation.workspace().join("done.txt").exists()
}

#[tokio::test]
async fn a11_a_call_that_is_denied_is_not_made_and_the_model_and_the_tape_are_told() {
    let conversation =
        conversation_with_rules(vec![approval_rule("bash", None, ApprovalDecision::Deny)], noop_plugin()).await;
    let served = conversation.send_message(WRITE_COMMAND).await;
    assert_eq!(served.outcome.unwrap().name(), "replied", "the run goes on");
    assert!(!has_written(&conversation));
    let reason = "the tool bash was not called: such a call is not allowed here";
    assert_eq!(tool_reply(&conversation).await, format!("tool call_1: {reason}"));
    let refused = refused_calls(&conversation).await;
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0]["method"], "tools.call");
    assert_eq!(refused[0]["code"], "unauthorized");
    assert_eq!(refused[0]["detail"], reason);
}

#[tokio::test]
async fn a11_where_nobody_can_be_asked_a_call_that_needs_it_is_not_made() {
    let conversation =
        conversation_with_rules(vec![approval_rule("*", Some("echo"), ApprovalDecision::Ask)], noop_plugin()).await;
    conversation.send_message(WRITE_COMMAND).await;
    assert!(!has_written(&conversation));
    let reason = "the tool bash was not called: such a call needs somebody's approval here, and nobody can be asked";
    assert_eq!(tool_reply(&conversation).await, format!("tool call_1: {reason}"));
    assert_eq!(refused_calls(&conversation).await[0]["detail"], reason);
}

#[tokio::test]
async fn a11_a_call_that_is_allowed_is_made_whatever_later_rules_say() {
    let rules =
        vec![approval_rule("bash", None, ApprovalDecision::Allow), approval_rule("*", None, ApprovalDecision::Deny)];
    let conversation = conversation_with_rules(rules, noop_plugin()).await;
    conversation.send_message(WRITE_COMMAND).await;
    assert!(has_written(&conversation));
    assert!(refused_calls(&conversation).await.is_empty());
}

#[tokio::test]
async fn a11_commands_are_held_to_the_same_rules() {
    let conversation =
        conversation_with_rules(vec![approval_rule("bash", None, ApprovalDecision::Deny)], noop_plugin()).await;
    let said = conversation.send_message(",bash cmd=\"echo done > done.txt\"").await.output;
    assert!(said.contains("such a call is not allowed here"), "{said}");
    let shell = conversation.send_message(",touch done.txt").await.output;
    assert!(shell.contains("such a call is not allowed here"), "{shell}");
    assert!(!has_written(&conversation));
    let refused = refused_calls(&conversation).await;
    assert!(refused.len() == 2 && refused.iter().all(|data| data["method"] == "tools.command"), "{refused:?}");
}

#[tokio::test]
async fn a11_a_subagent_is_held_to_the_rules_of_its_run() {
    let conversation =
        conversation_with_rules(vec![approval_rule("bash", None, ApprovalDecision::Deny)], noop_plugin()).await;
    conversation.send_message("[[tool:subagent prompt=\"[[tool:bash cmd='touch done.txt']]\"]] go").await;
    assert!(!has_written(&conversation));
}

#[tokio::test]
async fn a11_what_a_hook_makes_of_a_call_is_what_needs_an_approval() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&ends);
    let plugin = ClosurePlugin("changes", move |hooks: &mut HookRegistrar| {
        let seen = Arc::clone(&seen);
        hooks.on(BeforeToolCall, |_: PendingToolCall| async move {
            let command = ("cmd".to_owned(), Value::from("touch done.txt # secretly"));
            Ok(Some(ToolCallVerdict::Proceed(JsonObject::from_iter([command]))))
        });
        hooks.on(AfterToolCall, move |outcome: ToolOutcome| {
            seen.lock().unwrap().push(outcome.0.text());
            async { Ok(None) }
        });
    });
    let conversation =
        conversation_with_rules(vec![approval_rule("bash", Some("secretly"), ApprovalDecision::Deny)], plugin).await;
    conversation.send_message("[[tool:bash cmd=\"echo harmless\"]] go").await;
    assert!(!has_written(&conversation));
    let reason = "the tool bash was not called: such a call is not allowed here";
    assert_eq!(*ends.lock().unwrap(), [reason], "the hooks see how it ended, once");
}

#[tokio::test]
async fn a11_a_rule_that_cannot_be_meant_is_refused_when_it_is_saved() {
    let conversation = TestConversation::with_plugin(noop_plugin()).await;
    for wrong in [
        approval_rule("", None, ApprovalDecision::Deny),
        approval_rule("bash", Some(""), ApprovalDecision::Deny),
        approval_rule("bash", Some("git status"), ApprovalDecision::Allow),
    ] {
        let resource_policy = ResourcePolicy { approvals: vec![wrong.clone()], ..ResourcePolicy::default() };
        let binding = Binding { resource_policy, ..permissive_binding() };
        let refused = conversation.host.bindings().save(&binding, &conversation.host.runners()).await.unwrap_err();
        assert_eq!(refused.code(), "binding-invalid", "{wrong:?}");
    }
}

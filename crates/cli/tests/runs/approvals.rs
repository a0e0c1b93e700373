//! Approvals: what a binding says of single tools, and what becomes of a call that is not approved.

use std::sync::{Arc, Mutex};

use capstan::hooks::args::{PendingTool, ToolOutcome};
use capstan::hooks::points::{AfterToolCall, BeforeTool, BeforeToolCall};
use capstan::hooks::{Plugin, Registrar};
use capstan::protocol::{ApprovalDecision, ApprovalRule, Binding, Map, ResourcePolicy};
use serde_json::Value;

use super::driven::generous;
use super::support::{Conversation, Registers};

fn rule(tool: &str, containing: Option<&str>, decision: ApprovalDecision) -> ApprovalRule {
    ApprovalRule { tool: tool.to_owned(), containing: containing.map(str::to_owned), decision }
}

/// A conversation under a binding with these rules.
async fn under(rules: Vec<ApprovalRule>, plugin: impl Plugin) -> Conversation {
    let conversation = Conversation::with(plugin).await;
    let resource_policy = ResourcePolicy { approvals: rules, ..ResourcePolicy::default() };
    let binding = Binding { resource_policy, ..generous() };
    conversation.host.bindings().save(&binding, &conversation.host.runners()).await.unwrap();
    conversation
}

fn nothing() -> impl Plugin {
    Registers("nothing", |_: &mut Registrar| {})
}

/// What the tape tells of calls that were refused: method, code and detail.
async fn refusals(conversation: &Conversation) -> Vec<Value> {
    let entries = conversation.entries().await;
    let told = entries.iter().filter(|entry| entry.name() == Some("api.refused"));
    told.inspect(|entry| assert!(entry.is_hidden())).map(|entry| entry.payload["data"].clone()).collect()
}

/// What the model was told of its call.
async fn told(conversation: &Conversation) -> String {
    let view = conversation.view().await;
    view.into_iter().rfind(|line| line.starts_with("tool call_1: ")).unwrap()
}

const WRITES: &str = "[[tool:bash cmd=\"echo done > done.txt\"]] go";

fn is_done(conversation: &Conversation) -> bool {
    conversation.workspace().join("done.txt").exists()
}

#[tokio::test]
async fn a11_a_call_that_is_denied_is_not_made_and_the_model_and_the_tape_are_told() {
    let conversation = under(vec![rule("bash", None, ApprovalDecision::Deny)], nothing()).await;
    let served = conversation.say(WRITES).await;
    assert_eq!(served.outcome.unwrap().name(), "replied", "the run goes on");
    assert!(!is_done(&conversation));
    let reason = "the tool bash was not called: such a call is not allowed here";
    assert_eq!(told(&conversation).await, format!("tool call_1: {reason}"));
    let refused = refusals(&conversation).await;
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0]["method"], "tools.call");
    assert_eq!(refused[0]["code"], "unauthorized");
    assert_eq!(refused[0]["detail"], reason);
}

#[tokio::test]
async fn a11_where_nobody_can_be_asked_a_call_that_needs_it_is_not_made() {
    let conversation = under(vec![rule("*", Some("echo"), ApprovalDecision::Ask)], nothing()).await;
    conversation.say(WRITES).await;
    assert!(!is_done(&conversation));
    let reason = "the tool bash was not called: such a call needs somebody's approval here, and nobody can be asked";
    assert_eq!(told(&conversation).await, format!("tool call_1: {reason}"));
    assert_eq!(refusals(&conversation).await[0]["detail"], reason);
}

#[tokio::test]
async fn a11_a_call_that_is_allowed_is_made_whatever_later_rules_say() {
    let rules = vec![rule("bash", None, ApprovalDecision::Allow), rule("*", None, ApprovalDecision::Deny)];
    let conversation = under(rules, nothing()).await;
    conversation.say(WRITES).await;
    assert!(is_done(&conversation));
    assert!(refusals(&conversation).await.is_empty());
}

#[tokio::test]
async fn a11_commands_are_held_to_the_same_rules() {
    let conversation = under(vec![rule("bash", None, ApprovalDecision::Deny)], nothing()).await;
    let said = conversation.say(",bash cmd=\"echo done > done.txt\"").await.output;
    assert!(said.contains("such a call is not allowed here"), "{said}");
    let shell = conversation.say(",touch done.txt").await.output;
    assert!(shell.contains("such a call is not allowed here"), "{shell}");
    assert!(!is_done(&conversation));
    let refused = refusals(&conversation).await;
    assert!(refused.len() == 2 && refused.iter().all(|data| data["method"] == "tools.command"), "{refused:?}");
}

#[tokio::test]
async fn a11_a_subagent_is_held_to_the_rules_of_its_run() {
    let conversation = under(vec![rule("bash", None, ApprovalDecision::Deny)], nothing()).await;
    conversation.say("[[tool:subagent prompt=\"[[tool:bash cmd='touch done.txt']]\"]] go").await;
    assert!(!is_done(&conversation));
}

#[tokio::test]
async fn a11_what_a_hook_makes_of_a_call_is_what_needs_an_approval() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&ends);
    let plugin = Registers("changes", move |hooks: &mut Registrar| {
        let seen = Arc::clone(&seen);
        hooks.on(BeforeToolCall, |_: PendingTool| async move {
            let command = ("cmd".to_owned(), Value::from("touch done.txt # secretly"));
            Ok(Some(BeforeTool::Proceed(Map::from_iter([command]))))
        });
        hooks.on(AfterToolCall, move |outcome: ToolOutcome| {
            seen.lock().unwrap().push(outcome.0.text());
            async { Ok(None) }
        });
    });
    let conversation = under(vec![rule("bash", Some("secretly"), ApprovalDecision::Deny)], plugin).await;
    conversation.say("[[tool:bash cmd=\"echo harmless\"]] go").await;
    assert!(!is_done(&conversation));
    let reason = "the tool bash was not called: such a call is not allowed here";
    assert_eq!(*ends.lock().unwrap(), [reason], "the hooks see how it ended, once");
}

#[tokio::test]
async fn a11_a_rule_that_cannot_be_meant_is_refused_when_it_is_saved() {
    let conversation = Conversation::with(nothing()).await;
    for wrong in [
        rule("", None, ApprovalDecision::Deny),
        rule("bash", Some(""), ApprovalDecision::Deny),
        rule("bash", Some("git status"), ApprovalDecision::Allow),
    ] {
        let resource_policy = ResourcePolicy { approvals: vec![wrong.clone()], ..ResourcePolicy::default() };
        let binding = Binding { resource_policy, ..generous() };
        let refused = conversation.host.bindings().save(&binding, &conversation.host.runners()).await.unwrap_err();
        assert_eq!(refused.code(), "binding-invalid", "{wrong:?}");
    }
}

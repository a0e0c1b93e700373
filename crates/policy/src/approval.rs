//! Approval rules of a binding: allow, deny or require consent for a tool call.

use capstan_protocol::{ApprovalDecision, ApprovalRule, JsonObject};
use serde_json::Value;

/// Returns the reason why a call is refused, as a message to the model; `None` if it is allowed. The first matching rule
/// decides; a call that matches no rule is allowed. `ask` refuses, too, since there is no way yet to ask a person.
pub fn refusal_reason(rules: &[ApprovalRule], tool: &str, arguments: &JsonObject) -> Option<String> {
    match rules.iter().find(|rule| matches_call(rule, tool, arguments))?.decision {
        ApprovalDecision::Allow => None,
        ApprovalDecision::Ask => Some(format!(
            "the tool {tool} was not called: a rule of the binding requires approval, and no one can be asked"
        )),
        ApprovalDecision::Deny => {
            Some(format!("the tool {tool} was not called: a rule of the binding denies this call"))
        }
    }
}

fn matches_call(rule: &ApprovalRule, tool: &str, arguments: &JsonObject) -> bool {
    if is_unsafe_allow(rule) {
        return false;
    }
    let matches_tool = match rule.tool.strip_suffix('*') {
        Some(prefix) => tool.starts_with(prefix),
        None => tool == rule.tool,
    };
    matches_tool && rule.containing.as_deref().is_none_or(|text| contains_text(text, arguments))
}

/// Returns true for an `allow` rule with `containing`: a model could add the text to any call. Such a rule is rejected when
/// the binding is saved. One that an earlier version saved never matches.
fn is_unsafe_allow(rule: &ApprovalRule) -> bool {
    rule.decision == ApprovalDecision::Allow && rule.containing.is_some()
}

/// Returns true if a text occurs in the arguments: in a key, in a decoded value, or anywhere in their JSON.
fn contains_text(text: &str, arguments: &JsonObject) -> bool {
    let field_contains_text = |(key, value): (&String, &Value)| key.contains(text) || value_contains_text(text, value);
    arguments.iter().any(field_contains_text) || Value::Object(arguments.clone()).to_string().contains(text)
}

fn value_contains_text(text: &str, value: &Value) -> bool {
    match value {
        Value::String(value) => value.contains(text),
        Value::Array(values) => values.iter().any(|value| value_contains_text(text, value)),
        Value::Object(map) => map.iter().any(|(key, value)| key.contains(text) || value_contains_text(text, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string().contains(text),
    }
}

/// Validates a rule when its binding is saved. Returns the reason to reject the rule; `None` if it is valid.
pub fn rule_error(rule: &ApprovalRule) -> Option<String> {
    if rule.tool.is_empty() || rule.tool.trim_end_matches('*').contains('*') || rule.tool.ends_with("**") {
        let tool = &rule.tool;
        return Some(format!("approval rule: {tool:?} is neither the name of a tool nor a prefix such as fs.*"));
    }
    if is_unsafe_allow(rule) {
        let tool = &rule.tool;
        return Some(format!(
            "approval rule for {tool}: `allow` cannot be combined with `containing`, because a call could contain the \
             text and anything else; use `deny` or `ask`, or remove `containing`"
        ));
    }
    let is_empty = rule.containing.as_deref().is_some_and(str::is_empty);
    is_empty.then(|| format!("approval rule for {}: `containing` is empty; omit it to match every call", rule.tool))
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ApprovalDecision, ApprovalRule};
    use serde_json::{Value, json};

    use super::{refusal_reason, rule_error};

    fn rule(tool: &str, containing: Option<&str>, decision: ApprovalDecision) -> ApprovalRule {
        ApprovalRule { tool: tool.to_owned(), containing: containing.map(str::to_owned), decision }
    }

    fn is_allowed(rules: &[ApprovalRule], tool: &str, arguments: &Value) -> bool {
        refusal_reason(rules, tool, arguments.as_object().unwrap()).is_none()
    }

    #[test]
    fn a11_first_matching_rule_decides_and_an_unmatched_call_is_allowed() {
        use ApprovalDecision::{Allow, Ask, Deny};
        let rules = [
            rule("bash", Some("git push"), Deny),
            rule("bash", Some("git status"), Allow),
            rule("bash", Some("git"), Ask),
            rule("bash", None, Allow),
            rule("fs.*", Some("/etc"), Deny),
            rule("fs.read", None, Allow),
            rule("fs.*", None, Deny),
        ];
        let none = json!({});
        assert!(!is_allowed(&rules, "bash", &json!({"cmd": "git push"})));
        assert!(!is_allowed(&rules, "bash", &json!({"cmd": "git log"})));
        assert!(
            !is_allowed(&rules, "bash", &json!({"cmd": "git rm . # git status"})),
            "`allow` with `containing` never matches"
        );
        assert!(is_allowed(&rules, "bash", &json!({"cmd": "ls"})));
        assert!(!is_allowed(&rules, "fs.read", &json!({"path": "/etc/passwd"})));
        assert!(is_allowed(&rules, "fs.read", &json!({"path": "a.md"})));
        assert!(!is_allowed(&rules, "fs.write", &none));
        assert!(is_allowed(&rules, "bash.output", &none), "a name without `*` is not a prefix");
        assert!(is_allowed(&[], "bash", &none));
        assert!(!is_allowed(&[rule("*", None, Deny)], "anything", &none));
    }

    #[test]
    fn a11_a_text_is_found_in_every_form_of_the_arguments() {
        let rules = |text| [rule("*", Some(text), ApprovalDecision::Deny)];
        for (text, arguments) in [
            ("say \"hi\"", json!({"cmd": "say \"hi\""})),
            ("a\nb", json!({"cmd": "a\nb"})),
            ("rm -rf", json!({"steps": [{"cmd": "rm -rf /"}]})),
            ("force", json!({"options": {"force": 1}})),
            ("\"background\":true", json!({"background": true})),
            ("42", json!({"n": 42})),
        ] {
            assert!(!is_allowed(&rules(text), "x", &arguments), "{text} in {arguments}");
        }
        assert!(is_allowed(&rules("rm -rf"), "x", &json!({"cmd": "rm"})));
    }

    #[test]
    fn a11_invalid_rules_are_reported() {
        let deny = ApprovalDecision::Deny;
        for good in ["bash", "fs.*", "*"] {
            assert_eq!(rule_error(&rule(good, Some("x"), deny)), None, "{good}");
        }
        for bad in ["", "fs.*.read", "*.read", "**"] {
            assert!(rule_error(&rule(bad, None, deny)).is_some(), "{bad}");
        }
        assert!(rule_error(&rule("bash", Some(""), deny)).is_some());
        assert!(rule_error(&rule("bash", Some("git status"), ApprovalDecision::Allow)).is_some());
        assert_eq!(rule_error(&rule("bash", None, ApprovalDecision::Allow)), None);
    }
}

//! A grant in a few lines: what a run may use wholly, what in part, and what not at all.

use capstan_protocol::{Access, ApprovalRule, Grant, Operation, Operations, Reach, StateLimits, TapeAccess, Uses};
use serde::Serialize;
use serde_json::json;

/// How much of a kind of thing may be used.
enum Extent {
    All,
    Part(String),
    None,
}

/// The lines of a grant. Its kinds have the names that they have in a binding.
pub(super) fn lines(grant: &Grant) -> Vec<String> {
    let (mut all, mut parts, mut none) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, extent) in kinds(grant) {
        match extent {
            Extent::All => all.push(kind),
            Extent::Part(what) => parts.push(line(kind, &what)),
            Extent::None => none.push(kind),
        }
    }
    let listed = |label: &str, kinds: &[&str]| (!kinds.is_empty()).then(|| line(label, &kinds.join(", ")));
    let limits = (!grant.may.state.is_empty() && grant.state_limits != StateLimits::default()).then(|| {
        let StateLimits { keys, value_bytes, total_bytes } = grant.state_limits;
        line("state_limits", &format!("{keys} keys, {value_bytes} bytes each, {total_bytes} bytes together"))
    });
    let approvals = grant.approvals.iter().map(|rule| line("approvals", &approval(rule)));
    let lines = listed("all of", &all).into_iter().chain(parts).chain(limits).chain(approvals);
    lines.chain(listed("none of", &none)).collect()
}

fn line(label: &str, what: &str) -> String {
    format!("{label:15} {what}")
}

fn kinds(grant: &Grant) -> [(&'static str, Extent); 14] {
    let may = &grant.may;
    [
        ("models", uses(&may.models)),
        ("tools", uses(&may.tools)),
        ("knowledge_bases", uses(&may.knowledge_bases)),
        ("history", within(may.reach, operations(may.history))),
        ("events", within(may.reach, operations(may.events))),
        ("artifacts", operations(may.artifacts)),
        ("state", operations(may.state)),
        ("storage", operations(may.storage)),
        ("platform_api", access(&may.platform_api)),
        ("tape", tape(may.tape)),
        ("prompt", either(may.prompt)),
        ("children", either(may.children)),
        ("steering", either(may.steering)),
        ("shell_commands", either(grant.shell_commands)),
    ]
}

fn uses<O: Operation + Serialize>(uses: &Uses<O>) -> Extent {
    match (access(&uses.names), operations(uses.operations)) {
        (Extent::None, _) | (_, Extent::None) => Extent::None,
        (names, Extent::All) => names,
        (Extent::All, Extent::Part(operations)) => Extent::Part(format!("all ({operations})")),
        (Extent::Part(names), Extent::Part(operations)) => Extent::Part(format!("{names} ({operations})")),
    }
}

fn access(access: &Access) -> Extent {
    match access {
        Access::All => Extent::All,
        Access::Only(names) if names.is_empty() => Extent::None,
        Access::Only(names) => Extent::Part(names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")),
    }
}

fn operations<O: Operation + Serialize>(operations: Operations<O>) -> Extent {
    match operations.len() {
        0 => Extent::None,
        some if some == O::ALL.len() => Extent::All,
        _ => Extent::Part(operations.iter().map(|operation| word(&operation)).collect::<Vec<_>>().join(", ")),
    }
}

fn within(reach: Reach, extent: Extent) -> Extent {
    match (reach, extent) {
        (Reach::Workspace, extent) | (_, extent @ Extent::None) => extent,
        (Reach::Conversation, Extent::All) => Extent::Part("of this conversation".to_owned()),
        (Reach::Conversation, Extent::Part(operations)) => Extent::Part(format!("of this conversation ({operations})")),
    }
}

fn tape(access: TapeAccess) -> Extent {
    match access {
        TapeAccess::Write => Extent::All,
        TapeAccess::Read => Extent::Part("read".to_owned()),
        TapeAccess::None => Extent::None,
    }
}

fn either(allowed: bool) -> Extent {
    if allowed { Extent::All } else { Extent::None }
}

fn approval(rule: &ApprovalRule) -> String {
    let containing = rule.containing.as_ref().map_or_else(String::new, |text| format!(" containing {text:?}"));
    format!("{} {}{containing}", word(&rule.decision), rule.tool)
}

/// A value as it is written.
fn word(value: &impl Serialize) -> String {
    json!(value).as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ApprovalDecision, ApprovalRule, Authority, Grant, StateLimits, TapeAccess, ToolUse, Uses};

    use super::lines;

    fn grant(may: Authority) -> Grant {
        Grant { may, shell_commands: false, approvals: Vec::new(), state_limits: StateLimits::default() }
    }

    #[test]
    fn g10_what_is_wholly_allowed_and_what_is_not_is_one_line_each() {
        let everything = lines(&grant(Authority::all()));
        assert_eq!(everything.len(), 2, "{everything:?}");
        assert!(everything[0].starts_with("all of          models, tools, knowledge_bases, history, "));
        assert_eq!(everything[1], "none of         shell_commands");
        let nothing = lines(&grant(Authority::none()));
        assert_eq!(nothing.len(), 1, "{nothing:?}");
        assert!(nothing[0].starts_with("none of         models, tools, "));
    }

    #[test]
    fn g10_what_is_allowed_in_part_says_which_part() {
        let tools = Uses { operations: [ToolUse::Call].into(), ..Uses::only(["bash", "help"]) };
        let reach = capstan_protocol::Reach::Conversation;
        let may = Authority { tools, reach, tape: TapeAccess::Read, ..Authority::all() };
        let rule = ApprovalRule {
            tool: "bash".to_owned(),
            containing: Some("rm ".to_owned()),
            decision: ApprovalDecision::Deny,
        };
        let limits = StateLimits { keys: 2, value_bytes: 10, total_bytes: 15 };
        let shown = lines(&Grant { approvals: vec![rule], state_limits: limits, ..grant(may) });
        assert_eq!(
            shown[1..],
            [
                "tools           bash, help (call)",
                "history         of this conversation",
                "events          of this conversation",
                "tape            read",
                "state_limits    2 keys, 10 bytes each, 15 bytes together",
                "approvals       deny bash containing \"rm \"",
                "none of         shell_commands",
            ]
        );
    }
}

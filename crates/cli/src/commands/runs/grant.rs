//! Human-readable summary of a grant: resources granted in full, in part, and not at all.

use capstan_protocol::{
    AllowList, ApprovalRule, CommandAccess, Grant, OperationSet, ReadScope, ResourceAccess, ResourceOperation,
    StateLimits, TapeAccess,
};
use serde::Serialize;
use serde_json::json;

/// Extent to which one kind of resource is granted.
enum GrantExtent {
    All,
    Partial(String),
    None,
}

/// Formats a grant in lines. Kinds of resources have the names they have in a binding.
pub(super) fn format_grant(grant: &Grant) -> Vec<String> {
    let (mut all, mut parts, mut none) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, extent) in grant_extents(grant) {
        match extent {
            GrantExtent::All => all.push(kind),
            GrantExtent::Partial(part) => parts.push(format_row(kind, &part)),
            GrantExtent::None => none.push(kind),
        }
    }
    let listed = |label: &str, kinds: &[&str]| (!kinds.is_empty()).then(|| format_row(label, &kinds.join(", ")));
    let limits = (!grant.may.state.is_empty() && grant.state_limits != StateLimits::default()).then(|| {
        let StateLimits { keys, value_bytes, total_bytes } = grant.state_limits;
        format_row("state_limits", &format!("{keys} keys, {value_bytes} bytes each, {total_bytes} bytes in total"))
    });
    let approvals = grant.approvals.iter().map(|rule| format_row("approvals", &format_approval(rule)));
    let lines = listed("all of", &all).into_iter().chain(parts).chain(limits).chain(approvals);
    lines.chain(listed("none of", &none)).collect()
}

fn format_row(label: &str, value: &str) -> String {
    format!("{label:15} {value}")
}

fn grant_extents(grant: &Grant) -> [(&'static str, GrantExtent); 15] {
    let may = &grant.may;
    [
        ("models", uses_extent(&may.models)),
        ("tools", uses_extent(&may.tools)),
        ("knowledge_bases", uses_extent(&may.knowledge_bases)),
        ("history", limit_to_reach(may.reach, operations_extent(may.history))),
        ("events", limit_to_reach(may.reach, operations_extent(may.events))),
        ("artifacts", operations_extent(may.artifacts)),
        ("state", operations_extent(may.state)),
        ("storage", operations_extent(may.storage)),
        ("platform_api", access_extent(&may.platform_api)),
        ("tape", tape_extent(may.tape)),
        ("prompt", flag_extent(may.prompt)),
        ("children", flag_extent(may.children)),
        ("steering", flag_extent(may.steering)),
        ("commands", commands_extent(grant.commands)),
        ("shell_commands", flag_extent(grant.shell_commands)),
    ]
}

fn uses_extent<O: ResourceOperation + Serialize>(uses: &ResourceAccess<O>) -> GrantExtent {
    match (access_extent(&uses.names), operations_extent(uses.operations)) {
        (GrantExtent::None, _) | (_, GrantExtent::None) => GrantExtent::None,
        (names, GrantExtent::All) => names,
        (GrantExtent::All, GrantExtent::Partial(operations)) => GrantExtent::Partial(format!("all ({operations})")),
        (GrantExtent::Partial(names), GrantExtent::Partial(operations)) => {
            GrantExtent::Partial(format!("{names} ({operations})"))
        }
    }
}

fn access_extent(access: &AllowList) -> GrantExtent {
    match access {
        AllowList::All => GrantExtent::All,
        AllowList::Only(names) if names.is_empty() => GrantExtent::None,
        AllowList::Only(names) => GrantExtent::Partial(names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")),
    }
}

fn operations_extent<O: ResourceOperation + Serialize>(operations: OperationSet<O>) -> GrantExtent {
    match operations.len() {
        0 => GrantExtent::None,
        count if count == O::VARIANTS.len() => GrantExtent::All,
        _ => GrantExtent::Partial(
            operations.iter().map(|operation| serialized_name(&operation)).collect::<Vec<_>>().join(", "),
        ),
    }
}

fn limit_to_reach(reach: ReadScope, extent: GrantExtent) -> GrantExtent {
    match (reach, extent) {
        (ReadScope::Workspace, extent) | (_, extent @ GrantExtent::None) => extent,
        (ReadScope::Conversation, GrantExtent::All) => GrantExtent::Partial("of this conversation".to_owned()),
        (ReadScope::Conversation, GrantExtent::Partial(operations)) => {
            GrantExtent::Partial(format!("of this conversation ({operations})"))
        }
    }
}

fn tape_extent(access: TapeAccess) -> GrantExtent {
    match access {
        TapeAccess::Write => GrantExtent::All,
        TapeAccess::Read => GrantExtent::Partial("read".to_owned()),
        TapeAccess::None => GrantExtent::None,
    }
}

fn commands_extent(commands: CommandAccess) -> GrantExtent {
    match commands {
        CommandAccess::All => GrantExtent::All,
        CommandAccess::ReadOnly => GrantExtent::Partial("of read-only tools".to_owned()),
    }
}

fn flag_extent(allowed: bool) -> GrantExtent {
    if allowed { GrantExtent::All } else { GrantExtent::None }
}

fn format_approval(rule: &ApprovalRule) -> String {
    let containing = rule.containing.as_ref().map_or_else(String::new, |text| format!(" containing {text:?}"));
    format!("{} {}{containing}", serialized_name(&rule.decision), rule.tool)
}

/// The name of an enum value on the wire.
fn serialized_name(value: &impl Serialize) -> String {
    json!(value).as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{
        ApprovalDecision, ApprovalRule, CommandAccess, Grant, PermissionSet, ResourceAccess, StateLimits, TapeAccess,
        ToolOperation,
    };

    use super::format_grant;

    fn grant_with_authority(may: PermissionSet) -> Grant {
        let (commands, approvals) = (CommandAccess::All, Vec::new());
        Grant { may, commands, shell_commands: false, approvals, state_limits: StateLimits::default() }
    }

    #[test]
    fn g10_full_and_missing_permissions_are_one_line_each() {
        let everything = format_grant(&grant_with_authority(PermissionSet::all()));
        assert_eq!(everything.len(), 2, "{everything:?}");
        assert!(everything[0].starts_with("all of          models, tools, knowledge_bases, history, "));
        assert_eq!(everything[1], "none of         shell_commands");
        let nothing = format_grant(&grant_with_authority(PermissionSet::none()));
        assert_eq!((nothing.len(), nothing[0].as_str()), (2, "all of          commands"), "{nothing:?}");
        assert!(nothing[1].starts_with("none of         models, tools, "));
    }

    #[test]
    fn g10_partial_permissions_name_the_granted_part() {
        let tools =
            ResourceAccess { operations: [ToolOperation::Call].into(), ..ResourceAccess::only(["bash", "help"]) };
        let reach = capstan_protocol::ReadScope::Conversation;
        let may = PermissionSet { tools, reach, tape: TapeAccess::Read, ..PermissionSet::all() };
        let rule = ApprovalRule {
            tool: "bash".to_owned(),
            containing: Some("rm ".to_owned()),
            decision: ApprovalDecision::Deny,
        };
        let limits = StateLimits { keys: 2, value_bytes: 10, total_bytes: 15 };
        let lines = format_grant(&Grant { approvals: vec![rule], state_limits: limits, ..grant_with_authority(may) });
        assert_eq!(
            lines[1..],
            [
                "tools           bash, help (call)",
                "history         of this conversation",
                "events          of this conversation",
                "tape            read",
                "state_limits    2 keys, 10 bytes each, 15 bytes in total",
                "approvals       deny bash containing \"rm \"",
                "none of         shell_commands",
            ]
        );
    }
}

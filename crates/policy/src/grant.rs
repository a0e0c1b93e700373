//! Computation of grants.

use capstan_protocol::{AllowList, Binding, Event, Grant, PermissionSet, ResourceAccess, StateScope};

/// Limits that the event itself puts on a grant, for any runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventScope {
    /// The event came from the operator's terminal.
    pub from_cli: bool,
    /// The event names its actor.
    pub has_actor: bool,
    /// The event names its subject.
    pub has_subject: bool,
}

impl EventScope {
    /// Upper bound of the permissions of a run for the event: state only of those the event names.
    fn max_authority(self) -> PermissionSet {
        let mut cap = PermissionSet::all();
        cap.state.retain(|scope| match scope {
            StateScope::Actor => self.has_actor,
            StateScope::Subject => self.has_subject,
            StateScope::Conversation | StateScope::Binding | StateScope::Runner | StateScope::Workspace => true,
        });
        cap
    }
}

impl From<&Event> for EventScope {
    fn from(event: &Event) -> Self {
        Self {
            from_cli: event.source.as_str() == "cli",
            has_actor: event.actor.is_some(),
            has_subject: event.subject.is_some(),
        }
    }
}

/// Computes the grant of a run: the intersection of what the runner asks for, the binding allows and the event allows.
///
/// Monotonic in all three: widening one of them never narrows the grant, narrowing one never widens it.
pub fn compute_grant(permissions: &PermissionSet, binding: &Binding, scope: EventScope) -> Grant {
    Grant {
        may: permissions.intersect(&binding.max_permissions()).intersect(&scope.max_authority()),
        shell_commands: binding.resource_policy.shell_commands.unwrap_or(scope.from_cli),
        approvals: binding.resource_policy.approvals.clone(),
        state_limits: binding.state_policy.limits,
    }
}

/// Computes the grant of a child run: the grant of its parent, restricted to `tools`, without shell commands, since
/// comma commands are for people.
pub fn restrict_grant(grant: &Grant, tools: &AllowList, may_have_children: bool) -> Grant {
    let tools = ResourceAccess { names: grant.may.tools.names.intersect(tools), ..grant.may.tools.clone() };
    let may = PermissionSet { tools, children: grant.may.children && may_have_children, ..grant.may.clone() };
    Grant { may, shell_commands: false, ..grant.clone() }
}

#[cfg(test)]
mod tests {
    use super::{EventScope, compute_grant};
    use crate::default_binding;
    use capstan_protocol::{
        AllowList, Binding, PermissionSet, ResourceAccess, ResourcePolicy, StatePolicy, StateScope, TapeAccess,
    };

    const REMOTE_SCOPE: EventScope = EventScope { from_cli: false, has_actor: true, has_subject: false };

    fn binding_with_policy(resource_policy: ResourcePolicy) -> Binding {
        Binding { resource_policy, ..default_binding() }
    }

    #[test]
    fn g05_a_grant_is_what_permissions_policy_and_scope_all_allow() {
        let binding = binding_with_policy(ResourcePolicy {
            tools: Some(ResourceAccess::only(["help", "bash"])),
            tape: Some(TapeAccess::Read),
            ..ResourcePolicy::default()
        });
        let permissions = PermissionSet { tools: ResourceAccess::only(["help", "fs.read"]), ..PermissionSet::all() };
        let grant = compute_grant(&permissions, &binding, REMOTE_SCOPE);
        assert_eq!(grant.may.tools, ResourceAccess::only(["help"]));
        assert_eq!(grant.may.tape, TapeAccess::Read);
        assert_eq!(grant.may.platform_api, AllowList::none(), "that needs the binding's word");
        assert!(grant.may.state.is_empty(), "so does state");
        assert!(!grant.shell_commands);
    }

    #[test]
    fn g06_state_is_kept_for_those_the_event_tells_of() {
        let state_policy = StatePolicy { enabled: true, ..StatePolicy::default() };
        let grant = compute_grant(&PermissionSet::all(), &Binding { state_policy, ..default_binding() }, REMOTE_SCOPE);
        assert!(grant.may.state.contains(&StateScope::Actor) && !grant.may.state.contains(&StateScope::Subject));
    }

    #[test]
    fn a03_unknown_commands_are_shell_commands_on_the_cli_only_unless_the_binding_says() {
        let shell = |shell_commands, from_cli| {
            let policy = ResourcePolicy { shell_commands, ..ResourcePolicy::default() };
            compute_grant(&PermissionSet::all(), &binding_with_policy(policy), EventScope { from_cli, ..REMOTE_SCOPE })
                .shell_commands
        };
        assert!(shell(None, true));
        assert!(!shell(None, false));
        assert!(shell(Some(true), false));
        assert!(!shell(Some(false), true));
    }
}

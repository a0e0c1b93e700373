//! Computation of grants.

use capstan_protocol::{
    AllowList, Binding, CommandAccess, Event, EventOrigin, Grant, PermissionSet, ResourceAccess, StateScope,
};

use crate::bindings::is_pipeline_binding;

/// Limits that the event itself puts on a grant, for any runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventScope {
    /// Origin that the host assigned to the event.
    pub origin: EventOrigin,
    /// The event names the terminal as its source.
    pub names_terminal: bool,
    /// The event names its actor.
    pub has_actor: bool,
    /// The event names its subject.
    pub has_subject: bool,
}

impl EventScope {
    /// Scope of an event of this origin.
    pub fn new(event: &Event, origin: EventOrigin) -> Self {
        let names_terminal = event.source.as_str() == "cli";
        Self { origin, names_terminal, has_actor: event.actor.is_some(), has_subject: event.subject.is_some() }
    }

    /// Returns true if a person typed the event on the operator's terminal. A program that writes to stdio may pass on the
    /// messages of others.
    fn is_terminal(self) -> bool {
        self.origin == EventOrigin::Trusted && self.names_terminal
    }

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

/// Computes the grant of a run: the intersection of what the runner asks for, the binding allows and the event allows.
///
/// `remote_tools` are the tools that an event of remote origin gets from a binding that grants none explicitly.
///
/// Monotonic in all inputs: widening one of them never narrows the grant, narrowing one never widens it. An absent field
/// of the binding stands for its default for the origin of the event.
pub fn compute_grant(
    permissions: &PermissionSet,
    binding: &Binding,
    scope: EventScope,
    remote_tools: &AllowList,
) -> Grant {
    let policy = &binding.resource_policy;
    let mut may = permissions.intersect(&binding.max_permissions()).intersect(&scope.max_authority());
    let is_restricted = scope.origin == EventOrigin::Remote && !grants_tools_explicitly(binding);
    if is_restricted {
        may.tools.names = may.tools.names.intersect(remote_tools);
    }
    Grant {
        may,
        commands: if is_restricted { CommandAccess::ReadOnly } else { CommandAccess::All },
        shell_commands: policy.shell_commands.unwrap_or(scope.is_terminal()),
        approvals: policy.approvals.clone(),
        state_limits: binding.state_policy.limits,
    }
}

/// Returns true if the operator decided on the tools of the binding. The binding of a LangBot query came with the event,
/// so it decides nothing.
fn grants_tools_explicitly(binding: &Binding) -> bool {
    let policy = &binding.resource_policy;
    let is_explicit = policy.tools.is_some() || policy.shell_commands == Some(true);
    is_explicit && !is_pipeline_binding(binding.binding_id.as_str())
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
        AllowList, Binding, CommandAccess, EventOrigin, Grant, PermissionSet, ResourceAccess, ResourcePolicy,
        StatePolicy, StateScope, TapeAccess,
    };

    const REMOTE_SCOPE: EventScope =
        EventScope { origin: EventOrigin::Remote, names_terminal: false, has_actor: true, has_subject: false };

    fn binding_with_policy(resource_policy: ResourcePolicy) -> Binding {
        Binding { resource_policy, ..default_binding() }
    }

    /// Tools of a test that remote origins get by default.
    fn remote_tools() -> AllowList {
        AllowList::only(["help", "fs.read"])
    }

    fn remote_grant(permissions: &PermissionSet, binding: &Binding) -> Grant {
        compute_grant(permissions, binding, REMOTE_SCOPE, &remote_tools())
    }

    #[test]
    fn g05_a_grant_is_what_permissions_policy_and_scope_all_allow() {
        let binding = binding_with_policy(ResourcePolicy {
            tools: Some(ResourceAccess::only(["help", "bash"])),
            tape: Some(TapeAccess::Read),
            ..ResourcePolicy::default()
        });
        let permissions = PermissionSet { tools: ResourceAccess::only(["help", "fs.read"]), ..PermissionSet::all() };
        let grant = remote_grant(&permissions, &binding);
        assert_eq!(grant.may.tools, ResourceAccess::only(["help"]));
        assert_eq!(grant.may.tape, TapeAccess::Read);
        assert_eq!(grant.may.platform_api, AllowList::none(), "that needs the binding's word");
        assert!(grant.may.state.is_empty(), "so does state");
        assert!(!grant.shell_commands);
    }

    #[test]
    fn g06_state_is_kept_for_those_the_event_tells_of() {
        let state_policy = StatePolicy { enabled: true, ..StatePolicy::default() };
        let grant = remote_grant(&PermissionSet::all(), &Binding { state_policy, ..default_binding() });
        assert!(grant.may.state.contains(&StateScope::Actor) && !grant.may.state.contains(&StateScope::Subject));
    }

    #[test]
    fn a03_unknown_commands_are_shell_commands_on_the_terminal_or_by_binding() {
        let shell = |shell_commands, origin, names_terminal| {
            let policy = ResourcePolicy { shell_commands, ..ResourcePolicy::default() };
            let scope = EventScope { origin, names_terminal, ..REMOTE_SCOPE };
            compute_grant(&PermissionSet::all(), &binding_with_policy(policy), scope, &remote_tools()).shell_commands
        };
        assert!(shell(None, EventOrigin::Trusted, true));
        assert!(!shell(None, EventOrigin::Trusted, false), "a line of stdio");
        assert!(!shell(None, EventOrigin::Remote, true), "an envelope that names the terminal");
        assert!(shell(Some(true), EventOrigin::Remote, false));
        assert!(!shell(Some(false), EventOrigin::Trusted, true));
    }

    #[test]
    fn g05_remote_origins_get_no_tools_that_need_trust_unless_the_binding_grants_tools() {
        let by_default = remote_grant(&PermissionSet::all(), &default_binding());
        assert_eq!(by_default.may.tools, ResourceAccess::only(["help", "fs.read"]));
        assert_eq!(by_default.commands, CommandAccess::ReadOnly);
        let trusted = EventScope { origin: EventOrigin::Trusted, ..REMOTE_SCOPE };
        let trusted = compute_grant(&PermissionSet::all(), &default_binding(), trusted, &remote_tools());
        assert_eq!((trusted.may.tools, trusted.commands), (ResourceAccess::all(), CommandAccess::All));
        let tools = Some(ResourceAccess::only(["bash"]));
        let explicit = binding_with_policy(ResourcePolicy { tools, ..ResourcePolicy::default() });
        let granted = remote_grant(&PermissionSet::all(), &explicit);
        assert_eq!(granted.may.tools, ResourceAccess::only(["bash"]));
        assert_eq!((granted.commands, granted.shell_commands), (CommandAccess::All, false));
        let shell = ResourcePolicy { shell_commands: Some(true), ..ResourcePolicy::default() };
        let granted = remote_grant(&PermissionSet::all(), &binding_with_policy(shell));
        assert_eq!((granted.may.tools, granted.commands), (ResourceAccess::all(), CommandAccess::All));
    }

    #[test]
    fn g05_binding_that_came_with_a_query_cannot_widen_the_grant_of_a_remote_origin() {
        let policy =
            ResourcePolicy { tools: Some(ResourceAccess::only(["bash", "help"])), ..ResourcePolicy::default() };
        let binding = Binding { binding_id: "pipeline:p1".into(), ..binding_with_policy(policy) };
        let grant = remote_grant(&PermissionSet::all(), &binding);
        assert_eq!((grant.may.tools, grant.commands), (ResourceAccess::only(["help"]), CommandAccess::ReadOnly));
    }
}

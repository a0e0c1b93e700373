//! Authority, computed once.

use capstan_protocol::{Access, Event, Grant, Permissions, ResourcePolicy};

/// What the event itself allows, whoever serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// It came from the terminal of the person who runs the host.
    pub from_cli: bool,
}

impl From<&Event> for Scope {
    fn from(event: &Event) -> Self {
        Self { from_cli: event.source.as_str() == "cli" }
    }
}

/// What a run may do: what the runner needs, cut by what the binding allows, cut by what the event allows.
pub fn compute(permissions: &Permissions, policy: &ResourcePolicy, scope: Scope) -> Grant {
    Grant {
        models: permissions.models.intersect(&policy.models),
        tools: permissions.tools.intersect(&policy.tools),
        tape: permissions.tape.min(policy.tape),
        prompt: permissions.prompt,
        artifacts: permissions.artifacts && policy.artifacts,
        children: permissions.children && policy.children,
        shell_commands: policy.shell_commands.unwrap_or(scope.from_cli),
    }
}

/// What a child run may do: what the run that begins it may, cut by what that one says. A comma command is for people.
pub fn cut(grant: &Grant, tools: &Access, may_have_children: bool) -> Grant {
    Grant {
        tools: grant.tools.intersect(tools),
        children: grant.children && may_have_children,
        shell_commands: false,
        ..grant.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::{Scope, compute};
    use capstan_protocol::{Access, Permissions, ResourcePolicy, TapeAccess};

    #[test]
    fn a_grant_is_what_permissions_policy_and_scope_all_allow() {
        let policy = ResourcePolicy {
            tools: Access::only(["help", "bash"]),
            tape: TapeAccess::Read,
            ..ResourcePolicy::default()
        };
        let permissions = Permissions { tools: Access::only(["help", "fs.read"]), ..Permissions::all() };
        let grant = compute(&permissions, &policy, Scope { from_cli: false });
        assert_eq!(grant.tools, Access::only(["help"]));
        assert_eq!(grant.tape, TapeAccess::Read);
        assert!(!grant.shell_commands);
    }

    #[test]
    fn a03_unknown_commands_are_shell_commands_on_the_cli_only_unless_the_binding_says() {
        let shell = |shell_commands, from_cli| {
            let policy = ResourcePolicy { shell_commands, ..ResourcePolicy::default() };
            compute(&Permissions::all(), &policy, Scope { from_cli }).shell_commands
        };
        assert!(shell(None, true));
        assert!(!shell(None, false));
        assert!(shell(Some(true), false));
        assert!(!shell(Some(false), true));
    }
}

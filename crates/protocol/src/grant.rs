//! Grants: the authority of a run as a value.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PermissionSet;

/// Allowed resources of a kind, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllowList {
    /// All resources.
    All,
    /// Only the named resources.
    Only(BTreeSet<String>),
}

impl AllowList {
    /// Empty list, which allows nothing.
    pub fn none() -> Self {
        Self::Only(BTreeSet::new())
    }

    /// Only the named resources.
    pub fn only<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self::Only(names.into_iter().map(Into::into).collect())
    }

    /// Returns true if the list allows this name.
    pub fn allows(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }

    /// Names that both lists allow.
    pub fn intersect(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, access) | (access, Self::All) => access.clone(),
            (Self::Only(a), Self::Only(b)) => Self::Only(a.intersection(b).cloned().collect()),
        }
    }
}

/// Access of a run to its session's tape. Ordered: each level includes the previous one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TapeAccess {
    /// No access.
    #[default]
    None,
    /// Views, anchors and search.
    Read,
    /// Also notes and handoffs.
    Write,
}

/// Comma commands that a run may execute. Ordered: each level includes the previous one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandAccess {
    /// Commands of tools that change nothing.
    ReadOnly,
    /// Commands of all granted tools.
    #[default]
    All,
}

impl CommandAccess {
    /// Returns true if commands of all granted tools are allowed.
    pub fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// Authority of one run: computed when the run begins, stored with it, and from then on the only source of permission
/// checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grant {
    /// Permissions of the run.
    #[serde(flatten)]
    pub may: PermissionSet,
    /// Comma commands that the run may execute.
    #[serde(default, skip_serializing_if = "CommandAccess::is_all")]
    pub commands: CommandAccess,
    /// Allow a comma command with an unknown name to run as a shell command.
    #[serde(default)]
    pub shell_commands: bool,
    /// Approval rules for tool calls. The first matching rule applies; a call that matches none is allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalRule>,
    /// Limits of stored state, if the run may store any.
    #[serde(default)]
    pub state_limits: StateLimits,
}

/// Rule that allows or denies a tool call, or requires approval by a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// Name of the tool; a `*` at the end matches any suffix, as in `fs.*`.
    pub tool: String,
    /// Match only calls whose arguments contain this text; absent: all calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containing: Option<String>,
    /// Decision about matching calls.
    pub decision: ApprovalDecision,
}

/// Decision about a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    /// Make the call.
    Allow,
    /// Ask a person. If no person can be asked, the call is denied.
    Ask,
    /// Deny the call.
    Deny,
}

/// Limits of the state that a runner may store in one scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StateLimits {
    /// Maximum number of keys.
    pub keys: u64,
    /// Maximum size of one value, as JSON.
    pub value_bytes: u64,
    /// Maximum size of all keys and values together.
    pub total_bytes: u64,
}

impl Default for StateLimits {
    fn default() -> Self {
        Self { keys: 1_000, value_bytes: 64 * 1024, total_bytes: 1024 * 1024 }
    }
}

#[cfg(test)]
mod tests {
    use super::AllowList;

    #[test]
    fn intersection_allows_only_names_in_both_lists() {
        let a = AllowList::only(["bash", "help"]);
        let b = AllowList::only(["help", "fs.read"]);
        assert_eq!(a.intersect(&b), AllowList::only(["help"]));
        assert_eq!(a.intersect(&AllowList::All), a);
        assert_eq!(AllowList::All.intersect(&b), b);
        assert!(!AllowList::none().allows("help"));
    }
}

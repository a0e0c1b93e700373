//! Authority as a value: what a runner asks for, and what a run was given.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PermissionSet;

/// Which things of a kind may be used, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllowList {
    /// All of them.
    All,
    /// These and no others.
    Only(BTreeSet<String>),
}

impl AllowList {
    /// None of them.
    pub fn none() -> Self {
        Self::Only(BTreeSet::new())
    }

    /// These and no others.
    pub fn only<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self::Only(names.into_iter().map(Into::into).collect())
    }

    /// Whether this one may be used.
    pub fn allows(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }

    /// What both allow.
    pub fn intersect(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, access) | (access, Self::All) => access.clone(),
            (Self::Only(a), Self::Only(b)) => Self::Only(a.intersection(b).cloned().collect()),
        }
    }
}

/// How far a run may reach into its session's tape. Ordered: more includes less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TapeAccess {
    /// Not at all.
    #[default]
    None,
    /// Views, anchors, search.
    Read,
    /// Also notes and handoffs.
    Write,
}

/// What one run may do: frozen when the run begins, stored with it, and the only thing asked afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grant {
    /// What it may use.
    #[serde(flatten)]
    pub may: PermissionSet,
    /// Whether a comma command with an unknown name may run as a shell command.
    #[serde(default)]
    pub shell_commands: bool,
    /// What is said of single tools that it may use. The first rule that fits a call counts; none allows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalRule>,
    /// How much it may keep, if it may keep anything.
    #[serde(default)]
    pub state_limits: StateLimits,
}

/// Whether a call needs a word from somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// The tool, by name; `*` at its end stands for anything, as in `fs.*`.
    pub tool: String,
    /// Only calls in whose arguments this text stands; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containing: Option<String>,
    /// What is decided.
    pub decision: ApprovalDecision,
}

/// What is decided about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    /// It is made.
    Allow,
    /// Somebody is asked. Where there is nobody to ask, it is denied.
    Ask,
    /// It is not made.
    Deny,
}

/// How much a runner may keep in one scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StateLimits {
    /// How many keys.
    pub keys: u64,
    /// How large a value is, as JSON.
    pub value_bytes: u64,
    /// How much all keys and values count for together.
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
    fn an_intersection_allows_what_both_allow() {
        let a = AllowList::only(["bash", "help"]);
        let b = AllowList::only(["help", "fs.read"]);
        assert_eq!(a.intersect(&b), AllowList::only(["help"]));
        assert_eq!(a.intersect(&AllowList::All), a);
        assert_eq!(AllowList::All.intersect(&b), b);
        assert!(!AllowList::none().allows("help"));
    }
}

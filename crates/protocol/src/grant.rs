//! Authority as a value: what a runner asks for, and what a run was given.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which things of a kind may be used, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// All of them.
    All,
    /// These and no others.
    Only(BTreeSet<String>),
}

impl Access {
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

/// The most a runner can use: what its descriptor asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Permissions {
    /// Models, by `provider:name`.
    pub models: Access,
    /// Tools, by name.
    pub tools: Access,
    /// The session's tape.
    #[serde(default)]
    pub tape: TapeAccess,
    /// The host's system prompt and continuation prompt.
    #[serde(default)]
    pub prompt: bool,
    /// The artifacts of the session.
    #[serde(default)]
    pub artifacts: bool,
    /// Child runs.
    #[serde(default)]
    pub children: bool,
}

impl Permissions {
    /// Nothing at all.
    pub fn none() -> Self {
        Self {
            models: Access::none(),
            tools: Access::none(),
            tape: TapeAccess::None,
            prompt: false,
            artifacts: false,
            children: false,
        }
    }

    /// Everything there is.
    pub fn all() -> Self {
        Self {
            models: Access::All,
            tools: Access::All,
            tape: TapeAccess::Write,
            prompt: true,
            artifacts: true,
            children: true,
        }
    }
}

/// What one run may do: frozen when the run begins, stored with it, and the only thing asked afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is an authority of its own")]
pub struct Grant {
    /// Models it may call.
    pub models: Access,
    /// Tools it may call.
    pub tools: Access,
    /// How far it may reach into the tape.
    pub tape: TapeAccess,
    /// Whether it may ask for the host's prompts.
    pub prompt: bool,
    /// Whether it may read and make artifacts of its session.
    #[serde(default)]
    pub artifacts: bool,
    /// Whether it may begin child runs.
    #[serde(default)]
    pub children: bool,
    /// Whether a comma command with an unknown name may run as a shell command.
    pub shell_commands: bool,
}

#[cfg(test)]
mod tests {
    use super::Access;

    #[test]
    fn an_intersection_allows_what_both_allow() {
        let a = Access::only(["bash", "help"]);
        let b = Access::only(["help", "fs.read"]);
        assert_eq!(a.intersect(&b), Access::only(["help"]));
        assert_eq!(a.intersect(&Access::All), a);
        assert_eq!(Access::All.intersect(&b), b);
        assert!(!Access::none().allows("help"));
    }
}

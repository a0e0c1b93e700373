//! Authority of the hooks of a plugin.

use std::collections::BTreeSet;
use std::fmt;

use capstan_protocol::{ChannelName, PluginName};

/// Prefix of the permission to send to one channel.
const SEND_TO_PREFIX: &str = "send:";

/// Permission of a plugin's hooks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookPermission {
    /// Read the tape of the session: `tape`.
    ReadTape,
    /// Write notes on the tape of the session: `note`.
    WriteNote,
    /// Write anchors on the tape of the session: `anchor`.
    WriteAnchor,
    /// Call models within the budget and the grant of the run, to select its context: `model`.
    CallModel,
    /// Send messages to any chat: `send`.
    Send,
    /// Send messages to the chats of one channel: `send:CHANNEL`.
    SendTo(ChannelName),
}

impl HookPermission {
    /// Parses the name of a permission.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "tape" => Self::ReadTape,
            "note" => Self::WriteNote,
            "anchor" => Self::WriteAnchor,
            "model" => Self::CallModel,
            "send" => Self::Send,
            _ => Self::SendTo(name.strip_prefix(SEND_TO_PREFIX).filter(|channel| !channel.is_empty())?.into()),
        })
    }
}

impl fmt::Display for HookPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadTape => f.write_str("tape"),
            Self::WriteNote => f.write_str("note"),
            Self::WriteAnchor => f.write_str("anchor"),
            Self::CallModel => f.write_str("model"),
            Self::Send => f.write_str("send"),
            Self::SendTo(channel) => write!(f, "{SEND_TO_PREFIX}{channel}"),
        }
    }
}

/// Permissions of a plugin's hooks.
///
/// ```
/// use capstan_hooks::{HookPermission, HookPermissions};
///
/// let declared = HookPermissions::from([HookPermission::WriteNote, HookPermission::Send]);
/// let allowed = HookPermissions::from([HookPermission::SendTo("ops".into())]);
/// assert_eq!(declared.intersect(&allowed).to_string(), "send:ops");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookPermissions(BTreeSet<HookPermission>);

impl HookPermissions {
    /// No permissions.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Permissions in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = &HookPermission> {
        self.0.iter()
    }

    /// Returns true if a permission is included.
    pub fn allows(&self, permission: &HookPermission) -> bool {
        let covers_channel = matches!(permission, HookPermission::SendTo(_)) && self.0.contains(&HookPermission::Send);
        covers_channel || self.0.contains(permission)
    }

    /// Permissions that both include.
    pub fn intersect(&self, other: &Self) -> Self {
        let own = self.0.iter().filter(|permission| other.allows(permission));
        own.chain(other.0.iter().filter(|permission| self.allows(permission))).cloned().collect()
    }
}

impl<const N: usize> From<[HookPermission; N]> for HookPermissions {
    fn from(permissions: [HookPermission; N]) -> Self {
        permissions.into_iter().collect()
    }
}

impl FromIterator<HookPermission> for HookPermissions {
    fn from_iter<I: IntoIterator<Item = HookPermission>>(permissions: I) -> Self {
        Self(permissions.into_iter().collect())
    }
}

impl fmt::Display for HookPermissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&names.join(", "))
    }
}

/// Authority of the hooks of one plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginGrant {
    /// The plugin.
    pub plugin: PluginName,
    /// Its permissions: those that it declares, as far as the configuration allows them.
    pub permissions: HookPermissions,
}

//! Names of tapes and blobs, derived by hashing.

use capstan_protocol::{BlobHash, SessionId, TapeName, WorkspaceId};
use md5::{Digest, Md5};

/// Address of a session's tape: the session within its workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapeAddress {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// The session.
    pub session: SessionId,
}

/// Name of a session's tape. The same session id in two workspaces has two tapes.
pub fn tape_name(address: &TapeAddress) -> TapeName {
    let name = format!("{}__{}", short_md5(address.workspace.as_str()), short_md5(address.session.as_str()));
    // Hexadecimal digits and underscores are always a valid name.
    TapeName::parse(name).unwrap_or_else(|_| unreachable!())
}

/// Prefix of the session id of a fork; the rest is the name of the fork.
const FORK_SESSION_PREFIX: &str = "fork:";

/// Session that works on a fork: its turns read the parent up to the branch point and the fork, and write to the fork.
pub fn fork_session(fork: &TapeName) -> SessionId {
    SessionId::new(format!("{FORK_SESSION_PREFIX}{fork}"))
}

/// Name of the fork that a session works on, if its id names one.
pub fn fork_of_session(session: &SessionId) -> Option<TapeName> {
    TapeName::parse(session.as_str().strip_prefix(FORK_SESSION_PREFIX)?).ok()
}

fn short_md5(text: &str) -> String {
    // Zero-padded to 32 digits, of which the first 16 are used.
    let mut hex = format!("{:032x}", u128::from_be_bytes(Md5::digest(text.as_bytes()).0));
    hex.truncate(16);
    hex
}

/// Hash under which content is stored.
pub fn blob_hash(bytes: &[u8]) -> BlobHash {
    BlobHash::new(blake3::hash(bytes).to_hex().as_str())
}

#[cfg(test)]
mod tests {
    use super::{TapeAddress, tape_name};

    #[test]
    fn p05_tape_is_named_after_workspace_and_session() {
        let name = tape_name(&TapeAddress { workspace: "/w".into(), session: "cli:local".into() });
        // python3 -c 'from hashlib import md5; print(md5(b"/w").hexdigest()[:16], md5(b"cli:local").hexdigest()[:16])'
        assert_eq!(name.as_str(), "1cce3e60ac2d5110__0b871d5e50e7c192");
    }
}

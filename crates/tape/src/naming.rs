//! Names of tapes and blobs, derived by hashing.

use capstan_protocol::{BlobHash, JsonObject, SessionId, TapeName, WorkspaceId};
use md5::{Digest, Md5};
use serde::{Serialize, Serializer};
use serde_json::Value;

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

/// JSON text with sorted keys, independent of their insertion order.
pub fn canonical_json(value: &Value) -> String {
    // Serialisation cannot fail, because all keys are strings.
    serde_json::to_string(&SortedJson(value)).unwrap_or_default()
}

/// Writes the text of [`canonical_json`] to a buffer.
pub(crate) fn write_canonical_json(buffer: &mut Vec<u8>, value: &Value) {
    // Writing to memory cannot fail, because all keys are strings.
    let _infallible = serde_json::to_writer(buffer, &SortedJson(value));
}

/// Writes an object like [`write_canonical_json`].
pub(crate) fn write_canonical_object(buffer: &mut Vec<u8>, object: &JsonObject) {
    let _infallible = serde_json::to_writer(buffer, &SortedObject(object));
}

/// Value that is serialised with sorted keys.
struct SortedJson<'a>(&'a Value);

/// Object that is serialised with sorted keys.
struct SortedObject<'a>(&'a JsonObject);

impl Serialize for SortedObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pairs = self.0.iter().map(|(key, value)| (key.as_str(), SortedJson(value)));
        if self.0.keys().is_sorted() {
            return serializer.collect_map(pairs);
        }
        let mut pairs: Vec<(&str, SortedJson<'_>)> = pairs.collect();
        pairs.sort_unstable_by_key(|(key, _)| *key);
        serializer.collect_map(pairs)
    }
}

impl Serialize for SortedJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(map) => SortedObject(map).serialize(serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(SortedJson)),
            plain => plain.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{TapeAddress, canonical_json, tape_name};
    use serde_json::json;

    #[test]
    fn p05_tape_is_named_after_workspace_and_session() {
        let name = tape_name(&TapeAddress { workspace: "/w".into(), session: "cli:local".into() });
        // python3 -c 'from hashlib import md5; print(md5(b"/w").hexdigest()[:16], md5(b"cli:local").hexdigest()[:16])'
        assert_eq!(name.as_str(), "1cce3e60ac2d5110__0b871d5e50e7c192");
    }

    #[test]
    fn canonical_json_ignores_the_order_of_keys() {
        let a = json!({"b": [{"y": 1, "x": 2}], "a": null});
        let b = json!({"a": null, "b": [{"x": 2, "y": 1}]});
        assert_eq!(canonical_json(&a), canonical_json(&b));
        assert_eq!(canonical_json(&b), r#"{"a":null,"b":[{"x":2,"y":1}]}"#);
    }
}

//! Hash chain of the entries of a tape.
//!
//! # Links
//!
//! Each entry has a hash over the hash of the entry before it, the name of the tape, its id, its date and the digest
//! of its content. A changed, removed, inserted or moved entry therefore breaks the chain, and a hash of the
//! newest entry that is kept elsewhere reveals any change of the entries up to it.
//!
//! - The chain of a tape starts with [`ChainHash::START`] and continues over resets: generations do not interrupt it.
//! - The chain of a fork starts with the hash of the parent at the position of the fork.
//! - Merged and imported entries are appended, so they get links of the tape that they are written to.
//! - JSON is hashed with sorted keys, so that the order of keys does not matter.

use std::fmt;
use std::str::FromStr;

use capstan_protocol::{EntryId, JsonObject, TapeName};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::canonical_json::{write_canonical_json, write_canonical_object};
use crate::{Entry, EntryKind};

const LINK_DOMAIN: &[u8] = b"capstan.tape.link.1";
const CONTENT_DOMAIN: &[u8] = b"capstan.tape.entry.1";

/// Hash of an entry and of all entries before it on its tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChainHash([u8; 32]);

impl ChainHash {
    /// Hash before the first entry of a tape.
    pub const START: Self = Self([0; 32]);

    /// Hash with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Bytes of the hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Hash of an entry that follows the entry with this hash.
    pub fn link(self, tape: &str, id: EntryId, date: &str, content: &ContentDigest) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(LINK_DOMAIN).update(&self.0).update(&id.0.to_le_bytes()).update(&content.0);
        update_with_len(&mut hasher, tape.as_bytes());
        update_with_len(&mut hasher, date.as_bytes());
        Self(*hasher.finalize().as_bytes())
    }
}

impl Default for ChainHash {
    fn default() -> Self {
        Self::START
    }
}

impl fmt::Display for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for ChainHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for ChainHash {
    type Err = ChainHeadError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hash = blake3::Hash::from_hex(text).map_err(|_| ChainHeadError)?;
        Ok(Self(*hash.as_bytes()))
    }
}

/// Digest of the content of an entry: kind, payload, metadata and other keys.
///
/// It does not depend on the position of the entry, so it can be computed before the entry is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentDigest([u8; 32]);

impl ContentDigest {
    /// Digest of an entry that cannot be read. An entry that was unreadable before it got its link keeps the chain
    /// intact; it is reported as unreadable.
    pub const UNREADABLE: Self = Self([0; 32]);

    /// Digest of the content of an entry.
    pub fn new(kind: &EntryKind, payload: &Value, meta: &JsonObject, extra: &JsonObject) -> Self {
        let mut hasher = blake3::Hasher::new();
        let mut json = Vec::with_capacity(1024);
        hasher.update(CONTENT_DOMAIN);
        update_with_len(&mut hasher, kind.as_str().as_bytes());
        write_canonical_json(&mut json, payload);
        update_with_len(&mut hasher, &json);
        for object in [meta, extra] {
            json.clear();
            write_canonical_object(&mut json, object);
            update_with_len(&mut hasher, &json);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// Digest of the content of an entry.
    pub fn from_entry(entry: &Entry) -> Self {
        Self::new(&entry.kind, &entry.payload, &entry.meta, &entry.extra)
    }
}

/// Hashes bytes together with their number, so that the end of each part is unambiguous.
fn update_with_len(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
}

/// Entry of a tape and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainLink {
    /// The entry.
    pub id: EntryId,
    /// Hash of the entry.
    pub hash: ChainHash,
}

/// Newest entry of a tape and its hash, to be kept elsewhere: it proves all entries up to it.
///
/// Its text form is `TAPE:ID:HASH`.
///
/// ```
/// let text = format!("work:12:{}", "ab".repeat(32));
/// let head: capstan_tape::ChainHead = text.parse()?;
/// assert_eq!((head.tape.as_str(), head.id.0), ("work", 12));
/// assert_eq!(head.to_string(), text);
/// # Ok::<(), capstan_tape::ChainHeadError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChainHead {
    /// The tape.
    pub tape: TapeName,
    /// Newest entry.
    #[serde(rename = "entry")]
    pub id: EntryId,
    /// Hash of the newest entry.
    pub hash: ChainHash,
}

/// Text that is not a [`ChainHead`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a head is TAPE:ID:HASH, as `capstan tape head` prints it")]
pub struct ChainHeadError;

impl fmt::Display for ChainHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.tape, self.id, self.hash)
    }
}

impl FromStr for ChainHead {
    type Err = ChainHeadError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Names of tapes may contain colons.
        let mut parts = text.trim().rsplitn(3, ':');
        let (Some(hash), Some(id), Some(tape)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(ChainHeadError);
        };
        let tape = TapeName::parse(tape).map_err(|_| ChainHeadError)?;
        Ok(Self { tape, id: id.parse().map(EntryId).map_err(|_| ChainHeadError)?, hash: hash.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{EntryId, JsonObject};
    use serde_json::{Value, json};

    use super::{ChainHash, ChainHead, ContentDigest};
    use crate::{Entry, EntryDate, EntryKind};

    fn entry(payload: Value) -> Entry {
        Entry {
            id: EntryId(7),
            kind: EntryKind::Message,
            payload,
            meta: JsonObject::from_iter([("b".to_owned(), json!(1)), ("a".to_owned(), json!({"y": 1, "x": 2}))]),
            date: EntryDate::verbatim("2026-11-18"),
            extra: JsonObject::new(),
        }
    }

    fn hash(entry: &Entry) -> String {
        let content = ContentDigest::from_entry(entry);
        ChainHash::START.link("t", entry.id, entry.date.as_str(), &content).to_string()
    }

    #[test]
    fn p17_hash_does_not_depend_on_the_order_of_keys() {
        let original = entry(json!({"role": "user", "content": "hello"}));
        let mut reordered = entry(json!({"content": "hello", "role": "user"}));
        reordered.meta = JsonObject::from_iter([("a".to_owned(), json!({"x": 2, "y": 1})), ("b".to_owned(), json!(1))]);
        assert_eq!(hash(&original), hash(&reordered));
    }

    #[test]
    fn p17_hash_of_an_entry_is_the_same_in_every_release() {
        // Kept heads and stored hashes rely on this value.
        let expected = "aededfaa98aa0f207992b673837157601e5ce0c86c27ff38996211abc737f503";
        assert_eq!(hash(&entry(json!({"role": "user", "content": "hello", "n": [1, 2.5, null]}))), expected);
    }

    #[test]
    fn p17_content_cannot_move_between_fields() {
        let original = entry(json!({}));
        let mut moved = original.clone();
        std::mem::swap(&mut moved.meta, &mut moved.extra);
        assert_ne!(hash(&original), hash(&moved));
        let content = ContentDigest::from_entry(&original);
        let links =
            [("tx", "1"), ("t", "x1")].map(|(tape, date)| ChainHash::START.link(tape, EntryId(1), date, &content));
        assert_ne!(links[0], links[1]);
    }

    #[test]
    fn p17_head_is_parsed_from_the_right() {
        let text = format!("a:b:3:{}", ChainHash::START);
        let head: ChainHead = text.parse().unwrap();
        assert_eq!((head.tape.as_str(), head.id, head.hash), ("a:b", EntryId(3), ChainHash::START));
        for broken in ["", "a:3", "a:x:00", "a:3:00", ":3:00"] {
            assert!(broken.parse::<ChainHead>().is_err(), "{broken}");
        }
    }
}

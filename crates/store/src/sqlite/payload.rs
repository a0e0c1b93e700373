//! Payloads of entries: in the entry's row, or, where they are large, once by content beside it.

use capstan_protocol::{BlobHash, EntryId, TapeName};
use capstan_tape::blob_hash;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use serde_json::Value;

use super::columns::{invalid_column, json_column, to_sql_integer};

/// From how many bytes of JSON on a payload is kept beside its entry. A file that an agent reads again and again, or what
/// a command prints each time, is above it. Below, a second row and a hash would cost more than a copy does.
const MIN_EXTERNAL_PAYLOAD_BYTES: usize = 16 * 1024;

/// What an entry has in place of a payload that stands beside it: JSON, for whoever looks at the table.
const EXTERNAL_PAYLOAD_PLACEHOLDER: &str = "null";

/// A payload as the columns of an entry have it.
pub(super) struct PayloadColumns<'a> {
    pub(super) json: &'a str,
    /// Where it stands if not there.
    pub(super) hash: Option<BlobHash>,
}

/// Keeps a payload, unless it is small enough for its entry.
pub(super) fn store_payload<'a>(connection: &Connection, json: &'a str) -> Result<PayloadColumns<'a>> {
    if json.len() < MIN_EXTERNAL_PAYLOAD_BYTES {
        return Ok(PayloadColumns { json, hash: None });
    }
    let hash = blob_hash(json.as_bytes());
    let sql = "INSERT INTO payloads (hash, json) VALUES (?1, ?2) ON CONFLICT (hash) DO NOTHING";
    connection.prepare_cached(sql)?.execute(params![hash.as_str(), json])?;
    Ok(PayloadColumns { json: EXTERNAL_PAYLOAD_PLACEHOLDER, hash: Some(hash) })
}

/// Whether the payload of an entry's row stands beside it.
pub(super) fn is_external(row: &Row<'_>, hash: usize) -> Result<bool> {
    Ok(row.get_ref(hash)? != ValueRef::Null)
}

/// The payload of an entry's row, given where its two columns are.
pub(super) fn load(connection: &Connection, row: &Row<'_>, json: usize, hash: usize) -> Result<Value> {
    if !is_external(row, hash)? {
        return json_column(row, json);
    }
    let name = row.get_ref(hash)?.as_str()?;
    let mut statement = connection.prepare_cached("SELECT json FROM payloads WHERE hash = ?1")?;
    let payload = statement.query_row([name], |row| json_column(row, 0)).optional()?;
    payload.ok_or_else(|| invalid_column(hash, format!("payload {name} is not there")))
}

/// The large payloads of a tape's entries up to one of them.
pub(super) fn external_hashes(connection: &Connection, tape: &TapeName, up_to: EntryId) -> Result<Vec<String>> {
    let sql = "SELECT DISTINCT payload_hash FROM entries WHERE tape = ?1 AND id <= ?2 AND payload_hash IS NOT NULL";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_map(params![tape.as_str(), to_sql_integer(up_to.0)], |row| row.get(0))?.collect()
}

/// Removes a payload that no entry has any more.
pub(super) fn delete_unreferenced(connection: &Connection, hash: &str) -> Result<()> {
    let sql = "DELETE FROM payloads WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM entries WHERE payload_hash = ?1)";
    connection.prepare_cached(sql)?.execute([hash]).map(drop)
}

/// Calls `damaged` for every payload that is not what it was, with each entry that has it.
pub(super) fn for_each_damaged(connection: &Connection, mut damaged: impl FnMut(&str, &str, EntryId)) -> Result<()> {
    let mut statement = connection.prepare("SELECT hash, json FROM payloads")?;
    let mut owners = connection.prepare("SELECT tape, id FROM entries WHERE payload_hash = ?1 ORDER BY tape, id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let hash: String = row.get(0)?;
        if blob_hash(row.get_ref(1)?.as_bytes()?).as_str() == hash {
            continue;
        }
        let mut owners = owners.query([&hash])?;
        while let Some(owner) = owners.next()? {
            damaged(&hash, owner.get_ref(0)?.as_str()?, super::columns::entry_id_column(owner, 1)?);
        }
    }
    Ok(())
}

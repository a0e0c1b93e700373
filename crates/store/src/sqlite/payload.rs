//! Payloads of entries: in the row of the entry, or, if large, in a table of their own, deduplicated by content.

use capstan_protocol::{BlobHash, EntryId, TapeName};
use capstan_tape::blob_hash;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use serde_json::Value;

use super::columns::{invalid_column, json_column, to_sql_integer};

/// Minimum size of an external payload, in bytes of JSON. Files that an agent reads repeatedly and outputs of commands
/// are typically larger. Below it, a second row and a hash cost more than a copy.
const MIN_EXTERNAL_PAYLOAD_BYTES: usize = 16 * 1024;

/// Payload column of an entry with an external payload. Valid JSON, for programs that read the table.
const EXTERNAL_PAYLOAD_PLACEHOLDER: &str = "null";

/// Payload columns of an entry.
pub(super) struct PayloadColumns<'a> {
    pub(super) json: &'a str,
    /// Hash of an external payload.
    pub(super) hash: Option<BlobHash>,
}

/// Stores a payload externally, unless it is small enough for the row of its entry.
pub(super) fn store_payload<'a>(connection: &Connection, json: &'a str) -> Result<PayloadColumns<'a>> {
    if json.len() < MIN_EXTERNAL_PAYLOAD_BYTES {
        return Ok(PayloadColumns { json, hash: None });
    }
    let hash = blob_hash(json.as_bytes());
    let sql = "INSERT INTO payloads (hash, json) VALUES (?1, ?2) ON CONFLICT (hash) DO NOTHING";
    connection.prepare_cached(sql)?.execute(params![hash.as_str(), json])?;
    Ok(PayloadColumns { json: EXTERNAL_PAYLOAD_PLACEHOLDER, hash: Some(hash) })
}

/// Returns true if the payload of an entry is external.
pub(super) fn is_external(row: &Row<'_>, hash: usize) -> Result<bool> {
    Ok(row.get_ref(hash)? != ValueRef::Null)
}

/// Loads the payload of an entry; `json` and `hash` are the indexes of its columns.
pub(super) fn load(connection: &Connection, row: &Row<'_>, json: usize, hash: usize) -> Result<Value> {
    if !is_external(row, hash)? {
        return json_column(row, json);
    }
    let name = row.get_ref(hash)?.as_str()?;
    let mut statement = connection.prepare_cached("SELECT json FROM payloads WHERE hash = ?1")?;
    let payload = statement.query_row([name], |row| json_column(row, 0)).optional()?;
    payload.ok_or_else(|| invalid_column(hash, format!("payload {name} is missing")))
}

/// Returns true if the payload of an entry is external and does not match its hash.
pub(super) fn is_damaged(connection: &Connection, row: &Row<'_>, hash: usize) -> Result<bool> {
    if !is_external(row, hash)? {
        return Ok(false);
    }
    let name = row.get_ref(hash)?.as_str()?;
    let mut statement = connection.prepare_cached("SELECT json FROM payloads WHERE hash = ?1")?;
    let matches = statement.query_row([name], |row| Ok(blob_hash(row.get_ref(0)?.as_bytes()?).as_str() == name));
    Ok(matches.optional()? != Some(true))
}

/// Hashes of the external payloads of a tape, up to an entry.
pub(super) fn external_hashes(connection: &Connection, tape: &TapeName, up_to: EntryId) -> Result<Vec<String>> {
    let sql = "SELECT DISTINCT payload_hash FROM entries WHERE tape = ?1 AND id <= ?2 AND payload_hash IS NOT NULL";
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_map(params![tape.as_str(), to_sql_integer(up_to.0)], |row| row.get(0))?.collect()
}

/// Deletes an external payload that no entry refers to any more.
pub(super) fn delete_unreferenced(connection: &Connection, hash: &str) -> Result<()> {
    let sql = "DELETE FROM payloads WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM entries WHERE payload_hash = ?1)";
    connection.prepare_cached(sql)?.execute([hash]).map(drop)
}

/// Calls `visit` for every external payload that does not match its hash, once for each entry that refers to it.
pub(super) fn for_each_damaged(connection: &Connection, mut visit: impl FnMut(&str, &str, EntryId)) -> Result<()> {
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
            visit(&hash, owner.get_ref(0)?.as_str()?, super::columns::entry_id_column(owner, 1)?);
        }
    }
    Ok(())
}

//! Values that are kept under a key, and the spaces they are in.

use capstan_protocol::RunId;
use capstan_tape::{Kept, SpaceRecord};
use rusqlite::{Connection, OptionalExtension as _, Result, Row, params};

use super::columns::{from_json, integer, number, timestamp, to_json};

const KEPT_COLUMNS: &str = "space, key, value, at, by_run";
const SPACE_COLUMNS: &str = "space, revision, rows, bytes, at";

pub(super) fn one(connection: &Connection, space: &str, key: &str) -> Result<Option<Kept>> {
    let sql = format!("SELECT {KEPT_COLUMNS} FROM kept WHERE space = ?1 AND key = ?2");
    connection.prepare_cached(&sql)?.query_row([space, key], kept_row).optional()
}

pub(super) fn page(connection: &Connection, space: &str, after: Option<&str>, limit: usize) -> Result<Vec<Kept>> {
    let sql =
        format!("SELECT {KEPT_COLUMNS} FROM kept WHERE space = ?1 AND (?2 IS NULL OR key > ?2) ORDER BY key LIMIT ?3");
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    connection.prepare_cached(&sql)?.query_map(params![space, after, limit], kept_row)?.collect()
}

pub(super) fn space(connection: &Connection, space: &str) -> Result<Option<SpaceRecord>> {
    let sql = format!("SELECT {SPACE_COLUMNS} FROM spaces WHERE space = ?1");
    connection.prepare_cached(&sql)?.query_row([space], space_row).optional()
}

pub(super) fn spaces(connection: &Connection, prefix: &str) -> Result<Vec<SpaceRecord>> {
    let sql = format!("SELECT {SPACE_COLUMNS} FROM spaces WHERE substr(space, 1, length(?1)) = ?1 ORDER BY space");
    connection.prepare_cached(&sql)?.query_map([prefix], space_row)?.collect()
}

pub(super) fn put(connection: &Connection, kept: &Kept) -> Result<usize> {
    let sql = format!(
        "INSERT INTO kept ({KEPT_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT (space, key) DO UPDATE SET value = ?3, at = ?4, by_run = ?5"
    );
    let by = kept.by.as_ref().map(RunId::as_str);
    let values = params![kept.space, kept.key, to_json(&kept.value)?, kept.at.to_string(), by];
    connection.prepare_cached(&sql)?.execute(values)
}

pub(super) fn remove(connection: &Connection, space: &str, key: &str) -> Result<usize> {
    connection.prepare_cached("DELETE FROM kept WHERE space = ?1 AND key = ?2")?.execute([space, key])
}

pub(super) fn put_space(connection: &Connection, record: &SpaceRecord) -> Result<usize> {
    let sql = format!(
        "INSERT INTO spaces ({SPACE_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT (space) DO UPDATE SET revision = ?2, rows = ?3, bytes = ?4, at = ?5"
    );
    let (revision, rows, bytes) = (integer(record.revision), integer(record.rows), integer(record.bytes));
    connection.prepare_cached(&sql)?.execute(params![record.space, revision, rows, bytes, record.at.to_string()])
}

fn kept_row(row: &Row<'_>) -> Result<Kept> {
    Ok(Kept {
        space: row.get(0)?,
        key: row.get(1)?,
        value: from_json(row, 2)?,
        at: timestamp(row, 3)?,
        by: row.get::<_, Option<String>>(4)?.map(RunId::new),
    })
}

fn space_row(row: &Row<'_>) -> Result<SpaceRecord> {
    Ok(SpaceRecord {
        space: row.get(0)?,
        revision: number(row, 1)?,
        rows: number(row, 2)?,
        bytes: number(row, 3)?,
        at: timestamp(row, 4)?,
    })
}

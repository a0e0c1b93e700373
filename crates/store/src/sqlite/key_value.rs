//! Key-value records and their namespaces. The columns use the older word `space` for a namespace.

use capstan_protocol::RunId;
use capstan_tape::{KeyValueRecord, NamespaceRecord};
use rusqlite::{Connection, OptionalExtension as _, Result, Row, params};

use super::columns::{json_column, sql_limit, timestamp_column, to_json, to_sql_integer, u64_column};

const KEY_VALUE_COLUMNS: &str = "space, key, value, at, by_run";
const NAMESPACE_COLUMNS: &str = "space, revision, rows, bytes, at";

pub(super) fn find(connection: &Connection, namespace: &str, key: &str) -> Result<Option<KeyValueRecord>> {
    let sql = format!("SELECT {KEY_VALUE_COLUMNS} FROM kept WHERE space = ?1 AND key = ?2");
    connection.prepare_cached(&sql)?.query_row([namespace, key], key_value_row).optional()
}

pub(super) fn list_page(
    connection: &Connection,
    namespace: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<KeyValueRecord>> {
    let sql = format!(
        "SELECT {KEY_VALUE_COLUMNS} FROM kept WHERE space = ?1 AND key >= coalesce(?2, '') AND (?2 IS NULL OR key > ?2) \
         ORDER BY key LIMIT ?3"
    );
    connection.prepare_cached(&sql)?.query_map(params![namespace, after, sql_limit(limit)], key_value_row)?.collect()
}

pub(super) fn find_namespace(connection: &Connection, namespace: &str) -> Result<Option<NamespaceRecord>> {
    let sql = format!("SELECT {NAMESPACE_COLUMNS} FROM spaces WHERE space = ?1");
    connection.prepare_cached(&sql)?.query_row([namespace], namespace_row).optional()
}

pub(super) fn list_namespaces(
    connection: &Connection,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<NamespaceRecord>> {
    // Names with the prefix sort at or after the prefix itself.
    let first = after.map_or(prefix, |after| after.max(prefix));
    let sql = format!(
        "SELECT {NAMESPACE_COLUMNS} FROM spaces WHERE space >= ?1 AND (?2 IS NULL OR space > ?2) \
         AND substr(space, 1, length(?3)) = ?3 ORDER BY space LIMIT ?4"
    );
    let values = params![first, after, prefix, sql_limit(limit)];
    connection.prepare_cached(&sql)?.query_map(values, namespace_row)?.collect()
}

pub(super) fn upsert(connection: &Connection, record: &KeyValueRecord) -> Result<usize> {
    let sql = format!(
        "INSERT INTO kept ({KEY_VALUE_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT (space, key) DO UPDATE SET value = ?3, at = ?4, by_run = ?5"
    );
    let by = record.by.as_ref().map(RunId::as_str);
    let values = params![record.space, record.key, to_json(&record.value)?, record.at.to_string(), by];
    connection.prepare_cached(&sql)?.execute(values)
}

pub(super) fn remove(connection: &Connection, namespace: &str, key: &str) -> Result<usize> {
    connection.prepare_cached("DELETE FROM kept WHERE space = ?1 AND key = ?2")?.execute([namespace, key])
}

pub(super) fn upsert_namespace(connection: &Connection, record: &NamespaceRecord) -> Result<usize> {
    let sql = format!(
        "INSERT INTO spaces ({NAMESPACE_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT (space) DO UPDATE SET revision = ?2, rows = ?3, bytes = ?4, at = ?5"
    );
    let (revision, rows, bytes) =
        (to_sql_integer(record.revision), to_sql_integer(record.rows), to_sql_integer(record.bytes));
    connection.prepare_cached(&sql)?.execute(params![record.space, revision, rows, bytes, record.at.to_string()])
}

fn key_value_row(row: &Row<'_>) -> Result<KeyValueRecord> {
    Ok(KeyValueRecord {
        space: row.get(0)?,
        key: row.get(1)?,
        value: json_column(row, 2)?,
        at: timestamp_column(row, 3)?,
        by: row.get::<_, Option<String>>(4)?.map(RunId::new),
    })
}

fn namespace_row(row: &Row<'_>) -> Result<NamespaceRecord> {
    Ok(NamespaceRecord {
        space: row.get(0)?,
        revision: u64_column(row, 1)?,
        rows: u64_column(row, 2)?,
        bytes: u64_column(row, 3)?,
        at: timestamp_column(row, 4)?,
    })
}

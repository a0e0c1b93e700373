//! Hash chains of the tapes in the database.
//!
//! The hash of an entry is in its row. When the row is removed because the external tape store has the entry, the hash
//! moves to a table of its own, so that the chain of a tape is always complete.

use std::collections::{HashMap, HashSet};

use capstan_protocol::{EntryId, TapeName};
use capstan_tape::{ChainHash, ChainLink, ContentDigest, Entry, EntryKind};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::columns::{entry_id_column, sql_limit, to_sql_integer};
use super::queries::entry_row;
use super::slice_query::ENTRY_COLUMNS;

/// Number of entries that the migration hashes before it writes their hashes.
const MIGRATION_PAGE_SIZE: usize = 512;

/// Hash in a column; `None` for a row without one, or with something else in its place.
pub(super) fn hash_column(row: &Row<'_>, column: usize) -> Result<Option<ChainHash>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Blob(bytes) => bytes.try_into().ok().map(ChainHash::from_bytes),
        _ => None,
    })
}

/// Columns that are derived from an entry, for indexes: the name of an anchor, and the date in milliseconds.
pub(super) fn index_columns(entry: &Entry) -> (Option<&str>, Option<i64>) {
    let anchor = entry.name().filter(|_| entry.kind == EntryKind::Anchor);
    (anchor, entry.date.timestamp().map(capstan_protocol::Timestamp::as_millis))
}

/// Newest entry of a tape up to and including `up_to` that has a hash.
pub(super) fn last_link(connection: &Connection, tape: &str, up_to: EntryId) -> Result<Option<ChainLink>> {
    const QUERIES: [&str; 2] = [
        "SELECT id, hash FROM entries WHERE tape = ?1 AND id <= ?2 AND hash IS NOT NULL ORDER BY id DESC LIMIT 1",
        "SELECT id, hash FROM replicated_hashes WHERE tape = ?1 AND id <= ?2 ORDER BY id DESC LIMIT 1",
    ];
    for sql in QUERIES {
        let mut statement = connection.prepare_cached(sql)?;
        let link = statement.query_row(params![tape, to_sql_integer(up_to.0)], link_row).optional()?;
        if link.is_some() {
            return Ok(link);
        }
    }
    Ok(None)
}

/// Newest entry of a tape whose row was removed.
pub(super) fn last_replicated(connection: &Connection, tape: &str) -> Result<Option<ChainLink>> {
    let sql = "SELECT id, hash FROM replicated_hashes WHERE tape = ?1 ORDER BY id DESC LIMIT 1";
    connection.prepare_cached(sql)?.query_row([tape], link_row).optional()
}

/// Hashes of a tape after an entry, in order.
pub(super) fn links(connection: &Connection, tape: &TapeName, after: EntryId, limit: usize) -> Result<Vec<ChainLink>> {
    let sql = "SELECT id, hash FROM replicated_hashes WHERE tape = ?1 AND id > ?2 \
               UNION ALL SELECT id, hash FROM entries WHERE tape = ?1 AND id > ?2 AND hash IS NOT NULL \
               ORDER BY id LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let values = params![tape.as_str(), to_sql_integer(after.0), sql_limit(limit)];
    statement.query_map(values, link_row)?.collect()
}

fn link_row(row: &Row<'_>) -> Result<ChainLink> {
    Ok(ChainLink { id: entry_id_column(row, 0)?, hash: hash_column(row, 1)?.unwrap_or_default() })
}

/// Keeps the hashes of entries that are about to be removed.
pub(super) fn keep_hashes(connection: &Connection, tape: &TapeName, up_to: EntryId) -> Result<()> {
    let sql = "INSERT INTO replicated_hashes (tape, id, hash) \
               SELECT tape, id, hash FROM entries WHERE tape = ?1 AND id <= ?2 AND hash IS NOT NULL \
               ON CONFLICT (tape, id) DO NOTHING";
    connection.prepare_cached(sql)?.execute(params![tape.as_str(), to_sql_integer(up_to.0)]).map(drop)
}

/// Branch point of a fork: the parent, and the last entry of the parent that the fork sees.
pub(super) type BranchPoint = (String, EntryId);

/// Hash at which the chain of a fork starts: that of the newest entry of its ancestors up to its position.
pub(super) fn start_hash(
    connection: &Connection,
    fork: Option<BranchPoint>,
    branch_point: impl Fn(&str) -> Option<BranchPoint>,
) -> Result<ChainHash> {
    let mut seen = HashSet::new();
    let mut next = fork;
    while let Some((parent, position)) = next.take() {
        if let Some(link) = last_link(connection, &parent, position)? {
            return Ok(link.hash);
        }
        next = branch_point(&parent).map(|(grandparent, limit)| (grandparent, position.min(limit)));
        if !seen.insert(parent) {
            // Damaged records, which are reported elsewhere.
            break;
        }
    }
    Ok(ChainHash::START)
}

/// Computes the hashes of all entries, one tape after the other, parents first.
///
/// Columns of indexes that differ from their entry are corrected, so that the integrity check can rely on them.
pub(super) fn chain_existing_entries(connection: &Connection) -> Result<()> {
    let mut statement = connection.prepare("SELECT name, fork_parent, fork_position FROM tapes ORDER BY name")?;
    let fork = |row: &Row<'_>| -> Result<(String, Option<BranchPoint>)> {
        let parent: Option<String> = row.get(1)?;
        let position = row.get::<_, Option<i64>>(2)?.and_then(|position| u64::try_from(position).ok());
        Ok((row.get(0)?, parent.map(|parent| (parent, EntryId(position.unwrap_or_default())))))
    };
    let forks: HashMap<String, Option<BranchPoint>> = statement.query_map([], fork)?.collect::<Result<_>>()?;
    let branch_point = |tape: &str| forks.get(tape).cloned().flatten();
    let mut chained: HashSet<String> = HashSet::new();
    for tape in forks.keys() {
        let mut ancestors: Vec<String> = Vec::new();
        let mut next = Some(tape.clone());
        while let Some(name) = next.take().filter(|name| forks.contains_key(name) && !chained.contains(name)) {
            next = branch_point(&name).map(|(parent, _)| parent);
            chained.insert(name.clone());
            ancestors.push(name);
        }
        for name in ancestors.iter().rev() {
            let start = start_hash(connection, branch_point(name), branch_point)?;
            chain_tape(connection, name, start)?;
        }
    }
    Ok(())
}

/// Row of an entry with the values to write.
struct HashedRow {
    rowid: i64,
    hash: ChainHash,
    /// Columns of indexes, if they differ from the entry.
    index_columns: Option<(Option<String>, Option<i64>)>,
}

fn chain_tape(connection: &Connection, tape: &str, start: ChainHash) -> Result<()> {
    let (mut last, mut after) = (start, 0);
    loop {
        let rows = hash_page(connection, tape, &mut after, &mut last)?;
        let mut put_hash = connection.prepare_cached("UPDATE entries SET hash = ?2 WHERE rowid = ?1")?;
        for row in &rows {
            put_hash.execute(params![row.rowid, row.hash.as_bytes()])?;
            if let Some((anchor, date_ms)) = &row.index_columns {
                let sql = "UPDATE entries SET anchor = ?2, date_ms = ?3 WHERE rowid = ?1";
                connection.prepare_cached(sql)?.execute(params![row.rowid, anchor, date_ms])?;
            }
        }
        if rows.len() < MIGRATION_PAGE_SIZE {
            let sql = "UPDATE tapes SET head_hash = ?2 WHERE name = ?1";
            return connection.prepare_cached(sql)?.execute(params![tape, last.as_bytes()]).map(drop);
        }
    }
}

/// Hashes the next entries of a tape, holding one of them in memory at a time.
fn hash_page(connection: &Connection, tape: &str, after: &mut i64, last: &mut ChainHash) -> Result<Vec<HashedRow>> {
    let sql = format!(
        "SELECT {ENTRY_COLUMNS}, rowid, anchor, date_ms FROM entries WHERE tape = ?1 AND id > ?2 ORDER BY id LIMIT ?3"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![tape, *after, sql_limit(MIGRATION_PAGE_SIZE)])?;
    let mut hashed = Vec::new();
    while let Some(row) = rows.next()? {
        *after = row.get(0)?;
        let stored = entry_row(connection, row);
        let content = stored.as_ref().map_or(ContentDigest::UNREADABLE, ContentDigest::from_entry);
        *last = last.link(tape, entry_id_column(row, 0)?, &date_text(row)?, &content);
        let expected = stored.as_ref().ok().map(index_columns);
        let found = (row.get::<_, Option<String>>(8)?, row.get(9)?);
        let differing = expected.filter(|expected| *expected != (found.0.as_deref(), found.1));
        let index_columns = differing.map(|(anchor, date_ms)| (anchor.map(str::to_owned), date_ms));
        hashed.push(HashedRow { rowid: row.get(7)?, hash: *last, index_columns });
    }
    Ok(hashed)
}

/// Date of an entry, also of one that cannot be read.
pub(super) fn date_text(row: &Row<'_>) -> Result<String> {
    Ok(String::from_utf8_lossy(row.get_ref(4)?.as_bytes()?).into_owned())
}

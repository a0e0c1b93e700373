//! Queries for any connection: that of the writer and those of the readers.

use capstan_protocol::{
    BlobHash, EntryId, EventKey, JsonObject, Outcome, RunId, SessionId, TapeName, Timestamp, Usage, WorkspaceId,
};
use capstan_tape::{
    ChainHash, Entry, EntryDate, EntryKind, ForkPoint, ForkState, InboxRecord, LeaseEpoch, LeaseRecord, OutboxId,
    OutboxRecord, RunRecord, RunStatus, TapeRecord, TapeSlice,
};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, Result, Row, params, params_from_iter};
use serde::{Deserialize, Serialize};

use super::chain::{date_text, hash_column};
use super::columns::{
    entry_id_column, event_key_columns, invalid_column, json_column, sql_limit, tape_name_column, timestamp_column,
    to_sql_integer, u64_column,
};
use super::in_flight;
use super::payload;
use super::search::CandidateRows;
use super::slice_query::{ENTRY_COLUMNS, candidates_query, entries_query};

const TAPE_COLUMNS: &str = "name, session, workspace, head, generation, begins_after, past, handed_over, \
                            fork_parent, fork_position, fork_state, brought_along, head_hash";

pub(super) fn tape(connection: &Connection, name: &TapeName) -> Result<Option<TapeRecord>> {
    let mut statement = connection.prepare_cached(&format!("SELECT {TAPE_COLUMNS} FROM tapes WHERE name = ?1"))?;
    statement.query_row([name.as_str()], tape_row).optional()
}

pub(super) fn tapes(connection: &Connection, after: Option<&TapeName>, limit: usize) -> Result<Vec<TapeRecord>> {
    let sql = format!("SELECT {TAPE_COLUMNS} FROM tapes WHERE name > ?1 ORDER BY name LIMIT ?2");
    // No tape has an empty name, so the empty name sorts before all.
    let after = after.map_or("", TapeName::as_str);
    connection.prepare_cached(&sql)?.query_map(params![after, sql_limit(limit)], tape_row)?.collect()
}

/// Names of tapes that have entries, by name.
pub(super) fn tapes_with_entries(
    connection: &Connection,
    after: Option<&TapeName>,
    limit: usize,
) -> Result<Vec<TapeName>> {
    let sql = "SELECT DISTINCT tape FROM entries WHERE tape > ?1 ORDER BY tape LIMIT ?2";
    let after = after.map_or("", TapeName::as_str);
    connection
        .prepare_cached(sql)?
        .query_map(params![after, sql_limit(limit)], |row| tape_name_column(row, 0))?
        .collect()
}

fn tape_row(row: &Row<'_>) -> Result<TapeRecord> {
    let parent: Option<String> = row.get(8)?;
    let fork = match parent {
        None => None,
        Some(_) => Some(ForkPoint {
            parent: tape_name_column(row, 8)?,
            position: entry_id_column(row, 9)?,
            state: parse_fork_state(row.get_ref(10)?.as_str()?)
                .ok_or_else(|| invalid_column(10, "unknown state of a fork"))?,
        }),
    };
    Ok(TapeRecord {
        name: tape_name_column(row, 0)?,
        session: row.get::<_, Option<String>>(1)?.map(SessionId::new),
        workspace: row.get::<_, Option<String>>(2)?.map(WorkspaceId::new),
        head: entry_id_column(row, 3)?,
        generation: row.get(4)?,
        begins_after: entry_id_column(row, 5)?,
        past_generations: json_column(row, 6)?,
        replicated_up_to: entry_id_column(row, 7)?,
        brought_along: entry_id_column(row, 11)?,
        fork,
        head_hash: hash_column(row, 12)?.unwrap_or_default(),
    })
}

/// Value of the column for the state of a fork.
pub(super) fn fork_state_name(state: ForkState) -> &'static str {
    match state {
        ForkState::Open => "open",
        ForkState::Merged => "merged",
        ForkState::Discarded => "discarded",
    }
}

fn parse_fork_state(text: &str) -> Option<ForkState> {
    let states = [ForkState::Open, ForkState::Merged, ForkState::Discarded];
    states.into_iter().find(|state| fork_state_name(*state) == text)
}

pub(super) fn entries(connection: &Connection, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for_each_in_slice(connection, tape, slice, |entry| {
        entries.push(entry);
        true
    })?;
    Ok(entries)
}

/// Entries of a slice; `None` if one of them has a large payload.
pub(super) fn entries_if_small(
    connection: &Connection,
    tape: &TapeName,
    slice: &TapeSlice,
) -> Result<Option<Vec<Entry>>> {
    let (sql, values) = entries_query(tape, slice);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        if payload::is_external(row, 6)? {
            return Ok(None);
        }
        entries.push(entry_row(connection, row)?);
    }
    Ok(Some(entries))
}

/// Calls `visit` with each entry of a slice, loading one at a time, until it returns false.
pub(super) fn for_each_in_slice(
    connection: &Connection,
    tape: &TapeName,
    slice: &TapeSlice,
    visit: impl FnMut(Entry) -> bool,
) -> Result<()> {
    for_each_matching_row(connection, entries_query(tape, slice), slice, visit)
}

/// Like [`for_each_in_slice`] for the entries of a slice that may match a search. Ignores the limit of the slice.
pub(super) fn for_each_candidate(
    connection: &Connection,
    tape: &TapeName,
    slice: &TapeSlice,
    candidates: &CandidateRows<'_>,
    visit: impl FnMut(Entry) -> bool,
) -> Result<()> {
    let slice = TapeSlice { limit: None, ..slice.clone() };
    for_each_matching_row(connection, candidates_query(tape, &slice, candidates), &slice, visit)
}

fn for_each_matching_row(
    connection: &Connection,
    (sql, values): (String, Vec<Value>),
    slice: &TapeSlice,
    mut visit: impl FnMut(Entry) -> bool,
) -> Result<()> {
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut remaining = slice.limit.unwrap_or(usize::MAX);
    while remaining > 0
        && let Some(row) = rows.next()?
    {
        let entry = entry_row(connection, row)?;
        // The column has a resolution of milliseconds; a range may be finer.
        if slice.date_range.is_none() || slice.contains(&entry) {
            remaining = if visit(entry) { remaining - 1 } else { 0 };
        }
    }
    Ok(())
}

/// Row of an entry, for the integrity check.
pub(super) struct StoredEntryRow {
    pub(super) tape: String,
    pub(super) id: EntryId,
    /// The entry, or the error of an unreadable one.
    pub(super) entry: Result<Entry>,
    /// True if the payload is external and does not match its hash.
    pub(super) is_payload_damaged: bool,
    /// Date as stored, also of an unreadable entry.
    pub(super) date: String,
    pub(super) hash: Option<ChainHash>,
    /// Columns for indexes: the name of an anchor, and the date in milliseconds.
    pub(super) index_columns: (Option<String>, Option<i64>),
}

/// Calls `visit` with every row, ordered by tape and id.
pub(super) fn for_each_entry(
    connection: &Connection,
    mut visit: impl FnMut(StoredEntryRow) -> Result<()>,
) -> Result<()> {
    let sql = format!("SELECT {ENTRY_COLUMNS}, tape, hash, anchor, date_ms FROM entries ORDER BY tape, id");
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        visit(StoredEntryRow {
            tape: row.get(7)?,
            id: entry_id_column(row, 0)?,
            entry: entry_row(connection, row),
            is_payload_damaged: payload::is_damaged(connection, row, 6)?,
            date: date_text(row)?,
            hash: hash_column(row, 8)?,
            index_columns: (row.get(9)?, row.get(10)?),
        })?;
    }
    Ok(())
}

/// Reads the columns [`ENTRY_COLUMNS`].
pub(super) fn entry_row(connection: &Connection, row: &Row<'_>) -> Result<Entry> {
    Ok(Entry {
        id: entry_id_column(row, 0)?,
        kind: EntryKind::from(row.get_ref(1)?.as_str()?),
        payload: payload::load(connection, row, 2, 6)?,
        meta: json_column(row, 3)?,
        date: EntryDate::verbatim(row.get::<_, String>(4)?),
        extra: json_column(row, 5)?,
    })
}

pub(super) fn accepted_event(connection: &Connection, key: &EventKey) -> Result<Option<InboxRecord>> {
    let mut statement = connection.prepare_cached(
        "SELECT session, tape, entry, at, outcome, run_id FROM inbox LEFT JOIN outcomes USING (source, bot_id, event_id) \
         WHERE source = ?1 AND bot_id = ?2 AND event_id = ?3",
    )?;
    let record = |row: &Row<'_>| {
        let outcome: Option<Outcome> = match row.get_ref(4)? {
            rusqlite::types::ValueRef::Null => None,
            _ => Some(json_column(row, 4)?),
        };
        let run_id = row.get::<_, Option<String>>(5)?.map(RunId::new);
        Ok(InboxRecord {
            key: key.clone(),
            session: SessionId::new(row.get::<_, String>(0)?),
            tape: tape_name_column(row, 1)?,
            entry: entry_id_column(row, 2)?,
            accepted_at: timestamp_column(row, 3)?,
            outcome: outcome.map(|outcome| (outcome, run_id)),
        })
    };
    statement.query_row(event_key_columns(key), record).optional()
}

pub(super) fn run(connection: &Connection, run_id: &RunId) -> Result<Option<RunRecord>> {
    let mut statement = connection.prepare_cached("SELECT record, changed FROM runs WHERE run_id = ?1")?;
    statement.query_row([run_id.as_str()], run_row).optional()
}

pub(super) fn runs(connection: &Connection, before: Option<&RunId>, limit: usize) -> Result<Vec<RunRecord>> {
    let Some(before) = run_number(connection, before, i64::MAX)? else { return Ok(Vec::new()) };
    let sql = "SELECT record, changed FROM runs WHERE number < ?1 ORDER BY number DESC LIMIT ?2";
    connection.prepare_cached(sql)?.query_map([before, sql_limit(limit)], run_row)?.collect()
}

pub(super) fn open_runs(connection: &Connection, after: Option<&RunId>, limit: usize) -> Result<Vec<RunRecord>> {
    let Some(after) = run_number(connection, after, 0)? else { return Ok(Vec::new()) };
    let sql = "SELECT record, changed FROM runs WHERE status = 'running' AND number > ?1 ORDER BY number LIMIT ?2";
    connection.prepare_cached(sql)?.query_map([after, sql_limit(limit)], run_row)?.collect()
}

/// Number of a run, or `default` if none is named; `None` for an unknown run.
fn run_number(connection: &Connection, run: Option<&RunId>, default: i64) -> Result<Option<i64>> {
    let Some(run) = run else { return Ok(Some(default)) };
    let mut statement = connection.prepare_cached("SELECT number FROM runs WHERE run_id = ?1")?;
    statement.query_row([run.as_str()], |row| row.get(0)).optional()
}

/// Mutable fields of a run, stored apart from the record that was written when the run was opened.
#[derive(Serialize, Deserialize)]
pub(super) struct RunChange {
    status: RunStatus,
    ended_at: Option<Timestamp>,
    usage: Option<Usage>,
    cancel_requested: bool,
}

impl RunChange {
    pub(super) fn from_record(run: &RunRecord) -> Self {
        let RunRecord { status, ended_at, usage, cancel_requested, .. } = run;
        Self { status: *status, ended_at: *ended_at, usage: usage.clone(), cancel_requested: *cancel_requested }
    }
}

/// Reads a run: the record from its opening, with the changed fields.
fn run_row(row: &Row<'_>) -> Result<RunRecord> {
    let opened: RunRecord = json_column(row, 0)?;
    if row.get_ref(1)? == ValueRef::Null {
        return Ok(opened);
    }
    let RunChange { status, ended_at, usage, cancel_requested } = json_column(row, 1)?;
    Ok(RunRecord { status, ended_at, usage, cancel_requested, ..opened })
}

/// Columns that [`outbox_row`] reads.
pub(super) const OUTBOX_COLUMNS: &str = "source, bot_id, event_id, id, message, at, status, owner";

pub(super) fn pending_outbound(connection: &Connection, after: OutboxId, limit: usize) -> Result<Vec<OutboxRecord>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {OUTBOX_COLUMNS} FROM outbox WHERE json_extract(status, '$.status') = 'waiting' AND id > ?1 \
         ORDER BY id LIMIT ?2"
    ))?;
    statement.query_map([to_sql_integer(after.0), sql_limit(limit)], outbox_row)?.collect()
}

pub(super) fn pending_outbound_before(
    connection: &Connection,
    id: OutboxId,
    [channel, chat]: [&str; 2],
    after: OutboxId,
    limit: usize,
) -> Result<Vec<OutboxRecord>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {OUTBOX_COLUMNS} FROM outbox WHERE json_extract(status, '$.status') = 'waiting' AND id < ?1 \
         AND json_extract(message, '$.channel') = ?2 AND json_extract(message, '$.chat_id') = ?3 AND id > ?4 \
         ORDER BY id LIMIT ?5"
    ))?;
    let values = params![to_sql_integer(id.0), channel, chat, to_sql_integer(after.0), sql_limit(limit)];
    statement.query_map(values, outbox_row)?.collect()
}

pub(super) fn outbox(
    connection: &Connection,
    event: &EventKey,
    after: OutboxId,
    limit: usize,
) -> Result<Vec<OutboxRecord>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {OUTBOX_COLUMNS} FROM outbox WHERE source = ?1 AND bot_id = ?2 AND event_id = ?3 AND id > ?4 \
         ORDER BY id LIMIT ?5"
    ))?;
    let [source, bot_id, event_id] = event_key_columns(event);
    let values = params![source, bot_id, event_id, to_sql_integer(after.0), sql_limit(limit)];
    statement.query_map(values, outbox_row)?.collect()
}

pub(super) fn outbox_row(row: &Row<'_>) -> Result<OutboxRecord> {
    Ok(OutboxRecord {
        event: in_flight::event_key(row)?,
        id: OutboxId(u64_column(row, 3)?),
        message: json_column(row, 4)?,
        staged_at: timestamp_column(row, 5)?,
        status: json_column(row, 6)?,
        owner: row.get(7)?,
    })
}

pub(super) fn blob(connection: &Connection, hash: &BlobHash) -> Result<Option<Vec<u8>>> {
    let mut statement = connection.prepare_cached("SELECT bytes FROM blobs WHERE hash = ?1")?;
    statement.query_row([hash.as_str()], |row| row.get(0)).optional()
}

pub(super) fn state(connection: &Connection, tape: &TapeName) -> Result<JsonObject> {
    let mut statement = connection.prepare_cached("SELECT key, value FROM state WHERE tape = ?1 ORDER BY key")?;
    statement.query_map([tape.as_str()], |row| Ok((row.get(0)?, json_column(row, 1)?)))?.collect()
}

pub(super) fn workspace(connection: &Connection, path: &str) -> Result<Option<WorkspaceId>> {
    let mut statement = connection.prepare_cached("SELECT identity FROM workspaces WHERE path = ?1")?;
    statement.query_row([path], |row| row.get::<_, String>(0)).map(WorkspaceId::new).optional()
}

pub(super) fn lease(connection: &Connection, tape: &TapeName) -> Result<Option<LeaseRecord>> {
    let mut statement = connection.prepare_cached("SELECT epoch, owner, until FROM leases WHERE tape = ?1")?;
    let record = |row: &Row<'_>| {
        Ok(LeaseRecord {
            tape: tape.clone(),
            epoch: LeaseEpoch(u64_column(row, 0)?),
            owner: row.get(1)?,
            expires_at: timestamp_column(row, 2)?,
        })
    };
    statement.query_row([tape.as_str()], record).optional()
}

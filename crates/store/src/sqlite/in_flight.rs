//! Events between their acceptance and their outcome.

use capstan_protocol::{ChannelName, EventId, EventKey, RunId, SessionId, TapeName};
use capstan_tape::{EventIngestion, InFlightEvent, SettledEvent};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Result, Row, params, params_from_iter};

use super::columns::{
    entry_id_column, event_key_columns, sql_limit, tape_name_column, timestamp_column, to_sql_integer, u64_column,
};
use super::statement_cache::StatementCache;

const IN_FLIGHT_COLUMNS: &str = "source, bot_id, event_id, session, tape, entry, at, owner, adoptions, run_id, message";

/// Sort order of listings: the columns of the index on tape and entry, which ends with the primary key.
const IN_FLIGHT_ORDER: &str = "tape, entry, source, bot_id, event_id";

pub(super) fn list(
    connection: &Connection,
    tape: Option<&TapeName>,
    after: Option<&InFlightEvent>,
    limit: usize,
) -> Result<Vec<InFlightEvent>> {
    let (mut conditions, mut values) = (Vec::new(), Vec::new());
    if let Some(tape) = tape {
        conditions.push("tape = ?".to_owned());
        values.push(Value::from(tape.to_string()));
    }
    if let Some(after) = after {
        conditions.push(format!("({IN_FLIGHT_ORDER}) > (?, ?, ?, ?, ?)"));
        values.extend([Value::from(after.tape.to_string()), Value::from(to_sql_integer(after.entry.0))]);
        values.extend(event_key_columns(&after.key).map(|column| Value::from(column.to_owned())));
    }
    let filter = if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
    let sql = format!("SELECT {IN_FLIGHT_COLUMNS} FROM in_flight {filter} ORDER BY {IN_FLIGHT_ORDER} LIMIT ?");
    values.push(Value::from(sql_limit(limit)));
    connection.prepare_cached(&sql)?.query_map(params_from_iter(values), in_flight_row)?.collect()
}

pub(super) fn find(connection: &Connection, key: &EventKey) -> Result<Option<InFlightEvent>> {
    let sql = format!("SELECT {IN_FLIGHT_COLUMNS} FROM in_flight WHERE source = ?1 AND bot_id = ?2 AND event_id = ?3");
    connection.prepare_cached(&sql)?.query_row(event_key_columns(key), in_flight_row).optional()
}

/// Inserts an event that was not in flight.
pub(super) fn insert(statements: &StatementCache<'_>, event: &InFlightEvent) -> Result<()> {
    let [source, bot_id, event_id] = event_key_columns(&event.key);
    let ingestion = event.ingestion.as_ref();
    let values = params![
        source,
        bot_id,
        event_id,
        event.session.as_str(),
        event.tape.as_str(),
        to_sql_integer(event.entry.0),
        event.accepted_at.to_string(),
        event.owner,
        event.adoptions,
        ingestion.map(|ingestion| ingestion.run_id.as_str()),
        ingestion.map(|ingestion| to_sql_integer(ingestion.message_entry.0)),
    ];
    let sql = "INSERT INTO in_flight (source, bot_id, event_id, session, tape, entry, at, owner, adoptions, run_id, message) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    statements.execute(sql, values).map(drop)
}

/// Updates the mutable columns of an event that is in flight.
pub(super) fn update(statements: &StatementCache<'_>, event: &InFlightEvent) -> Result<()> {
    let [source, bot_id, event_id] = event_key_columns(&event.key);
    let ingestion = event.ingestion.as_ref();
    let values = params![
        source,
        bot_id,
        event_id,
        event.owner,
        event.adoptions,
        ingestion.map(|ingestion| ingestion.run_id.as_str()),
        ingestion.map(|ingestion| to_sql_integer(ingestion.message_entry.0)),
    ];
    let sql = "UPDATE in_flight SET owner = ?4, adoptions = ?5, run_id = ?6, message = ?7 \
               WHERE source = ?1 AND bot_id = ?2 AND event_id = ?3";
    statements.execute(sql, values).map(drop)
}

/// Removes an event and returns true if it was in flight.
pub(super) fn remove(statements: &StatementCache<'_>, key: &EventKey) -> Result<bool> {
    let sql = "DELETE FROM in_flight WHERE source = ?1 AND bot_id = ?2 AND event_id = ?3";
    statements.execute(sql, event_key_columns(key)).map(|removed| removed > 0)
}

pub(super) fn list_settled(
    connection: &Connection,
    after: Option<&EventKey>,
    limit: usize,
) -> Result<Vec<SettledEvent>> {
    // No event has an empty key, so the empty key sorts before all.
    let [source, bot_id, event_id] = after.map_or([""; 3], event_key_columns);
    let mut statement = connection.prepare_cached(
        "SELECT source, bot_id, event_id, tape FROM outcomes JOIN inbox USING (source, bot_id, event_id) \
         WHERE (source, bot_id, event_id) > (?1, ?2, ?3) ORDER BY source, bot_id, event_id LIMIT ?4",
    )?;
    let settled = |row: &Row<'_>| Ok(SettledEvent { key: event_key(row)?, tape: tape_name_column(row, 3)? });
    statement.query_map(params![source, bot_id, event_id, sql_limit(limit)], settled)?.collect()
}

fn in_flight_row(row: &Row<'_>) -> Result<InFlightEvent> {
    let run_id: Option<String> = row.get(9)?;
    let ingestion = match run_id {
        None => None,
        Some(run_id) => Some(EventIngestion { run_id: RunId::new(run_id), message_entry: entry_id_column(row, 10)? }),
    };
    Ok(InFlightEvent {
        key: event_key(row)?,
        session: SessionId::new(row.get::<_, String>(3)?),
        tape: tape_name_column(row, 4)?,
        entry: entry_id_column(row, 5)?,
        accepted_at: timestamp_column(row, 6)?,
        owner: row.get(7)?,
        adoptions: u32::try_from(u64_column(row, 8)?).unwrap_or(u32::MAX),
        ingestion,
    })
}

/// Reads the key of an event from the first three columns.
pub(super) fn event_key(row: &Row<'_>) -> Result<EventKey> {
    Ok(EventKey {
        source: ChannelName::new(row.get::<_, String>(0)?),
        bot_id: row.get(1)?,
        event_id: EventId::new(row.get::<_, String>(2)?),
    })
}

//! Values as they stand in columns.

use std::error::Error;

use capstan_protocol::{EntryId, EventKey, TapeName, Timestamp};
use rusqlite::Row;
use rusqlite::types::Type;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value as JSON text.
pub(super) fn to_json<T: Serialize + ?Sized>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// The value of a JSON column.
pub(super) fn json_column<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|error| invalid_column(column, error))
}

/// A column that holds something else than it should.
pub(super) fn invalid_column(column: usize, error: impl Into<Box<dyn Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
}

/// A number as `SQLite` keeps it. The rules let no greater one pass, so a cut only ever widens a search.
pub(super) fn to_sql_integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn u64_column(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

pub(super) fn entry_id_column(row: &Row<'_>, column: usize) -> rusqlite::Result<EntryId> {
    u64_column(row, column).map(EntryId)
}

pub(super) fn tape_name_column(row: &Row<'_>, column: usize) -> rusqlite::Result<TapeName> {
    TapeName::parse(row.get::<_, String>(column)?).map_err(|error| invalid_column(column, error))
}

pub(super) fn timestamp_column(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    let text = row.get_ref(column)?.as_str()?;
    text.parse().map_err(|error: <Timestamp as std::str::FromStr>::Err| invalid_column(column, error))
}

/// The three columns of an event's key.
pub(super) fn event_key_columns(key: &EventKey) -> [&str; 3] {
    [key.source.as_str(), key.bot_id.as_str(), key.event_id.as_str()]
}

/// Number of rows as SQL writes it.
pub(super) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

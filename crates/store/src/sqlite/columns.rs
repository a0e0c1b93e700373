//! Conversion of values to and from columns.

use std::error::Error;

use capstan_protocol::{EntryId, EventKey, TapeName, Timestamp};
use rusqlite::Row;
use rusqlite::types::Type;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Encodes a value as JSON.
pub(super) fn to_json<T: Serialize + ?Sized>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// Decodes a JSON column.
pub(super) fn json_column<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|error| invalid_column(column, error))
}

/// Error for a column with invalid content.
pub(super) fn invalid_column(column: usize, error: impl Into<Box<dyn Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
}

/// Number as a signed integer of `SQLite`. The rules of a batch reject numbers that do not fit, so clamping only widens
/// the range of a query.
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

/// Columns of the key of an event.
pub(super) fn event_key_columns(key: &EventKey) -> [&str; 3] {
    [key.source.as_str(), key.bot_id.as_str(), key.event_id.as_str()]
}

/// Limit of rows as an SQL integer.
pub(super) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

//! Unfinished work in the copy of a database: events in flight and pending messages.
//!
//! What happened to them after the copy was made is unknown to the copy. Their rows get the owner [`RESTORED_OWNER`], by
//! which a host that opens a restored copy gives up the events and holds the messages.

use capstan_tape::RESTORED_OWNER;
use rusqlite::{Connection, Result};

/// Condition for pending messages. A literal, so that the partial index applies.
const IS_PENDING: &str = "json_extract(status, '$.status') = 'waiting'";

/// Number of recoveries after which every version that records owners gives an event up.
const OLDER_MAX_ADOPTIONS: u32 = 3;

/// Marks the unfinished work of a copy, which then is not repeated. Returns false if the schema has no owners (version 1).
pub(super) fn mark_copied_work(connection: &Connection) -> Result<bool> {
    set_owner(connection, Some(RESTORED_OWNER))
}

/// Marks the unfinished work of a copy that an older version will open. Such a version does not know the mark, but gives up
/// an event after [`OLDER_MAX_ADOPTIONS`] recoveries. Returns false if the schema has no owners (version 1).
pub(super) fn give_up_copied_work(connection: &Connection) -> Result<bool> {
    let has_owners = mark_copied_work(connection)?;
    if has_owners {
        let sql = "UPDATE in_flight SET adoptions = max(adoptions, ?1)";
        connection.execute(sql, [OLDER_MAX_ADOPTIONS])?;
    }
    Ok(has_owners)
}

/// Removes the marks of a copy, so that its unfinished work is recovered as after a crash.
pub(super) fn unmark_copied_work(connection: &Connection) -> Result<bool> {
    set_owner(connection, None)
}

fn set_owner(connection: &Connection, owner: Option<&str>) -> Result<bool> {
    let has_owners = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'in_flight'";
    if connection.query_row(has_owners, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(false);
    }
    let transaction = connection.unchecked_transaction()?;
    transaction.execute("UPDATE in_flight SET owner = ?1", [owner])?;
    transaction.execute(&format!("UPDATE outbox SET owner = ?1 WHERE {IS_PENDING}"), [owner])?;
    transaction.commit()?;
    Ok(true)
}

//! What the writer executes, each statement prepared once.

use std::cell::RefCell;

use rusqlite::{Connection, Params, PrepFlags, Result, Statement};

/// The statements of the connection that writes.
///
/// A turn executes dozens. The cache of the connection looks each up by the hash of its whole text and clears what was
/// bound to it, which costs as much as some of them do; here the text itself is never looked at.
pub(super) struct StatementCache<'c> {
    connection: &'c Connection,
    prepared: RefCell<Vec<(&'static str, Statement<'c>)>>,
}

impl<'c> StatementCache<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, prepared: RefCell::default() }
    }

    /// How many rows a statement changed. Every value of it must be bound.
    pub(super) fn execute(&self, sql: &'static str, params: impl Params) -> Result<usize> {
        let mut prepared = self.prepared.borrow_mut();
        if let Some((_, statement)) = prepared.iter_mut().find(|(known, _)| std::ptr::eq(*known, sql)) {
            return statement.execute(params);
        }
        let mut statement = self.connection.prepare_with_flags(sql, PrepFlags::SQLITE_PREPARE_PERSISTENT)?;
        let changed = statement.execute(params);
        prepared.push((sql, statement));
        changed
    }
}

//! Prepared statements of the writer.

use std::cell::RefCell;

use rusqlite::{Connection, Params, PrepFlags, Result, Statement};

/// Prepared statements of the connection of the writer, found by the address of their text.
///
/// A turn executes dozens of statements. The cache of the connection hashes the whole text of each and clears its
/// bindings, which costs as much as executing some of them.
pub(super) struct StatementCache<'c> {
    connection: &'c Connection,
    prepared: RefCell<Vec<(&'static str, Statement<'c>)>>,
}

impl<'c> StatementCache<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, prepared: RefCell::default() }
    }

    /// Executes a statement and returns the number of changed rows. All its parameters must be bound.
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

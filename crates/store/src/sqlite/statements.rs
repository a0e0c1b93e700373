//! What the writer executes, each statement prepared once.

use std::cell::RefCell;

use rusqlite::{Connection, Params, PrepFlags, Result, Statement};

/// The statements of the connection that writes.
///
/// A turn executes dozens. The cache of the connection looks each up by the hash of its whole text and clears what was
/// bound to it, which costs as much as some of them do; here the text itself is never looked at.
pub(super) struct Statements<'c> {
    connection: &'c Connection,
    prepared: RefCell<Vec<(&'static str, Statement<'c>)>>,
}

impl<'c> Statements<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, prepared: RefCell::default() }
    }

    /// How many rows a statement changed. Every value of it must be bound.
    pub(super) fn execute(&self, sql: &'static str, params: impl Params) -> Result<usize> {
        let mut prepared = self.prepared.borrow_mut();
        let known = prepared.iter().position(|(known, _)| std::ptr::eq(*known, sql));
        let place = match known {
            Some(place) => place,
            None => {
                let statement = self.connection.prepare_with_flags(sql, PrepFlags::SQLITE_PREPARE_PERSISTENT)?;
                prepared.push((sql, statement));
                prepared.len() - 1
            }
        };
        prepared[place].1.execute(params)
    }
}

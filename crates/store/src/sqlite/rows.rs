//! The rows of a batch, inside the writer's transaction.

use std::borrow::Cow;
use std::path::Path;

use capstan_protocol::{BlobHash, EntryId, EventKey, Outcome, RunId, SessionId, TapeName, WorkspaceId};
use capstan_tape::rules::Rows;
use capstan_tape::{
    Entry, InFlight, Kept, Kind, LeaseRecord, NewOutbound, OutboxId, OutboxStatus, RunRecord, RunStatus, SpaceRecord,
    StoreError, TapeRecord,
};
use rusqlite::{Connection, Params, params};
use serde::Serialize;
use serde_json::Value;

use super::columns::{integer, key_columns, to_json};
use super::error::store_error;
use super::known::Known;
use super::statements::Statements;
use super::written::{EntryText, Written};
use super::{flight, kept, payload, read};

/// Tables as rows that a batch is applied to.
pub(super) struct SqlRows<'a, 'c> {
    pub(super) connection: &'a Connection,
    pub(super) statements: &'a Statements<'c>,
    pub(super) path: &'a Path,
    pub(super) known: &'a mut Known,
    /// What of the batch is written down already, and at which of its facts it is.
    pub(super) written: &'a Written,
    pub(super) fact: usize,
}

impl SqlRows<'_, '_> {
    fn done<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| store_error(self.path, &error))
    }

    /// What the present fact brings, as JSON.
    fn one(&self, value: &impl Serialize) -> rusqlite::Result<Cow<'_, str>> {
        match self.written.one(self.fact) {
            Some(text) => Ok(Cow::Borrowed(text)),
            None => to_json(value).map(Cow::Owned),
        }
    }

    /// How many rows a statement changed.
    fn execute(&self, sql: &'static str, params: impl Params) -> rusqlite::Result<usize> {
        self.statements.execute(sql, params)
    }
}

impl Rows for SqlRows<'_, '_> {
    fn begin_fact(&mut self, position: usize) {
        self.fact = position;
    }

    fn tape(&mut self, name: &TapeName) -> Result<Option<TapeRecord>, StoreError> {
        let read = || read::tape(self.connection, name);
        let row = self.known.tapes.or_read(name, read);
        self.done(row)
    }

    fn put_tape(&mut self, record: &TapeRecord) -> Result<(), StoreError> {
        let before = self.known.tapes.get(&record.name);
        if before == Some(record) {
            return Ok(());
        }
        let write = || {
            if before.is_some_and(|before| is_longer(record, before)) {
                let sql = "UPDATE tapes SET head = ?2 WHERE name = ?1";
                return self.execute(sql, params![record.name.as_str(), integer(record.head.0)]);
            }
            let fork = record.fork.as_ref();
            self.execute(
                "INSERT INTO tapes (name, session, workspace, head, generation, begins_after, past, handed_over, \
                 fork_parent, fork_position, fork_state, brought_along) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) \
                 ON CONFLICT (name) DO UPDATE SET session = ?2, workspace = ?3, head = ?4, generation = ?5, \
                 begins_after = ?6, past = ?7, handed_over = ?8, fork_state = ?11, brought_along = ?12",
                params![
                    record.name.as_str(),
                    record.session.as_ref().map(SessionId::as_str),
                    record.workspace.as_ref().map(WorkspaceId::as_str),
                    integer(record.head.0),
                    record.generation,
                    integer(record.begins_after.0),
                    to_json(&record.past)?,
                    integer(record.handed_over.0),
                    fork.map(|fork| fork.parent.as_str()),
                    fork.map(|fork| integer(fork.position.0)),
                    fork.map(|fork| read::fork_state_text(fork.state)),
                    integer(record.brought_along.0),
                ],
            )
        };
        self.done(write())?;
        self.known.tapes.put(&record.name, record);
        Ok(())
    }

    fn put_entry(&mut self, tape: &TapeName, entry: &Entry) -> Result<(), StoreError> {
        let write = || {
            let own;
            let text = if let Some(text) = self.written.entry(self.fact) {
                text
            } else {
                own = EntryText::of(entry)?;
                &own
            };
            let payload = payload::keep(self.connection, &text.payload)?;
            self.execute(
                "INSERT INTO entries (tape, id, kind, anchor, payload, meta, date, date_ms, extra, payload_hash) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                params![
                    tape.as_str(),
                    integer(entry.id.0),
                    entry.kind.as_str(),
                    entry.name().filter(|_| entry.kind == Kind::Anchor),
                    payload.json,
                    text.meta,
                    entry.date.as_str(),
                    entry.date.timestamp().map(capstan_protocol::Timestamp::as_millis),
                    text.extra,
                    payload.hash.as_ref().map(BlobHash::as_str),
                ],
            )
        };
        self.done(write()).map(drop)
    }

    fn remove_entries(&mut self, tape: &TapeName, up_to: EntryId) -> Result<(), StoreError> {
        let remove = || {
            let hashes = payload::hashes(self.connection, tape, up_to)?;
            let sql = "DELETE FROM entries WHERE tape = ?1 AND id <= ?2";
            self.execute(sql, params![tape.as_str(), integer(up_to.0)])?;
            hashes.iter().try_for_each(|hash| payload::release(self.connection, hash))
        };
        self.done(remove())
    }

    fn add_accepted(&mut self, event: &InFlight) -> Result<bool, StoreError> {
        let [source, bot_id, event_id] = key_columns(&event.key);
        let (session, tape, entry) = (event.session.as_str(), event.tape.as_str(), integer(event.entry.0));
        let values = params![source, bot_id, event_id, session, tape, entry, event.at.to_string()];
        let sql = "INSERT INTO inbox (source, bot_id, event_id, session, tape, entry, at) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
        if self.done(self.execute(sql, values))? == 0 {
            return Ok(false);
        }
        self.done(flight::add(self.statements, event))?;
        self.known.in_flight.put(&event.key, event);
        Ok(true)
    }

    fn in_flight(&mut self, key: &EventKey) -> Result<Option<InFlight>, StoreError> {
        let read = || flight::event(self.connection, key);
        let row = self.known.in_flight.or_read(key, read);
        self.done(row)
    }

    fn put_in_flight(&mut self, event: &InFlight) -> Result<(), StoreError> {
        self.done(flight::change(self.statements, event))?;
        self.known.in_flight.put(&event.key, event);
        Ok(())
    }

    fn end_flight(&mut self, key: &EventKey) -> Result<bool, StoreError> {
        self.known.in_flight.remove(key);
        self.done(flight::remove(self.statements, key))
    }

    fn put_outcome(&mut self, key: &EventKey, outcome: &Outcome, run_id: Option<&RunId>) -> Result<(), StoreError> {
        let [source, bot_id, event_id] = key_columns(key);
        let write = || {
            let values = params![source, bot_id, event_id, to_json(outcome)?, run_id.map(RunId::as_str)];
            let sql = "INSERT INTO outcomes (source, bot_id, event_id, outcome, run_id) VALUES (?1, ?2, ?3, ?4, ?5)";
            self.execute(sql, values)
        };
        self.done(write()).map(drop)
    }

    fn run(&mut self, run_id: &RunId) -> Result<Option<RunRecord>, StoreError> {
        if let Some(record) = self.known.runs.get(run_id) {
            return Ok(Some(record.clone()));
        }
        self.done(read::run(self.connection, run_id))
    }

    fn add_run(&mut self, record: &RunRecord) -> Result<bool, StoreError> {
        let write = || {
            let text = self.one(record)?;
            self.execute(
                "INSERT INTO runs (run_id, session, status, record) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
                params![record.run_id.as_str(), record.session.as_str(), open_or_ended(record), text],
            )
        };
        let is_new = self.done(write())? > 0;
        if is_new && record.status.is_open() {
            self.known.runs.put(&record.run_id, record);
        }
        Ok(is_new)
    }

    fn put_run(&mut self, record: &RunRecord) -> Result<(), StoreError> {
        let write = || {
            let sql = "UPDATE runs SET status = ?2, changed = ?3 WHERE run_id = ?1";
            let changed = to_json(&read::RunChange::of(record))?;
            self.execute(sql, params![record.run_id.as_str(), open_or_ended(record), changed])
        };
        self.done(write())?;
        if record.status.is_open() {
            self.known.runs.put(&record.run_id, record);
        } else {
            self.known.runs.remove(&record.run_id);
        }
        Ok(())
    }

    fn add_outbound(&mut self, outbound: &NewOutbound) -> Result<OutboxId, StoreError> {
        let [source, bot_id, event_id] = key_columns(&outbound.event);
        let write = || {
            let (message, status) = (self.one(&outbound.message)?, to_json(&OutboxStatus::waiting())?);
            let values = params![source, bot_id, event_id, outbound.at.to_string(), message, status, outbound.owner];
            self.execute(
                "INSERT INTO outbox (source, bot_id, event_id, at, message, status, owner) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                values,
            )
        };
        self.done(write())?;
        // Row numbers begin at 1 and only grow.
        Ok(OutboxId(self.connection.last_insert_rowid().cast_unsigned()))
    }

    fn adopt_outbound(&mut self, id: OutboxId, from: Option<&str>, owner: &str) -> Result<bool, StoreError> {
        let sql = "UPDATE outbox SET owner = ?3 \
                   WHERE id = ?1 AND owner IS ?2 AND json_extract(status, '$.status') = 'waiting'";
        self.done(self.execute(sql, params![integer(id.0), from, owner])).map(|changed| changed > 0)
    }

    fn put_delivery(&mut self, id: OutboxId, status: &OutboxStatus) -> Result<bool, StoreError> {
        let write = || {
            let sql = "UPDATE outbox SET status = ?2 WHERE id = ?1";
            self.execute(sql, params![integer(id.0), to_json(status)?])
        };
        self.done(write()).map(|changed| changed > 0)
    }

    fn put_blob(&mut self, hash: &BlobHash, bytes: &[u8]) -> Result<(), StoreError> {
        if self.known.blobs.get(hash).is_some() {
            return Ok(());
        }
        let sql = "INSERT INTO blobs (hash, bytes) VALUES (?1, ?2) ON CONFLICT (hash) DO NOTHING";
        self.done(self.execute(sql, params![hash.as_str(), bytes]))?;
        self.known.blobs.put(hash, &());
        Ok(())
    }

    fn remove_blob(&mut self, hash: &BlobHash) -> Result<(), StoreError> {
        self.known.blobs.remove(hash);
        self.done(self.execute("DELETE FROM blobs WHERE hash = ?1", params![hash.as_str()])).map(drop)
    }

    fn put_state(&mut self, tape: &TapeName, key: &str, value: Option<&Value>) -> Result<(), StoreError> {
        let write = || match value {
            None => self.execute("DELETE FROM state WHERE tape = ?1 AND key = ?2", params![tape.as_str(), key]),
            Some(value) => self.execute(
                "INSERT INTO state (tape, key, value) VALUES (?1, ?2, ?3) \
                 ON CONFLICT (tape, key) DO UPDATE SET value = ?3",
                params![tape.as_str(), key, to_json(value)?],
            ),
        };
        self.done(write()).map(drop)
    }

    fn space(&mut self, space: &str) -> Result<Option<SpaceRecord>, StoreError> {
        self.done(kept::space(self.connection, space))
    }

    fn put_space(&mut self, record: &SpaceRecord) -> Result<(), StoreError> {
        self.done(kept::put_space(self.connection, record)).map(drop)
    }

    fn kept(&mut self, space: &str, key: &str) -> Result<Option<Kept>, StoreError> {
        self.done(kept::one(self.connection, space, key))
    }

    fn put_kept(&mut self, value: &Kept) -> Result<(), StoreError> {
        self.done(kept::put(self.connection, value)).map(drop)
    }

    fn remove_kept(&mut self, space: &str, key: &str) -> Result<(), StoreError> {
        self.done(kept::remove(self.connection, space, key)).map(drop)
    }

    fn put_workspace(&mut self, path: &str, identity: &WorkspaceId) -> Result<(), StoreError> {
        let sql = "INSERT INTO workspaces (path, identity) VALUES (?1, ?2) ON CONFLICT (path) DO NOTHING";
        self.done(self.execute(sql, params![path, identity.as_str()])).map(drop)
    }

    fn lease(&mut self, tape: &TapeName) -> Result<Option<LeaseRecord>, StoreError> {
        let read = || read::lease(self.connection, tape);
        let row = self.known.leases.or_read(tape, read);
        self.done(row)
    }

    fn put_lease(&mut self, record: &LeaseRecord) -> Result<(), StoreError> {
        let values = params![record.tape.as_str(), integer(record.epoch.0), record.owner, record.until.to_string()];
        let sql = match self.known.leases.get(&record.tape) {
            Some(_) => "UPDATE leases SET epoch = ?2, owner = ?3, until = ?4 WHERE tape = ?1",
            None => {
                "INSERT INTO leases (tape, epoch, owner, until) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (tape) DO UPDATE SET epoch = ?2, owner = ?3, until = ?4"
            }
        };
        self.done(self.execute(sql, values))?;
        self.known.leases.put(&record.tape, record);
        Ok(())
    }
}

/// The column of a run's status: its index finds those that have not ended, so one that is created counts as running.
fn open_or_ended(run: &RunRecord) -> &'static str {
    let status = if run.status.is_open() { RunStatus::Running } else { run.status };
    status.as_str()
}

/// Whether a tape has grown and nothing else, as nearly every batch makes it do.
fn is_longer(tape: &TapeRecord, before: &TapeRecord) -> bool {
    let TapeRecord {
        name,
        session,
        workspace,
        head: _,
        generation,
        begins_after,
        past,
        handed_over,
        fork,
        brought_along,
    } = tape;
    *session == before.session
        && *workspace == before.workspace
        && *generation == before.generation
        && *begins_after == before.begins_after
        && *past == before.past
        && *handed_over == before.handed_over
        && *fork == before.fork
        && *brought_along == before.brought_along
        && *name == before.name
}

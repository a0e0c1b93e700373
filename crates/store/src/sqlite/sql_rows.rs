//! Row access for the rules of a batch, inside the transaction of the writer.

use std::borrow::Cow;
use std::path::Path;

use capstan_protocol::{BlobHash, EntryId, EventKey, Outcome, RunId, SessionId, TapeName, WorkspaceId};
use capstan_tape::rules::RowAccess;
use capstan_tape::{
    ChainHash, ChainLink, ContentDigest, Entry, InFlightEvent, KeyValueRecord, LeaseRecord, NamespaceRecord,
    NewOutboxMessage, OutboxId, OutboxStatus, RunRecord, RunStatus, StoreError, TapeRecord,
};
use rusqlite::{Connection, Params, params};
use serde::Serialize;
use serde_json::Value;

use super::columns::{event_key_columns, to_json, to_sql_integer};
use super::encoded_batch::{EncodedBatch, EncodedEntry};
use super::error::store_error;
use super::row_cache::RowCache;
use super::statement_cache::StatementCache;
use super::{chain, in_flight, key_value, payload, queries};

/// Tables of the database as the rows that a batch is applied to.
pub(super) struct SqlRows<'a, 'c> {
    pub(super) connection: &'a Connection,
    pub(super) statements: &'a StatementCache<'c>,
    pub(super) path: &'a Path,
    pub(super) cache: &'a mut RowCache,
    /// Columns of the batch that were encoded beforehand.
    pub(super) encoded: &'a EncodedBatch,
    /// Index of the fact that is being applied.
    pub(super) fact_index: usize,
}

impl SqlRows<'_, '_> {
    fn map_error<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| store_error(self.path, &error))
    }

    /// JSON of the record or message of the current fact.
    fn fact_json(&self, value: &impl Serialize) -> rusqlite::Result<Cow<'_, str>> {
        match self.encoded.json(self.fact_index) {
            Some(text) => Ok(Cow::Borrowed(text)),
            None => to_json(value).map(Cow::Owned),
        }
    }

    /// Executes a statement and returns the number of changed rows.
    fn execute(&self, sql: &'static str, params: impl Params) -> rusqlite::Result<usize> {
        self.statements.execute(sql, params)
    }
}

impl RowAccess for SqlRows<'_, '_> {
    fn begin_fact(&mut self, position: usize) {
        self.fact_index = position;
    }

    fn tape(&mut self, name: &TapeName) -> Result<Option<TapeRecord>, StoreError> {
        let read = || queries::tape(self.connection, name);
        let row = self.cache.tapes.get_or_read(name, read);
        self.map_error(row)
    }

    fn put_tape(&mut self, record: &TapeRecord) -> Result<(), StoreError> {
        let before = self.cache.tapes.get(&record.name);
        if before == Some(record) {
            return Ok(());
        }
        let write = || {
            if before.is_some_and(|before| has_only_head_changed(record, before)) {
                let sql = "UPDATE tapes SET head = ?2, head_hash = ?3 WHERE name = ?1";
                let head = to_sql_integer(record.head.0);
                return self.execute(sql, params![record.name.as_str(), head, record.head_hash.as_bytes()]);
            }
            let fork = record.fork.as_ref();
            self.execute(
                "INSERT INTO tapes (name, session, workspace, head, generation, begins_after, past, handed_over, \
                 fork_parent, fork_position, fork_state, brought_along, head_hash) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) \
                 ON CONFLICT (name) DO UPDATE SET session = ?2, workspace = ?3, head = ?4, generation = ?5, \
                 begins_after = ?6, past = ?7, handed_over = ?8, fork_state = ?11, brought_along = ?12, \
                 head_hash = ?13",
                params![
                    record.name.as_str(),
                    record.session.as_ref().map(SessionId::as_str),
                    record.workspace.as_ref().map(WorkspaceId::as_str),
                    to_sql_integer(record.head.0),
                    record.generation,
                    to_sql_integer(record.begins_after.0),
                    to_json(&record.past_generations)?,
                    to_sql_integer(record.replicated_up_to.0),
                    fork.map(|fork| fork.parent.as_str()),
                    fork.map(|fork| to_sql_integer(fork.position.0)),
                    fork.map(|fork| queries::fork_state_name(fork.state)),
                    to_sql_integer(record.brought_along.0),
                    record.head_hash.as_bytes(),
                ],
            )
        };
        self.map_error(write())?;
        self.cache.tapes.insert(&record.name, record);
        Ok(())
    }

    fn content_digest(&mut self, entry: &Entry) -> ContentDigest {
        self.encoded.content_digest(self.fact_index).unwrap_or_else(|| ContentDigest::from_entry(entry))
    }

    fn put_entry(&mut self, tape: &TapeName, entry: &Entry, hash: ChainHash) -> Result<(), StoreError> {
        let write = || {
            let encoded_now;
            let encoded = if let Some(encoded) = self.encoded.entry(self.fact_index) {
                encoded
            } else {
                encoded_now = EncodedEntry::from_entry(entry)?;
                &encoded_now
            };
            let payload = payload::store_payload(self.connection, &encoded.payload)?;
            let (anchor, date_ms) = chain::index_columns(entry);
            self.execute(
                "INSERT INTO entries (tape, id, kind, anchor, payload, meta, date, date_ms, extra, payload_hash, hash) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                params![
                    tape.as_str(),
                    to_sql_integer(entry.id.0),
                    entry.kind.as_str(),
                    anchor,
                    payload.json,
                    encoded.meta,
                    entry.date.as_str(),
                    date_ms,
                    encoded.extra,
                    payload.hash.as_ref().map(BlobHash::as_str),
                    hash.as_bytes(),
                ],
            )
        };
        self.map_error(write()).map(drop)
    }

    fn chain_link(&mut self, tape: &TapeName, up_to: EntryId) -> Result<Option<ChainLink>, StoreError> {
        self.map_error(chain::last_link(self.connection, tape.as_str(), up_to))
    }

    fn remove_entries(&mut self, tape: &TapeName, up_to: EntryId) -> Result<(), StoreError> {
        let remove = || {
            chain::keep_hashes(self.connection, tape, up_to)?;
            let hashes = payload::external_hashes(self.connection, tape, up_to)?;
            let sql = "DELETE FROM entries WHERE tape = ?1 AND id <= ?2";
            self.execute(sql, params![tape.as_str(), to_sql_integer(up_to.0)])?;
            hashes.iter().try_for_each(|hash| payload::delete_unreferenced(self.connection, hash))
        };
        self.map_error(remove())
    }

    fn add_accepted_event(&mut self, event: &InFlightEvent) -> Result<bool, StoreError> {
        let [source, bot_id, event_id] = event_key_columns(&event.key);
        let (session, tape, entry) = (event.session.as_str(), event.tape.as_str(), to_sql_integer(event.entry.0));
        let values = params![source, bot_id, event_id, session, tape, entry, event.accepted_at.to_string()];
        let sql = "INSERT INTO inbox (source, bot_id, event_id, session, tape, entry, at) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
        if self.map_error(self.execute(sql, values))? == 0 {
            return Ok(false);
        }
        self.map_error(in_flight::insert(self.statements, event))?;
        self.cache.in_flight.insert(&event.key, event);
        Ok(true)
    }

    fn in_flight_event(&mut self, key: &EventKey) -> Result<Option<InFlightEvent>, StoreError> {
        let read = || in_flight::find(self.connection, key);
        let row = self.cache.in_flight.get_or_read(key, read);
        self.map_error(row)
    }

    fn put_in_flight_event(&mut self, event: &InFlightEvent) -> Result<(), StoreError> {
        self.map_error(in_flight::update(self.statements, event))?;
        self.cache.in_flight.insert(&event.key, event);
        Ok(())
    }

    fn remove_in_flight_event(&mut self, key: &EventKey) -> Result<bool, StoreError> {
        self.cache.in_flight.remove(key);
        self.map_error(in_flight::remove(self.statements, key))
    }

    fn put_outcome(&mut self, key: &EventKey, outcome: &Outcome, run_id: Option<&RunId>) -> Result<(), StoreError> {
        let [source, bot_id, event_id] = event_key_columns(key);
        let write = || {
            let values = params![source, bot_id, event_id, to_json(outcome)?, run_id.map(RunId::as_str)];
            let sql = "INSERT INTO outcomes (source, bot_id, event_id, outcome, run_id) VALUES (?1, ?2, ?3, ?4, ?5)";
            self.execute(sql, values)
        };
        self.map_error(write()).map(drop)
    }

    fn run(&mut self, run_id: &RunId) -> Result<Option<RunRecord>, StoreError> {
        if let Some(record) = self.cache.runs.get(run_id) {
            return Ok(Some(record.clone()));
        }
        self.map_error(queries::run(self.connection, run_id))
    }

    fn add_run(&mut self, record: &RunRecord) -> Result<bool, StoreError> {
        let write = || {
            let text = self.fact_json(record)?;
            self.execute(
                "INSERT INTO runs (run_id, session, status, record) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
                params![record.run_id.as_str(), record.session.as_str(), status_column(record), text],
            )
        };
        let is_new = self.map_error(write())? > 0;
        if is_new && record.status.is_open() {
            self.cache.runs.insert(&record.run_id, record);
        }
        Ok(is_new)
    }

    fn put_run(&mut self, record: &RunRecord) -> Result<(), StoreError> {
        let write = || {
            let sql = "UPDATE runs SET status = ?2, changed = ?3 WHERE run_id = ?1";
            let changed = to_json(&queries::RunChange::from_record(record))?;
            self.execute(sql, params![record.run_id.as_str(), status_column(record), changed])
        };
        self.map_error(write())?;
        if record.status.is_open() {
            self.cache.runs.insert(&record.run_id, record);
        } else {
            self.cache.runs.remove(&record.run_id);
        }
        Ok(())
    }

    fn add_outbound(&mut self, outbound: &NewOutboxMessage) -> Result<OutboxId, StoreError> {
        let [source, bot_id, event_id] = event_key_columns(&outbound.event);
        let write = || {
            let (message, status) = (self.fact_json(&outbound.message)?, to_json(&OutboxStatus::waiting())?);
            let values =
                params![source, bot_id, event_id, outbound.staged_at.to_string(), message, status, outbound.owner];
            self.execute(
                "INSERT INTO outbox (source, bot_id, event_id, at, message, status, owner) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                values,
            )
        };
        self.map_error(write())?;
        // Row ids start at 1 and only grow.
        Ok(OutboxId(self.connection.last_insert_rowid().cast_unsigned()))
    }

    fn adopt_outbound(&mut self, id: OutboxId, from: Option<&str>, owner: &str) -> Result<bool, StoreError> {
        let sql = "UPDATE outbox SET owner = ?3 \
                   WHERE id = ?1 AND owner IS ?2 AND json_extract(status, '$.status') = 'waiting'";
        self.map_error(self.execute(sql, params![to_sql_integer(id.0), from, owner])).map(|changed| changed > 0)
    }

    fn put_delivery(&mut self, id: OutboxId, status: &OutboxStatus) -> Result<bool, StoreError> {
        let write = || {
            let sql = "UPDATE outbox SET status = ?2 WHERE id = ?1";
            self.execute(sql, params![to_sql_integer(id.0), to_json(status)?])
        };
        self.map_error(write()).map(|changed| changed > 0)
    }

    fn put_blob(&mut self, hash: &BlobHash, bytes: &[u8]) -> Result<(), StoreError> {
        if self.cache.blobs.get(hash).is_some() {
            return Ok(());
        }
        let sql = "INSERT INTO blobs (hash, bytes) VALUES (?1, ?2) ON CONFLICT (hash) DO NOTHING";
        self.map_error(self.execute(sql, params![hash.as_str(), bytes]))?;
        self.cache.blobs.insert(hash, &());
        Ok(())
    }

    fn remove_blob(&mut self, hash: &BlobHash) -> Result<(), StoreError> {
        self.cache.blobs.remove(hash);
        self.map_error(self.execute("DELETE FROM blobs WHERE hash = ?1", params![hash.as_str()])).map(drop)
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
        self.map_error(write()).map(drop)
    }

    fn namespace(&mut self, namespace: &str) -> Result<Option<NamespaceRecord>, StoreError> {
        self.map_error(key_value::find_namespace(self.connection, namespace))
    }

    fn put_namespace(&mut self, record: &NamespaceRecord) -> Result<(), StoreError> {
        self.map_error(key_value::upsert_namespace(self.connection, record)).map(drop)
    }

    fn key_value(&mut self, namespace: &str, key: &str) -> Result<Option<KeyValueRecord>, StoreError> {
        self.map_error(key_value::find(self.connection, namespace, key))
    }

    fn put_key_value(&mut self, record: &KeyValueRecord) -> Result<(), StoreError> {
        self.map_error(key_value::upsert(self.connection, record)).map(drop)
    }

    fn remove_key_value(&mut self, namespace: &str, key: &str) -> Result<(), StoreError> {
        self.map_error(key_value::remove(self.connection, namespace, key)).map(drop)
    }

    fn put_workspace(&mut self, path: &str, identity: &WorkspaceId) -> Result<(), StoreError> {
        let sql = "INSERT INTO workspaces (path, identity) VALUES (?1, ?2) ON CONFLICT (path) DO NOTHING";
        self.map_error(self.execute(sql, params![path, identity.as_str()])).map(drop)
    }

    fn lease(&mut self, tape: &TapeName) -> Result<Option<LeaseRecord>, StoreError> {
        let read = || queries::lease(self.connection, tape);
        let row = self.cache.leases.get_or_read(tape, read);
        self.map_error(row)
    }

    fn put_lease(&mut self, record: &LeaseRecord) -> Result<(), StoreError> {
        let values =
            params![record.tape.as_str(), to_sql_integer(record.epoch.0), record.owner, record.expires_at.to_string()];
        let sql = match self.cache.leases.get(&record.tape) {
            Some(_) => "UPDATE leases SET epoch = ?2, owner = ?3, until = ?4 WHERE tape = ?1",
            None => {
                "INSERT INTO leases (tape, epoch, owner, until) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (tape) DO UPDATE SET epoch = ?2, owner = ?3, until = ?4"
            }
        };
        self.map_error(self.execute(sql, values))?;
        self.cache.leases.insert(&record.tape, record);
        Ok(())
    }
}

/// Value of the status column of a run. Its index finds runs that have not ended, so a created run is stored as
/// running.
fn status_column(run: &RunRecord) -> &'static str {
    let status = if run.status.is_open() { RunStatus::Running } else { run.status };
    status.as_str()
}

/// Returns true if only the head of a tape has changed, which is the case for nearly every batch.
fn has_only_head_changed(tape: &TapeRecord, before: &TapeRecord) -> bool {
    let TapeRecord {
        name,
        session,
        workspace,
        head: _,
        head_hash: _,
        generation,
        begins_after,
        past_generations,
        replicated_up_to,
        fork,
        brought_along,
    } = tape;
    *session == before.session
        && *workspace == before.workspace
        && *generation == before.generation
        && *begins_after == before.begins_after
        && *past_generations == before.past_generations
        && *replicated_up_to == before.replicated_up_to
        && *fork == before.fork
        && *brought_along == before.brought_along
        && *name == before.name
}

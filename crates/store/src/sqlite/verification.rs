//! Integrity check of a database.

use std::collections::BTreeMap;

use capstan_protocol::{BlobHash, EntryId, TapeName};
use capstan_tape::{ChainCheck, ChainLink, ChainedEntry, ContentDigest, IntegrityProblem, TapeRecord, blob_hash};
use rusqlite::{Connection, Result};

use super::queries::StoredEntryRow;
use super::{chain, payload, queries};

/// Finds all problems of one snapshot of the database.
pub(super) fn find_problems(connection: &Connection) -> Result<Vec<IntegrityProblem>> {
    let transaction = connection.unchecked_transaction()?;
    let mut problems = check_file(&transaction)?;
    let tapes: BTreeMap<TapeName, TapeRecord> = queries::tapes(&transaction, None, usize::MAX)?
        .into_iter()
        .map(|record| (record.name.clone(), record))
        .collect();
    for record in tapes.values() {
        problems.extend(check_tape(record, &tapes).into_iter().map(|message| tape_problem(&record.name, message)));
    }
    problems.extend(check_entries(&transaction, &tapes)?);
    problems.extend(check_rows(&transaction)?);
    problems.extend(check_blobs(&transaction)?);
    problems.extend(check_payloads(&transaction)?);
    Ok(problems)
}

fn tape_problem(tape: &TapeName, message: impl Into<String>) -> IntegrityProblem {
    IntegrityProblem { tape: Some(tape.clone()), message: message.into() }
}

fn store_problem(message: impl Into<String>) -> IntegrityProblem {
    IntegrityProblem { tape: None, message: message.into() }
}

/// Problems that `SQLite` itself finds.
fn check_file(connection: &Connection) -> Result<Vec<IntegrityProblem>> {
    let mut problems = Vec::new();
    let mut statement = connection.prepare("PRAGMA integrity_check")?;
    for line in statement.query_map([], |row| row.get::<_, String>(0))? {
        let line = line?;
        if line != "ok" {
            problems.push(store_problem(line));
        }
    }
    let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
    let orphan = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(2)?));
    for row in statement.query_map([], orphan)? {
        let (table, parent) = row?;
        problems.push(store_problem(format!("a row of {table} refers to a missing row of {parent}")));
    }
    Ok(problems)
}

fn check_tape(record: &TapeRecord, tapes: &BTreeMap<TapeName, TapeRecord>) -> Vec<String> {
    let mut problems = Vec::new();
    if record.begins_after > record.head {
        problems.push(format!("generation {} begins after its head {}", record.generation, record.head));
    }
    if record.replicated_up_to > record.head {
        problems.push(format!(
            "entry {} was replicated, but the head of the tape is {}",
            record.replicated_up_to, record.head
        ));
    }
    if let Some(fork) = &record.fork {
        match tapes.get(&fork.parent) {
            None => problems.push(format!("its parent {} is missing", fork.parent)),
            Some(parent) if parent.head < fork.position => {
                problems.push(format!("it was forked at {}, but its parent ends at {}", fork.position, parent.head));
            }
            Some(_) => {}
        }
    }
    problems
}

fn check_entries(connection: &Connection, tapes: &BTreeMap<TapeName, TapeRecord>) -> Result<Vec<IntegrityProblem>> {
    let mut problems = Vec::new();
    let mut last: (String, EntryId) = Default::default();
    let mut ids: BTreeMap<TapeName, Vec<EntryId>> = BTreeMap::new();
    let mut chains: BTreeMap<&TapeName, ChainCheck> = BTreeMap::new();
    for record in tapes.values() {
        chains.insert(&record.name, chain_check(connection, record, tapes)?);
    }
    queries::for_each_entry(connection, |row| {
        let StoredEntryRow { tape, id, entry, is_payload_damaged, date, hash, index_columns } = row;
        let before = if last.0 == tape { last.1 } else { EntryId(0) };
        let record = TapeName::parse(tape.as_str()).ok().and_then(|name| tapes.get(&name));
        let name = record.map(|record| record.name.clone());
        let mut problem = |message: String| problems.push(IntegrityProblem { tape: name.clone(), message });
        match record {
            None => problem(format!("entry {id} belongs to tape {tape:?}, which is missing")),
            Some(record) => {
                ids.entry(record.name.clone()).or_default().push(id);
                let start = first_row_position(record);
                if id > record.head || id <= start {
                    problem(format!("entry {id} is outside of the tape's range {start}..{}", record.head));
                }
                // Unreadable entries and damaged payloads are reported below, and are no breaks of the chain.
                let content = entry.as_ref().ok().filter(|_| !is_payload_damaged).map(ContentDigest::from_entry);
                if let Some(chain) = chains.get_mut(&record.name) {
                    chain.push(ChainedEntry { id, hash, date, content });
                }
            }
        }
        if id <= before {
            problem(format!("entry {id} does not follow entry {before}"));
        }
        match &entry {
            Err(error) => problem(format!("entry {id} cannot be read: {error}")),
            Ok(entry) if chain::index_columns(entry) != (index_columns.0.as_deref(), index_columns.1) => {
                problem(format!("the name or the date by which entry {id} is found differs from the entry"));
            }
            Ok(_) => {}
        }
        last = (tape, id);
        Ok(())
    })?;
    for record in tapes.values() {
        let stored = ids.remove(&record.name).unwrap_or_default();
        let gaps = record.find_gaps(stored, record.replicated_up_to, record.head);
        problems.extend(gaps.iter().map(|gap| tape_problem(&record.name, gap.to_string())));
        let head = ChainLink { id: record.head, hash: record.head_hash };
        let chain_break = chains.remove(&record.name).and_then(|chain| chain.finish(head));
        let chain_break = chain_break.filter(|chain_break| !chain_break.is_among(&gaps));
        problems.extend(chain_break.map(|chain_break| tape_problem(&record.name, chain_break.to_string())));
    }
    Ok(problems)
}

/// Position after which the rows of a tape begin: the branch point of a fork, or the last replicated entry.
fn first_row_position(record: &TapeRecord) -> EntryId {
    record.fork.as_ref().map_or(EntryId(0), |fork| fork.position).max(record.replicated_up_to)
}

/// Check of the chain of the rows of a tape.
fn chain_check(
    connection: &Connection,
    record: &TapeRecord,
    tapes: &BTreeMap<TapeName, TapeRecord>,
) -> Result<ChainCheck> {
    let branch_point =
        |record: &TapeRecord| record.fork.as_ref().map(|fork| (fork.parent.as_str().to_owned(), fork.position));
    let parent_branch = |tape: &str| TapeName::parse(tape).ok().and_then(|tape| branch_point(tapes.get(&tape)?));
    let id = first_row_position(record);
    let replicated = chain::last_replicated(connection, record.name.as_str())?;
    let hash = match replicated {
        Some(link) => link.hash,
        None => chain::start_hash(connection, branch_point(record), parent_branch)?,
    };
    Ok(ChainCheck::new(record, ChainLink { id, hash }))
}

/// Checks the JSON columns of the other tables and the references of events to entries.
fn check_rows(connection: &Connection) -> Result<Vec<IntegrityProblem>> {
    const JSON_COLUMNS: [(&str, &str); 6] = [
        ("outcomes", "outcome"),
        ("runs", "record"),
        ("runs", "changed"),
        ("outbox", "message"),
        ("outbox", "status"),
        ("state", "value"),
    ];
    let mut problems = Vec::new();
    for (table, column) in JSON_COLUMNS {
        let sql = format!("SELECT count(*) FROM {table} WHERE NOT json_valid({column})");
        let broken: i64 = connection.query_row(&sql, [], |row| row.get(0))?;
        if broken > 0 {
            problems.push(store_problem(format!("{broken} rows of {table} have an unreadable {column}")));
        }
    }
    let sql = "SELECT event_id, inbox.tape, entry FROM inbox LEFT JOIN tapes ON name = inbox.tape \
               WHERE head IS NULL OR entry > head";
    let mut statement = connection.prepare(sql)?;
    let dangling =
        |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?));
    for row in statement.query_map([], dangling)? {
        let (event, tape, entry) = row?;
        problems.push(store_problem(format!("event {event} refers to entry {entry} of tape {tape}, which is missing")));
    }
    Ok(problems)
}

fn check_blobs(connection: &Connection) -> Result<Vec<IntegrityProblem>> {
    let mut problems = Vec::new();
    let mut statement = connection.prepare("SELECT hash, bytes FROM blobs")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let hash = BlobHash::new(row.get::<_, String>(0)?);
        if blob_hash(row.get_ref(1)?.as_blob()?) != hash {
            problems.push(store_problem(format!("the content of blob {hash} is damaged")));
        }
    }
    Ok(problems)
}

/// Finds damaged large payloads. A missing one is found when its entry is read.
fn check_payloads(connection: &Connection) -> Result<Vec<IntegrityProblem>> {
    let mut problems = Vec::new();
    payload::for_each_damaged(connection, |hash, tape, id| {
        let message = format!("the payload of entry {id} is damaged: its content does not match the hash {hash}");
        problems.push(IntegrityProblem { tape: TapeName::parse(tape).ok(), message });
    })?;
    Ok(problems)
}

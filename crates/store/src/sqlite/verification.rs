//! Integrity check of a database.

use std::collections::BTreeMap;

use capstan_protocol::{BlobHash, EntryId, TapeName};
use capstan_tape::{IntegrityProblem, TapeRecord, blob_hash};
use rusqlite::{Connection, Result};

use super::{payload, queries};

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
    let mut last: (String, u64) = Default::default();
    let mut ids: BTreeMap<TapeName, Vec<EntryId>> = BTreeMap::new();
    queries::for_each_entry(connection, |tape, id, entry| {
        let before = if last.0 == tape { last.1 } else { 0 };
        let record = TapeName::parse(tape.as_str()).ok().and_then(|name| tapes.get(&name));
        let name = record.map(|record| record.name.clone());
        let mut problem = |message: String| problems.push(IntegrityProblem { tape: name.clone(), message });
        match record {
            None => problem(format!("entry {id} belongs to tape {tape:?}, which is missing")),
            Some(record) => {
                ids.entry(record.name.clone()).or_default().push(EntryId(id));
                let start = record.fork.as_ref().map_or(EntryId(0), |fork| fork.position).max(record.replicated_up_to);
                if EntryId(id) > record.head || EntryId(id) <= start {
                    problem(format!("entry {id} is outside of the tape's range {start}..{}", record.head));
                }
            }
        }
        if id <= before {
            problem(format!("entry {id} does not follow entry {before}"));
        }
        if let Err(error) = entry {
            problem(format!("entry {id} cannot be read: {error}"));
        }
        last = (tape, id);
    })?;
    for record in tapes.values() {
        let stored = ids.remove(&record.name).unwrap_or_default();
        let gaps = record.find_gaps(stored, record.replicated_up_to, record.head);
        problems.extend(gaps.iter().map(|gap| tape_problem(&record.name, gap.to_string())));
    }
    Ok(problems)
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

//! `capstan doctor --repair`.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

use crate::support::{
    CliFixture, StdioServer, TEST_TIMEOUT, assert_status, doctor_report, execute_sql, find_check, fixture_with_events,
};
use capstan_protocol::{EntryId, JsonObject};
use capstan_tape::{ChainHash, ContentDigest, EntryKind};
use rusqlite::Connection;
use serde_json::{Value, json};

/// Report of `doctor --repair --json` on a home with problems.
#[track_caller]
fn failing_repair_report(fixture: &CliFixture) -> Value {
    let output = fixture.capstan(&["doctor", "--repair", "--json"]).failed("problems-found", 1);
    serde_json::from_str(&output.stdout).expect("one JSON object")
}

/// Contents of every file of the home, except the files that SQLite creates to read a database.
fn file_contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut report = BTreeMap::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            report.insert(path.display().to_string(), Vec::new());
            report.extend(file_contents(&path));
        } else {
            let (name, bytes) = (path.display().to_string(), std::fs::read(&path).unwrap());
            let is_needed = name.ends_with("-shm") || (name.ends_with("-wal") && bytes.is_empty());
            if !is_needed {
                report.insert(name, bytes);
            }
        }
    }
    report
}

/// Creates the lock file of a killed process.
fn write_stale_lock_file(fixture: &CliFixture) {
    std::fs::create_dir_all(fixture.home().join("owners")).unwrap();
    std::fs::write(fixture.home().join("owners/dead.lock"), "").unwrap();
}

#[test]
fn interrupted_backups_are_reported_and_removed() {
    let fixture = fixture_with_events(1);
    let mut killed = std::process::Command::new("true").spawn().unwrap();
    killed.wait().unwrap();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_hours(1);
    let stale =
        [fixture.home(), fixture.workspace()].map(|folder| folder.join(format!(".b.db.capstan-{}.new", killed.id())));
    for path in &stale {
        std::fs::File::create(path).unwrap().set_modified(long_ago).unwrap();
    }
    let report = doctor_report(&fixture, 0);
    assert_status(&report, "backups", "warning");
    assert_eq!(find_check(&report, "backups")["details"].as_array().unwrap().len(), 2, "{report:#}");
    let output = fixture.capstan(&["doctor", "--repair"]).data();
    assert!(stale.iter().all(|path| output.contains(path.to_str().unwrap()) && !path.exists()), "{output}");
    let report = doctor_report(&fixture, 0);
    assert!(report["checks"].as_array().unwrap().iter().all(|check| check["check"] != "backups"), "{report:#}");
}

#[test]
fn doctor_does_not_migrate_an_older_database_but_repair_does() {
    let fixture = CliFixture::with_schema_v1();
    let report = doctor_report(&fixture, 0);
    assert_status(&report, "database", "warning");
    assert!(find_check(&report, "database")["hint"].as_str().unwrap().contains("capstan store migrate"), "{report:#}");
    let conservation = &report["conservation"];
    assert_eq!((&conservation["accepted"], &conservation["outcomes"]), (&json!(4), &json!(3)));
    assert_eq!(conservation["in_flight"], 1);
    assert_status(&report, "in-flight", "warning");
    assert_eq!(find_check(&doctor_report(&fixture, 0), "database")["data"]["schema"], 1, "it is not changed");
    let repaired = fixture.capstan(&["doctor", "--repair", "--json"]).json();
    assert!(repaired["repaired"][0].as_str().unwrap().contains("from schema 1"), "{repaired:#}");
    assert_status(&repaired, "database", "ok");
}

/// Appends an entry with its hash to the only tape of the store.
fn append_unreplicated_note(fixture: &CliFixture) {
    let database = Connection::open(fixture.database()).unwrap();
    let (tape, head, hash): (String, i64, [u8; 32]) = database
        .query_row("SELECT name, head, head_hash FROM tapes", [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap();
    let (id, date, payload) = (head + 1, "2026-11-15T20:57:42.680379+00:00", json!({"name": "note", "data": 1}));
    let digest = ContentDigest::new(&EntryKind::Event, &payload, &JsonObject::new(), &JsonObject::new());
    let hash = ChainHash::from_bytes(hash).link(&tape, EntryId(id.unsigned_abs()), date, &digest);
    let entry = "INSERT INTO entries (tape, id, kind, anchor, payload, meta, date, date_ms, extra, hash) \
                 VALUES (?1, ?2, 'event', NULL, ?3, '{}', ?4, 1794776262680, '{}', ?5)";
    let hash = hash.as_bytes();
    database.execute(entry, (&tape, id, payload.to_string(), date, hash)).unwrap();
    database.execute("UPDATE tapes SET head = ?1, head_hash = ?2", (id, hash)).unwrap();
}

#[test]
fn p12_repair_replicates_pending_entries() {
    let fixture = CliFixture::new().config("tape_store = 'jsonl'\n");
    fixture.capstan(&["run", "hello"]).data();
    let tapes = fixture.home().join("tapes");
    let file = std::fs::read_dir(&tapes).unwrap().next().unwrap().unwrap().path();
    let before = std::fs::read(&file).unwrap();
    // As after the death of a process between commit and replication.
    append_unreplicated_note(&fixture);
    assert_status(&doctor_report(&fixture, 0), "hand-over", "warning");
    let repaired = fixture.capstan(&["doctor", "--repair", "--json"]).json();
    assert!(repaired["repaired"][0].as_str().unwrap().starts_with("replicated entries of tape"), "{repaired:#}");
    assert_status(&repaired, "hand-over", "ok");
    let after = std::fs::read(&file).unwrap();
    assert!(after.starts_with(&before) && after.len() > before.len());
    fixture.assert_undamaged();
}

#[test]
fn x06_repair_removes_the_files_of_a_killed_onboarding() {
    let fixture = CliFixture::new().config("");
    fixture.capstan(&["run", "hello"]).data();
    let mut killed = std::process::Command::new("true").spawn().unwrap();
    killed.wait().unwrap();
    let abandoned = fixture.home().join(format!(".secrets.toml.{}", killed.id()));
    std::fs::write(&abandoned, "api_key = 'sk-left'").unwrap();
    fixture.make_home_private();
    doctor_report(&fixture, 0);
    assert!(abandoned.exists(), "without a repair nothing is removed");
    let repaired = fixture.capstan(&["doctor", "--repair", "--json"]).json();
    let removed = format!("removed an abandoned file: {}", abandoned.display());
    assert!(repaired["repaired"].as_array().unwrap().contains(&json!(removed)), "{repaired:#}");
    assert!(!abandoned.exists());
}

#[test]
fn p12_serve_replicates_the_entries_that_a_dead_process_left() {
    let fixture = CliFixture::new().config("tape_store = 'jsonl'\n");
    fixture.capstan(&["run", "hello"]).data();
    append_unreplicated_note(&fixture);
    assert_status(&doctor_report(&fixture, 0), "hand-over", "warning");
    // No message of that session follows.
    let server = StdioServer::start(&fixture);
    let is_replicated = || find_check(&doctor_report(&fixture, 0), "hand-over")["status"] == "ok";
    let started_at = Instant::now();
    while !is_replicated() {
        assert!(started_at.elapsed() < TEST_TIMEOUT, "not replicated");
    }
    server.close().succeeded();
    fixture.assert_undamaged();
}

/// Asserts that a repair changes nothing in a home, for this reason.
#[track_caller]
fn assert_repair_changes_nothing(fixture: &CliFixture, why: &str) {
    write_stale_lock_file(fixture);
    fixture.make_home_private();
    let before = file_contents(&fixture.home());
    let report = failing_repair_report(fixture);
    assert!(file_contents(&fixture.home()) == before, "nothing is written: {report:#}");
    assert_eq!(report["repaired"], json!([]));
    assert_status(&report, "repair", "problem");
    let details = find_check(&report, "repair")["details"].to_string();
    assert!(details.contains("nothing was changed") && details.contains(why), "{details}");
    let text = fixture.capstan(&["doctor", "--repair"]).failed("problems-found", 1).stdout;
    assert!(text.contains("nothing was repaired") && text.contains("nothing was changed"), "{text}");
}

/// Checkpoints the log into the database, as the last process does on a regular exit.
fn checkpoint_wal(fixture: &CliFixture) {
    let database = Connection::open(fixture.database()).unwrap();
    database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

#[test]
fn x02_repair_does_not_change_a_damaged_home() {
    let garbage = CliFixture::new().config("");
    std::fs::write(garbage.database(), vec![b'x'; 5000]).unwrap();
    assert_repair_changes_nothing(&garbage, "not a database");

    let newer = fixture_with_events(1);
    execute_sql(&newer, "PRAGMA user_version = 99");
    checkpoint_wal(&newer);
    assert_repair_changes_nothing(&newer, "schema version 99");

    let blob = fixture_with_events(1);
    execute_sql(&blob, "UPDATE blobs SET bytes = X'00' WHERE rowid = 1");
    checkpoint_wal(&blob);
    assert_repair_changes_nothing(&blob, "the store is damaged");

    let older = CliFixture::with_schema_v1();
    execute_sql(&older, "DELETE FROM entries WHERE id = 5");
    assert_repair_changes_nothing(&older, "the store is damaged");
    assert_eq!(find_check(&failing_repair_report(&older), "database")["data"]["schema"], 1, "nor is it migrated");

    let lost = fixture_with_events(1);
    execute_sql(&lost, "DELETE FROM outcomes");
    checkpoint_wal(&lost);
    assert_repair_changes_nothing(&lost, "accounted for");
}

#[test]
fn x02_repair_of_a_damaged_home_reports_the_files_that_it_made_private() {
    let garbage = CliFixture::new().config("");
    std::fs::write(garbage.database(), vec![b'x'; 5000]).unwrap();
    garbage.make_home_private();
    std::fs::set_permissions(garbage.database(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let text = garbage.capstan(&["doctor", "--repair"]).failed("problems-found", 1).stdout;
    assert!(text.contains("made ") && text.contains("nothing else was changed"), "{text}");
}

#[test]
fn p12_repair_does_not_change_a_damaged_tape_file_or_its_queue() {
    let fixture = CliFixture::new().config("tape_store = 'jsonl'\n");
    fixture.capstan(&["run", "hello"]).data();
    let file = std::fs::read_dir(fixture.home().join("tapes")).unwrap().next().unwrap().unwrap().path();
    let lines = std::fs::read_to_string(&file).unwrap();
    let cut: Vec<&str> =
        lines.split_inclusive('\n').enumerate().filter(|(at, _)| *at != 2).map(|(_, line)| line).collect();
    std::fs::write(&file, cut.concat()).unwrap();
    checkpoint_wal(&fixture);
    assert_repair_changes_nothing(&fixture, "the store is damaged");

    std::fs::remove_dir_all(fixture.home().join("tapes")).unwrap();
    assert_repair_changes_nothing(&fixture, "the store is damaged");
}

#[test]
fn p12_repair_moves_no_entries_with_an_invalid_configuration() {
    let fixture = fixture_with_events(1);
    // Left over from an earlier configuration.
    std::fs::create_dir(fixture.home().join("tapes")).unwrap();
    let fixture = fixture.config("max_steps = 'many'\n");
    let report = failing_repair_report(&fixture);
    let details = find_check(&report, "repair")["details"].to_string();
    assert!(details.contains("before the configuration is valid"), "{details}");
    assert_eq!(std::fs::read_dir(fixture.home().join("tapes")).unwrap().count(), 0);
    let fixture = fixture.config("");
    assert!(fixture.entries().len() > 2, "the entries were not moved");
}

#[test]
fn x03_dead_letters_are_reported_until_repair_acknowledges_them() {
    let fixture = fixture_with_events(3);
    let undelivered = r#"UPDATE outbox SET status = '{"status":"undelivered","reason":"no recipient"}' WHERE id < 3"#;
    execute_sql(&fixture, undelivered);
    let report = doctor_report(&fixture, 0);
    assert_status(&report, "outbox", "warning");
    assert!(find_check(&report, "outbox")["hint"].as_str().unwrap().contains("doctor --repair"), "{report:#}");

    let repaired = fixture.capstan(&["doctor", "--repair", "--json"]).json();
    let done = repaired["repaired"].to_string();
    assert!(done.contains("acknowledged dead letters") && done.contains("no recipient"), "{done}");
    assert_status(&repaired, "outbox", "ok");
    assert_status(&doctor_report(&fixture, 0), "outbox", "ok");
    let again = fixture.capstan(&["doctor", "--repair", "--json"]).json();
    assert_eq!(again["repaired"], json!([]));
    let texts: Vec<String> = Connection::open(fixture.database())
        .unwrap()
        .prepare("SELECT json_extract(message, '$.content') FROM outbox")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(texts.len(), 3, "their texts are kept");
    assert!(texts.iter().all(|text| text.contains("message ")), "{texts:?}");

    execute_sql(&fixture, &undelivered.replace("id < 3", "id = 3"));
    let report = doctor_report(&fixture, 0);
    assert_eq!(find_check(&report, "outbox")["data"]["undelivered"], 1, "a new one is reported");
}

#[test]
fn p12_doctor_creates_no_tapes_directory() {
    let fixture = CliFixture::new().config("tape_store = 'jsonl'\n");
    let before = file_contents(&fixture.home());
    doctor_report(&fixture, 0);
    fixture.capstan(&["doctor", "--repair"]).data();
    fixture.capstan(&["tape", "list"]).data();
    assert_eq!(file_contents(&fixture.home()), before);
    fixture.capstan(&["run", "hello"]).data();
    assert_eq!(std::fs::read_dir(fixture.home().join("tapes")).unwrap().count(), 1);
}

//! `capstan doctor --repair`: what it does, and what it leaves.

mod cli_support;

use std::collections::BTreeMap;
use std::path::Path;

use cli_support::{CliFixture, assert_status, doctor_report, execute_sql, find_check, fixture_with_events};
use rusqlite::Connection;
use serde_json::{Value, json};

/// What `doctor --repair --json` says of a home in which something is wrong.
#[track_caller]
fn failing_repair_report(place: &CliFixture) -> Value {
    let said = place.capstan(&["doctor", "--repair", "--json"]).failed("problems-found", 1);
    serde_json::from_str(&said.stdout).expect("one JSON object")
}

/// Every file of the home and what is in it, without what whoever reads a database needs beside it.
fn file_contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            found.insert(path.display().to_string(), Vec::new());
            found.extend(file_contents(&path));
        } else {
            let (name, bytes) = (path.display().to_string(), std::fs::read(&path).unwrap());
            let is_needed = name.ends_with("-shm") || (name.ends_with("-wal") && bytes.is_empty());
            if !is_needed {
                found.insert(name, bytes);
            }
        }
    }
    found
}

/// A file as a process leaves it that was killed.
fn write_stale_lock_file(place: &CliFixture) {
    std::fs::create_dir_all(place.home().join("owners")).unwrap();
    std::fs::write(place.home().join("owners/dead.lock"), "").unwrap();
}

#[test]
fn backups_that_were_broken_off_are_told_of_and_removed() {
    let place = fixture_with_events(1);
    let mut killed = std::process::Command::new("true").spawn().unwrap();
    killed.wait().unwrap();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_hours(1);
    let left =
        [place.home(), place.workspace()].map(|folder| folder.join(format!(".b.db.capstan-{}.new", killed.id())));
    for path in &left {
        std::fs::File::create(path).unwrap().set_modified(long_ago).unwrap();
    }
    let found = doctor_report(&place, 0);
    assert_status(&found, "backups", "warning");
    assert_eq!(find_check(&found, "backups")["details"].as_array().unwrap().len(), 2, "{found:#}");
    let said = place.capstan(&["doctor", "--repair"]).data();
    assert!(left.iter().all(|path| said.contains(path.to_str().unwrap()) && !path.exists()), "{said}");
    let found = doctor_report(&place, 0);
    assert!(found["checks"].as_array().unwrap().iter().all(|check| check["check"] != "backups"), "{found:#}");
}

#[test]
fn an_older_database_is_looked_at_as_it_is_and_repair_migrates_it() {
    let place = CliFixture::with_schema_v1();
    let found = doctor_report(&place, 0);
    assert_status(&found, "database", "warning");
    assert!(find_check(&found, "database")["hint"].as_str().unwrap().contains("capstan store migrate"), "{found:#}");
    let conservation = &found["conservation"];
    assert_eq!((&conservation["accepted"], &conservation["outcomes"]), (&json!(4), &json!(3)));
    assert_eq!(conservation["in_flight"], 1);
    assert_status(&found, "in-flight", "warning");
    assert_eq!(find_check(&doctor_report(&place, 0), "database")["data"]["schema"], 1, "it is left as it is");
    let repaired = place.capstan(&["doctor", "--repair", "--json"]).json();
    assert!(repaired["repaired"][0].as_str().unwrap().contains("from schema 1"), "{repaired:#}");
    assert_status(&repaired, "database", "ok");
}

#[test]
fn p12_repair_hands_over_what_waits_for_the_tape_store() {
    let place = CliFixture::new().config("tape_store = 'jsonl'\n");
    place.capstan(&["run", "hello"]).data();
    let tapes = place.home().join("tapes");
    let file = std::fs::read_dir(&tapes).unwrap().next().unwrap().unwrap().path();
    let before = std::fs::read(&file).unwrap();
    // As a process leaves it that dies between the commit and the hand-over.
    let head: i64 = Connection::open(place.database())
        .unwrap()
        .query_row("UPDATE tapes SET head = head + 1 RETURNING head", [], |row| row.get(0))
        .unwrap();
    let entry = format!(
        "INSERT INTO entries (tape, id, kind, anchor, payload, meta, date, date_ms, extra) \
         SELECT name, {head}, 'event', NULL, '{{\"name\":\"note\",\"data\":1}}', '{{}}', \
         '2026-11-15T20:57:42.680379+00:00', NULL, '{{}}' FROM tapes"
    );
    execute_sql(&place, &entry);
    assert_status(&doctor_report(&place, 0), "hand-over", "warning");
    let repaired = place.capstan(&["doctor", "--repair", "--json"]).json();
    assert!(repaired["repaired"][0].as_str().unwrap().starts_with("handed over entries of tape"), "{repaired:#}");
    assert_status(&repaired, "hand-over", "ok");
    let after = std::fs::read(&file).unwrap();
    assert!(after.starts_with(&before) && after.len() > before.len());
    place.assert_undamaged();
}

/// Asserts that a repair changes nothing in a home, and says why.
#[track_caller]
fn assert_repair_changes_nothing(place: &CliFixture, why: &str) {
    write_stale_lock_file(place);
    let before = file_contents(&place.home());
    let found = failing_repair_report(place);
    assert!(file_contents(&place.home()) == before, "nothing is written: {found:#}");
    assert_eq!(found["repaired"], json!([]));
    assert_status(&found, "repair", "problem");
    let details = find_check(&found, "repair")["details"].to_string();
    assert!(details.contains("nothing was touched") && details.contains(why), "{details}");
    let text = place.capstan(&["doctor", "--repair"]).failed("problems-found", 1).stdout;
    assert!(text.contains("nothing was repaired") && text.contains("nothing was touched"), "{text}");
}

/// Folds the log into the database, as the last process does that ends in order.
fn checkpoint_wal(place: &CliFixture) {
    let database = Connection::open(place.database()).unwrap();
    database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

#[test]
fn x02_a_damaged_home_is_left_as_it_is() {
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
    assert_eq!(
        find_check(&failing_repair_report(&older), "database")["data"]["schema"],
        1,
        "it is not migrated either"
    );

    let lost = fixture_with_events(1);
    execute_sql(&lost, "DELETE FROM outcomes");
    checkpoint_wal(&lost);
    assert_repair_changes_nothing(&lost, "accounted for");
}

#[test]
fn p12_a_damaged_tape_file_is_left_as_it_is_and_so_is_what_waits_for_it() {
    let place = CliFixture::new().config("tape_store = 'jsonl'\n");
    place.capstan(&["run", "hello"]).data();
    let file = std::fs::read_dir(place.home().join("tapes")).unwrap().next().unwrap().unwrap().path();
    let lines = std::fs::read_to_string(&file).unwrap();
    let cut: Vec<&str> =
        lines.split_inclusive('\n').enumerate().filter(|(at, _)| *at != 2).map(|(_, line)| line).collect();
    std::fs::write(&file, cut.concat()).unwrap();
    checkpoint_wal(&place);
    assert_repair_changes_nothing(&place, "the store is damaged");

    std::fs::remove_dir_all(place.home().join("tapes")).unwrap();
    assert_repair_changes_nothing(&place, "the store is damaged");
}

#[test]
fn p12_where_the_configuration_is_wrong_no_entry_is_moved() {
    let place = fixture_with_events(1);
    // Left over from another time: nobody keeps tapes there now.
    std::fs::create_dir(place.home().join("tapes")).unwrap();
    let place = place.config("max_steps = 'many'\n");
    let found = failing_repair_report(&place);
    let details = find_check(&found, "repair")["details"].to_string();
    assert!(details.contains("until the configuration says"), "{details}");
    assert_eq!(std::fs::read_dir(place.home().join("tapes")).unwrap().count(), 0);
    let place = place.config("");
    assert!(place.entries().len() > 2, "they are where they were");
}

#[test]
fn x03_messages_that_were_given_up_are_told_of_until_they_are_noted() {
    let place = fixture_with_events(3);
    let undelivered = r#"UPDATE outbox SET status = '{"status":"undelivered","reason":"nobody there"}' WHERE id < 3"#;
    execute_sql(&place, undelivered);
    let found = doctor_report(&place, 0);
    assert_status(&found, "outbox", "warning");
    assert!(find_check(&found, "outbox")["hint"].as_str().unwrap().contains("doctor --repair"), "{found:#}");

    let repaired = place.capstan(&["doctor", "--repair", "--json"]).json();
    let done = repaired["repaired"].to_string();
    assert!(done.contains("noted messages that were given up") && done.contains("nobody there"), "{done}");
    assert_status(&repaired, "outbox", "ok");
    assert_status(&doctor_report(&place, 0), "outbox", "ok");
    let again = place.capstan(&["doctor", "--repair", "--json"]).json();
    assert_eq!(again["repaired"], json!([]));
    let texts: Vec<String> = Connection::open(place.database())
        .unwrap()
        .prepare("SELECT json_extract(message, '$.content') FROM outbox")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(texts.len(), 3, "what they say is kept");
    assert!(texts.iter().all(|text| text.contains("message ")), "{texts:?}");

    execute_sql(&place, &undelivered.replace("id < 3", "id = 3"));
    let found = doctor_report(&place, 0);
    assert_eq!(find_check(&found, "outbox")["data"]["undelivered"], 1, "one that is new is told of");
}

#[test]
fn p12_looking_makes_no_folder_for_tapes() {
    let place = CliFixture::new().config("tape_store = 'jsonl'\n");
    let before = file_contents(&place.home());
    doctor_report(&place, 0);
    place.capstan(&["doctor", "--repair"]).data();
    place.capstan(&["tape", "list"]).data();
    assert_eq!(file_contents(&place.home()), before);
    place.capstan(&["run", "hello"]).data();
    assert_eq!(std::fs::read_dir(place.home().join("tapes")).unwrap().count(), 1);
}

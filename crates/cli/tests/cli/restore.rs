//! `capstan store restore`, and backups that are put in place by hand.

use std::path::{Path, PathBuf};

use crate::support::{
    CliFixture, StdioServer, assert_status, doctor_report, entries_of_kind, find_check, wait_for_barrier,
};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use rusqlite::Connection;
use serde_json::{Value, json};

/// Home with the message `old` in a backup, and the message `new` after it.
fn fixture_with_backup() -> (CliFixture, String) {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "old"]).data();
    let backup = fixture.path("backup.db");
    fixture.capstan(&["store", "backup", &backup]).data();
    fixture.capstan(&["run", "new"]).data();
    (fixture, backup)
}

/// Texts of the users on the tape of the default session.
fn user_texts(fixture: &CliFixture) -> Vec<String> {
    let entries = fixture.entries();
    let messages = entries_of_kind(&entries, "message").into_iter().filter(|entry| entry["payload"]["role"] == "user");
    messages.filter_map(|entry| entry["payload"]["content"].as_str().map(str::to_owned)).collect()
}

/// Files of the home that hold a replaced database.
fn replaced_files(fixture: &CliFixture) -> Vec<PathBuf> {
    let files = std::fs::read_dir(fixture.home()).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.to_string_lossy().contains("capstan.db.replaced-")).collect()
}

fn history_status(fixture: &CliFixture) -> Value {
    let output = fixture.capstan(&["doctor", "--json"]);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    find_check(&report, "history")["status"].clone()
}

#[test]
fn x07_restore_replaces_the_database_and_keeps_the_replaced_one() {
    let (fixture, backup) = fixture_with_backup();
    let output = fixture.capstan(&["store", "restore", &backup]).succeeded();
    assert_eq!(output.stderr, "note: nothing was changed; add --yes to restore the backup\n");
    assert!(output.stdout.starts_with("would restore") && !output.stdout.contains("nothing"), "{output:?}");
    let plan = fixture.capstan(&["store", "restore", &backup, "--dry-run", "--json"]).json();
    assert_eq!((&plan["changed"], &plan["lost_events"], &plan["replaced"]), (&json!(false), &json!(1), &Value::Null));
    assert_eq!(user_texts(&fixture), ["old", "new"]);

    let done = fixture.capstan(&["store", "restore", &backup, "--yes", "--json"]).json();
    assert_eq!(done["changed"], true, "{done:#}");
    assert_eq!(user_texts(&fixture), ["old"]);
    assert_status(&doctor_report(&fixture, 0), "history", "ok");
    assert_eq!(replaced_files(&fixture), [Path::new(done["replaced"].as_str().unwrap())]);
    fixture.capstan(&["store", "restore", done["replaced"].as_str().unwrap(), "--yes"]).succeeded();
    assert_eq!(user_texts(&fixture), ["old", "new"]);
    fixture.capstan(&["run", "more"]).data();
    fixture.assert_undamaged();
    assert_status(&doctor_report(&fixture, 0), "history", "ok");
}

#[test]
fn x07_restore_is_refused_while_a_process_of_the_home_runs() {
    let (fixture, backup) = fixture_with_backup();
    let server = StdioServer::start(&fixture);
    let refused = fixture.capstan(&["store", "restore", &backup, "--yes"]).refused("store-busy", 4);
    assert!(refused.stderr.contains(&format!("with the id {}", server.process_id())), "{}", refused.stderr);
    std::fs::remove_file(fixture.database()).unwrap();
    fixture.capstan(&["store", "restore", &backup, "--yes"]).refused("store-busy", 4);
    assert!(!fixture.database().exists() && replaced_files(&fixture).is_empty());
    server.signal("KILL");
    server.wait_for_exit();
    fixture.capstan(&["store", "restore", &backup, "--yes"]).succeeded();
    assert_eq!(user_texts(&fixture), ["old"]);
    fixture.assert_undamaged();
}

#[test]
fn x07_restore_is_refused_while_another_program_has_the_database_open() {
    let (fixture, backup) = fixture_with_backup();
    let viewer = Connection::open(fixture.database()).unwrap();
    viewer.execute_batch("BEGIN; SELECT count(*) FROM tapes").unwrap();
    fixture.capstan(&["store", "restore", &backup, "--yes"]).refused("store-busy", 4);
    drop(viewer);
    assert_eq!(user_texts(&fixture), ["old", "new"]);
}

#[test]
fn x07_only_a_whole_backup_of_a_known_version_is_restored() {
    let (fixture, backup) = fixture_with_backup();
    let restore = |file: &str| fixture.capstan(&["store", "restore", file, "--yes"]);
    restore(&fixture.path("missing.db")).refused("usage", 2);
    restore(&fixture.file("empty.db", "")).refused("usage", 2);
    restore(fixture.database().to_str().unwrap()).refused("usage", 2);
    restore(&fixture.file("text.db", "not a database".repeat(100))).refused("store-corrupt", 4);
    let foreign = fixture.path("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    restore(&foreign).refused("store-corrupt", 4);
    let newer = fixture.path("newer.db");
    std::fs::copy(&backup, &newer).unwrap();
    Connection::open(&newer).unwrap().pragma_update(None, "user_version", 99).unwrap();
    restore(&newer).refused("store-too-new", 4);
    let gap = fixture.path("gap.db");
    std::fs::copy(&backup, &gap).unwrap();
    Connection::open(&gap).unwrap().execute_batch("DELETE FROM entries WHERE id = 2").unwrap();
    restore(&gap).refused("backup-damaged", 4);
    assert_eq!(user_texts(&fixture), ["old", "new"]);
    assert_eq!(replaced_files(&fixture), Vec::<PathBuf>::new());
}

#[test]
fn x07_damaged_or_missing_database_is_replaced_by_a_backup() {
    for damage in ["text", "page", "missing"] {
        let (fixture, backup) = fixture_with_backup();
        // A log of the database that is gone must not be applied to the restored one.
        std::fs::write(fixture.home().join("capstan.db-wal"), "a stale log").unwrap();
        match damage {
            "text" => std::fs::write(fixture.database(), "no database at all".repeat(1000)).unwrap(),
            "page" => {
                let mut bytes = std::fs::read(fixture.database()).unwrap();
                bytes[100..2000].fill(0xff);
                std::fs::write(fixture.database(), bytes).unwrap();
            }
            _ => std::fs::remove_file(fixture.database()).unwrap(),
        }
        fixture.capstan(&["store", "restore", &backup, "--yes"]).succeeded();
        assert_eq!(user_texts(&fixture), ["old"], "{damage}");
        fixture.assert_undamaged();
        assert_eq!(history_status(&fixture), "ok", "{damage}");
        assert!(!replaced_files(&fixture).is_empty(), "{damage}: the file and its log are kept");
    }
}

#[test]
fn x07_backup_of_an_older_version_is_migrated_after_the_restore() {
    let fixture = CliFixture::with_schema_v1();
    let backup = fixture.path("v1.db");
    fixture.capstan(&["store", "backup", &backup]).data();
    fixture.capstan(&["run", "new"]);
    fixture.capstan(&["store", "restore", &backup, "--yes"]).succeeded();
    fixture.capstan(&["run", "after the restore"]).succeeded();
    fixture.assert_undamaged();
    let connection = Connection::open(fixture.database()).unwrap();
    let owner: String = connection.query_row("SELECT owner FROM in_flight", [], |row| row.get(0)).unwrap();
    assert_eq!(owner, "restored-copy", "its workspace does not repeat the event");
}

#[test]
fn x07_lost_log_of_a_process_that_was_killed_at_once_is_reported() {
    let fixture = CliFixture::new();
    let mut server = StdioServer::start(&fixture);
    server.send_and_recv(&json!({ "id": 1, "session": "s", "text": "hello", "event_id": "e" }));
    server.signal("KILL");
    server.wait_for_exit();
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(fixture.home().join(format!("capstan.db{suffix}"))).unwrap();
    }
    // All tables were in the log.
    let report = doctor_report(&fixture, 1);
    assert_status(&report, "database", "problem");
    assert!(find_check(&report, "database")["data"]["missing_entries"].as_u64() > Some(0), "{report:#}");
    fixture.capstan(&["run", "hello"]).refused("store-replaced", 4);
}

/// Ways to put a backup in place.
#[derive(Debug, Clone, Copy, PartialEq)]
enum RestoreMethod {
    Command,
    CommandResumingEvents,
    /// By hand, after the files of the database were moved away.
    CopiedFile,
    /// By hand, with a copy that another program made.
    ForeignCopy,
}

/// Completes an event after a backup, restores the backup, and returns the number of effects and the reply for the event.
fn repeat_after_restore(method: RestoreMethod) -> (usize, Value) {
    let barrier = ReplyBarrier::new();
    let held = barrier.clone();
    let model = ScriptedModel::start_blocking_with(move |request, number| {
        let messages = request["messages"].as_array().expect("messages");
        if messages.last().is_some_and(|last| last["role"] == "tool") {
            return ScriptedReply::text("done");
        }
        let call = ScriptedReply::tool_calls([("c1", "bash", json!({ "cmd": "echo made >> effects" }))]);
        if number == 0 { call.with_barrier(&held) } else { call }
    });
    let fixture = CliFixture::with_model(&model);
    let line = json!({ "id": 1, "session": "s", "text": "act", "event_id": "e" });
    let mut server = StdioServer::start(&fixture);
    server.send_line(&line);
    wait_for_barrier(&barrier);
    let backup = fixture.path("backup.db");
    if method == RestoreMethod::ForeignCopy {
        Connection::open(fixture.database()).unwrap().execute("VACUUM INTO ?1", [&backup]).unwrap();
    } else {
        fixture.capstan(&["store", "backup", &backup]).data();
    }
    barrier.release();
    assert_eq!(server.recv_line()["text"], "done");
    server.close().succeeded();
    match method {
        RestoreMethod::Command => _ = fixture.capstan(&["store", "restore", &backup, "--yes"]).succeeded(),
        RestoreMethod::CommandResumingEvents => {
            fixture.capstan(&["store", "restore", &backup, "--yes", "--resume-events"]).succeeded();
        }
        RestoreMethod::CopiedFile | RestoreMethod::ForeignCopy => {
            for suffix in ["", "-wal", "-shm"] {
                let _missing = std::fs::remove_file(fixture.home().join(format!("capstan.db{suffix}")));
            }
            std::fs::copy(&backup, fixture.database()).unwrap();
        }
    }
    let mut server = StdioServer::start(&fixture);
    let reply = server.send_and_recv(&line);
    server.close().succeeded();
    assert_eq!(fixture.outcomes(), (1, 0), "{method:?}");
    fixture.assert_undamaged();
    let effects = std::fs::read_to_string(fixture.workspace().join("effects")).unwrap();
    (effects.lines().count(), reply)
}

#[test]
fn x07_event_in_flight_in_a_restored_backup_is_not_run_again() {
    for method in [RestoreMethod::Command, RestoreMethod::CopiedFile, RestoreMethod::ForeignCopy] {
        let (effects, reply) = repeat_after_restore(method);
        assert_eq!((effects, &reply["outcome"]), (1, &json!("failed")), "{method:?}: {reply:#}");
        let text = reply["text"].as_str().unwrap_or_default();
        assert!(text.contains("restored from a backup") && text.contains("please check"), "{method:?}: {reply:#}");
    }
}

#[test]
fn x07_event_in_flight_in_a_restored_backup_is_resumed_on_request() {
    let (effects, reply) = repeat_after_restore(RestoreMethod::CommandResumingEvents);
    assert_eq!((effects, &reply["outcome"]), (2, &json!("replied")), "{reply:#}");
}

#[cfg(feature = "fail-points")]
mod killed {
    use serde_json::Value;

    use super::{fixture_with_backup, history_status, user_texts};
    use crate::support::assert_status;

    /// Kills `store restore` at a point, and returns the texts that are stored afterwards.
    fn texts_after_kill(point: &str, is_missing: bool) -> Vec<String> {
        let (fixture, backup) = fixture_with_backup();
        if is_missing {
            std::fs::remove_file(fixture.database()).unwrap();
        }
        let mut command = fixture.command(&["store", "restore", &backup, "--yes"]);
        let output = command.env("CAPSTAN_FAIL_AT", point).output().unwrap();
        assert_eq!(output.status.code(), None, "killed at {point}: {output:?}");
        let texts = if fixture.database().exists() { user_texts(&fixture) } else { Vec::new() };
        if is_missing && texts.is_empty() {
            let report: Value = serde_json::from_str(&fixture.capstan(&["doctor", "--json"]).stdout).unwrap();
            assert_status(&report, "database", "problem");
        } else {
            fixture.assert_undamaged();
            // Until the mark is set, the restored state is reported as one that went back.
            let is_reported = texts == ["old"] && point != "restore-mark#1 after";
            assert_eq!(history_status(&fixture), if is_reported { "warning" } else { "ok" }, "{point}");
        }
        fixture.capstan(&["store", "restore", &backup, "--yes"]).succeeded();
        assert_eq!(user_texts(&fixture), ["old"], "{point}");
        assert_eq!(history_status(&fixture), "ok", "{point}");
        fixture.capstan(&["run", "continued"]).data();
        fixture.assert_undamaged();
        texts
    }

    #[test]
    fn x07_killed_restore_leaves_the_old_or_the_new_state_and_reports_it() {
        for step in ["restore-copy", "keep-replaced", "replace-content", "restore-mark"] {
            for moment in ["before", "after"] {
                let point = format!("{step}#1 {moment}");
                let is_replaced = step == "restore-mark" || point == "replace-content#1 after";
                let expected: &[&str] = if is_replaced { &["old"] } else { &["old", "new"] };
                assert_eq!(texts_after_kill(&point, false), expected, "{point}");
            }
        }
    }

    #[test]
    fn x07_killed_restore_of_a_missing_database_reports_that_it_is_missing() {
        for (point, expected) in [
            ("restore-copy#1 after", &[][..]),
            ("keep-replaced#1 after", &[]),
            ("replace-content#1 before", &[]),
            ("replace-content#1 after", &["old"]),
            ("restore-mark#1 before", &["old"]),
        ] {
            assert_eq!(texts_after_kill(point, true), expected, "{point}");
        }
    }
}

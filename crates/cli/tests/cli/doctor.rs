//! `capstan doctor` on homes in every state.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use crate::support::{
    CliFixture, StdioServer, assert_status, doctor_report, entries_named, execute_sql, find_check, fixture_with_events,
    wait_for_barrier,
};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use rusqlite::Connection;
use serde_json::{Value, json};

/// Id of a user who is neither root nor the one who runs the tests.
const OTHER_UID: u32 = 12_345;

fn first_event_id(fixture: &CliFixture) -> String {
    let entries = fixture.entries();
    let accepted = entries_named(&entries, "event.accepted")[0];
    accepted["payload"]["data"]["event"]["event_id"].as_str().unwrap().to_owned()
}

#[test]
fn g10_run_past_its_deadline_is_a_warning_that_names_the_process() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("late").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let mut stdio = StdioServer::start(&fixture);
    stdio.send_line(&json!({ "id": 1, "session": "s", "text": "hello" }));
    wait_for_barrier(&barrier);
    stdio.signal("STOP");
    assert_status(&doctor_report(&fixture, 0), "runs", "ok");
    // The lease outlasts the deadline of its run.
    execute_sql(&fixture, "UPDATE leases SET until = '2020-01-01T00:00:00.000000+00:00'");
    let report = doctor_report(&fixture, 0);
    assert_status(&report, "runs", "warning");
    let runs = find_check(&report, "runs");
    assert_eq!(runs["data"]["overdue"][0]["pid"], stdio.process_id(), "{runs:#}");
    assert!(runs["hint"].as_str().unwrap().contains(&format!("process {}", stdio.process_id())), "{runs:#}");
    stdio.signal("KILL");
    stdio.wait_for_exit();
    barrier.release();
}

#[test]
fn x01_healthy_home_passes_all_checks() {
    let fixture = fixture_with_events(2);
    fixture.capstan(&["run", "elsewhere", "--session-id", "other"]).data();
    fixture.capstan(&["tape", "reset", "cli:local"]).data();
    fixture.capstan(&["run", "in the next generation"]).data();
    let report = doctor_report(&fixture, 0);
    let conservation = &report["conservation"];
    assert_eq!((&conservation["accepted"], &conservation["outcomes"]), (&json!(4), &json!(4)));
    assert_eq!((&conservation["missing"], &conservation["surplus"]), (&json!([]), &json!([])));
    assert_eq!(conservation["in_flight"], 0);
    let sessions = conservation["sessions"].as_array().unwrap();
    let local = sessions.iter().find(|session| session["session"] == "cli:local").unwrap();
    let workspace = fixture.workspace().canonicalize().unwrap().display().to_string();
    assert_eq!(
        *local,
        json!({ "session": "cli:local", "tape": local["tape"], "workspace": workspace,
                               "accepted": 3, "outcomes": 3, "in_flight": 0 })
    );
    assert_eq!(sessions.len(), 2);
    for name in ["home", "config", "database", "integrity", "conservation", "in-flight", "runs", "outbox"] {
        assert_status(&report, name, "ok");
    }
    let text = fixture.capstan(&["doctor"]).data();
    assert!(text.contains("4 accepted = 4 outcomes + 0 in flight"), "{text}");
}

#[test]
fn x01_locked_database_is_a_warning() {
    let fixture = fixture_with_events(1);
    let other_program = rusqlite::Connection::open(fixture.database()).unwrap();
    other_program.execute_batch("BEGIN IMMEDIATE").unwrap();
    let report = doctor_report(&fixture, 0);
    assert_status(&report, "lock", "warning");
    assert!(report["checks"].to_string().contains("another process keeps it locked"), "{report}");
    other_program.execute_batch("ROLLBACK").unwrap();
    let report = doctor_report(&fixture, 0);
    assert!(report["checks"].as_array().unwrap().iter().all(|check| check["check"] != "lock"), "{report}");
}

#[test]
fn x02_long_log_is_a_warning_that_names_its_readers() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let [reader, writer] = [0; 2].map(|_| Connection::open(fixture.database()).unwrap());
    reader.execute_batch("BEGIN; SELECT count(*) FROM tapes").unwrap();
    writer.execute_batch("CREATE TABLE scratch (x); INSERT INTO scratch VALUES (zeroblob(70000000))").unwrap();
    let report = doctor_report(&fixture, 0);
    let log = find_check(&report, "log");
    assert_eq!(
        (&log["status"], &log["data"]["readers"][0]["process_id"]),
        (&json!("warning"), &json!(std::process::id()))
    );
    assert!(log["data"]["log_bytes"].as_u64() > Some(70_000_000), "{log}");
    let named = format!("the write-ahead log has 70 MB: the database is read by process {} (", std::process::id());
    assert!(log["message"].as_str().unwrap().starts_with(&named), "{log}");
}

#[test]
fn x01_tapes_stored_as_files_are_counted_too() {
    let fixture = CliFixture::new().config("tape_store = 'jsonl'\n");
    for message in ["one", "two"] {
        fixture.capstan(&["run", message]).data();
    }
    let report = doctor_report(&fixture, 0);
    assert_eq!(report["conservation"]["accepted"], 2);
    assert_status(&report, "hand-over", "ok");
    let fixture = fixture.config("");
    let report = doctor_report(&fixture, 1);
    assert_status(&report, "conservation", "problem");
    assert!(find_check(&report, "conservation")["hint"].as_str().unwrap().contains("tape_store"), "{report:#}");
}

#[test]
fn x01_lost_event_is_named() {
    let fixture = fixture_with_events(2);
    let event = first_event_id(&fixture);
    execute_sql(&fixture, &format!("DELETE FROM outcomes WHERE event_id = '{event}'"));
    let report = doctor_report(&fixture, 1);
    assert_status(&report, "conservation", "problem");
    let conservation = &report["conservation"];
    assert_eq!((&conservation["accepted"], &conservation["outcomes"]), (&json!(2), &json!(1)));
    assert_eq!(conservation["missing"].as_array().map(Vec::len), Some(1));
    assert_eq!(conservation["missing"][0]["event_id"], *event);
    let text = fixture.capstan(&["doctor"]).failed("problems-found", 1).stdout;
    assert!(text.contains(&format!("missing: event {event} of cli")), "{text}");
}

#[test]
fn x01_faults_that_balance_each_other_are_still_named() {
    let fixture = fixture_with_events(2);
    let event = first_event_id(&fixture);
    execute_sql(
        &fixture,
        &format!(
            "DELETE FROM outcomes WHERE event_id = '{event}'; \
             INSERT INTO in_flight SELECT source, bot_id, event_id, session, tape, entry, at, NULL, 0, NULL, NULL \
             FROM inbox WHERE event_id <> '{event}';"
        ),
    );
    let conservation = &doctor_report(&fixture, 1)["conservation"];
    assert_eq!(conservation["accepted"], 2, "equal to outcomes plus in flight");
    assert_eq!((&conservation["outcomes"], &conservation["in_flight"]), (&json!(1), &json!(1)));
    assert_eq!(conservation["missing"][0]["event_id"], *event);
    assert_eq!(conservation["surplus"][0]["why"], "outcome_and_in_flight");
}

#[test]
fn x01_outcome_without_a_tape_entry_is_a_problem() {
    let fixture = fixture_with_events(2);
    let event = first_event_id(&fixture);
    execute_sql(
        &fixture,
        &format!("DELETE FROM entries WHERE json_extract(payload, '$.data.event.event_id') = '{event}'"),
    );
    let conservation = &doctor_report(&fixture, 1)["conservation"];
    assert_eq!(conservation["surplus"][0]["event_id"], *event);
    assert_eq!(conservation["surplus"][0]["why"], "outcome_without_entry");
}

#[test]
fn x01_imported_and_forked_tapes_do_not_count_as_lost_events() {
    let fixture = fixture_with_events(1);
    let exported = fixture.capstan(&["tape", "export", "cli:local"]).data();
    let file = fixture.file("exported.jsonl", exported);
    fixture.capstan(&["tape", "import", &file, "--name", "copy"]).data();
    fixture.capstan(&["tape", "fork", "cli:local", "--as", "fork"]).data();
    assert_eq!(doctor_report(&fixture, 0)["conservation"]["accepted"], 1);
}

#[test]
fn x02_orphaned_work_is_reported_with_a_hint() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("never heard").with_barrier(&barrier)]);
    let fixture = CliFixture::with_model(&server);
    let mut process = fixture.command(&["run", "first"]).spawn().unwrap();
    wait_for_barrier(&barrier);
    let report = doctor_report(&fixture, 0);
    assert_eq!((&report["conservation"]["accepted"], &report["conservation"]["in_flight"]), (&json!(1), &json!(1)));
    assert_status(&report, "in-flight", "ok");
    assert_status(&report, "runs", "ok");

    process.kill().unwrap();
    process.wait().unwrap();
    let report = doctor_report(&fixture, 0);
    assert_eq!((&report["conservation"]["accepted"], &report["conservation"]["in_flight"]), (&json!(1), &json!(1)));
    assert_status(&report, "conservation", "ok");
    assert_status(&report, "in-flight", "warning");
    assert_status(&report, "runs", "warning");
    let abandoned = &find_check(&report, "in-flight")["data"]["abandoned"];
    assert_eq!((abandoned.as_array().unwrap().len(), &abandoned[0]["session"]), (1, &json!("cli:local")));
    let workspace = fixture.workspace().canonicalize().unwrap();
    assert_eq!(abandoned[0]["workspace"], json!(workspace), "only a process of that workspace recovers it");
    let files = || std::fs::read_dir(fixture.home().join("owners")).unwrap().count();
    assert_eq!(files(), 1, "the check changes nothing");

    let repaired = fixture.capstan(&["doctor", "--repair", "--json"]).json();
    assert_eq!(repaired["repaired"].as_array().map(Vec::len), Some(1), "{repaired:#}");
    assert_eq!(files(), 0);
    assert_status(&repaired, "in-flight", "warning");
    let again = fixture.capstan(&["doctor", "--repair", "--json"]).json();
    assert_eq!(again["repaired"], json!([]), "and reports that there was nothing to repair");
    barrier.release();
}

#[test]
fn x03_dead_letters_are_counted_with_their_age() {
    let fixture = fixture_with_events(1);
    execute_sql(
        &fixture,
        r#"UPDATE outbox SET status = '{"status":"undelivered","reason":"no recipient"}', at = '2020-01-01T00:00:00Z'"#,
    );
    let report = doctor_report(&fixture, 0);
    assert_status(&report, "outbox", "warning");
    let outbox = find_check(&report, "outbox");
    assert_eq!((&outbox["data"]["undelivered"], &outbox["data"]["waiting"]), (&json!(1), &json!(0)));
    let output = format!("{} {}", outbox["message"], outbox["details"][0]);
    assert!(output.contains(" d old") && output.contains("no recipient"), "{output}");
    execute_sql(&fixture, r#"UPDATE outbox SET status = '{"status":"waiting"}'"#);
    let report = doctor_report(&fixture, 0);
    assert_status(&report, "outbox", "warning");
    assert_eq!(find_check(&report, "outbox")["data"]["waiting"], 1);
}

#[test]
fn missing_home_is_no_problem_and_is_not_created() {
    let fixture = CliFixture::new();
    let report = doctor_report(&fixture, 0);
    assert!(find_check(&report, "home")["message"].as_str().unwrap().contains("does not exist yet"), "{report:#}");
    assert_eq!(report["conservation"], Value::Null);
    fixture.capstan(&["doctor", "--repair"]).data();
    assert!(!fixture.home().exists());
    let fixture = fixture.config("");
    assert_status(&doctor_report(&fixture, 0), "database", "ok");
    assert!(!fixture.database().exists());
}

#[test]
fn invalid_configuration_does_not_prevent_other_checks() {
    let fixture = fixture_with_events(1).config("modle = 'demo:'\n");
    let report = doctor_report(&fixture, 1);
    assert_status(&report, "config", "problem");
    assert_status(&report, "conservation", "ok");
    assert_eq!(report["conservation"]["accepted"], 1);

    let files = CliFixture::new().config("tape_store = 'jsonl'\n");
    files.capstan(&["run", "hello"]).data();
    let files = files.config("max_steps = 'many'\n");
    let report = doctor_report(&files, 1);
    assert_eq!(report["conservation"]["accepted"], 1, "the tape store is inferred from the files");

    let fixture = CliFixture::new().set("CAPSTAN_MODLE", "x").set("CAPSTAN_MODEL", "openai:x");
    let report = doctor_report(&fixture, 0);
    assert_status(&report, "config", "warning");
    let details = find_check(&report, "config")["details"].to_string();
    assert!(details.contains("CAPSTAN_MODLE") && details.contains("no API key"), "{details}");
    let report = doctor_report(&CliFixture::new().config("[knowledge.docs]\npath = '/nowhere/docs'\n"), 0);
    let details = find_check(&report, "config")["details"].to_string();
    assert!(details.contains("cannot read the folder /nowhere/docs of the knowledge base docs"), "{details}");
    let report = doctor_report(&CliFixture::new().set("CAPSTAN_MODEL", "missing:x"), 0);
    assert!(find_check(&report, "config")["details"].to_string().contains("unknown model provider"), "{report:#}");
}

#[test]
fn home_readable_by_others_is_a_warning() {
    let fixture = fixture_with_events(1);
    std::fs::set_permissions(fixture.home(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let report = doctor_report(&fixture, 0);
    assert_status(&report, "home", "warning");
    assert!(find_check(&report, "home")["hint"].as_str().unwrap().starts_with("chmod 700"), "{report:#}");
    let on_a_file = CliFixture::new();
    on_a_file.file("home", "");
    assert_status(&doctor_report(&on_a_file, 1), "home", "problem");
}

#[test]
fn x06_keys_that_others_could_read_are_a_warning() {
    let fixture = fixture_with_events(1);
    fixture.make_home_private();
    let keys = fixture.file("home/secrets.toml", "");
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o644)).unwrap();
    let report = doctor_report(&fixture, 0);
    assert_status(&report, "home", "warning");
    let home = find_check(&report, "home");
    assert!(home["message"].as_str().unwrap().contains("secrets.toml"), "{home:#}");
    fixture.capstan(&["doctor", "--repair"]).data();
    assert_status(&doctor_report(&fixture, 0), "home", "ok");
}

#[test]
fn x06_home_that_others_can_write_is_refused_and_made_private() {
    let fixture = fixture_with_events(1);
    let set_mode = |name: &str, mode| {
        std::fs::set_permissions(fixture.home().join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    fixture.file("home/config.toml", "");
    for (name, mode) in [("", 0o777), ("", 0o720), ("config.toml", 0o666), ("config.toml", 0o620)] {
        set_mode("", 0o700);
        set_mode("config.toml", 0o600);
        set_mode(name, mode);
        let refused = fixture.capstan(&["run", "hello"]).refused("home-insecure", 3);
        assert!(refused.stderr.contains("other users may write it"), "{refused:?}");
    }
    set_mode("", 0o777);
    for command in [&["trust"][..], &["trust", "--list"], &["untrust"]] {
        fixture.capstan(command).refused("home-insecure", 3);
    }
    assert!(!fixture.home().join("trust.json").exists(), "nothing was written");
    set_mode("", 0o777);
    set_mode("capstan.db", 0o644);
    assert_status(&doctor_report(&fixture, 1), "home", "problem");
    let output = fixture.capstan(&["doctor", "--repair"]).data();
    assert!(output.contains("private"), "{output}");
    let mode = |name: &str| std::fs::metadata(fixture.home().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("config.toml"), mode("capstan.db")), (0o700, 0o600, 0o600));
    fixture.capstan(&["run", "hello"]).data();
}

#[test]
fn x06_home_and_settings_of_another_user_are_refused() {
    let fixture = fixture_with_events(1);
    let path = fixture.file("home/secrets.toml", "api_key = 'theirs'\n");
    if std::fs::metadata(fixture.home()).unwrap().uid() != 0 {
        // Only root can give files away.
        return;
    }
    let (home, database) = (fixture.home(), fixture.database());
    chown(&path, Some(OTHER_UID), None).unwrap();
    let refused = fixture.capstan(&["run", "hello"]).refused("home-insecure", 3);
    assert!(refused.stderr.contains(&format!("secrets.toml: it belongs to user {OTHER_UID}")), "{refused:?}");
    chown(&path, Some(0), None).unwrap();
    chown(&home, Some(OTHER_UID), None).unwrap();
    let before = std::fs::metadata(&database).unwrap().modified().unwrap();
    for command in [&["run", "hello"][..], &["config", "show"], &["tape", "list"]] {
        fixture.capstan(command).refused("home-insecure", 3);
    }
    let checks: Value = serde_json::from_str(&fixture.capstan(&["doctor", "--repair", "--json"]).stdout).unwrap();
    assert_eq!(checks["checks"].as_array().unwrap().len(), 1, "only the home is reported: {checks:#}");
    assert_eq!(std::fs::metadata(&database).unwrap().modified().unwrap(), before, "nothing was used");
}

#[test]
fn x06_every_file_is_private_whatever_the_umask() {
    for store in ["sqlite", "jsonl"] {
        let fixture = CliFixture::new().set("CAPSTAN_TAPE_STORE", store);
        let backup = fixture.path("backup.db");
        for command in [
            &["run", "hello"][..],
            &["run", ",bash 'seq 20000'"],
            &["trust"],
            &["store", "backup", &backup],
            &["store", "restore", &backup, "--yes"],
            &["run", "again"],
            &["doctor", "--repair"],
        ] {
            let run = fixture.command(command);
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", "umask 0; exec \"$0\" \"$@\""]).arg(run.get_program()).args(run.get_args());
            shell.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
            let output = shell.current_dir(fixture.workspace()).output().unwrap();
            assert!(output.status.success(), "{command:?}: {output:?}");
        }
        let mut paths: Vec<_> = std::fs::read_dir(fixture.root()).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| *path != fixture.workspace());
        assert!(paths.len() > 1, "the home, and the backup");
        while let Some(path) = paths.pop() {
            let metadata = path.symlink_metadata().unwrap();
            assert_eq!(metadata.permissions().mode() & 0o077, 0, "{}", path.display());
            if metadata.is_dir() {
                paths.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
    }
}

#[test]
fn damaged_database_is_reported() {
    let garbage = CliFixture::new().config("");
    std::fs::write(garbage.database(), vec![b'x'; 5000]).unwrap();
    garbage.make_home_private();
    let report = doctor_report(&garbage, 1);
    assert_status(&report, "database", "problem");
    let output = garbage.capstan(&["doctor", "--repair"]).failed("problems-found", 1);
    assert!(output.stdout.contains("nothing was repaired"), "{output:?}");
    assert_eq!(std::fs::read(garbage.database()).unwrap(), vec![b'x'; 5000]);

    let newer = fixture_with_events(1);
    execute_sql(&newer, "PRAGMA user_version = 99");
    assert_status(&doctor_report(&newer, 1), "database", "problem");

    let torn = CliFixture::new();
    torn.capstan(&["run", &"x".repeat(100_000)]).data();
    let mut bytes = std::fs::read(torn.database()).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..].iter_mut().for_each(|byte| *byte ^= 0x5a);
    std::fs::write(torn.database(), bytes).unwrap();
    let report = doctor_report(&torn, 1);
    assert_status(&report, "integrity", "problem");

    let blob = fixture_with_events(1);
    execute_sql(&blob, "UPDATE blobs SET bytes = X'00' WHERE rowid = 1");
    let report = doctor_report(&blob, 1);
    assert_status(&report, "integrity", "problem");
    assert_status(&report, "conservation", "ok");
}

#[test]
fn x07_start_without_the_database_is_refused_until_it_is_acknowledged() {
    for is_emptied in [false, true] {
        let fixture = fixture_with_events(1);
        std::fs::remove_file(fixture.database()).unwrap();
        if is_emptied {
            std::fs::write(fixture.database(), b"").unwrap();
        }
        for command in [&["run", "hello"][..], &["serve", "--channel", "stdio"]] {
            let refused = fixture.capstan(command).failed("store-replaced", 4);
            assert!(refused.stderr.contains("is missing or empty: it had "), "{refused:?}");
        }
        let report = doctor_report(&fixture, 1);
        assert_status(&report, "database", "problem");
        let repaired = fixture.capstan(&["doctor", "--repair"]).succeeded();
        assert!(repaired.stdout.contains("acknowledged that the database is gone, with its "), "{repaired:?}");
        fixture.capstan(&["run", "hello"]).data();
        fixture.assert_undamaged();
        assert_status(&doctor_report(&fixture, 0), "history", "ok");
    }
}

#[test]
fn x07_state_that_went_back_is_reported_until_it_is_acknowledged() {
    let fixture = fixture_with_events(1);
    assert_status(&doctor_report(&fixture, 0), "history", "ok");
    fixture.capstan(&["store", "backup", &fixture.path("backup.db")]).succeeded();
    fixture.capstan(&["run", "not in the backup"]).data();
    std::fs::copy(fixture.path("backup.db"), fixture.database()).unwrap();
    let missing = |fixture: &CliFixture| {
        let report = doctor_report(fixture, 0);
        assert_status(&report, "history", "warning");
        find_check(&report, "history")["data"]["missing_entries"].as_u64().unwrap()
    };
    let lost = missing(&fixture);
    assert!(lost > 0);
    let warned = fixture.capstan(&["run", "more"]).succeeded();
    assert!(warned.stderr.contains("the database has fewer entries than before"), "{warned:?}");
    for text in ["than", "there was before"] {
        fixture.capstan(&["run", text]).data();
    }
    assert_eq!(missing(&fixture), lost, "also when the database has more entries than before");
    let repaired = fixture.capstan(&["doctor", "--repair"]).succeeded();
    assert!(repaired.stdout.contains(&format!("acknowledged that {lost} entries are gone")), "{repaired:?}");
    assert_status(&doctor_report(&fixture, 0), "history", "ok");

    std::fs::remove_file(fixture.database()).unwrap();
    let report = doctor_report(&fixture, 1);
    assert_status(&report, "database", "problem");
    assert!(find_check(&report, "database")["message"].as_str().unwrap().contains("is gone; it had "), "{report:#}");
}

#[test]
fn g02_enabled_binding_with_an_unknown_runner_is_a_problem() {
    let fixture = CliFixture::new();
    fixture.capstan(&["bindings", "enable", "default"]).succeeded();
    execute_sql(
        &fixture,
        "UPDATE kept SET value = json_set(value, '$.runner_id', 'plugin:gone') WHERE space = 'bindings'",
    );
    let report = doctor_report(&fixture, 1);
    assert_status(&report, "bindings", "problem");
    assert_eq!(find_check(&report, "bindings")["details"], json!(["default: plugin:gone"]));
    fixture.capstan(&["bindings", "disable", "default"]).succeeded();
    assert!(doctor_report(&fixture, 0)["checks"].as_array().unwrap().iter().all(|check| check["check"] != "bindings"));
}

#[test]
fn g02_unreadable_binding_is_listed_and_can_be_removed() {
    let fixture = CliFixture::new();
    fixture.capstan(&["bindings", "disable", "default"]).data();
    assert!(doctor_report(&fixture, 0)["checks"].as_array().unwrap().iter().all(|check| check["check"] != "bindings"));
    execute_sql(&fixture, "UPDATE kept SET value = json_set(value, '$.colour', 'blue') WHERE space = 'bindings'");
    let report = doctor_report(&fixture, 1);
    assert_status(&report, "bindings", "problem");
    assert!(find_check(&report, "bindings")["details"][0].as_str().unwrap().starts_with("default: "), "{report:#}");
    let listed = fixture.capstan(&["bindings", "list"]).succeeded().stdout;
    assert!(listed.starts_with("default  cannot be read: unknown field `colour`"), "{listed}");
    let listed = fixture.capstan(&["bindings", "list", "--json"]).json();
    assert!(listed[0]["unreadable"].as_str().unwrap().contains("colour"), "{listed}");
    fixture.capstan(&["bindings", "remove", "default"]).succeeded();
    assert_eq!(fixture.capstan(&["bindings", "list"]).data(), "");
    assert!(doctor_report(&fixture, 0)["checks"].as_array().unwrap().iter().all(|check| check["check"] != "bindings"));
}

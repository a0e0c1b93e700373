//! `capstan doctor`: whether all is well, whatever state the home is in.

mod cli_support;

use std::os::unix::fs::PermissionsExt as _;

use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use cli_support::{
    CliFixture, assert_status, doctor_report, entries_named, execute_sql, find_check, fixture_with_events,
    wait_for_gate,
};
use serde_json::{Value, json};

fn first_event_id(place: &CliFixture) -> String {
    let entries = place.entries();
    let told = entries_named(&entries, "event.accepted")[0];
    told["payload"]["data"]["event"]["event_id"].as_str().unwrap().to_owned()
}

#[test]
fn x01_a_home_in_which_all_is_well() {
    let place = fixture_with_events(2);
    place.capstan(&["run", "elsewhere", "--session-id", "other"]).data();
    place.capstan(&["tape", "reset", "cli:local"]).data();
    place.capstan(&["run", "in the next generation"]).data();
    let found = doctor_report(&place, 0);
    let conservation = &found["conservation"];
    assert_eq!((&conservation["accepted"], &conservation["outcomes"]), (&json!(4), &json!(4)));
    assert_eq!((&conservation["missing"], &conservation["surplus"]), (&json!([]), &json!([])));
    assert_eq!(conservation["in_flight"], 0);
    let sessions = conservation["sessions"].as_array().unwrap();
    let local = sessions.iter().find(|session| session["session"] == "cli:local").unwrap();
    let workspace = place.workspace().canonicalize().unwrap().display().to_string();
    assert_eq!(
        *local,
        json!({ "session": "cli:local", "tape": local["tape"], "workspace": workspace,
                               "accepted": 3, "outcomes": 3, "in_flight": 0 })
    );
    assert_eq!(sessions.len(), 2);
    for name in ["home", "config", "database", "integrity", "conservation", "in-flight", "runs", "outbox"] {
        assert_status(&found, name, "ok");
    }
    let text = place.capstan(&["doctor"]).data();
    assert!(text.contains("4 accepted = 4 outcomes + 0 in flight"), "{text}");
}

#[test]
fn x01_a_database_that_another_program_keeps_locked_is_a_warning_while_it_does() {
    let place = fixture_with_events(1);
    let other_program = rusqlite::Connection::open(place.database()).unwrap();
    other_program.execute_batch("BEGIN IMMEDIATE").unwrap();
    let found = doctor_report(&place, 0);
    assert_status(&found, "lock", "warning");
    assert!(found["checks"].to_string().contains("another process keeps it locked"), "{found}");
    other_program.execute_batch("ROLLBACK").unwrap();
    let found = doctor_report(&place, 0);
    assert!(found["checks"].as_array().unwrap().iter().all(|check| check["check"] != "lock"), "{found}");
}

#[test]
fn x01_tapes_kept_as_files_are_counted_too() {
    let place = CliFixture::new().config("tape_store = 'jsonl'\n");
    for message in ["one", "two"] {
        place.capstan(&["run", message]).data();
    }
    let found = doctor_report(&place, 0);
    assert_eq!(found["conservation"]["accepted"], 2);
    assert_status(&found, "hand-over", "ok");
    let place = place.config("");
    let found = doctor_report(&place, 1);
    assert_status(&found, "conservation", "problem");
    assert!(find_check(&found, "conservation")["hint"].as_str().unwrap().contains("tape_store"), "{found:#}");
}

#[test]
fn x01_a_lost_event_is_named() {
    let place = fixture_with_events(2);
    let event = first_event_id(&place);
    execute_sql(&place, &format!("DELETE FROM outcomes WHERE event_id = '{event}'"));
    let found = doctor_report(&place, 1);
    assert_status(&found, "conservation", "problem");
    let conservation = &found["conservation"];
    assert_eq!((&conservation["accepted"], &conservation["outcomes"]), (&json!(2), &json!(1)));
    assert_eq!(conservation["missing"].as_array().map(Vec::len), Some(1));
    assert_eq!(conservation["missing"][0]["event_id"], *event);
    let text = place.capstan(&["doctor"]).failed("problems-found", 1).stdout;
    assert!(text.contains(&format!("missing: event {event} of cli")), "{text}");
}

#[test]
fn x01_faults_that_cancel_out_in_numbers_are_named_all_the_same() {
    let place = fixture_with_events(2);
    let event = first_event_id(&place);
    execute_sql(
        &place,
        &format!(
            "DELETE FROM outcomes WHERE event_id = '{event}'; \
             INSERT INTO in_flight SELECT source, bot_id, event_id, session, tape, entry, at, NULL, 0, NULL, NULL \
             FROM inbox WHERE event_id <> '{event}';"
        ),
    );
    let conservation = &doctor_report(&place, 1)["conservation"];
    assert_eq!(conservation["accepted"], 2, "as many as outcomes and in flight together");
    assert_eq!((&conservation["outcomes"], &conservation["in_flight"]), (&json!(1), &json!(1)));
    assert_eq!(conservation["missing"][0]["event_id"], *event);
    assert_eq!(conservation["surplus"][0]["why"], "outcome_and_in_flight");
}

#[test]
fn x01_an_outcome_of_which_no_tape_tells_is_a_problem() {
    let place = fixture_with_events(2);
    let event = first_event_id(&place);
    execute_sql(
        &place,
        &format!("DELETE FROM entries WHERE json_extract(payload, '$.data.event.event_id') = '{event}'"),
    );
    let conservation = &doctor_report(&place, 1)["conservation"];
    assert_eq!(conservation["surplus"][0]["event_id"], *event);
    assert_eq!(conservation["surplus"][0]["why"], "outcome_without_entry");
}

#[test]
fn x01_imported_and_forked_tapes_are_no_lost_events() {
    let place = fixture_with_events(1);
    let exported = place.capstan(&["tape", "export", "cli:local"]).data();
    let file = place.file("exported.jsonl", exported);
    place.capstan(&["tape", "import", &file, "--name", "copy"]).data();
    place.capstan(&["tape", "fork", "cli:local", "--as", "fork"]).data();
    assert_eq!(doctor_report(&place, 0)["conservation"]["accepted"], 1);
}

#[test]
fn x02_what_a_killed_process_left_is_told_with_what_becomes_of_it() {
    let gate = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("never heard").with_barrier(&gate)]);
    let place = CliFixture::with_model(&server);
    let mut process = place.command(&["run", "first"]).spawn().unwrap();
    wait_for_gate(&gate);
    let found = doctor_report(&place, 0);
    assert_eq!((&found["conservation"]["accepted"], &found["conservation"]["in_flight"]), (&json!(1), &json!(1)));
    assert_status(&found, "in-flight", "ok");
    assert_status(&found, "runs", "ok");

    process.kill().unwrap();
    process.wait().unwrap();
    let found = doctor_report(&place, 0);
    assert_eq!((&found["conservation"]["accepted"], &found["conservation"]["in_flight"]), (&json!(1), &json!(1)));
    assert_status(&found, "conservation", "ok");
    assert_status(&found, "in-flight", "warning");
    assert_status(&found, "runs", "warning");
    let abandoned = &find_check(&found, "in-flight")["data"]["abandoned"];
    assert_eq!((abandoned.as_array().unwrap().len(), &abandoned[0]["session"]), (1, &json!("cli:local")));
    let files = || std::fs::read_dir(place.home().join("owners")).unwrap().count();
    assert_eq!(files(), 1, "looking changes nothing");

    let repaired = place.capstan(&["doctor", "--repair", "--json"]).json();
    assert_eq!(repaired["repaired"].as_array().map(Vec::len), Some(1), "{repaired:#}");
    assert_eq!(files(), 0);
    assert_status(&repaired, "in-flight", "warning");
    let again = place.capstan(&["doctor", "--repair", "--json"]).json();
    assert_eq!(again["repaired"], json!([]), "and says when there was nothing to do");
    gate.release();
}

#[test]
fn x03_messages_that_were_given_up_are_counted_with_their_age() {
    let place = fixture_with_events(1);
    execute_sql(
        &place,
        r#"UPDATE outbox SET status = '{"status":"undelivered","reason":"nobody there"}', at = '2020-01-01T00:00:00Z'"#,
    );
    let found = doctor_report(&place, 0);
    assert_status(&found, "outbox", "warning");
    let outbox = find_check(&found, "outbox");
    assert_eq!((&outbox["data"]["undelivered"], &outbox["data"]["waiting"]), (&json!(1), &json!(0)));
    let said = format!("{} {}", outbox["message"], outbox["details"][0]);
    assert!(said.contains(" d old") && said.contains("nobody there"), "{said}");
    execute_sql(&place, r#"UPDATE outbox SET status = '{"status":"waiting"}'"#);
    let found = doctor_report(&place, 0);
    assert_status(&found, "outbox", "warning");
    assert_eq!(find_check(&found, "outbox")["data"]["waiting"], 1);
}

#[test]
fn a_home_that_is_not_there_yet_is_no_problem_and_is_not_made() {
    let place = CliFixture::new();
    let found = doctor_report(&place, 0);
    assert!(find_check(&found, "home")["message"].as_str().unwrap().contains("not there yet"), "{found:#}");
    assert_eq!(found["conservation"], Value::Null);
    place.capstan(&["doctor", "--repair"]).data();
    assert!(!place.home().exists());
    let place = place.config("");
    assert_status(&doctor_report(&place, 0), "database", "ok");
    assert!(!place.database().exists());
}

#[test]
fn a_configuration_that_is_wrong_keeps_doctor_from_nothing_else() {
    let place = fixture_with_events(1).config("modle = 'demo:'\n");
    let found = doctor_report(&place, 1);
    assert_status(&found, "config", "problem");
    assert_status(&found, "conservation", "ok");
    assert_eq!(found["conservation"]["accepted"], 1);

    let files = CliFixture::new().config("tape_store = 'jsonl'\n");
    files.capstan(&["run", "hello"]).data();
    let files = files.config("max_steps = 'many'\n");
    let found = doctor_report(&files, 1);
    assert_eq!(found["conservation"]["accepted"], 1, "the files tell where the tapes are");

    let place = CliFixture::new().set("CAPSTAN_MODLE", "x").set("CAPSTAN_MODEL", "openai:x");
    let found = doctor_report(&place, 0);
    assert_status(&found, "config", "warning");
    let details = find_check(&found, "config")["details"].to_string();
    assert!(details.contains("CAPSTAN_MODLE") && details.contains("there is no key"), "{details}");
    let found = doctor_report(&CliFixture::new().config("[knowledge.docs]\npath = '/nowhere/docs'\n"), 0);
    let details = find_check(&found, "config")["details"].to_string();
    assert!(details.contains("the knowledge base docs, /nowhere/docs, cannot be read"), "{details}");
    let found = doctor_report(&CliFixture::new().set("CAPSTAN_MODEL", "nobody:x"), 0);
    assert!(find_check(&found, "config")["details"].to_string().contains("nobody provides"), "{found:#}");
}

#[test]
fn a_home_that_others_can_look_into_is_a_warning() {
    let place = fixture_with_events(1);
    std::fs::set_permissions(place.home(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let found = doctor_report(&place, 0);
    assert_status(&found, "home", "warning");
    assert!(find_check(&found, "home")["hint"].as_str().unwrap().starts_with("chmod 700"), "{found:#}");
    let on_a_file = CliFixture::new();
    on_a_file.file("home", "");
    assert_status(&doctor_report(&on_a_file, 1), "home", "problem");
}

#[test]
fn a_damaged_database_is_told_of() {
    let garbage = CliFixture::new().config("");
    std::fs::write(garbage.database(), vec![b'x'; 5000]).unwrap();
    let found = doctor_report(&garbage, 1);
    assert_status(&found, "database", "problem");
    let said = garbage.capstan(&["doctor", "--repair"]).failed("problems-found", 1);
    assert!(said.stdout.contains("nothing was repaired"), "{said:?}");
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
    let found = doctor_report(&torn, 1);
    assert_status(&found, "integrity", "problem");

    let blob = fixture_with_events(1);
    execute_sql(&blob, "UPDATE blobs SET bytes = X'00' WHERE rowid = 1");
    let found = doctor_report(&blob, 1);
    assert_status(&found, "integrity", "problem");
    assert_status(&found, "conservation", "ok");
}

#[test]
fn g02_a_binding_whose_runner_is_gone_is_a_problem_while_it_is_in_force() {
    let place = CliFixture::new();
    place.capstan(&["bindings", "enable", "default"]).succeeded();
    execute_sql(
        &place,
        "UPDATE kept SET value = json_set(value, '$.runner_id', 'plugin:gone') WHERE space = 'bindings'",
    );
    let found = doctor_report(&place, 1);
    assert_status(&found, "bindings", "problem");
    assert_eq!(find_check(&found, "bindings")["details"], json!(["default: plugin:gone"]));
    place.capstan(&["bindings", "disable", "default"]).succeeded();
    assert!(doctor_report(&place, 0)["checks"].as_array().unwrap().iter().all(|check| check["check"] != "bindings"));
}

#[test]
fn g02_a_binding_that_cannot_be_read_is_shown_and_can_be_removed() {
    let place = CliFixture::new();
    place.capstan(&["bindings", "disable", "default"]).data();
    assert!(doctor_report(&place, 0)["checks"].as_array().unwrap().iter().all(|check| check["check"] != "bindings"));
    execute_sql(&place, "UPDATE kept SET value = json_set(value, '$.colour', 'blue') WHERE space = 'bindings'");
    let found = doctor_report(&place, 1);
    assert_status(&found, "bindings", "problem");
    assert!(find_check(&found, "bindings")["details"][0].as_str().unwrap().starts_with("default: "), "{found:#}");
    let listed = place.capstan(&["bindings", "list"]).succeeded().stdout;
    assert!(listed.starts_with("default  cannot be read: unknown field `colour`"), "{listed}");
    let listed = place.capstan(&["bindings", "list", "--json"]).json();
    assert!(listed[0]["unreadable"].as_str().unwrap().contains("colour"), "{listed}");
    place.capstan(&["bindings", "remove", "default"]).succeeded();
    assert_eq!(place.capstan(&["bindings", "list"]).data(), "");
    assert!(doctor_report(&place, 0)["checks"].as_array().unwrap().iter().all(|check| check["check"] != "bindings"));
}

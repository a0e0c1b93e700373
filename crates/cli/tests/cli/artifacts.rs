//! `capstan artifacts`: long tool results and files of runs, listed and removed by the operator.

use crate::support::{CliFixture, execute_sql};
use serde_json::{Value, json};

/// Makes a tool result that is stored as an artifact, and returns its id.
fn store_artifact(fixture: &CliFixture, session: &str) -> String {
    fixture.capstan(&["run", "--session-id", session, "[[tool:bash cmd=\"seq 1 20000\"]]"]).succeeded();
    let listed = fixture.capstan(&["artifacts", "list", "--session-id", session, "--json"]).json();
    listed[0]["id"].as_str().unwrap().to_owned()
}

/// Number of removed artifacts on the system tape.
fn recorded_removals(fixture: &CliFixture) -> Vec<Value> {
    let entries = fixture.tape("system").into_iter().map(|entry| entry["payload"].clone());
    entries.filter(|payload| payload["name"] == "artifact.removed").map(|payload| payload["data"].clone()).collect()
}

fn count_blobs(fixture: &CliFixture) -> i64 {
    let database = rusqlite::Connection::open(fixture.database()).unwrap();
    database.query_row("SELECT count(*) FROM blobs", [], |row| row.get(0)).unwrap()
}

#[test]
fn g14_artifacts_are_listed_and_shown() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.capstan(&["artifacts", "list"]).data(), "", "no artifacts yet");
    assert!(!fixture.home().exists(), "reading has written nothing");
    let (one, two) = (store_artifact(&fixture, "s:one"), store_artifact(&fixture, "s:two"));
    let lines = fixture.capstan(&["artifacts", "list"]).lines();
    assert_eq!(lines.len(), 2);
    assert!(
        lines[0].starts_with(&one) && lines[0].contains(" bash  text/plain") && lines[0].contains("  s:one, "),
        "{lines:?}"
    );
    let content = fixture.capstan(&["artifacts", "show", &two]).data();
    assert!(content.starts_with("1\n2\n") && content.contains("\n19999\n20000"), "{}", content.len());
    let unknown = fixture.capstan(&["artifacts", "show", "run-x.1"]).refused("artifact-unknown", 2);
    assert!(unknown.stderr.contains("capstan artifacts list"), "{unknown:?}");
}

#[test]
fn g14_an_artifact_is_removed_on_request_and_its_entry_stays() {
    let fixture = CliFixture::new();
    let (one, two) = (store_artifact(&fixture, "s:one"), store_artifact(&fixture, "s:two"));
    let before = count_blobs(&fixture);
    let dry_run = fixture.capstan(&["artifacts", "clear", &one]).succeeded();
    assert!(dry_run.stdout.starts_with("would clear ") && dry_run.stderr.contains("--yes"), "{dry_run:?}");
    assert_eq!(count_blobs(&fixture), before);
    fixture.capstan(&["artifacts", "clear", &one, "--yes"]).data();
    assert_eq!(count_blobs(&fixture), before - 1, "only its own content is removed, although the other one is equal");
    let removals = recorded_removals(&fixture);
    assert_eq!((&removals[0]["id"], &removals[0]["reason"]), (&json!(one), &json!("asked for")));
    let left = fixture.capstan(&["artifacts", "list", "--json"]).json();
    assert_eq!((left.as_array().unwrap().len(), &left[0]["id"]), (1, &json!(two)));
    fixture.capstan(&["artifacts", "show", &one]).refused("artifact-unknown", 2);
    fixture.capstan(&["artifacts", "clear", &one, "--yes"]).refused("artifact-unknown", 2);
    let names = |name: &str| fixture.tape("s:one").iter().filter(|entry| entry["payload"]["name"] == name).count();
    assert_eq!(names("artifact.created"), 1, "the entry stays");
    let read = format!(",artifact.read {one}");
    let read = fixture.capstan(&["run", "--session-id", "s:one", &read]).failed("command-failed", 1);
    assert!(read.stdout.contains("is not stored here"), "{read:?}");
    fixture.capstan(&["tape", "verify"]).succeeded();
    fixture.capstan(&["doctor"]).succeeded();
}

#[test]
fn g14_old_artifacts_are_removed_unless_a_message_needs_them() {
    let fixture = CliFixture::new();
    let (one, two, three) =
        (store_artifact(&fixture, "s:one"), store_artifact(&fixture, "s:two"), store_artifact(&fixture, "s:three"));
    let clear = |arguments: &[&str]| {
        let command = [&["artifacts", "clear", "--json"], arguments].concat();
        let cleared = fixture.capstan(&command).json();
        let ids =
            cleared["artifacts"].as_array().unwrap().iter().map(|artifact| artifact["id"].clone()).collect::<Vec<_>>();
        (cleared["cleared"].clone(), ids)
    };
    assert_eq!(clear(&["--older-than", "1", "--yes"]), (json!(true), vec![]), "none is a day old");
    let parts = json!([{"type": "artifact", "artifact": {"id": three}}]);
    execute_sql(
        &fixture,
        &format!(
            "UPDATE entries SET date = '2020-01-01T00:00:00Z' WHERE payload LIKE '%artifact.created%';
             UPDATE outbox SET status = '{{\"status\":\"undelivered\",\"reason\":\"no chat\"}}',
               message = json_set(message, '$.content', json('{parts}')) WHERE id = 1"
        ),
    );
    assert_eq!(clear(&["--older-than", "1"]), (json!(false), vec![json!(one), json!(two)]));
    let kept = fixture.capstan(&["artifacts", "clear", &three, "--yes"]).refused("artifact-unknown", 2);
    assert!(kept.stderr.contains("was not sent yet"), "{kept:?}");
    assert_eq!(clear(&["--older-than", "1", "--session-id", "s:two", "--yes"]), (json!(true), vec![json!(two)]));
    assert_eq!(clear(&["--older-than", "1", "--yes"]), (json!(true), vec![json!(one)]));
    assert_eq!(recorded_removals(&fixture).len(), 2);
    for arguments in [&["clear"][..], &["clear", "x", "--older-than", "1"], &["clear", "--older-than", "0"]] {
        fixture.capstan(&[&["artifacts"], arguments].concat()).refused("usage", 2);
    }
}

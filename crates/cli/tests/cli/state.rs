//! `capstan state`: stored state, inspected and edited by the operator.

use crate::support::CliFixture;
use rusqlite::Connection;
use serde_json::{Value, json};

const AGENT_NAMESPACE: &str = r#"["builtin:agent", "runner", null]"#;

/// Sets a value, and returns the id of its namespace.
fn set_state(fixture: &CliFixture, space: &str, key: &str, value: &str) -> String {
    let output = fixture.capstan(&["state", "set", space, key, value]).data();
    output.trim_end().rsplit(' ').next().unwrap().to_owned()
}

fn listed_namespaces(fixture: &CliFixture, arguments: &[&str]) -> Vec<Value> {
    let listed = fixture.capstan(&[&["state", "list", "--json"], arguments].concat()).json();
    listed.as_array().unwrap().clone()
}

/// Names of the tape events on the system tape, and their whole text.
fn state_events(fixture: &CliFixture) -> (Vec<String>, String) {
    let entries = fixture.tape("system");
    let names = entries.iter().filter_map(|entry| entry["payload"]["name"].as_str().map(str::to_owned));
    (names.filter(|name| name.starts_with("state.")).collect(), json!(entries).to_string())
}

/// Output with ages masked.
fn mask_ages(output: &str) -> String {
    let mut words: Vec<&str> = output.split(' ').collect();
    for fixture in 2..words.len() {
        if words[fixture].starts_with("ago") {
            words[fixture - 2] = "N";
        }
    }
    words.join(" ")
}

#[test]
fn g06_state() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.capstan(&["state", "list"]).data(), "", "no state yet");
    assert!(!fixture.home().exists(), "reading has written nothing");
    let space = set_state(&fixture, AGENT_NAMESPACE, "mood", r#""calm""#);
    set_state(&fixture, &space, "count", "42");
    let conversation = set_state(&fixture, r#"["builtin:agent", "conversation", "cli:local"]"#, "a", "{\"b\": [1, 2]}");
    set_state(&fixture, r#"["builtin:agent", "actor", ["telegram", null, "42"]]"#, "name", r#""Ann""#);
    fixture.capstan(&["run", "hello"]).succeeded();
    let shown = [&["list"][..], &["show", &space], &["show", &space[..4], "mood"], &["clear", &space]];
    let output: Vec<String> = shown
        .iter()
        .map(|arguments| {
            let output = fixture.capstan(&[&["state"], *arguments].concat()).succeeded();
            format!("$ capstan state {}\n{}{}", arguments.join(" "), mask_ages(&output.stdout), output.stderr)
        })
        .collect();
    // The id is that of a tape, which depends on the path of the workspace.
    insta::assert_snapshot!(output.join("\n").replace(&conversation, "[CONVERSATION]"));
}

#[test]
fn g06_help_of_state() {
    let help: Vec<String> = [&["state", "--help"][..], &["state", "clear", "--help"]]
        .iter()
        .map(|arguments| CliFixture::new().capstan(arguments).data())
        .collect();
    insta::assert_snapshot!(help.join("\n"));
}

#[test]
fn g06_refused_arguments_are_named() {
    let fixture = CliFixture::new();
    let space = set_state(&fixture, AGENT_NAMESPACE, "mood", r#""calm""#);
    let short = fixture.capstan(&["state", "show", &space[..3]]).refused("state-unknown", 2);
    assert!(short.stderr.contains("at least 4 characters"), "{short:?}");
    let unknown = fixture.capstan(&["state", "set", r#"["builtin:agent","nope","x"]"#, "k", "1"]);
    let unknown = unknown.refused("state-invalid", 2);
    assert!(unknown.stderr.contains("is not a namespace") && !unknown.stderr.contains("value cannot"), "{unknown:?}");
    fixture.capstan(&["state", "list", "--scope", "nope"]).refused("usage", 2);
}

#[test]
fn g06_changes_are_recorded_on_the_system_tape_without_values() {
    let fixture = CliFixture::new();
    let space = set_state(&fixture, AGENT_NAMESPACE, "mood", r#""very-calm""#);
    fixture.capstan(&["state", "remove", &space, "mood"]).succeeded();
    assert_eq!(listed_namespaces(&fixture, &[]), Vec::<Value>::new());
    fixture.capstan(&["state", "remove", &space, "mood"]).refused("state-unknown", 2);
    set_state(&fixture, AGENT_NAMESPACE, "a", "1");
    set_state(&fixture, AGENT_NAMESPACE, "b", "2");
    fixture.capstan(&["state", "clear", &space]).succeeded();
    assert_eq!(listed_namespaces(&fixture, &[])[0]["keys"], 2, "the first was a dry run");
    fixture.capstan(&["state", "clear", &space, "--yes"]).data();
    assert_eq!(listed_namespaces(&fixture, &[]), Vec::<Value>::new());
    let (names, all) = state_events(&fixture);
    assert_eq!(names, ["state.set", "state.removed", "state.set", "state.set", "state.cleared"]);
    assert!(all.contains(&space) && !all.contains("very-calm"), "{all}");
    fixture.assert_undamaged();
}

#[test]
fn g06_namespaces_are_listed_with_owner_and_limits_and_filtered() {
    let fixture = CliFixture::new();
    let binding = json!({
        "binding_id": "default", "runner_id": "builtin:agent",
        "state_policy": {"enabled": true, "scopes": ["conversation"], "limits": {"keys": 2, "value_bytes": 20}},
    });
    fixture.capstan(&["bindings", "set", &fixture.file("b.json", binding.to_string())]).succeeded();
    fixture.capstan(&["run", "hello"]).succeeded();
    let space = set_state(&fixture, r#"["builtin:agent", "conversation", "cli:local"]"#, "k", "1");
    set_state(&fixture, AGENT_NAMESPACE, "k", "1");
    let of_conversation = listed_namespaces(&fixture, &["--scope", "conversation"]);
    let [row] = &of_conversation[..] else { panic!("one space, not {of_conversation:?}") };
    assert_eq!(
        (&row["id"], &row["session_id"], &row["runner_id"]),
        (&json!(space), &json!("cli:local"), &json!("builtin:agent"))
    );
    assert_eq!((&row["limits"]["keys"], &row["keys"], &row["unused"]), (&json!(2), &json!(1), &Value::Null));
    assert_eq!(
        listed_namespaces(&fixture, &["--scope", "runner"])[0]["limits"],
        Value::Null,
        "the binding does not allow it"
    );
    assert_eq!(listed_namespaces(&fixture, &["--runner", "missing"]), Vec::<Value>::new());

    fixture.capstan(&["state", "set", &space, "k", &format!("{:?}", "x".repeat(19))]).refused("state-too-large", 2);
    set_state(&fixture, &space, "l", "2");
    fixture.capstan(&["state", "set", &space, "m", "3"]).refused("state-too-large", 2);
    set_state(&fixture, &space, "l", "3");
    let shown = fixture.capstan(&["state", "show", &space, "--json"]).json();
    let values = shown["values"].as_array().unwrap().iter().map(|kept| (&kept["key"], &kept["value"]));
    assert_eq!(
        values.collect::<Vec<_>>(),
        [(&json!("k"), &json!(1)), (&json!("l"), &json!(3))],
        "nothing was stored in part"
    );
}

#[test]
fn g06_invalid_arguments_are_rejected_and_change_nothing() {
    let fixture = CliFixture::new();
    let space = set_state(&fixture, AGENT_NAMESPACE, "k", "1");
    let long = "k".repeat(257);
    let invalid: [(&[&str], &str); 14] = [
        (&["set", &space, "k", "calm"], "state-invalid"),
        (&["set", &space, "k", "null"], "state-invalid"),
        (&["set", &space, "", "1"], "state-invalid"),
        (&["set", &space, &long, "1"], "state-invalid"),
        (&["set", "[]", "k", "1"], "state-invalid"),
        (&["set", r#"["builtin:agent", "everybody", null]"#, "k", "1"], "state-invalid"),
        (&["set", r#"["builtin:agent", "actor", "ann"]"#, "k", "1"], "state-invalid"),
        (&["set", r#"["builtin:agent", "runner", "x"]"#, "k", "1"], "state-invalid"),
        (&["set", r#"["missing", "runner", null]"#, "k", "1"], "runner-unknown"),
        (&["set", "0000", "k", "1"], "state-unknown"),
        (&["show", &space, "other"], "state-unknown"),
        (&["show", &space[..3]], "state-unknown"),
        (&["clear"], "usage"),
        (&["clear", &space, "--unused"], "usage"),
    ];
    for (arguments, code) in invalid {
        fixture.capstan(&[&["state"], arguments].concat()).refused(code, 2);
    }
    let shown = fixture.capstan(&["state", "show", &space, "k"]).data();
    assert_eq!((shown.as_str(), state_events(&fixture).0.len()), ("1\n", 1));
    fixture.capstan_with_input(&["state", "set", &space, "k", "-"], b"{\"from\": \"a pipe\"}").succeeded();
    assert_eq!(fixture.capstan(&["state", "show", &space, "k"]).json(), json!({"from": "a pipe"}));
}

#[test]
fn g06_unused_and_old_namespaces_are_cleared_on_request() {
    let fixture = CliFixture::new();
    let binding = |id: &str| {
        let scope = json!({"channel": id});
        let binding = json!({"binding_id": id, "runner_id": "builtin:agent", "scope": scope});
        fixture.capstan(&["bindings", "set", &fixture.file("b.json", binding.to_string())]).succeeded();
    };
    binding("stays");
    binding("goes");
    let stays = set_state(&fixture, r#"["builtin:agent", "binding", "stays"]"#, "k", "1");
    let goes = set_state(&fixture, r#"["builtin:agent", "binding", "goes"]"#, "k", "1");
    let old = set_state(&fixture, AGENT_NAMESPACE, "k", "1");
    fixture.capstan(&["state", "clear", "--unused"]).data();
    fixture.capstan(&["bindings", "remove", "goes"]).succeeded();
    assert_eq!(
        listed_namespaces(&fixture, &["--scope", "binding"]).iter().filter(|row| !row["unused"].is_null()).count(),
        1
    );

    let chosen = |arguments: &[&str]| -> Vec<String> {
        let output = fixture.capstan(&[&["state", "clear", "--json"], arguments].concat()).json();
        let spaces = output["spaces"].as_array().unwrap();
        spaces.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(chosen(&["--unused"]), std::slice::from_ref(&goes));
    assert_eq!(chosen(&["--older-than", "1"]), Vec::<String>::new());
    let database = Connection::open(fixture.database()).unwrap();
    let long_ago = "UPDATE spaces SET at = '2020-01-01T00:00:00Z' WHERE space LIKE '%\"runner\"%'";
    let aged = database.execute(long_ago, []).unwrap();
    assert_eq!(aged, 1);
    drop(database);
    assert_eq!(chosen(&["--older-than", "3"]), std::slice::from_ref(&old));
    assert_eq!(chosen(&["--older-than", "36500"]), Vec::<String>::new());
    assert_eq!(chosen(&["--unused", "--older-than", "3"]), Vec::<String>::new(), "both must apply");

    assert_eq!(chosen(&["--unused", "--yes"]), [goes]);
    assert_eq!(chosen(&["--older-than", "3", "--yes"]), [old]);
    let remaining: Vec<Value> = listed_namespaces(&fixture, &[]).into_iter().map(|row| row["id"].clone()).collect();
    assert_eq!(remaining, [json!(stays)]);
    assert!(state_events(&fixture).1.contains("its binding is gone"));
}

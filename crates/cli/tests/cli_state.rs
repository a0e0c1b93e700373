//! `capstan state`: what runners keep, looked at and changed from outside.

mod cli_support;

use cli_support::CliFixture;
use rusqlite::Connection;
use serde_json::{Value, json};

const AGENT_NAMESPACE: &str = r#"["builtin:agent", "runner", null]"#;

/// Keeps a value, and says in which space.
fn set_state(place: &CliFixture, space: &str, key: &str, value: &str) -> String {
    let said = place.capstan(&["state", "set", space, key, value]).data();
    said.trim_end().rsplit(' ').next().unwrap().to_owned()
}

fn listed_namespaces(place: &CliFixture, arguments: &[&str]) -> Vec<Value> {
    let listed = place.capstan(&[&["state", "list", "--json"], arguments].concat()).json();
    listed.as_array().unwrap().clone()
}

/// The names of the events on the system tape, and all of their text.
fn state_events(place: &CliFixture) -> (Vec<String>, String) {
    let entries = place.tape("system");
    let names = entries.iter().filter_map(|entry| entry["payload"]["name"].as_str().map(str::to_owned));
    (names.filter(|name| name.starts_with("state.")).collect(), json!(entries).to_string())
}

/// What was said, with the time of it left out.
fn mask_ages(said: &str) -> String {
    let mut words: Vec<&str> = said.split(' ').collect();
    for place in 2..words.len() {
        if words[place].starts_with("ago") {
            words[place - 2] = "N";
        }
    }
    words.join(" ")
}

#[test]
fn g06_state() {
    let place = CliFixture::new();
    assert_eq!(place.capstan(&["state", "list"]).data(), "", "nothing is kept yet");
    assert!(!place.home().exists(), "and looking has written nothing");
    let space = set_state(&place, AGENT_NAMESPACE, "mood", r#""calm""#);
    set_state(&place, &space, "count", "42");
    let conversation = set_state(&place, r#"["builtin:agent", "conversation", "cli:local"]"#, "a", "{\"b\": [1, 2]}");
    set_state(&place, r#"["builtin:agent", "actor", ["telegram", null, "42"]]"#, "name", r#""Ann""#);
    place.capstan(&["run", "hello"]).succeeded();
    let shown = [&["list"][..], &["show", &space], &["show", &space[..4], "mood"], &["clear", &space]];
    let said: Vec<String> = shown
        .iter()
        .map(|arguments| {
            let said = place.capstan(&[&["state"], *arguments].concat()).succeeded();
            format!("$ capstan state {}\n{}{}", arguments.join(" "), mask_ages(&said.stdout), said.stderr)
        })
        .collect();
    // Its id is that of a tape, which depends on where the workspace is.
    insta::assert_snapshot!(said.join("\n").replace(&conversation, "[CONVERSATION]"));
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
fn g06_what_is_changed_is_told_on_the_system_tape_without_the_values() {
    let place = CliFixture::new();
    let space = set_state(&place, AGENT_NAMESPACE, "mood", r#""very-calm""#);
    place.capstan(&["state", "remove", &space, "mood"]).succeeded();
    assert_eq!(listed_namespaces(&place, &[]), Vec::<Value>::new());
    place.capstan(&["state", "remove", &space, "mood"]).refused("state-unknown", 2);
    set_state(&place, AGENT_NAMESPACE, "a", "1");
    set_state(&place, AGENT_NAMESPACE, "b", "2");
    place.capstan(&["state", "clear", &space]).succeeded();
    assert_eq!(listed_namespaces(&place, &[])[0]["keys"], 2, "that was only a look");
    place.capstan(&["state", "clear", &space, "--yes"]).data();
    assert_eq!(listed_namespaces(&place, &[]), Vec::<Value>::new());
    let (names, all) = state_events(&place);
    assert_eq!(names, ["state.set", "state.removed", "state.set", "state.set", "state.cleared"]);
    assert!(all.contains(&space) && !all.contains("very-calm"), "{all}");
    place.assert_undamaged();
}

#[test]
fn g06_spaces_are_listed_with_their_owners_and_limits_and_can_be_chosen() {
    let place = CliFixture::new();
    let binding = json!({
        "binding_id": "default", "runner_id": "builtin:agent",
        "state_policy": {"enabled": true, "scopes": ["conversation"], "limits": {"keys": 2, "value_bytes": 20}},
    });
    place.capstan(&["bindings", "set", &place.file("b.json", binding.to_string())]).succeeded();
    place.capstan(&["run", "hello"]).succeeded();
    let space = set_state(&place, r#"["builtin:agent", "conversation", "cli:local"]"#, "k", "1");
    set_state(&place, AGENT_NAMESPACE, "k", "1");
    let of_conversation = listed_namespaces(&place, &["--scope", "conversation"]);
    let [row] = &of_conversation[..] else { panic!("one space, not {of_conversation:?}") };
    assert_eq!(
        (&row["id"], &row["session_id"], &row["runner_id"]),
        (&json!(space), &json!("cli:local"), &json!("builtin:agent"))
    );
    assert_eq!((&row["limits"]["keys"], &row["keys"], &row["unused"]), (&json!(2), &json!(1), &Value::Null));
    assert_eq!(
        listed_namespaces(&place, &["--scope", "runner"])[0]["limits"],
        Value::Null,
        "the binding allows it nothing there"
    );
    assert_eq!(listed_namespaces(&place, &["--runner", "nobody"]), Vec::<Value>::new());

    place.capstan(&["state", "set", &space, "k", &format!("{:?}", "x".repeat(19))]).refused("state-too-large", 2);
    set_state(&place, &space, "l", "2");
    place.capstan(&["state", "set", &space, "m", "3"]).refused("state-too-large", 2);
    set_state(&place, &space, "l", "3");
    let shown = place.capstan(&["state", "show", &space, "--json"]).json();
    let values = shown["values"].as_array().unwrap().iter().map(|kept| (&kept["key"], &kept["value"]));
    assert_eq!(
        values.collect::<Vec<_>>(),
        [(&json!("k"), &json!(1)), (&json!("l"), &json!(3))],
        "nothing was half kept"
    );
}

#[test]
fn g06_what_makes_no_sense_is_refused_and_changes_nothing() {
    let place = CliFixture::new();
    let space = set_state(&place, AGENT_NAMESPACE, "k", "1");
    let long = "k".repeat(257);
    let wrong: [(&[&str], &str); 14] = [
        (&["set", &space, "k", "calm"], "state-invalid"),
        (&["set", &space, "k", "null"], "state-invalid"),
        (&["set", &space, "", "1"], "state-invalid"),
        (&["set", &space, &long, "1"], "state-invalid"),
        (&["set", "[]", "k", "1"], "state-invalid"),
        (&["set", r#"["builtin:agent", "everybody", null]"#, "k", "1"], "state-invalid"),
        (&["set", r#"["builtin:agent", "actor", "ann"]"#, "k", "1"], "state-invalid"),
        (&["set", r#"["builtin:agent", "runner", "x"]"#, "k", "1"], "state-invalid"),
        (&["set", r#"["nobody", "runner", null]"#, "k", "1"], "runner-unknown"),
        (&["set", "0000", "k", "1"], "state-unknown"),
        (&["show", &space, "other"], "state-unknown"),
        (&["show", &space[..3]], "state-unknown"),
        (&["clear"], "usage"),
        (&["clear", &space, "--unused"], "usage"),
    ];
    for (arguments, code) in wrong {
        place.capstan(&[&["state"], arguments].concat()).refused(code, 2);
    }
    let shown = place.capstan(&["state", "show", &space, "k"]).data();
    assert_eq!((shown.as_str(), state_events(&place).0.len()), ("1\n", 1));
    place.capstan_with_input(&["state", "set", &space, "k", "-"], b"{\"from\": \"a pipe\"}").succeeded();
    assert_eq!(place.capstan(&["state", "show", &space, "k"]).json(), json!({"from": "a pipe"}));
}

#[test]
fn g06_what_nobody_uses_is_cleared_when_it_is_asked_for_by_binding_and_by_age() {
    let place = CliFixture::new();
    let binding = |id: &str| {
        let scope = json!({"channel": id});
        let binding = json!({"binding_id": id, "runner_id": "builtin:agent", "scope": scope});
        place.capstan(&["bindings", "set", &place.file("b.json", binding.to_string())]).succeeded();
    };
    binding("stays");
    binding("goes");
    let stays = set_state(&place, r#"["builtin:agent", "binding", "stays"]"#, "k", "1");
    let goes = set_state(&place, r#"["builtin:agent", "binding", "goes"]"#, "k", "1");
    let old = set_state(&place, AGENT_NAMESPACE, "k", "1");
    place.capstan(&["state", "clear", "--unused"]).data();
    place.capstan(&["bindings", "remove", "goes"]).succeeded();
    assert_eq!(
        listed_namespaces(&place, &["--scope", "binding"]).iter().filter(|row| !row["unused"].is_null()).count(),
        1
    );

    let chosen = |arguments: &[&str]| -> Vec<String> {
        let said = place.capstan(&[&["state", "clear", "--json"], arguments].concat()).json();
        let spaces = said["spaces"].as_array().unwrap();
        spaces.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(chosen(&["--unused"]), std::slice::from_ref(&goes));
    assert_eq!(chosen(&["--older-than", "1"]), Vec::<String>::new());
    let database = Connection::open(place.database()).unwrap();
    let long_ago = "UPDATE spaces SET at = '2020-01-01T00:00:00Z' WHERE space LIKE '%\"runner\"%'";
    let aged = database.execute(long_ago, []).unwrap();
    assert_eq!(aged, 1);
    drop(database);
    assert_eq!(chosen(&["--older-than", "3"]), std::slice::from_ref(&old));
    assert_eq!(chosen(&["--older-than", "36500"]), Vec::<String>::new());
    assert_eq!(chosen(&["--unused", "--older-than", "3"]), Vec::<String>::new(), "both must hold");

    assert_eq!(chosen(&["--unused", "--yes"]), [goes]);
    assert_eq!(chosen(&["--older-than", "3", "--yes"]), [old]);
    let left: Vec<Value> = listed_namespaces(&place, &[]).into_iter().map(|row| row["id"].clone()).collect();
    assert_eq!(left, [json!(stays)]);
    assert!(state_events(&place).1.contains("its binding is gone"));
}

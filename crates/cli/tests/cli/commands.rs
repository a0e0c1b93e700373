//! Comma commands (A3) and handoffs (P4), from the user's view.

use crate::support::{CliFixture, entries_named, entries_of_kind, entry_ids, tape_name};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

/// Messages of a request after the system prompt, as (role, content).
fn request_messages(request: &Value) -> Vec<(String, String)> {
    let text = |message: &Value, key: &str| message[key].as_str().unwrap_or_default().to_owned();
    let messages = request["messages"].as_array().expect("messages");
    assert_eq!(messages[0]["role"], "system");
    messages[1..].iter().map(|message| (text(message, "role"), text(message, "content"))).collect()
}

fn chat_message(role: &str, text: &str) -> (String, String) {
    (role.to_owned(), text.to_owned())
}

#[test]
fn a03_comma_command_runs_a_tool_and_is_recorded_as_a_command() {
    let fixture = CliFixture::new();
    std::fs::write(fixture.workspace().join("README.md"), "# Demo\n").unwrap();
    let info = fixture.capstan(&["run", ",tape.info"]).data();
    assert!(info.contains(&tape_name(&fixture.workspace(), "cli:local")), "{info}");
    assert!(info.contains("last anchor: session/start"), "{info}");
    let help = fixture.capstan(&["run", ",help"]).data();
    for tool in [",bash", ",fs.read", ",tape.info", ",tape.handoff"] {
        assert!(help.contains(tool), "{help}");
    }
    assert_eq!(fixture.capstan(&["run", ",fs.read README.md"]).data().trim_end(), "# Demo");
    assert_eq!(fixture.capstan(&["run", ",echo hi \"$((20 + 3))\""]).data(), "hi 23\n");

    let entries = fixture.entries();
    assert_eq!(entries_of_kind(&entries, "message"), Vec::<&Value>::new());
    let commands = entries_named(&entries, "command");
    let note = |key: &str| -> Vec<&str> {
        commands.iter().map(|entry| entry["payload"]["data"][key].as_str().unwrap()).collect()
    };
    assert_eq!(note("name"), ["tape.info", "help", "fs.read", "bash"]);
    assert_eq!(note("raw"), ["tape.info", "help", "fs.read README.md", "echo hi \"$((20 + 3))\""]);
    assert_eq!(note("status"), ["ok"; 4]);
    assert_eq!(note("output")[3], "hi 23");
    assert_eq!(fixture.outcomes(), (4, 0));
}

#[test]
fn a03_failed_command_is_reported_and_an_invalid_one_rejected() {
    let fixture = CliFixture::new();
    let output = fixture.capstan(&["run", ",exit 3", "--event-id", "e1"]).failed("command-failed", 1);
    assert!(output.stdout.contains("exited with code 3"), "{output:?}");
    let repeated = fixture.capstan(&["run", ",exit 3", "--event-id", "e1", "--json"]).failed("command-failed", 1);
    let repeated: Value = serde_json::from_str(&repeated.stdout).unwrap();
    assert_eq!((&repeated["outcome"], &repeated["error"]["code"]), (&json!("replied"), &json!("command-failed")));
    fixture.capstan(&["run", ",fs.read 'open"]).refused("command-invalid", 1);
    let entries = fixture.entries();
    assert_eq!(entries_of_kind(&entries, "message"), Vec::<&Value>::new());
    assert_eq!(entries_named(&entries, "command")[0]["payload"]["data"]["status"], "error");
    assert_eq!(fixture.outcomes(), (2, 0));
}

#[test]
fn p03_p04_request_after_a_handoff_command_starts_from_the_anchor() {
    let server =
        ScriptedModel::start_blocking(vec![ScriptedReply::text("old words"), ScriptedReply::text("new words")]);
    let fixture = CliFixture::with_model(&server);
    fixture.capstan(&["run", "old question"]).data();
    fixture.capstan(&["run", ",tape.handoff name=x summary='a b'"]).data();
    fixture.capstan(&["run", "new question"]).data();
    let expected =
        [chat_message("assistant", "[Anchor created: x]: {\"summary\":\"a b\"}"), chat_message("user", "new question")];
    assert_eq!(request_messages(&server.requests()[1]), expected);
    assert_eq!(server.violations(), Vec::<String>::new());

    let entries = fixture.entries();
    let anchors = entries_of_kind(&entries, "anchor");
    assert_eq!(anchors[1]["payload"], json!({"name": "x", "state": {"summary": "a b"}}));
    assert_eq!(fixture.capstan(&["tape", "anchors", "cli:local"]).lines().len(), 2);
    let found = fixture.capstan(&["tape", "search", "cli:local", "old words"]).data();
    assert!(found.contains("assistant: old words"), "nothing is deleted: {found}");
}

#[test]
fn p04_handoff_works_under_both_names_of_its_tool() {
    let handoff =
        ScriptedReply::tool_calls([("call_1", "tape.handoff", json!({"name": "phase-2", "summary": "half done"}))]);
    let server = ScriptedModel::start_blocking(vec![handoff, ScriptedReply::text("done")]);
    CliFixture::with_model(&server).capstan(&["run", "go on"]).succeeded();
    let (_, note) = request_messages(&server.requests()[1]).pop().unwrap();
    assert!(note.starts_with("Continue: the handoff you requested is done"), "{note}");
}

#[test]
fn p04_handoff_by_tool_takes_effect_after_the_results_of_its_step() {
    let handoff = json!({"name": "phase-2", "summary": "half done"});
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([
            ("call_1", "bash", json!({"cmd": "echo one"})),
            ("call_2", "tape_handoff", handoff),
            ("call_3", "bash", json!({"cmd": "echo three"})),
        ]),
        ScriptedReply::text("done"),
        ScriptedReply::text("next"),
    ]);
    let fixture = CliFixture::with_model(&server);
    fixture.capstan(&["run", "go on"]).succeeded();
    fixture.capstan(&["run", "and then?"]).data();
    assert_eq!(server.violations(), Vec::<String>::new());
    let anchor = chat_message("assistant", "[Anchor created: phase-2]: {\"summary\":\"half done\"}");
    let go_on = chat_message("user", "go on");
    let second = request_messages(&server.requests()[1]);
    assert_eq!(second[..2], [anchor.clone(), go_on.clone()]);
    let (_, note) = &second[2];
    assert!(
        note.starts_with("Continue: the handoff you requested is done"),
        "otherwise the model would ask for it again: {note}"
    );
    assert_eq!(second.len(), 3);
    let next = [anchor, go_on, second[2].clone(), chat_message("assistant", "done"), chat_message("user", "and then?")];
    assert_eq!(request_messages(&server.requests()[2]), next);

    let entries = fixture.entries();
    let anchor = entries_of_kind(&entries, "anchor")[1];
    let last_result = *entries_of_kind(&entries, "tool_result").last().unwrap();
    assert_eq!(entries_of_kind(&entries, "tool_result").len(), 3);
    assert!(anchor["id"].as_u64() > last_result["id"].as_u64(), "after the results of its step");
    let message = entries_of_kind(&entries, "message")[0];
    assert_eq!(anchor["meta"]["messages"], json!([message["id"]]));
    assert_eq!(entry_ids(&entries), (1..=entries.len() as u64).collect::<Vec<_>>());
}

#[test]
fn g09_langbot_query_is_served_and_its_binding_recorded() {
    let fixture = CliFixture::new();
    let query = json!({
        "adapter": "qq",
        "pipeline_uuid": "p-1",
        "launcher_type": "person",
        "launcher_id": "ann",
        "sender_id": "ann",
        "text": ",help",
        "pipeline_config": {"ai": {"runner": {"runner": "local-agent"}, "local-agent": {"max-round": 10}}},
    });
    let file = fixture.file("query.json", query.to_string());
    let served: Value = serde_json::from_str(&fixture.capstan(&["events", "query", &file]).data()).unwrap();
    assert_eq!((&served["outcome"], &served["session_id"]), (&json!("replied"), &json!("qq:person_ann")));
    let shown = fixture.capstan(&["runs", "show", served["run_id"].as_str().unwrap()]).data();
    assert!(shown.contains("builtin:agent (binding pipeline:p-1)"), "{shown}");
    let log = fixture.capstan(&["tape", "events", &tape_name(&fixture.workspace(), "qq:person_ann"), "--json"]).data();
    assert!(log.contains("\"binding_id\":\"pipeline:p-1\""), "{log}");

    let mut invalid = query;
    invalid["pipeline_config"]["moderation"] = json!({});
    let output = fixture.capstan_with_input(&["events", "query", "-"], invalid.to_string().as_bytes());
    assert!(output.refused("query-invalid", 2).stderr.contains("unknown field `moderation`"));
    fixture.capstan_with_input(&["events", "query", "-"], b"[").refused("query-invalid", 2);
    assert_eq!(fixture.outcomes(), (1, 0), "none of them was accepted");
}

//! `capstan run`: one turn, from the command line to the tape.

use crate::support::{CliFixture, entries_named, entries_of_kind, entry_ids, tape_name};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

fn model_with_replies(texts: &[&str]) -> ScriptedModel {
    ScriptedModel::start_blocking(texts.iter().map(|text| ScriptedReply::text(*text)).collect())
}

fn message_texts(entries: &[Value]) -> Vec<(String, String)> {
    let text = |entry: &Value, key: &str| entry["payload"][key].as_str().unwrap_or_default().to_owned();
    entries_of_kind(entries, "message").iter().map(|entry| (text(entry, "role"), text(entry, "content"))).collect()
}

fn chat_message(role: &str, text: &str) -> (String, String) {
    (role.to_owned(), text.to_owned())
}

#[test]
fn p05_p06_two_turns_share_one_tape_with_the_specified_name_and_start() {
    let server = model_with_replies(&["first reply", "second reply"]);
    let fixture = CliFixture::with_model(&server);
    assert_eq!(fixture.capstan(&["run", "hello"]).data(), "first reply\n");
    assert_eq!(fixture.capstan(&["run", "again"]).data(), "second reply\n");

    let tapes = fixture.capstan(&["tape", "list", "--json"]).json();
    assert_eq!(tapes.as_array().map(Vec::len), Some(1));
    assert_eq!(tapes[0]["name"], json!(tape_name(&fixture.workspace(), "cli:local")));
    assert_eq!(tapes[0]["session"], "cli:local");

    let entries = fixture.entries();
    assert_eq!(entries[0]["kind"], "anchor");
    assert_eq!(entries[0]["payload"], json!({"name": "session/start", "state": {"owner": "human"}}));
    assert_eq!(entry_ids(&entries), (1..=entries.len() as u64).collect::<Vec<_>>());
    assert_eq!(entries_of_kind(&entries, "anchor").len(), 1);
    let expected = [
        chat_message("user", "hello"),
        chat_message("assistant", "first reply"),
        chat_message("user", "again"),
        chat_message("assistant", "second reply"),
    ];
    assert_eq!(message_texts(&entries), expected);
    assert_eq!(entries_named(&entries, "event.accepted").len(), 2);

    let shown = fixture.capstan(&["tape", "show", "cli:local"]).lines();
    assert_eq!(shown.len(), entries.len());
    for text in ["user: hello", "assistant: first reply", "user: again", "assistant: second reply"] {
        assert_eq!(shown.iter().filter(|line| line.ends_with(text)).count(), 1, "{text}");
    }
    assert_eq!(fixture.outcomes(), (2, 0));
    fixture.assert_undamaged();
}

#[test]
fn a12_demo_model_replies_without_key_and_network() {
    let reply = CliFixture::new().capstan(&["run", "hello"]).data();
    assert!(reply.contains("I am the demo model"), "{reply}");
    assert!(reply.contains("hello"), "{reply}");
}

#[test]
fn only_the_reply_goes_to_standard_output() {
    let call = ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "echo out; echo err >&2"}))]);
    let server = ScriptedModel::start_blocking(vec![call, ScriptedReply::text("It said out and err.")]);
    let output = CliFixture::with_model(&server).capstan(&["run", "go"]).succeeded();
    assert_eq!(output.stdout, "It said out and err.\n");
    assert!(output.stderr.contains("bash"), "progress is reported: {output:?}");
}

#[test]
fn json_output_is_one_complete_object() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text_with_usage("hi there", 120, 3)]);
    let fixture = CliFixture::with_model(&server);
    let output: Value = serde_json::from_str(&fixture.capstan(&["run", "hello", "--json"]).data()).unwrap();
    assert_eq!(output["session_id"], "cli:local");
    assert_eq!(output["output"], "hi there");
    assert_eq!(output["outbounds"].as_array().map(Vec::len), Some(1));
    assert_eq!(output["outbounds"][0]["content"], "hi there");
    assert_eq!(output["outbounds"][0]["channel"], "cli");
    assert_eq!(output["outbounds"][0]["chat_id"], "local");
    let usage = json!({"prompt_tokens": 120, "completion_tokens": 3, "total_tokens": 123});
    assert_eq!(output["usage"], usage);
    assert_eq!(output["outcome"], "replied");
    let run_id = output["run_id"].as_str().expect("a run id");
    let of_run = fixture.entries().iter().filter(|entry| entry["meta"]["run_id"] == run_id).count();
    assert!(of_run > 2, "the entries of the run name it");
}

#[test]
fn dash_reads_the_message_from_standard_input() {
    let server = model_with_replies(&["read"]);
    let fixture = CliFixture::with_model(&server);
    let message = "two\nlines, 你好 🐋";
    assert_eq!(fixture.capstan_with_input(&["run", "-"], message.as_bytes()).data(), "read\n");
    assert_eq!(message_texts(&fixture.entries())[0], chat_message("user", message));
}

#[test]
fn chat_and_sender_options_are_recorded() {
    let server = model_with_replies(&["one", "two"]);
    let fixture = CliFixture::with_model(&server);
    let run = ["run", "hi", "--json", "--chat-id", "team", "--sender-id", "alice"];
    let output = fixture.capstan(&run).json();
    assert_eq!(output["session_id"], "cli:team");
    assert_eq!(output["outbounds"][0]["chat_id"], "team");
    let entries = fixture.tape("cli:team");
    let event = &entries_named(&entries, "event.accepted")[0]["payload"]["data"]["event"];
    assert_eq!(event["conversation_id"], "team");
    assert_eq!(event["actor"]["id"], "alice");
    assert_eq!(event["source"], "cli");

    let output = fixture.capstan(&["run", "hi", "--json", "--session-id", "a session / of mine"]).json();
    assert_eq!(output["session_id"], "a session / of mine");
    let name = tape_name(&fixture.workspace(), "a session / of mine");
    assert_eq!(message_texts(&fixture.tape(&name)).len(), 2);
}

#[test]
fn p05_one_session_in_two_workspaces_has_two_tapes() {
    let server = model_with_replies(&["here", "there"]);
    let fixture = CliFixture::with_model(&server);
    let other = fixture.root().join("other");
    std::fs::create_dir(&other).unwrap();
    let other_path = other.to_str().unwrap();
    fixture.capstan(&["run", "hi", "--session-id", "s"]).data();
    // The resolved path identifies the workspace.
    let detour = fixture.path("workspace/../other");
    fixture.capstan(&["run", "hi", "--session-id", "s", "--workspace", &detour]).data();

    let tapes = fixture.capstan(&["tape", "list", "--json"]).json();
    let mut expected = [tape_name(&fixture.workspace(), "s"), tape_name(&other, "s")];
    expected.sort();
    assert_eq!([&tapes[0]["name"], &tapes[1]["name"]], [&json!(expected[0]), &json!(expected[1])]);
    assert_eq!(message_texts(&fixture.tape("s"))[1], chat_message("assistant", "here"));
    let other_entries = fixture.capstan(&["tape", "--workspace", other_path, "export", "s"]).values();
    assert_eq!(message_texts(&other_entries)[1], chat_message("assistant", "there"));
    assert_eq!(server.requests()[1]["messages"].as_array().map(Vec::len), Some(3), "no text of the other workspace");
}

#[test]
fn home_defaults_to_the_users_home_directory() {
    let fixture = CliFixture::new();
    fixture.command(&["run", "hello"]).env_remove("CAPSTAN_HOME").output().unwrap();
    assert!(fixture.root().join("user/.capstan/capstan.db").is_file());
    assert!(!fixture.home().exists());
}

#[test]
fn a03_a_comma_without_a_command_is_refused() {
    let fixture = CliFixture::new();
    for text in [",", " , "] {
        let refused = fixture.capstan(&["run", text]).refused("input-invalid", 2);
        assert!(refused.stderr.contains(",help"), "{refused:?}");
    }
    assert!(!fixture.database().exists(), "no message was accepted");
}

//! `capstan run`: one turn, from the command line to the tape.

mod cli_support;

use capstan_testing::{ScriptedModel, ScriptedReply};
use cli_support::{CliFixture, entries_named, entries_of_kind, entry_ids, tape_name};
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
fn p05_p06_two_turns_stand_on_one_tape_named_and_begun_as_the_rule_says() {
    let server = model_with_replies(&["first reply", "second reply"]);
    let place = CliFixture::with_model(&server);
    assert_eq!(place.capstan(&["run", "hello"]).data(), "first reply\n");
    assert_eq!(place.capstan(&["run", "again"]).data(), "second reply\n");

    let tapes = place.capstan(&["tape", "list", "--json"]).json();
    assert_eq!(tapes.as_array().map(Vec::len), Some(1));
    assert_eq!(tapes[0]["name"], json!(tape_name(&place.workspace(), "cli:local")));
    assert_eq!(tapes[0]["session"], "cli:local");

    let entries = place.entries();
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

    let shown = place.capstan(&["tape", "show", "cli:local"]).lines();
    assert_eq!(shown.len(), entries.len());
    for text in ["user: hello", "assistant: first reply", "user: again", "assistant: second reply"] {
        assert_eq!(shown.iter().filter(|line| line.ends_with(text)).count(), 1, "{text}");
    }
    assert_eq!(place.outcomes(), (2, 0));
    place.assert_undamaged();
}

#[test]
fn a12_without_a_key_and_a_network_the_demo_model_answers_and_says_what_it_is() {
    let reply = CliFixture::new().capstan(&["run", "hello"]).data();
    assert!(reply.contains("I am the demo model"), "{reply}");
    assert!(reply.contains("hello"), "{reply}");
}

#[test]
fn the_standard_output_holds_the_reply_and_the_rest_goes_to_the_standard_error() {
    let call = ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "echo out; echo err >&2"}))]);
    let server = ScriptedModel::start_blocking(vec![call, ScriptedReply::text("It said out and err.")]);
    let said = CliFixture::with_model(&server).capstan(&["run", "go"]).succeeded();
    assert_eq!(said.stdout, "It said out and err.\n");
    assert!(said.stderr.contains("bash"), "what it does is told: {said:?}");
}

#[test]
fn json_is_one_object_with_all_a_program_needs() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text_with_usage("hi there", 120, 3)]);
    let place = CliFixture::with_model(&server);
    let said: Value = serde_json::from_str(&place.capstan(&["run", "hello", "--json"]).data()).unwrap();
    assert_eq!(said["session_id"], "cli:local");
    assert_eq!(said["output"], "hi there");
    assert_eq!(said["outbounds"].as_array().map(Vec::len), Some(1));
    assert_eq!(said["outbounds"][0]["content"], "hi there");
    assert_eq!(said["outbounds"][0]["channel"], "cli");
    assert_eq!(said["outbounds"][0]["chat_id"], "local");
    let usage = json!({"prompt_tokens": 120, "completion_tokens": 3, "total_tokens": 123});
    assert_eq!(said["usage"], usage);
    assert_eq!(said["outcome"], "replied");
    let run_id = said["run_id"].as_str().expect("a run id");
    let of_run = place.entries().iter().filter(|entry| entry["meta"]["run_id"] == run_id).count();
    assert!(of_run > 2, "the entries of the run name it");
}

#[test]
fn a_dash_reads_the_message_from_the_standard_input() {
    let server = model_with_replies(&["read"]);
    let place = CliFixture::with_model(&server);
    let message = "two\nlines, 你好 🐋";
    assert_eq!(place.capstan_with_input(&["run", "-"], message.as_bytes()).data(), "read\n");
    assert_eq!(message_texts(&place.entries())[0], chat_message("user", message));
}

#[test]
fn the_chat_and_the_sender_are_those_that_were_given() {
    let server = model_with_replies(&["one", "two"]);
    let place = CliFixture::with_model(&server);
    let run = ["run", "hi", "--json", "--chat-id", "team", "--sender-id", "alice"];
    let said = place.capstan(&run).json();
    assert_eq!(said["session_id"], "cli:team");
    assert_eq!(said["outbounds"][0]["chat_id"], "team");
    let entries = place.tape("cli:team");
    let event = &entries_named(&entries, "event.accepted")[0]["payload"]["data"]["event"];
    assert_eq!(event["conversation_id"], "team");
    assert_eq!(event["actor"]["id"], "alice");
    assert_eq!(event["source"], "cli");

    let said = place.capstan(&["run", "hi", "--json", "--session-id", "a session / of mine"]).json();
    assert_eq!(said["session_id"], "a session / of mine");
    let name = tape_name(&place.workspace(), "a session / of mine");
    assert_eq!(message_texts(&place.tape(&name)).len(), 2);
}

#[test]
fn p05_one_session_in_two_workspaces_has_two_tapes() {
    let server = model_with_replies(&["here", "there"]);
    let place = CliFixture::with_model(&server);
    let other = place.root().join("other");
    std::fs::create_dir(&other).unwrap();
    let other_path = other.to_str().unwrap();
    place.capstan(&["run", "hi", "--session-id", "s"]).data();
    // The way there does not matter: the resolved path names the workspace.
    let detour = place.path("workspace/../other");
    place.capstan(&["run", "hi", "--session-id", "s", "--workspace", &detour]).data();

    let tapes = place.capstan(&["tape", "list", "--json"]).json();
    let mut expected = [tape_name(&place.workspace(), "s"), tape_name(&other, "s")];
    expected.sort();
    assert_eq!([&tapes[0]["name"], &tapes[1]["name"]], [&json!(expected[0]), &json!(expected[1])]);
    assert_eq!(message_texts(&place.tape("s"))[1], chat_message("assistant", "here"));
    let there = place.capstan(&["tape", "--workspace", other_path, "export", "s"]).values();
    assert_eq!(message_texts(&there)[1], chat_message("assistant", "there"));
    assert_eq!(server.requests()[1]["messages"].as_array().map(Vec::len), Some(3), "no word of the other workspace");
}

#[test]
fn without_capstan_home_the_home_is_in_the_users_own() {
    let place = CliFixture::new();
    place.command(&["run", "hello"]).env_remove("CAPSTAN_HOME").output().unwrap();
    assert!(place.root().join("user/.capstan/capstan.db").is_file());
    assert!(!place.home().exists());
}

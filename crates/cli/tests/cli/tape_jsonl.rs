//! JSONL files as the live tape store (P12).

use std::path::PathBuf;

use crate::support::{CliFixture, StdioServer, entries_of_kind, entry_ids, tape_name};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

const TORN_LINE: &str = "{\"id\": 99, \"kind\": \"mess";

fn jsonl_fixture(server: &ScriptedModel) -> CliFixture {
    CliFixture::with_model(server).config("tape_store = \"jsonl\"\n")
}

fn file(fixture: &CliFixture) -> PathBuf {
    let name = tape_name(&fixture.workspace(), "cli:local");
    fixture.home().join("tapes").join(format!("{name}.jsonl"))
}

fn read_tape_file(fixture: &CliFixture) -> String {
    std::fs::read_to_string(file(fixture)).unwrap()
}

fn parse_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn p12_entries_of_live_tapes_are_stored_in_files() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([("call_1", "bash", serde_json::json!({"cmd": "echo one"}))]),
        ScriptedReply::text("first"),
        ScriptedReply::text("second"),
    ]);
    let fixture = jsonl_fixture(&server);
    fixture.capstan(&["run", "hello"]).succeeded();
    fixture.capstan(&["run", "again, 你好 🐋"]).data();
    let entries = parse_lines(&read_tape_file(&fixture));
    assert_eq!(entries, fixture.entries(), "the output equals the file");
    assert_eq!(entry_ids(&entries), (1..=entries.len() as u64).collect::<Vec<_>>());
    let output: Vec<&Value> =
        entries_of_kind(&entries, "message").iter().map(|entry| &entry["payload"]["content"]).collect();
    assert_eq!(output, ["hello", "first", "again, 你好 🐋", "second"]);
    assert_eq!(server.violations(), Vec::<String>::new());
    assert_eq!(fixture.outcomes(), (2, 0));
    fixture.assert_undamaged();
    let path = file(&fixture).display().to_string();
    assert_eq!(fixture.capstan(&["tape", "export", &path]).values(), entries, "the file can be read in place");
}

#[test]
fn p12_p15_recorded_context_equals_what_the_server_received_with_files() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([("call_1", "bash", serde_json::json!({"cmd": "echo one"}))]),
        ScriptedReply::text("done"),
    ]);
    let fixture = jsonl_fixture(&server);
    fixture.capstan(&["run", "go"]).succeeded();
    let calls = fixture.capstan(&["tape", "context"]).json();
    for (number, request) in server.requests().iter().enumerate() {
        assert_eq!(calls[number]["messages"], request["messages"]);
        assert_eq!(calls[number]["tools"], request["tools"]);
    }
}

#[test]
fn p12_torn_tail_is_moved_aside_and_nothing_else_is_lost() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("first"), ScriptedReply::text("second")]);
    let fixture = jsonl_fixture(&server);
    fixture.capstan(&["run", "hello"]).data();
    let before = read_tape_file(&fixture);
    std::fs::write(file(&fixture), before.clone() + TORN_LINE).unwrap();

    assert_eq!(fixture.capstan(&["run", "again"]).succeeded().stdout, "second\n");
    let after = read_tape_file(&fixture);
    assert!(after.starts_with(&before), "complete lines are preserved");
    let entries = parse_lines(&after);
    assert_eq!(entry_ids(&entries), (1..=entries.len() as u64).collect::<Vec<_>>());
    assert_eq!(entries_of_kind(&entries, "message").len(), 4);
    let aside: Vec<PathBuf> = std::fs::read_dir(fixture.home().join("tapes"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("torn"))
        .collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert_eq!(std::fs::read_to_string(&aside[0]).unwrap(), TORN_LINE);
    fixture.assert_undamaged();
}

#[test]
fn p12_replicated_tape_is_not_restarted_in_another_store() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("first"), ScriptedReply::text("second")]);
    let fixture = jsonl_fixture(&server);
    fixture.capstan(&["run", "hello"]).data();
    let before = read_tape_file(&fixture);
    let fixture = fixture.config("");
    fixture.capstan(&["run", "again"]).refused("tape-elsewhere", 4);
    let fixture = fixture.config("tape_store = \"jsonl\"\n");
    assert_eq!(read_tape_file(&fixture), before);
    assert_eq!(fixture.capstan(&["run", "again"]).data(), "second\n");
    fixture.assert_undamaged();
}

#[test]
fn p01_missing_line_of_a_live_tape_is_reported() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("first"), ScriptedReply::text("second")]);
    let fixture = jsonl_fixture(&server);
    fixture.capstan(&["run", "hello"]).data();
    fixture.capstan(&["tape", "reset", "cli:local"]).data();
    fixture.capstan(&["run", "again"]).data();
    fixture.capstan(&["tape", "fork", "cli:local", "--as", "fork", "--at", "5"]).data();
    fixture.assert_undamaged();
    fixture.capstan(&["doctor"]).data();
    let original = read_tape_file(&fixture);
    let without_the_fourth: String =
        original.split_inclusive('\n').enumerate().filter(|(index, _)| *index != 3).map(|(_, line)| line).collect();
    std::fs::write(file(&fixture), &without_the_fourth).unwrap();

    let output = fixture.capstan(&["tape", "verify"]).refused("tape-damaged", 4);
    assert!(output.stderr.contains("entry 4 is missing"), "{output:?}");
    let output = fixture.capstan(&["doctor"]).failed("problems-found", 1);
    assert!(output.stdout.contains("entry 4 is missing"), "{output:?}");
    assert_eq!(read_tape_file(&fixture), without_the_fourth, "it is not changed");
    std::fs::write(file(&fixture), original).unwrap();
    fixture.assert_undamaged();
}

#[test]
fn p12_imported_tape_may_have_gaps() {
    let fixture = CliFixture::new().config("tape_store = \"jsonl\"\n");
    let with_gaps: String = crate::support::bub_sample_lines()
        .iter()
        .enumerate()
        .filter(|(index, _)| index % 5 != 3)
        .fold(String::new(), |text, (_, line)| text + line + "\n");
    let path = fixture.file("gaps.jsonl", with_gaps);
    fixture.capstan(&["tape", "import", &path]).data();
    fixture.assert_undamaged();
    fixture.capstan(&["doctor"]).data();
}

#[test]
fn p12_bub_file_put_into_the_home_is_continued() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("welcome back")]);
    let fixture = jsonl_fixture(&server);
    std::fs::create_dir_all(fixture.home().join("tapes")).unwrap();
    std::fs::copy(crate::support::bub_sample_path(), file(&fixture)).unwrap();
    fixture.capstan(&["run", "where were we?"]).data();
    let entries = parse_lines(&read_tape_file(&fixture));
    assert_eq!(entry_ids(&entries), (1..=entries.len() as u64).collect::<Vec<_>>());
    assert!(entries.len() > 33);
    assert_eq!(fixture.entries(), entries);
    assert_eq!(server.violations(), Vec::<String>::new());
    fixture.assert_undamaged();
}

#[test]
fn p12_binding_changes_are_stored_in_files_too() {
    let fixture = CliFixture::new().config("tape_store = \"jsonl\"\n");
    fixture.capstan(&["bindings", "disable", "default"]).data();
    let name = tape_name(&fixture.workspace(), "system");
    let text = std::fs::read_to_string(fixture.home().join("tapes").join(format!("{name}.jsonl"))).unwrap();
    assert_eq!(parse_lines(&text)[0]["payload"]["name"], "binding.disabled");
    let found = fixture.capstan(&["doctor"]).data();
    assert!(!found.contains("handed over with"), "{found}");
}

#[test]
fn p12_serve_that_refused_messages_of_a_removed_tape_file_fails() {
    let fixture = CliFixture::new().config("tape_store = \"jsonl\"\n");
    let mut server = StdioServer::start(&fixture);
    let request = |id: u32| json!({"id": id, "session": "s", "text": "hello"});
    assert_eq!(server.send_and_recv(&request(1))["outcome"], "replied");
    std::fs::remove_dir_all(fixture.home().join("tapes")).unwrap();
    assert_eq!(server.send_and_recv(&request(2))["error"]["code"], "store-corrupt");
    let other = json!({"id": 3, "session": "other", "text": "hello"});
    assert_eq!(server.send_and_recv(&other)["outcome"], "replied", "other tapes are served");
    server.close().failed("store-corrupt", 4);
}

//! JSONL files as the live tape store (P12).

mod cli_support;

use std::path::PathBuf;

use capstan_testing::{ScriptedModel, ScriptedReply};
use cli_support::{CliFixture, entries_of_kind, entry_ids, tape_name};
use serde_json::Value;

const TORN_LINE: &str = "{\"id\": 99, \"kind\": \"mess";

fn jsonl_fixture(server: &ScriptedModel) -> CliFixture {
    CliFixture::with_model(server).config("tape_store = \"jsonl\"\n")
}

fn file(place: &CliFixture) -> PathBuf {
    let name = tape_name(&place.workspace(), "cli:local");
    place.home().join("tapes").join(format!("{name}.jsonl"))
}

fn read_tape_file(place: &CliFixture) -> String {
    std::fs::read_to_string(file(place)).unwrap()
}

fn parse_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn p12_the_entries_of_live_tapes_stand_in_files() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([("call_1", "bash", serde_json::json!({"cmd": "echo one"}))]),
        ScriptedReply::text("first"),
        ScriptedReply::text("second"),
    ]);
    let place = jsonl_fixture(&server);
    place.capstan(&["run", "hello"]).succeeded();
    place.capstan(&["run", "again, 你好 🐋"]).data();
    let entries = parse_lines(&read_tape_file(&place));
    assert_eq!(entries, place.entries(), "what is shown is what is in the file");
    assert_eq!(entry_ids(&entries), (1..=entries.len() as u64).collect::<Vec<_>>());
    let said: Vec<&Value> =
        entries_of_kind(&entries, "message").iter().map(|entry| &entry["payload"]["content"]).collect();
    assert_eq!(said, ["hello", "first", "again, 你好 🐋", "second"]);
    assert_eq!(server.violations(), Vec::<String>::new());
    assert_eq!(place.outcomes(), (2, 0));
    place.assert_undamaged();
    let path = file(&place).display().to_string();
    assert_eq!(place.capstan(&["tape", "export", &path]).values(), entries, "and it can be read in place");
}

#[test]
fn p12_p15_the_context_of_a_call_is_what_the_server_received_here_too() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([("call_1", "bash", serde_json::json!({"cmd": "echo one"}))]),
        ScriptedReply::text("done"),
    ]);
    let place = jsonl_fixture(&server);
    place.capstan(&["run", "go"]).succeeded();
    let calls = place.capstan(&["tape", "context"]).json();
    for (number, request) in server.requests().iter().enumerate() {
        assert_eq!(calls[number]["messages"], request["messages"]);
        assert_eq!(calls[number]["tools"], request["tools"]);
    }
}

#[test]
fn p12_a_torn_tail_is_set_aside_and_nothing_else_is_lost() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("first"), ScriptedReply::text("second")]);
    let place = jsonl_fixture(&server);
    place.capstan(&["run", "hello"]).data();
    let before = read_tape_file(&place);
    std::fs::write(file(&place), before.clone() + TORN_LINE).unwrap();

    assert_eq!(place.capstan(&["run", "again"]).succeeded().stdout, "second\n");
    let after = read_tape_file(&place);
    assert!(after.starts_with(&before), "what was whole is still there");
    let entries = parse_lines(&after);
    assert_eq!(entry_ids(&entries), (1..=entries.len() as u64).collect::<Vec<_>>());
    assert_eq!(entries_of_kind(&entries, "message").len(), 4);
    let aside: Vec<PathBuf> = std::fs::read_dir(place.home().join("tapes"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("torn"))
        .collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert_eq!(std::fs::read_to_string(&aside[0]).unwrap(), TORN_LINE);
    place.assert_undamaged();
}

#[test]
fn p12_a_tape_that_was_handed_over_is_not_begun_again_elsewhere() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("first"), ScriptedReply::text("second")]);
    let place = jsonl_fixture(&server);
    place.capstan(&["run", "hello"]).data();
    let before = read_tape_file(&place);
    let place = place.config("");
    place.capstan(&["run", "again"]).refused("tape-elsewhere", 4);
    let place = place.config("tape_store = \"jsonl\"\n");
    assert_eq!(read_tape_file(&place), before);
    assert_eq!(place.capstan(&["run", "again"]).data(), "second\n");
    place.assert_undamaged();
}

#[test]
fn p01_a_line_that_is_gone_from_the_middle_of_a_live_tape_is_told_of() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("first"), ScriptedReply::text("second")]);
    let place = jsonl_fixture(&server);
    place.capstan(&["run", "hello"]).data();
    place.capstan(&["tape", "reset", "cli:local"]).data();
    place.capstan(&["run", "again"]).data();
    place.capstan(&["tape", "fork", "cli:local", "--as", "fork", "--at", "5"]).data();
    place.assert_undamaged();
    place.capstan(&["doctor"]).data();
    let whole = read_tape_file(&place);
    let without_the_fourth: String =
        whole.split_inclusive('\n').enumerate().filter(|(index, _)| *index != 3).map(|(_, line)| line).collect();
    std::fs::write(file(&place), &without_the_fourth).unwrap();

    let said = place.capstan(&["tape", "verify"]).refused("tape-damaged", 4);
    assert!(said.stderr.contains("entry 4 is missing"), "{said:?}");
    let said = place.capstan(&["doctor"]).failed("problems-found", 1);
    assert!(said.stdout.contains("entry 4 is missing"), "{said:?}");
    assert_eq!(read_tape_file(&place), without_the_fourth, "it is left as it is");
    std::fs::write(file(&place), whole).unwrap();
    place.assert_undamaged();
}

#[test]
fn p12_an_imported_tape_may_have_gaps() {
    let place = CliFixture::new().config("tape_store = \"jsonl\"\n");
    let with_gaps: String = cli_support::bub_sample_lines()
        .iter()
        .enumerate()
        .filter(|(index, _)| index % 5 != 3)
        .fold(String::new(), |text, (_, line)| text + line + "\n");
    let path = place.file("gaps.jsonl", with_gaps);
    place.capstan(&["tape", "import", &path]).data();
    place.assert_undamaged();
    place.capstan(&["doctor"]).data();
}

#[test]
fn p12_a_file_of_another_system_put_there_goes_on() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("welcome back")]);
    let place = jsonl_fixture(&server);
    std::fs::create_dir_all(place.home().join("tapes")).unwrap();
    std::fs::copy(cli_support::bub_sample_path(), file(&place)).unwrap();
    place.capstan(&["run", "where were we?"]).data();
    let entries = parse_lines(&read_tape_file(&place));
    assert_eq!(entry_ids(&entries), (1..=entries.len() as u64).collect::<Vec<_>>());
    assert!(entries.len() > 33);
    assert_eq!(place.entries(), entries);
    assert_eq!(server.violations(), Vec::<String>::new());
    place.assert_undamaged();
}

#[test]
fn p12_what_is_told_of_bindings_stands_in_files_too() {
    let place = CliFixture::new().config("tape_store = \"jsonl\"\n");
    place.capstan(&["bindings", "disable", "default"]).data();
    let name = tape_name(&place.workspace(), "system");
    let text = std::fs::read_to_string(place.home().join("tapes").join(format!("{name}.jsonl"))).unwrap();
    assert_eq!(parse_lines(&text)[0]["payload"]["name"], "binding.disabled");
    let found = place.capstan(&["doctor"]).data();
    assert!(!found.contains("handed over with"), "{found}");
}

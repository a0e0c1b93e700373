//! Bub tapes as files: read in place, imported, exported (P12).

use crate::support::{CliFixture, bub_sample_lines, bub_sample_path, entries_of_kind, entry_ids, make_pipe, tape_name};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

fn sample_path() -> String {
    bub_sample_path().display().to_string()
}

fn parse_lines(lines: &[String]) -> Vec<Value> {
    lines.iter().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn object_keys(entry: &Value) -> Vec<&str> {
    entry.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// Text of a file with these lines.
fn file(lines: &[String]) -> String {
    lines.join("\n") + "\n"
}

/// The sample as a later version of Bub might write it: with an unknown kind, unknown keys, and a last line torn by a crash.
fn foreign_variant() -> (Vec<String>, String) {
    let mut lines = bub_sample_lines();
    let unknown = r#"{"id": 34, "kind": "hologram", "payload": {"z": [1, null], "a": "深い"}, "meta": {"x": 1.5}, "date": "2026-11-15T21:00:00+00:00", "trace": {"b": 1, "a": 2}, "v": 3}"#;
    lines.push(unknown.to_owned());
    (lines, r#"{"id": 35, "kind": "message", "payl"#.to_owned())
}

#[test]
fn p12_file_is_read_in_place() {
    let fixture = CliFixture::new();
    let before = std::fs::read(bub_sample_path()).unwrap();
    let shown = fixture.capstan(&["tape", "show", &sample_path()]).lines();
    assert_eq!(shown.len(), bub_sample_lines().len());
    assert!(shown[6].contains("assistant: Hello! This is a fake reply."), "{}", shown[6]);
    assert!(shown[5].contains("你好 🐋"), "{}", shown[5]);
    let anchors = fixture.capstan(&["tape", "anchors", &sample_path(), "--json"]).values();
    let names: Vec<&Value> = anchors.iter().map(|anchor| &anchor["payload"]["name"]).collect();
    assert_eq!(names, ["session/start", "phase-1"]);
    let as_json = fixture.capstan(&["tape", "show", &sample_path(), "--json"]).lines();
    assert_eq!(as_json, bub_sample_lines());
    assert!(!fixture.home().exists(), "reading a file needs no home");
    assert_eq!(std::fs::read(bub_sample_path()).unwrap(), before);
}

#[test]
fn p12_commands_that_change_or_pin_a_tape_refuse_a_file() {
    let fixture = CliFixture::new();
    let path = sample_path();
    for arguments in [
        &["fork", &path, "--as", "side"][..],
        &["merge", &path],
        &["discard", &path],
        &["reset", &path],
        &["head", &path],
    ] {
        let refused = fixture.capstan(&[&["tape"], arguments].concat()).refused("tape-unknown", 2);
        let hint = format!("{path} is a file; import it first with: capstan tape import {path}");
        assert!(refused.stderr.contains(&hint), "{arguments:?}: {}", refused.stderr);
    }
}

#[test]
fn p12_stored_tape_is_changed_even_if_a_file_has_its_name() {
    let fixture = CliFixture::new();
    fixture.capstan(&["tape", "import", &sample_path(), "--name", "notes"]).data();
    std::fs::write(fixture.workspace().join("notes"), "not a tape").unwrap();
    assert_eq!(fixture.capstan(&["tape", "reset", "notes"]).data(), "started a new generation of notes\n");
}

#[test]
fn p12_export_equals_the_imported_file_line_by_line() {
    let fixture = CliFixture::new();
    let imported = fixture.capstan(&["tape", "import", &sample_path()]).data();
    assert_eq!(imported, "imported 33 entries as tape-sample\n");
    for from in ["tape-sample", &sample_path()] {
        let exported = fixture.capstan(&["tape", "export", from]).lines();
        assert_eq!(parse_lines(&exported), parse_lines(&bub_sample_lines()));
        for entry in parse_lines(&exported) {
            assert_eq!(object_keys(&entry), ["id", "kind", "payload", "meta", "date"]);
        }
        assert_eq!(exported, bub_sample_lines(), "byte for byte");
    }
    fixture.assert_undamaged();
}

#[test]
fn p12_tape_is_imported_under_a_given_name() {
    let fixture = CliFixture::new();
    fixture.capstan(&["tape", "import", &sample_path(), "--name", "mine:2"]).data();
    assert_eq!(fixture.capstan(&["tape", "export", "mine:2"]).lines(), bub_sample_lines());
    fixture.capstan(&["tape", "show", "tape-sample"]).refused("tape-unknown", 2);
    let tapes = fixture.capstan(&["tape", "list", "--json"]).json();
    assert_eq!((&tapes[0]["name"], &tapes[0]["head"]), (&json!("mine:2"), &json!(33)));
}

#[test]
fn p01_unknown_kinds_and_keys_are_preserved_and_a_torn_tail_is_reported() {
    let fixture = CliFixture::new();
    let (lines, torn) = foreign_variant();
    let content = file(&lines) + &torn;
    let path = fixture.file("later.jsonl", &content);
    for arguments in [vec!["tape", "export", &path], vec!["tape", "show", &path, "--json"]] {
        let output = fixture.capstan(&arguments).succeeded();
        assert_eq!(output.stdout.lines().collect::<Vec<_>>(), lines);
        let warning = format!("warning: line 35 of {path} is incomplete ({} bytes)", torn.len());
        assert!(output.stderr.starts_with(&warning), "{}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1);
    }
    let imported = fixture.capstan(&["tape", "import", &path]).succeeded();
    assert_eq!(imported.stdout, "imported 34 entries as later\n");
    assert!(imported.stderr.contains("incomplete"), "{}", imported.stderr);
    let exported = fixture.capstan(&["tape", "export", "later"]).lines();
    assert_eq!(parse_lines(&exported), parse_lines(&lines));
    assert_eq!(object_keys(&parse_lines(&exported)[33]), ["id", "kind", "payload", "meta", "date", "trace", "v"]);
    let found = fixture.capstan(&["tape", "show", "later", "--kind", "hologram"]).lines();
    assert_eq!(found.len(), 1);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), content, "the file is unchanged");
    fixture.assert_undamaged();
}

#[test]
fn p12_complete_last_line_without_newline_is_not_torn() {
    let fixture = CliFixture::new();
    let path = fixture.file("no-newline.jsonl", bub_sample_lines().join("\n"));
    assert_eq!(fixture.capstan(&["tape", "export", &path]).lines(), bub_sample_lines());
}

#[test]
fn x05_only_a_regular_file_is_read_as_a_tape() {
    let fixture = CliFixture::new();
    let pipe = fixture.workspace().join("pipe.jsonl");
    make_pipe(&pipe);
    let pipe = pipe.display().to_string();
    let folder = fixture.workspace().display().to_string();
    // Any of these may have no end: /dev/zero in place of /dev/null would fill the memory.
    for arguments in [
        vec!["tape", "import", "/dev/null", "--name", "x"],
        vec!["tape", "show", "/dev/null"],
        vec!["tape", "show", &pipe],
        vec!["tape", "import", &pipe],
        vec!["tape", "show", &folder],
    ] {
        let output = fixture.capstan(&arguments).refused("tape-file-unreadable", 2);
        assert!(output.stderr.contains("is not a regular file"), "{output:?}");
    }
}

#[test]
fn p12_failed_import_leaves_no_partial_tape() {
    let fixture = CliFixture::new();
    let lines = bub_sample_lines();
    fixture.capstan(&["tape", "import", &sample_path()]).data();
    fixture.capstan(&["tape", "import", &sample_path()]).refused("tape-exists", 2);
    assert_eq!(fixture.capstan(&["tape", "export", "tape-sample"]).lines(), lines, "the first one stays");

    let mut swapped = lines.clone();
    swapped.swap(4, 5);
    let swapped = fixture.file("swapped.jsonl", file(&swapped));
    let output = fixture.capstan(&["tape", "import", &swapped]).refused("tape-out-of-order", 2);
    assert!(output.stderr.contains("entry 5"), "{}", output.stderr);
    let twice = fixture.file("twice.jsonl", file(&[lines.clone(), lines.clone()].concat()));
    fixture.capstan(&["tape", "import", &twice]).refused("tape-out-of-order", 2);

    let mut broken = lines.clone();
    broken[6] = broken[6][..40].to_owned();
    let broken = fixture.file("broken.jsonl", file(&broken));
    for arguments in [vec!["tape", "import", &broken], vec!["tape", "show", &broken], vec!["tape", "export", &broken]] {
        let output = fixture.capstan(&arguments).refused("tape-damaged", 2);
        assert!(output.stderr.contains("line 7"), "{}", output.stderr);
    }
    let tapes = fixture.capstan(&["tape", "list", "--json"]).json();
    assert_eq!(tapes.as_array().map(Vec::len), Some(1), "{tapes}");
}

#[test]
fn p12_import_leaves_ids_for_new_entries() {
    let fixture = CliFixture::new();
    let entry =
        |id: u64| json!({"id": id, "kind": "event", "payload": {"name": "n"}, "meta": {}, "date": "2020-01-01"});
    let greatest = (1 << 53) - 1;
    for id in [greatest + 1, i64::MAX as u64 - 1] {
        let late = fixture.file("late.jsonl", format!("{}\n{}\n", entry(1), entry(id)));
        let output = fixture.capstan(&["tape", "import", &late]).refused("tape-id-too-great", 2);
        assert!(output.stderr.contains(&format!("entry {id}")), "{}", output.stderr);
        assert_eq!(fixture.capstan(&["tape", "show", &late]).lines().len(), 2, "it can be read in place");
    }
    let late = fixture.file("late.jsonl", format!("{}\n{}\n", entry(1), entry(greatest)));
    fixture.capstan(&["tape", "import", &late]).data();
    fixture.capstan(&["tape", "reset", "late"]).data();
    let ids: Vec<u64> = entry_ids(&parse_lines(&fixture.capstan(&["tape", "export", "late"]).lines()));
    assert_eq!(ids, [greatest + 1, greatest + 2]);
    fixture.assert_undamaged();
}

#[test]
fn p12_new_tape_cannot_hide_the_tape_of_a_session() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let before = fixture.capstan(&["tape", "show", "cli:local"]).lines();
    for name in ["cli:local", "system"] {
        let output = fixture.capstan(&["tape", "import", &sample_path(), "--name", name]).refused("tape-exists", 2);
        assert!(output.stderr.contains("hint: choose another name"), "{}", output.stderr);
        fixture.capstan(&["tape", "fork", "cli:local", "--as", name]).refused("tape-exists", 2);
    }
    let named_so = fixture.file("cli:local.jsonl", file(&bub_sample_lines()));
    fixture.capstan(&["tape", "import", &named_so]).refused("tape-exists", 2);
    assert_eq!(fixture.capstan(&["tape", "show", "cli:local"]).lines(), before);
    fixture.capstan(&["tape", "import", &named_so, "--name", "cli:other"]).data();
}

#[test]
fn p05_session_continues_an_imported_tape() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("welcome back")]);
    let fixture = CliFixture::with_model(&server);
    let name = tape_name(&fixture.workspace(), "cli:local");
    fixture.capstan(&["tape", "import", &sample_path(), "--name", &name]).data();
    fixture.capstan(&["run", "where were we?"]).data();

    let entries = fixture.entries();
    assert_eq!(entries[..33], parse_lines(&bub_sample_lines()));
    assert_eq!(entry_ids(&entries), (1..=entries.len() as u64).collect::<Vec<_>>());
    assert_eq!(entries_of_kind(&entries[33..], "anchor"), Vec::<&Value>::new(), "it is not started again");
    let messages = server.requests()[0]["messages"].clone();
    let contents: Vec<&Value> = messages.as_array().unwrap()[1..].iter().map(|message| &message["content"]).collect();
    assert_eq!(contents, ["[Anchor created: phase-1]: {\"summary\":\"first part done\"}", "where were we?"]);
    assert_eq!(server.violations(), Vec::<String>::new());
    fixture.assert_undamaged();
}

#[test]
fn p12_export_for_bub_joins_the_results_of_a_step() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([
            ("call_1", "bash", json!({"cmd": "echo one"})),
            ("call_2", "bash", json!({"cmd": "echo two"})),
        ]),
        ScriptedReply::text("done"),
    ]);
    let fixture = CliFixture::with_model(&server);
    fixture.capstan(&["run", "go"]).succeeded();
    let (ours, joined) = (fixture.entries(), fixture.capstan(&["tape", "export", "cli:local", "--bub"]).values());
    assert_eq!(entries_of_kind(&ours, "tool_result").len(), 2);
    let results = entries_of_kind(&joined, "tool_result");
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["payload"], json!({"results": ["one", "two"]}));
    let call = joined.iter().position(|entry| entry["kind"] == "tool_call").unwrap();
    assert_eq!(joined[call + 1], *results[0]);
    assert_eq!(joined.len(), ours.len() - 1);
    assert!(entry_ids(&joined).is_sorted_by(|a, b| a < b), "{:?}", entry_ids(&joined));
    // A tape of Bub already has this format.
    assert_eq!(fixture.capstan(&["tape", "export", &sample_path(), "--legacy"]).lines(), bub_sample_lines());
}

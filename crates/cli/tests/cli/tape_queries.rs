//! `capstan tape show` and `search` with their filters (P10), on a Bub tape; `tape events` (G7); `tape head` (P17).

use crate::support::{CliFixture, bub_sample_path, entry_ids, execute_sql};
use serde_json::json;

/// The imported sample, for queries.
struct SampleTape(CliFixture);

impl SampleTape {
    fn new() -> Self {
        let fixture = CliFixture::new();
        fixture.capstan(&["tape", "import", bub_sample_path().to_str().unwrap(), "--name", "t"]).data();
        Self(fixture)
    }

    /// Ids found by a command, in the imported tape and in the file, which must agree.
    #[track_caller]
    fn query_ids(&self, command: &str, arguments: &[&str]) -> Vec<u64> {
        let ask = |name: &str| {
            let words = [&["tape", command, name], arguments, &["--json"]].concat();
            entry_ids(&self.0.capstan(&words).values())
        };
        let found = ask("t");
        assert_eq!(ask(bub_sample_path().to_str().unwrap()), found, "a file gives the same result as a tape");
        found
    }

    #[track_caller]
    fn show_ids(&self, arguments: &[&str]) -> Vec<u64> {
        self.query_ids("show", arguments)
    }

    #[track_caller]
    fn search_ids(&self, text: &str) -> Vec<u64> {
        self.query_ids("search", &[text])
    }
}

fn all_ids() -> Vec<u64> {
    (1..=33).collect()
}

#[test]
fn p10_search_is_fuzzy_and_newest_first() {
    let sample = SampleTape::new();
    assert_eq!(sample.search_ids("fake reply"), [28, 7]);
    assert_eq!(sample.search_ids("fkae replly"), [28, 7], "with typos");
    assert_eq!(sample.search_ids("first part done"), [33, 32, 31]);
    assert_eq!(sample.search_ids("你好"), [6, 4, 3]);
    assert_eq!(sample.search_ids("🐋"), [6, 4, 3]);
    assert_eq!(sample.search_ids("whale"), [0; 0]);
    assert_eq!(sample.query_ids("search", &["你好", "--kind", "message"]), [6]);
    assert_eq!(sample.query_ids("search", &["fake reply", "--limit", "1"]), [28]);
    assert_eq!(sample.query_ids("search", &["first part", "--after-last-anchor"]), [33, 32]);
}

#[test]
fn p10_search_tolerates_a_typo_in_a_word_with_punctuation() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "look at src/fork.rs and harbour-master and config.toml"]).data();
    let found = |text: &str| fixture.capstan(&["tape", "search", "cli:local", text]).lines();
    let as_written = found("fork.rs");
    assert!(!as_written.is_empty());
    for typo in
        ["frok.rs", "src/frok.rs", "src/fork.sr", "harbour-mastre", "harbor-master", "confg.toml", "config.tmol"]
    {
        assert_eq!(found(typo), as_written, "{typo}");
    }
    assert_eq!(found("fork.toml"), [""; 0], "not adjacent");
}

#[test]
fn p10_entries_are_filtered_by_anchors() {
    let sample = SampleTape::new();
    assert_eq!(sample.show_ids(&[]), all_ids());
    assert_eq!(sample.show_ids(&["--after-last-anchor"]), [32, 33]);
    assert_eq!(sample.show_ids(&["--after-anchor", "session/start"]), (2..=33).collect::<Vec<_>>());
    assert_eq!(sample.show_ids(&["--after-anchor", "phase-1"]), [32, 33]);
    assert_eq!(sample.show_ids(&["--until-anchor", "phase-1"]), (1..=30).collect::<Vec<_>>());
    let between = ["--after-anchor", "session/start", "--until-anchor", "phase-1"];
    assert_eq!(sample.show_ids(&between), (2..=30).collect::<Vec<_>>());
    assert_eq!(sample.show_ids(&["--after-anchor", "phase-9"]), [0; 0]);
    let output = sample.0.capstan(&["tape", "show", "t", "--after-anchor", "phase-9"]).succeeded();
    assert!(output.stderr.contains("has no anchor \"phase-9\""), "an unknown anchor is a warning: {output:?}");
}

#[test]
fn p10_entries_are_filtered_by_dates_and_a_date_is_the_whole_day() {
    let sample = SampleTape::new();
    assert_eq!(sample.show_ids(&["--from", "2026-11-15", "--to", "2026-11-15"]), all_ids());
    assert_eq!(sample.show_ids(&["--from", "2026-11-15"]), all_ids());
    assert_eq!(sample.show_ids(&["--to", "2026-11-14"]), [0; 0]);
    assert_eq!(sample.show_ids(&["--from", "2026-11-16"]), [0; 0]);
    assert_eq!(sample.show_ids(&["--from", "2026-11-15T20:57:47Z"]), [31, 32, 33]);
    assert_eq!(sample.show_ids(&["--from", "2026-11-15T21:57:47+01:00"]), [31, 32, 33]);
    assert_eq!(sample.show_ids(&["--to", "2026-11-15T20:57:43Z"]), [1, 2, 3, 4]);
    let to_the_microsecond = ["--to", "2026-11-15T20:57:43.091430Z"];
    assert_eq!(sample.show_ids(&to_the_microsecond), (1..=7).collect::<Vec<_>>(), "the end is inclusive");
}

#[test]
fn p10_entries_are_filtered_by_kind_and_limit() {
    let sample = SampleTape::new();
    assert_eq!(sample.show_ids(&["--kind", "tool_call", "--kind", "tool_result"]), [14, 15, 21, 22]);
    assert_eq!(sample.show_ids(&["--kind", "anchor"]), [1, 31]);
    assert_eq!(sample.show_ids(&["--kind", "hologram"]), [0; 0]);
    assert_eq!(sample.show_ids(&["--limit", "3"]), [1, 2, 3]);
    assert_eq!(sample.show_ids(&["--limit", "0"]), [0; 0]);
    let together = ["--until-anchor", "phase-1", "--from", "2026-11-15T20:57:45Z", "--kind", "message", "--limit", "2"];
    assert_eq!(sample.show_ids(&together), [13, 20]);
}

#[test]
fn tape_is_found_by_a_unique_prefix() {
    let fixture = CliFixture::new();
    for name in ["alpha-1", "alpha-2", "beta"] {
        fixture.capstan(&["tape", "import", bub_sample_path().to_str().unwrap(), "--name", name]).data();
    }
    assert_eq!(fixture.capstan(&["tape", "show", "be"]).lines().len(), 33);
    fixture.capstan(&["tape", "show", "alpha"]).refused("tape-unknown", 2);
    fixture.capstan(&["tape", "show", ""]).refused("tape-unknown", 2);
}

#[test]
fn g07_event_log_lists_events_activity_and_outcomes() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "[[tool:bash cmd=\"echo hi\"]] go"]).succeeded();
    fixture.capstan(&["run", ",tape.info"]).data();
    let log = fixture.capstan(&["tape", "events", "cli:local", "--json"]).values();
    let facts: Vec<&str> = log.iter().map(|fact| fact["fact"].as_str().unwrap()).collect();
    let first = ["handoff", "inbound", "tool_call", "tool_result", "outbound", "outcome", "delivery"];
    assert_eq!(facts[..7], first);
    assert_eq!(facts[7..], ["inbound", "command", "outbound", "outcome", "delivery"]);
    assert_eq!(log[1]["event"]["input"]["text"], "[[tool:bash cmd=\"echo hi\"]] go");
    assert_eq!(log[5]["outcome"]["outcome"], "replied");
    assert_eq!(log[5]["event"]["event_id"], log[1]["event"]["event_id"]);
    assert_eq!((&log[6]["delivery"]["status"], &log[6]["event"]), (&json!("sent"), &log[5]["event"]));
    let lines = fixture.capstan(&["tape", "events", "cli:local", "--limit", "2"]).lines();
    assert!(lines[0].contains("outcome") && lines[0].ends_with(": replied"), "{lines:?}");
    assert!(lines[1].contains("delivery    sent to cli local: "), "{lines:?}");
}

#[test]
fn g07_event_log_lists_failures_and_foreign_entries() {
    let fixture = CliFixture::new().set("CAPSTAN_MAX_STEPS", "1");
    fixture.capstan(&["run", "[[tool:tape.info]] [[tool:tape.info]]"]).failed("max-steps", 1);
    let log = fixture.capstan(&["tape", "events", "cli:local", "--json"]).values();
    let named =
        |name: &str| log.iter().find(|fact| fact["fact"] == name).unwrap_or_else(|| panic!("no {name}")).clone();
    assert!(named("error")["payload"]["message"].as_str().unwrap().contains("1 steps"));
    assert_eq!(named("outcome")["outcome"]["outcome"], "failed");
    assert_eq!(named("delivery")["message"]["kind"], "notice");

    let exported = fixture.file("other.jsonl", fixture.capstan(&["tape", "export", "cli:local"]).data());
    let copied = fixture.capstan(&["tape", "events", &exported, "--json"]).values();
    assert!(copied.iter().any(|fact| fact["fact"] == "inbound"));
    assert!(!copied.iter().any(|fact| fact["fact"] == "outcome"), "a file has no outcomes");
}

#[test]
fn p17_changed_entry_and_removed_end_are_found_with_a_kept_head() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let head = fixture.capstan(&["tape", "head", "cli:local"]).data();
    let json = fixture.capstan(&["tape", "head", "cli:local", "--json"]).json();
    let parts = ["tape", "entry", "hash"].map(|key| json[key].to_string().replace('"', ""));
    assert_eq!(head.trim_end(), parts.join(":"));
    let heads = fixture.file("heads.txt", fixture.capstan(&["tape", "head"]).data());
    fixture.capstan(&["run", "again"]).data();
    fixture.capstan(&["tape", "verify", "--head", head.trim_end(), "--heads-from", &heads]).data();

    let database = fixture.database();
    let copy = std::fs::read(&database).unwrap();
    execute_sql(&fixture, "UPDATE entries SET meta = '{}' WHERE id = 6");
    let output = fixture.capstan(&["tape", "verify"]).failed("tape-damaged", 4);
    assert!(output.stderr.contains("the hash chain breaks at entry 6: the entry was changed"), "{output:?}");
    std::fs::write(&database, copy).unwrap();

    execute_sql(
        &fixture,
        "DELETE FROM entries WHERE id > 5; UPDATE tapes SET head = 5, \
         head_hash = (SELECT hash FROM entries WHERE tape = name AND id = 5)",
    );
    let output = fixture.capstan(&["tape", "verify", "--head", head.trim_end()]).failed("tape-damaged", 4);
    assert!(output.stderr.contains("was its head, but the tape ends at entry 5"), "{output:?}");
    fixture.capstan(&["tape", "verify", "--head", "nonsense"]).failed("usage", 2);
}

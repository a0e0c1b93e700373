//! `capstan bindings`, `runners` and `events`: whole commands with their output and exit code.

use std::fmt::Write as _;
use std::fs::OpenOptions;

use crate::support::{BinaryOutput, CliFixture};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

/// Transcript of a terminal.
struct CommandTranscript {
    fixture: CliFixture,
    text: String,
}

impl CommandTranscript {
    fn new(fixture: CliFixture) -> Self {
        Self { fixture, text: String::new() }
    }

    /// Runs the binary and adds its command line, output and exit code.
    fn run(&mut self, arguments: &[&str]) -> BinaryOutput {
        let output = self.fixture.capstan(arguments);
        self.add(arguments, &output);
        output
    }

    /// Like [`Self::run`], with standard input.
    fn run_with_input(&mut self, arguments: &[&str], input: &str) {
        let output = self.fixture.capstan_with_input(arguments, input.as_bytes());
        self.add(arguments, &output);
    }

    fn add(&mut self, arguments: &[&str], output: &BinaryOutput) {
        let root = self.fixture.root();
        let typed = arguments.join(" ");
        let transcript = format!("$ capstan {typed}\n{}{}", output.stdout, output.stderr);
        let transcript = transcript.replace(root.to_str().expect("a plain path"), "[ROOT]");
        writeln!(self.text, "{}\nexit code: {}\n", transcript.trim_end(), output.code.expect("an exit code"))
            .expect("a string");
    }
}

const GUESTS_BINDING_TOML: &str = "binding_id = 'guests'
runner_id = 'builtin:agent'

[[filters]]
field = 'input.text'
contains = 'guest'

[[filters]]
field = 'metadata.lang'
one_of = ['de', 'en']

[resource_policy]
tools = []
";

fn message_envelope(text: &str) -> Value {
    json!({"event_type": "message.received", "source": "api", "event_id": "e-1", "conversation_id": "c",
        "input": {"text": text}, "metadata": {"lang": "de"}})
}

#[test]
fn g02_bindings_are_listed_shown_enabled_and_disabled() {
    let mut transcript = CommandTranscript::new(CliFixture::new());
    let file = transcript.fixture.file("guests.toml", GUESTS_BINDING_TOML);
    transcript.run(&["bindings", "list"]);
    transcript.run(&["bindings", "set", &file]);
    transcript.run(&["bindings", "disable", "default"]);
    transcript.run(&["bindings", "list"]);
    transcript.run(&["bindings", "show", "guests"]);
    transcript.run(&["bindings", "enable", "default"]);
    transcript.run(&["bindings", "list", "--json"]);
    for unknown in ["show", "enable", "disable"] {
        transcript.run(&["bindings", unknown, "missing"]);
    }
    insta::assert_snapshot!(transcript.text);
}

#[test]
fn g02_dry_run_explains_the_choice_of_binding() {
    let mut transcript = CommandTranscript::new(CliFixture::new());
    let file = transcript.fixture.file("guests.toml", GUESTS_BINDING_TOML);
    transcript.fixture.capstan(&["bindings", "set", &file]).succeeded();
    let event = transcript.fixture.file("event.json", message_envelope("a guest").to_string());
    transcript.run(&["bindings", "dry-run", &event]);
    transcript.run(&["bindings", "dry-run", &event, "--json"]);
    transcript.fixture.capstan(&["bindings", "disable", "default"]).succeeded();
    let event = transcript.fixture.file("other.json", message_envelope("a friend").to_string());
    transcript.run(&["bindings", "dry-run", &event]);
    assert_eq!(transcript.fixture.outcomes(), (0, 0), "the event is not served");
    insta::assert_snapshot!(transcript.text);
}

#[test]
fn g03_runners_are_listed_and_shown() {
    let mut transcript = CommandTranscript::new(CliFixture::new());
    transcript.run(&["runners", "list"]);
    transcript.run(&["runners", "show", "builtin:agent"]);
    transcript.run(&["runners", "show", "missing"]);
    assert!(!transcript.fixture.home().exists(), "nothing is written");
    insta::assert_snapshot!(transcript.text);
}

#[test]
fn g02_unreadable_document_is_rejected_with_a_reason() {
    let mut transcript = CommandTranscript::new(CliFixture::new());
    let missing = transcript.fixture.path("missing.toml");
    let binary = transcript.fixture.file("binary", b"\x7fELF\x02\x01\x00\x00");
    let long = transcript.fixture.file("long.toml", format!("binding_id = {}", "x".repeat(5000)));
    for file in [missing, binary, long] {
        transcript.run(&["bindings", "set", &file]);
    }
    let policy = |policy: &str| format!("binding_id = 'b'\nrunner_id = 'builtin:agent'\n[resource_policy]\n{policy}");
    for text in [
        "",
        "hello",
        "[\"a\"]",
        "{\"binding_id\": 7}",
        &policy("models = ['fly']"),
        &policy("tools = { onyl = ['bash'] }"),
        &policy("artifacts = 'all'"),
        &policy("tape = 'none'"),
    ] {
        transcript.run_with_input(&["bindings", "set", "-"], text);
    }
    let part = |part: Value| json!({"event_type": "a.b", "source": "api", "input": {"contents": [part]}}).to_string();
    for text in ["hello", "[1]", "event_type = 'a.b'", &part(json!(5)), &part(json!({"type": "nope"}))] {
        transcript.run_with_input(&["events", "send", "-"], text);
    }
    transcript.run_with_input(&["events", "query", "-"], "hello");
    insta::assert_snapshot!(transcript.text);
}

/// Output of `events send`.
fn stdout_json(output: &BinaryOutput) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn g01_sent_event_prints_its_outcome() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("hello, guest")]);
    let fixture = CliFixture::with_model(&server);
    let event = fixture.file("event.json", message_envelope("hi").to_string());
    let output = fixture.capstan(&["events", "send", &event]);
    let first = stdout_json(&output.succeeded());
    assert_eq!((&first["outcome"], &first["output"]), (&json!("replied"), &json!("hello, guest")));
    assert_eq!((&first["session_id"], &first["duplicate"]), (&json!("api:c"), &Value::Null));
    assert_eq!(first["undelivered"], Value::Null);
    let again = stdout_json(&fixture.capstan(&["events", "send", &event]).succeeded());
    assert_eq!((&again["output"], &again["duplicate"]), (&first["output"], &json!(true)));
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn x03_failed_event_fails_again_when_sent_again() {
    let server =
        ScriptedModel::start_blocking(vec![ScriptedReply::status(401, r#"{"error": {"message": "no such key"}}"#)]);
    let fixture = CliFixture::with_model(&server);
    let event = fixture.file("event.json", message_envelope("hi").to_string());
    for _ in 0..2 {
        let output = fixture.capstan(&["events", "send", &event]).failed("model-unauthorized", 1);
        assert_eq!(
            (&stdout_json(&output)["outcome"], &stdout_json(&output)["error"]["code"]),
            (&json!("failed"), &json!("model-unauthorized"))
        );
    }
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn x03_event_for_a_channel_with_waiting_callers_is_rejected_before_acceptance() {
    let fixture = CliFixture::new();
    let mut to_stdio = message_envelope("hi");
    to_stdio["delivery"] = json!({"output_channel": "stdio"});
    let event = fixture.file("event.json", to_stdio.to_string());
    fixture.capstan(&["events", "send", &event]).refused("channel-elsewhere", 2);
    assert!(!fixture.home().exists(), "nothing was accepted");
}

#[test]
fn g02_event_without_an_enabled_binding_is_reported() {
    let fixture = CliFixture::new();
    fixture.capstan(&["bindings", "disable", "default"]).succeeded();
    let event = fixture.file("event.json", message_envelope("hi").to_string());
    for arguments in [vec!["run", "hello"], vec!["events", "send", &event]] {
        let output = fixture.capstan(&arguments).succeeded();
        assert!(output.stderr.contains("no enabled binding matches the event"), "{output:?}");
    }
}

#[test]
fn failed_output_is_not_reported_as_a_store_failure() {
    let fixture = CliFixture::new();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = fixture.command(&["bindings", "list"]).stdout(full).output().unwrap();
    let output = String::from_utf8(ended.stderr).unwrap();
    assert!(output.starts_with("error[output-failed]: cannot write to the standard output"), "{output}");
    assert_eq!(ended.status.code(), Some(1));
}

fn save_binding(fixture: &CliFixture, binding: &Value) {
    fixture.capstan_with_input(&["bindings", "set", "-"], binding.to_string().as_bytes()).succeeded();
}

#[test]
fn g02_a_binding_without_effect_here_is_saved_with_a_note() {
    let fixture = CliFixture::new();
    let workspace = fixture.workspace().display().to_string();
    let binding = json!({
        "binding_id": "b", "runner_id": "builtin:agent", "scope": {"workspace_id": format!("{workspace}/")},
        "resource_policy": {"tools": {"only": ["heelp", "help"]}},
    });
    let saved = fixture.capstan_with_input(&["bindings", "set", "-"], binding.to_string().as_bytes());
    assert_eq!((saved.code, saved.stdout.as_str()), (Some(0), "saved binding b (enabled)\n"));
    let notes: Vec<&str> = saved.stderr.lines().collect();
    assert!(notes[0].starts_with(&format!("note: it applies to the workspace {workspace}/ only")), "{notes:?}");
    assert_eq!(notes[1..], ["note: its resource_policy names the tool heelp, which is not there"]);
}

#[test]
fn g02_a_stored_binding_that_does_not_fit_any_more_is_reported() {
    let fixture = CliFixture::new();
    let policy = json!({"models": {"only": ["demo:"]}});
    save_binding(
        &fixture,
        &json!({"binding_id": "b", "runner_id": "builtin:agent", "scope": {"channel": "api"},
        "resource_policy": policy}),
    );
    let fixture = fixture.set("CAPSTAN_MODEL", "demo:z");
    let event = message_envelope("hi").to_string();
    let reason = "resource_policy.models does not grant demo:z";
    let dry_run = fixture.capstan_with_input(&["bindings", "dry-run", "-"], event.as_bytes());
    assert!(dry_run.stdout.contains(reason) && dry_run.stdout.contains("its runs fail"), "{dry_run:?}");
    let doctor = fixture.capstan(&["doctor"]);
    assert!(doctor.stdout.contains("b: ") && doctor.stdout.contains(reason), "{doctor:?}");
}

#[test]
fn g13_event_for_another_workspace_is_refused_in_dry_run_and_run() {
    let fixture = CliFixture::new();
    save_binding(
        &fixture,
        &json!({"binding_id": "tenant", "runner_id": "builtin:agent", "scope": {"workspace_id": "tenant-a"},
            "resource_policy": {"tools": []}}),
    );
    let mut envelope = message_envelope("hello");
    envelope["workspace_id"] = json!("tenant-a");
    let event = fixture.file("event.json", envelope.to_string());
    for command in [["bindings", "dry-run"], ["events", "send"]] {
        fixture.capstan(&[command[0], command[1], &event]).refused("workspace-not-served", 2);
    }
    assert_eq!(fixture.outcomes(), (0, 0), "nothing was accepted");
}

#[test]
fn g13_dry_run_matches_the_event_that_is_sent() {
    let fixture = CliFixture::new();
    let workspace = fixture.workspace().canonicalize().unwrap();
    let filters = json!([{"field": "session_id", "one_of": ["api:c"]},
        {"field": "workspace_id", "one_of": [workspace]}, {"field": "delivery.output_channel", "one_of": ["cli"]}]);
    save_binding(&fixture, &json!({"binding_id": "resolved", "runner_id": "builtin:agent", "filters": filters}));
    for workspace_id in [Value::Null, json!(workspace)] {
        let mut envelope = message_envelope("hello");
        envelope["event_id"] = Value::Null;
        envelope["workspace_id"] = workspace_id;
        let event = fixture.file("event.json", envelope.to_string());
        let dry_run = fixture.capstan(&["bindings", "dry-run", &event, "--json"]).json();
        assert_eq!((&dry_run["binding_id"], &dry_run["session_id"]), (&json!("resolved"), &json!("api:c")));
        let served = fixture.capstan(&["events", "send", &event]).json();
        let run = fixture.capstan(&["runs", "show", served["run_id"].as_str().unwrap(), "--json"]).json();
        assert_eq!(run["binding"], "resolved");
    }
}

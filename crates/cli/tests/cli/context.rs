//! `capstan tape context` compared with what a strict server received (P15), and places where a key must not be.

use crate::support::{CliFixture, TEST_API_KEY, entries_of_kind};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

fn bash_call(id: &str, command: &str) -> ScriptedReply {
    ScriptedReply::tool_calls([(id, "bash", json!({ "cmd": command }))])
}

/// Asserts that the recorded calls are the requests the server received, as JSON values.
#[track_caller]
fn assert_recorded_calls_match(recorded: &Value, requests: &[Value]) {
    let recorded = recorded.as_array().expect("a list of calls");
    assert_eq!(recorded.len(), requests.len(), "every call is recorded");
    for (number, (call, request)) in recorded.iter().zip(requests).enumerate() {
        assert_eq!(call["call"], json!(number + 1));
        for part in ["model", "messages", "tools"] {
            assert_eq!(call[part], request[part], "{part} of call {}", number + 1);
        }
    }
}

#[track_caller]
fn assert_no_violations(server: &ScriptedModel) {
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn p15_recorded_context_equals_what_the_server_received() {
    let server = ScriptedModel::start_blocking(vec![
        bash_call("call_1", "echo one").with_text("Let me look.").with_usage(100, 10),
        ScriptedReply::tool_calls([
            ("call_2", "bash", json!({"cmd": "echo two, 你好 🐋"})),
            ("call_3", "fs_read", json!({"path": "missing.txt"})),
        ])
        .with_usage(200, 20),
        ScriptedReply::text("done").with_usage(300, 30),
        ScriptedReply::text("again").with_usage(1, 2),
    ]);
    let fixture = CliFixture::with_model(&server);
    let first = fixture.capstan(&["run", "go", "--json"]).json();
    let second = fixture.capstan(&["run", "and now?", "--json"]).json();
    assert_no_violations(&server);
    let requests = server.requests();
    assert_eq!(requests.len(), 4);

    let run_id = first["run_id"].as_str().unwrap();
    let all = fixture.capstan(&["tape", "context", run_id]).json();
    assert_recorded_calls_match(&all, &requests[..3]);
    for number in 1..=3 {
        let one = fixture.capstan(&["tape", "context", run_id, "--call", &number.to_string()]).json();
        assert_eq!(one, all[number - 1]);
    }
    assert_recorded_calls_match(&fixture.capstan(&["tape", "context"]).json(), &requests[3..]);
    assert_eq!(fixture.capstan(&["tape", "context"]).json()[0]["run_id"], second["run_id"]);

    let added_up = json!({"prompt_tokens": 600, "completion_tokens": 60, "total_tokens": 660});
    assert_eq!(first["usage"], added_up);
    assert_eq!(second["usage"], json!({"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}));

    let roles = |request: &Value| -> Vec<String> {
        let messages = request["messages"].as_array().unwrap();
        messages.iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect()
    };
    let two_steps = "system assistant user assistant assistant tool assistant tool tool";
    assert_eq!(roles(&requests[2]).join(" "), two_steps);
    assert_eq!(roles(&requests[3]).join(" "), format!("{two_steps} assistant user"));
}

#[test]
fn p15_recorded_context_of_a_call_never_changes() {
    let server = ScriptedModel::start_blocking(vec![
        bash_call("call_1", "echo one"),
        ScriptedReply::text("one"),
        ScriptedReply::text("two"),
    ]);
    let fixture = CliFixture::with_model(&server);
    let run_id = fixture.capstan(&["run", "go", "--json"]).json()["run_id"].as_str().unwrap().to_owned();
    fixture.capstan(&["run", ",tape.handoff name=later"]).data();
    fixture.capstan(&["run", "more"]).data();
    fixture.capstan(&["tape", "reset", "cli:local"]).data();
    assert_recorded_calls_match(&fixture.capstan(&["tape", "context", &run_id]).json(), &server.requests()[..2]);
    assert_recorded_calls_match(&fixture.capstan(&["tape", "context"]).json(), &server.requests()[2..]);
}

#[test]
fn x06_key_reaches_only_the_provider() {
    let echo = "{\"error\": {\"message\": \"Incorrect API key provided: ".to_owned() + TEST_API_KEY + "\"}}";
    let server = ScriptedModel::start_blocking(vec![
        bash_call("call_1", "env"),
        ScriptedReply::text("done"),
        ScriptedReply::status(401, echo.clone()),
        ScriptedReply::status(400, echo),
        ScriptedReply::disconnect_after("half"),
    ]);
    let fixture = CliFixture::with_model(&server).set("CAPSTAN_LOG", "trace").set("TZ", "UTC").set("OTHER", "masked");
    let run = fixture.capstan(&["run", "go", "--json"]).succeeded();
    assert_eq!(server.authorization_headers()[0].as_deref(), Some(format!("Bearer {TEST_API_KEY}").as_str()));

    let entries = fixture.entries();
    let environment = entries_of_kind(&entries, "tool_result")[0]["payload"]["results"][0].to_string();
    assert!(environment.contains("TZ=UTC"), "the tool printed its environment: {environment}");
    assert!(!environment.contains("CAPSTAN_") && !environment.contains("OTHER"), "{environment}");

    let mut output = vec![run];
    output.extend((0..3).map(|_| fixture.capstan(&["run", "again"])));
    output.push(fixture.capstan(&["run", "again", "--json"]));
    output.push(fixture.capstan(&["config", "show"]));
    output.push(fixture.capstan(&["config", "show", "--json"]));
    output.push(fixture.capstan(&["tape", "show", "cli:local", "--json"]));
    output.push(fixture.capstan(&["tape", "context"]));
    for output in &output {
        assert!(!output.stdout.contains(TEST_API_KEY), "{}", output.stdout);
        let fixture = output.stderr.lines().find(|line| line.contains(TEST_API_KEY));
        assert_eq!(fixture, None);
    }
    fixture.assert_not_in_home(TEST_API_KEY);
    assert_no_violations(&server);
}

#[test]
fn x06_key_of_the_home_reaches_no_tool_and_no_database() {
    let server = ScriptedModel::start_blocking(vec![bash_call("call_1", "env"), ScriptedReply::text("done")]);
    let config = format!("model = 'openai:scripted'\napi_base = '{}'\napi_key = '{TEST_API_KEY}'\n", server.base_url());
    let fixture = CliFixture::new().config(&config);
    fixture.capstan(&["run", "go"]).succeeded();
    std::fs::remove_file(fixture.home().join("config.toml")).unwrap();
    assert_eq!(server.authorization_headers()[0].as_deref(), Some(format!("Bearer {TEST_API_KEY}").as_str()));
    fixture.assert_not_in_home(TEST_API_KEY);
}

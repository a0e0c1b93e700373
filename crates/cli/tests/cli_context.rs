//! What the model got: `capstan tape context` against what a strict server received (P15), and where a key must not be.

mod cli_support;

use capstan_testing::{Reply, ScriptedModel};
use cli_support::{KEY, Place, of_kind};
use serde_json::{Value, json};

fn bash(id: &str, command: &str) -> Reply {
    Reply::tool_calls([(id, "bash", json!({ "cmd": command }))])
}

/// Asserts that the recorded calls are the requests the server received, as JSON values.
#[track_caller]
fn assert_same(recorded: &Value, requests: &[Value]) {
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
fn assert_clean(server: &ScriptedModel) {
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn p15_the_context_of_every_call_is_what_the_server_received() {
    let server = ScriptedModel::start_blocking(vec![
        bash("call_1", "echo one").with_text("Let me look.").with_usage(100, 10),
        Reply::tool_calls([
            ("call_2", "bash", json!({"cmd": "echo two, 你好 🐋"})),
            ("call_3", "fs_read", json!({"path": "missing.txt"})),
        ])
        .with_usage(200, 20),
        Reply::text("done").with_usage(300, 30),
        Reply::text("again").with_usage(1, 2),
    ]);
    let place = Place::with_model(&server);
    let first = place.capstan(&["run", "go", "--json"]).json();
    let second = place.capstan(&["run", "and now?", "--json"]).json();
    assert_clean(&server);
    let requests = server.requests();
    assert_eq!(requests.len(), 4);

    let run_id = first["run_id"].as_str().unwrap();
    let all = place.capstan(&["tape", "context", run_id]).json();
    assert_same(&all, &requests[..3]);
    for number in 1..=3 {
        let one = place.capstan(&["tape", "context", run_id, "--call", &number.to_string()]).json();
        assert_eq!(one, all[number - 1]);
    }
    assert_same(&place.capstan(&["tape", "context"]).json(), &requests[3..]);
    assert_eq!(place.capstan(&["tape", "context"]).json()[0]["run_id"], second["run_id"]);

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
fn p15_the_context_of_an_old_call_does_not_change_with_what_follows() {
    let server =
        ScriptedModel::start_blocking(vec![bash("call_1", "echo one"), Reply::text("one"), Reply::text("two")]);
    let place = Place::with_model(&server);
    let run_id = place.capstan(&["run", "go", "--json"]).json()["run_id"].as_str().unwrap().to_owned();
    place.capstan(&["run", ",tape.handoff name=later"]).data();
    place.capstan(&["run", "more"]).data();
    place.capstan(&["tape", "reset", "cli:local"]).data();
    assert_same(&place.capstan(&["tape", "context", &run_id]).json(), &server.requests()[..2]);
    assert_same(&place.capstan(&["tape", "context"]).json(), &server.requests()[2..]);
}

#[test]
fn x06_the_key_reaches_the_provider_and_nobody_else() {
    let echo = "{\"error\": {\"message\": \"Incorrect API key provided: ".to_owned() + KEY + "\"}}";
    let server = ScriptedModel::start_blocking(vec![
        bash("call_1", "env"),
        Reply::text("done"),
        Reply::status(401, echo.clone()),
        Reply::status(400, echo),
        Reply::cut_after("half"),
    ]);
    let place = Place::with_model(&server).set("CAPSTAN_LOG", "trace").set("TZ", "UTC").set("OTHER", "kept back");
    let run = place.capstan(&["run", "go", "--json"]).succeeded();
    assert_eq!(server.authorizations()[0].as_deref(), Some(format!("Bearer {KEY}").as_str()));

    let entries = place.entries();
    let environment = of_kind(&entries, "tool_result")[0]["payload"]["results"][0].to_string();
    assert!(environment.contains("TZ=UTC"), "the tool saw its environment: {environment}");
    assert!(!environment.contains("CAPSTAN_") && !environment.contains("OTHER"), "{environment}");

    let mut said = vec![run];
    said.extend((0..3).map(|_| place.capstan(&["run", "again"])));
    said.push(place.capstan(&["run", "again", "--json"]));
    said.push(place.capstan(&["config", "show"]));
    said.push(place.capstan(&["config", "show", "--json"]));
    said.push(place.capstan(&["tape", "show", "cli:local", "--json"]));
    said.push(place.capstan(&["tape", "context"]));
    for said in &said {
        assert!(!said.stdout.contains(KEY), "{}", said.stdout);
        let place = said.stderr.lines().find(|line| line.contains(KEY));
        assert_eq!(place, None);
    }
    place.assert_not_in_home(KEY);
    assert_clean(&server);
}

#[test]
fn x06_a_key_of_the_home_reaches_no_tool_and_no_database() {
    let server = ScriptedModel::start_blocking(vec![bash("call_1", "env"), Reply::text("done")]);
    let config = format!("model = 'openai:scripted'\napi_base = '{}'\napi_key = '{KEY}'\n", server.base_url());
    let place = Place::new().config(&config);
    place.capstan(&["run", "go"]).succeeded();
    std::fs::remove_file(place.home().join("config.toml")).unwrap();
    assert_eq!(server.authorizations()[0].as_deref(), Some(format!("Bearer {KEY}").as_str()));
    place.assert_not_in_home(KEY);
}

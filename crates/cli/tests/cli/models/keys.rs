//! Provider keys: their sources, and the places they must not reach.

use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::json;

use super::provider::provider_base_url;
use crate::support::{CliFixture, StdioServer, entries_of_kind};

/// A model of each provider, and the usual variables for its key and its address.
const PROVIDER_VARIABLES: [(&str, &str, &str); 6] = [
    ("openai:gpt-5", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    ("openai-responses:gpt-5", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    ("anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    ("gemini:gemini-3-pro", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
    ("openrouter:some/model", "OPENROUTER_API_KEY", "OPENROUTER_BASE_URL"),
    ("ollama:qwen3", "OLLAMA_API_KEY", "OLLAMA_HOST"),
];
const PROVIDER_SECRET: &str = "usual-5ecret-0f-the-user";

#[test]
fn x06_key_from_a_usual_variable_reaches_its_provider_only() {
    for (model, key, address) in PROVIDER_VARIABLES {
        let env =
            ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "env; echo usual-5ecret-0f-\"the-user\""}))]);
        let echo = json!({"error": {"message": format!("bad key {PROVIDER_SECRET}")}}).to_string();
        let server =
            ScriptedModel::start_blocking(vec![env, ScriptedReply::text("done"), ScriptedReply::status(401, echo)]);
        let fixture = CliFixture::new()
            .set("CAPSTAN_MODEL", model)
            .set(key, PROVIDER_SECRET)
            .set(address, &provider_base_url(&server, model));
        let fixture = fixture.set("CAPSTAN_LOG", "trace");
        let run = fixture.capstan(&["run", "go", "--json"]).succeeded();
        let sent = ["authorization", "x-api-key", "x-goog-api-key"].map(|name| server.header_values(name)[0].clone());
        assert!(sent.iter().flatten().any(|value| value.ends_with(PROVIDER_SECRET)), "{model}: {sent:?}");
        let results = serde_json::to_string(&entries_of_kind(&fixture.entries(), "tool_result")).unwrap();
        assert!(!results.contains(key) && results.contains("[masked]"), "{model}: {results}");
        let refused = fixture.capstan(&["run", "again"]).failed("model-unauthorized", 1);
        let shown = fixture.capstan(&["config", "show"]);
        assert!(shown.stdout.contains(&format!("environment {key}")), "{}", shown.stdout);
        for output in [run, refused, shown, fixture.capstan(&["tape", "context"])] {
            assert!(
                !output.stdout.contains(PROVIDER_SECRET) && !output.stderr.contains(PROVIDER_SECRET),
                "{model}: {output:?}"
            );
        }
        fixture.assert_not_in_home(PROVIDER_SECRET);
    }
}

/// All variables that hold a secret here, including those that another setting overrides.
const SECRET_VARIABLES: [(&str, &str); 7] = [
    ("OPENAI_API_KEY", "5ecret-0f-openai"),
    ("ANTHROPIC_API_KEY", "5ecret-0f-anthropic"),
    ("GEMINI_API_KEY", "5ecret-0f-gemini"),
    ("GOOGLE_API_KEY", "5ecret-0f-google"),
    ("OPENROUTER_API_KEY", "5ecret-0f-openrouter"),
    ("OLLAMA_API_KEY", "5ecret-0f-ollama"),
    ("CAPSTAN_MODELS__HOUSE__API_KEY", "5ecret-0f-the-house"),
];

#[test]
fn x06_keys_of_all_providers_are_masked_for_tape_model_and_channel() {
    let command = "tr '\\0' '\\n' < /proc/$PPID/environ; cat leaked; cat ../home/config.toml";
    let leak = ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": command}))]);
    let server = ScriptedModel::start_blocking(vec![leak, ScriptedReply::text("done")]);
    let model = "anthropic:claude-sonnet-4-5";
    let mut fixture = CliFixture::new()
        .config("api_key = '5ecret-0f-the-file'\n[models.gemini]\nheaders = { x-more = '5ecret-0f-a-header' }\n")
        .set("CAPSTAN_MODEL", model)
        .set("CAPSTAN_API_KEY", "5ecret-in-use-0123")
        .set("CAPSTAN_API_BASE", &provider_base_url(&server, model))
        .set("CAPSTAN_MODELS__HOUSE__API_BASE", "http://me:5ecret-in-an-address@127.0.0.1:9/v1");
    let mut leaked = vec!["5ecret-in-use-0123 5ecret-in-an-address".to_owned()];
    for (name, secret) in SECRET_VARIABLES {
        fixture = fixture.set(name, secret);
        leaked.push(format!("{name}={secret}"));
    }
    std::fs::write(fixture.workspace().join("leaked"), leaked.join("\n")).unwrap();
    let mut stdio = StdioServer::start(&fixture);
    stdio.send_line(&json!({"id": 1, "session": "s", "text": "go", "stream": true}));
    let mut shown = String::new();
    while !shown.contains("\"outcome\"") {
        shown += &stdio.recv_line().to_string();
    }
    stdio.close();
    let sent = server.requests()[1].to_string();
    let tape = serde_json::to_string(&fixture.tape("s")).unwrap();
    for (reader, text) in [("channel", shown), ("model", sent), ("tape", tape)] {
        assert!(text.contains("OLLAMA_API_KEY=[masked]"), "only the secret is masked for the {reader}: {text}");
        assert!(!text.contains("5ecret"), "the {reader} sees a secret: {text}");
    }
}

#[test]
fn x06_commands_have_no_key_in_their_environment_even_if_configured() {
    let names: Vec<&str> = SECRET_VARIABLES.iter().map(|(name, _)| *name).collect();
    let env = ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "env"}))]);
    let server = ScriptedModel::start_blocking(vec![env, ScriptedReply::text("done")]);
    let fixture = CliFixture::with_model(&server).set("CAPSTAN_BASH_ENVIRONMENT", &names.join(","));
    let fixture = fixture.set("CAPSTAN_MODELS__HOUSE__API_BASE", "http://127.0.0.1:9/v1");
    let fixture = SECRET_VARIABLES.iter().fold(fixture, |fixture, (name, secret)| fixture.set(name, secret));
    fixture.capstan(&["run", "go"]).succeeded();
    let output = serde_json::to_string(&entries_of_kind(&fixture.entries(), "tool_result")).unwrap();
    assert!(output.contains("PATH=") && !output.contains("_API_KEY"), "{output}");
}

#[test]
fn a08_error_without_a_key_names_the_variable_to_set() {
    for (model, key, _) in PROVIDER_VARIABLES.into_iter().filter(|(model, ..)| !model.starts_with("ollama")) {
        let output =
            CliFixture::new().set("CAPSTAN_MODEL", model).capstan(&["run", "hello"]).refused("model-unauthorized", 1);
        let first = if key == "GOOGLE_API_KEY" { "GEMINI_API_KEY" } else { key };
        assert!(output.stderr.contains(first), "{model}: {}", output.stderr);
    }
}

#[test]
fn a08_compatible_server_has_its_own_name_headers_and_body_options() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("hi from here")]);
    let config = format!(
        "model = 'house:llama'\n[models.house]\napi_base = '{}'\napi_key = 'house-key-0123456789'\n\
         headers = {{ x-team = 'blue' }}\nbody = {{ temperature = 0.25, stop = ['END'] }}\n",
        server.base_url()
    );
    let fixture = CliFixture::new().config(&config);
    assert_eq!(fixture.capstan(&["run", "hello"]).data(), "hi from here\n");
    assert_eq!(server.authorization_headers(), [Some("Bearer house-key-0123456789".to_owned())]);
    assert_eq!(server.header_values("x-team"), [Some("blue".to_owned())]);
    let sent = server.requests().remove(0);
    assert_eq!((&sent["model"], &sent["temperature"], &sent["stop"]), (&json!("llama"), &json!(0.25), &json!(["END"])));
    let other = ScriptedModel::start_blocking(vec![ScriptedReply::text("hello")]);
    let config = format!("model = 'mine:m'\n[models.mine]\nwire = 'anthropic'\napi_base = '{}'\n", other.origin());
    assert_eq!(CliFixture::new().config(&config).capstan(&["run", "hello"]).data(), "hello\n");
}

#[test]
fn a08_next_key_is_used_at_once_and_named_by_runs_show_by_its_number() {
    let refused = ScriptedReply::status(401, r#"{"error": {"message": "revoked: sk-one-0123456789"}}"#);
    let leak = ScriptedReply::tool_calls([(
        "call_1",
        "bash",
        json!({"cmd": "echo sk-one-\"0123456789\" sk-two-\"0123456789\""}),
    )]);
    let server = ScriptedModel::start_blocking(vec![refused, leak, ScriptedReply::text("done")]);
    let fixture = CliFixture::new()
        .config("[models.openai]\napi_keys = ['sk-one-0123456789', 'sk-two-0123456789']")
        .set("CAPSTAN_MODEL", "openai:gpt-5")
        .set("CAPSTAN_API_BASE", &server.base_url());
    let run = fixture.capstan(&["run", "go"]).succeeded();
    assert_eq!(run.stdout, "done\n");
    let keys = ["one", "two", "two"].map(|name| Some(format!("Bearer sk-{name}-0123456789")));
    assert_eq!(server.authorization_headers(), keys);
    let runs = fixture.capstan(&["runs", "list", "--json"]).json();
    let shown = fixture.capstan(&["runs", "show", runs[0]["run_id"].as_str().unwrap()]).succeeded();
    assert!(shown.stdout.contains("\"key\":2"), "{}", shown.stdout);
    let doctor = fixture.capstan(&["doctor"]).succeeded();
    assert!(doctor.stdout.contains("model openai:gpt-5 with 2 keys"), "{}", doctor.stdout);
    for output in [run, shown, doctor, fixture.capstan(&["config", "show"]), fixture.capstan(&["tape", "context"])] {
        let text = output.stdout.clone() + &output.stderr;
        assert!(!text.contains("sk-one-0123456789") && !text.contains("sk-two-0123456789"), "{output:?}");
    }
    let results = serde_json::to_string(&entries_of_kind(&fixture.entries(), "tool_result")).unwrap();
    assert!(results.contains("[masked] [masked]"), "{results}");
}

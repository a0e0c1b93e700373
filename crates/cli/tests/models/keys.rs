//! Keys: where they come from, and where they must not go.

use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::json;

use crate::cli_support::{CliFixture, StdioServer, entries_of_kind};
use crate::provider::provider_base_url;

/// A model of each provider, and the variables people keep its key and its address in.
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
fn x06_a_usual_key_reaches_its_provider_and_nobody_else() {
    for (model, key, address) in PROVIDER_VARIABLES {
        let env =
            ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "env; echo usual-5ecret-0f-\"the-user\""}))]);
        let echo = json!({"error": {"message": format!("bad key {PROVIDER_SECRET}")}}).to_string();
        let server =
            ScriptedModel::start_blocking(vec![env, ScriptedReply::text("done"), ScriptedReply::status(401, echo)]);
        let place = CliFixture::new()
            .set("CAPSTAN_MODEL", model)
            .set(key, PROVIDER_SECRET)
            .set(address, &provider_base_url(&server, model));
        let place = place.set("CAPSTAN_LOG", "trace");
        let run = place.capstan(&["run", "go", "--json"]).succeeded();
        let sent = ["authorization", "x-api-key", "x-goog-api-key"].map(|name| server.header_values(name)[0].clone());
        assert!(sent.iter().flatten().any(|value| value.ends_with(PROVIDER_SECRET)), "{model}: {sent:?}");
        let results = serde_json::to_string(&entries_of_kind(&place.entries(), "tool_result")).unwrap();
        assert!(!results.contains(key) && results.contains("[masked]"), "{model}: {results}");
        let refused = place.capstan(&["run", "again"]).failed("model-unauthorized", 1);
        let shown = place.capstan(&["config", "show"]);
        assert!(shown.stdout.contains(&format!("environment {key}")), "{}", shown.stdout);
        for said in [run, refused, shown, place.capstan(&["tape", "context"])] {
            assert!(
                !said.stdout.contains(PROVIDER_SECRET) && !said.stderr.contains(PROVIDER_SECRET),
                "{model}: {said:?}"
            );
        }
        place.assert_not_in_home(PROVIDER_SECRET);
    }
}

/// Everything that holds a secret here, whether it is used or another setting stands over it.
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
fn x06_the_keys_of_all_providers_are_masked_before_tape_model_and_channel_see_them() {
    let look = "tr '\\0' '\\n' < /proc/$PPID/environ; cat leaked; cat ../home/config.toml";
    let look = ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": look}))]);
    let server = ScriptedModel::start_blocking(vec![look, ScriptedReply::text("done")]);
    let model = "anthropic:claude-sonnet-4-5";
    let mut place = CliFixture::new()
        .config("api_key = '5ecret-0f-the-file'\n[models.gemini]\nheaders = { x-more = '5ecret-0f-a-header' }\n")
        .set("CAPSTAN_MODEL", model)
        .set("CAPSTAN_API_KEY", "5ecret-in-use-0123")
        .set("CAPSTAN_API_BASE", &provider_base_url(&server, model))
        .set("CAPSTAN_MODELS__HOUSE__API_BASE", "http://me:5ecret-in-an-address@127.0.0.1:9/v1");
    let mut leaked = vec!["5ecret-in-use-0123 5ecret-in-an-address".to_owned()];
    for (name, secret) in SECRET_VARIABLES {
        place = place.set(name, secret);
        leaked.push(format!("{name}={secret}"));
    }
    std::fs::write(place.workspace().join("leaked"), leaked.join("\n")).unwrap();
    let mut wire = StdioServer::start(&place);
    wire.send_line(&json!({"id": 1, "session": "s", "text": "go", "stream": true}));
    let mut shown = String::new();
    while !shown.contains("\"outcome\"") {
        shown += &wire.recv_line().to_string();
    }
    wire.close();
    let sent = server.requests()[1].to_string();
    let kept = serde_json::to_string(&place.tape("s")).unwrap();
    for (who, seen) in [("channel", shown), ("model", sent), ("tape", kept)] {
        assert!(seen.contains("OLLAMA_API_KEY=[masked]"), "the {who} sees what is no secret: {seen}");
        assert!(!seen.contains("5ecret"), "the {who}: {seen}");
    }
}

#[test]
fn x06_no_key_is_in_the_environment_of_a_command_whoever_asks_for_it() {
    let names: Vec<&str> = SECRET_VARIABLES.iter().map(|(name, _)| *name).collect();
    let env = ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "env"}))]);
    let server = ScriptedModel::start_blocking(vec![env, ScriptedReply::text("done")]);
    let place = CliFixture::with_model(&server).set("CAPSTAN_BASH_ENVIRONMENT", &names.join(","));
    let place = place.set("CAPSTAN_MODELS__HOUSE__API_BASE", "http://127.0.0.1:9/v1");
    let place = SECRET_VARIABLES.iter().fold(place, |place, (name, secret)| place.set(name, secret));
    place.capstan(&["run", "go"]).succeeded();
    let said = serde_json::to_string(&entries_of_kind(&place.entries(), "tool_result")).unwrap();
    assert!(said.contains("PATH=") && !said.contains("_API_KEY"), "{said}");
}

#[test]
fn a8_without_a_key_the_error_says_where_to_set_it() {
    for (model, key, _) in PROVIDER_VARIABLES.into_iter().filter(|(model, ..)| !model.starts_with("ollama")) {
        let said =
            CliFixture::new().set("CAPSTAN_MODEL", model).capstan(&["run", "hello"]).refused("model-unauthorized", 1);
        let first = if key == "GOOGLE_API_KEY" { "GEMINI_API_KEY" } else { key };
        assert!(said.stderr.contains(first), "{model}: {}", said.stderr);
    }
}

#[test]
fn a8_any_compatible_server_can_have_a_name_headers_and_options_of_its_own() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("hi from here")]);
    let config = format!(
        "model = 'house:llama'\n[models.house]\napi_base = '{}'\napi_key = 'house-key-0123456789'\n\
         headers = {{ x-team = 'blue' }}\nbody = {{ temperature = 0.25, stop = ['END'] }}\n",
        server.base_url()
    );
    let place = CliFixture::new().config(&config);
    assert_eq!(place.capstan(&["run", "hello"]).data(), "hi from here\n");
    assert_eq!(server.authorization_headers(), [Some("Bearer house-key-0123456789".to_owned())]);
    assert_eq!(server.header_values("x-team"), [Some("blue".to_owned())]);
    let sent = server.requests().remove(0);
    assert_eq!((&sent["model"], &sent["temperature"], &sent["stop"]), (&json!("llama"), &json!(0.25), &json!(["END"])));
    let other = ScriptedModel::start_blocking(vec![ScriptedReply::text("hello")]);
    let config = format!("model = 'mine:m'\n[models.mine]\nwire = 'anthropic'\napi_base = '{}'\n", other.origin());
    assert_eq!(CliFixture::new().config(&config).capstan(&["run", "hello"]).data(), "hello\n");
}

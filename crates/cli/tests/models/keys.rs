//! Keys: where they come from, and where they must not go.

use capstan_testing::{Reply, ScriptedModel};
use serde_json::json;

use crate::cli_support::{Place, of_kind};
use crate::provider::base;

/// A model of each provider, and the variables people keep its key and its address in.
const USUAL: [(&str, &str, &str); 6] = [
    ("openai:gpt-5", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    ("openai-responses:gpt-5", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    ("anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    ("gemini:gemini-3-pro", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
    ("openrouter:some/model", "OPENROUTER_API_KEY", "OPENROUTER_BASE_URL"),
    ("ollama:qwen3", "OLLAMA_API_KEY", "OLLAMA_HOST"),
];
const SECRET: &str = "usual-5ecret-0f-the-user";

#[test]
fn x06_a_usual_key_reaches_its_provider_and_nobody_else() {
    for (model, key, address) in USUAL {
        let env = Reply::tool_calls([("call_1", "bash", json!({"cmd": "env; echo usual-5ecret-0f-\"the-user\""}))]);
        let echo = json!({"error": {"message": format!("bad key {SECRET}")}}).to_string();
        let server = ScriptedModel::start_blocking(vec![env, Reply::text("done"), Reply::status(401, echo)]);
        let place = Place::new().set("CAPSTAN_MODEL", model).set(key, SECRET).set(address, &base(&server, model));
        let place = place.set("CAPSTAN_LOG", "trace");
        let run = place.capstan(&["run", "go", "--json"]).succeeded();
        let sent = ["authorization", "x-api-key", "x-goog-api-key"].map(|name| server.header(name)[0].clone());
        assert!(sent.iter().flatten().any(|value| value.ends_with(SECRET)), "{model}: {sent:?}");
        let results = serde_json::to_string(&of_kind(&place.entries(), "tool_result")).unwrap();
        assert!(!results.contains(key) && results.contains("[masked]"), "{model}: {results}");
        let refused = place.capstan(&["run", "again"]).failed("model-unauthorized", 1);
        let shown = place.capstan(&["config", "show"]);
        assert!(shown.stdout.contains(&format!("environment {key}")), "{}", shown.stdout);
        for said in [run, refused, shown, place.capstan(&["tape", "context"])] {
            assert!(!said.stdout.contains(SECRET) && !said.stderr.contains(SECRET), "{model}: {said:?}");
        }
        place.assert_not_in_home(SECRET);
    }
}

#[test]
fn a8_without_a_key_the_error_says_where_to_set_it() {
    for (model, key, _) in USUAL.into_iter().filter(|(model, ..)| !model.starts_with("ollama")) {
        let said = Place::new().set("CAPSTAN_MODEL", model).capstan(&["run", "hello"]).refused("model-unauthorized", 1);
        let first = if key == "GOOGLE_API_KEY" { "GEMINI_API_KEY" } else { key };
        assert!(said.stderr.contains(first), "{model}: {}", said.stderr);
    }
}

#[test]
fn a8_any_compatible_server_can_have_a_name_headers_and_options_of_its_own() {
    let server = ScriptedModel::start_blocking(vec![Reply::text("hi from here")]);
    let config = format!(
        "model = 'house:llama'\n[models.house]\napi_base = '{}'\napi_key = 'house-key-0123456789'\n\
         headers = {{ x-team = 'blue' }}\nbody = {{ temperature = 0.25, stop = ['END'] }}\n",
        server.base_url()
    );
    let place = Place::new().config(&config);
    assert_eq!(place.capstan(&["run", "hello"]).data(), "hi from here\n");
    assert_eq!(server.authorizations(), [Some("Bearer house-key-0123456789".to_owned())]);
    assert_eq!(server.header("x-team"), [Some("blue".to_owned())]);
    let sent = server.requests().remove(0);
    assert_eq!((&sent["model"], &sent["temperature"], &sent["stop"]), (&json!("llama"), &json!(0.25), &json!(["END"])));
    let other = ScriptedModel::start_blocking(vec![Reply::text("hello")]);
    let config = format!("model = 'mine:m'\n[models.mine]\nwire = 'anthropic'\napi_base = '{}'\n", other.origin());
    assert_eq!(Place::new().config(&config).capstan(&["run", "hello"]).data(), "hello\n");
}

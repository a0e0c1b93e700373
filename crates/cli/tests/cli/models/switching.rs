//! Sessions that change models, between turns and within a step.

use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::json;

use super::provider::{self, assert_no_violations, provider_base_url};
use crate::support::{BinaryOutput, CliFixture, StdioServer, TEST_API_KEY, entries_of_kind};

/// Two or more models of each provider in sequence, so that each one continues from a model of its own provider and from
/// one of another. The server accepts a signature only from the model for which it was issued.
const SWITCHED_MODELS: [&str; 13] = [
    "openai:gpt-5",
    "openai:gpt-5-mini",
    "openai-responses:gpt-5",
    "openai-responses:gpt-5-mini",
    "anthropic:claude-sonnet-4-5",
    "anthropic:claude-opus-4-5",
    "gemini:gemini-2.5-pro",
    "gemini:gemini-3-pro",
    "gemini:gemini-3-flash",
    "openrouter:some/model",
    "openrouter:other/model",
    "ollama:qwen3",
    "ollama:llama4",
];

/// Fixture in which `server` plays every provider.
fn fixture_with_all_providers(server: &ScriptedModel) -> CliFixture {
    let mut fixture = CliFixture::new().set("CAPSTAN_MODEL", SWITCHED_MODELS[0]).set("CAPSTAN_REASONING", "low");
    for model in SWITCHED_MODELS {
        let provider = model.split(':').next().unwrap().to_uppercase().replace('-', "_");
        fixture = fixture.set(&format!("CAPSTAN_MODELS__{provider}__API_BASE"), &provider_base_url(server, model));
        fixture = fixture.set(&format!("CAPSTAN_MODELS__{provider}__API_KEY"), TEST_API_KEY);
    }
    fixture
}

#[test]
fn a08_every_model_continues_a_step_of_every_other_model() {
    let server = ScriptedModel::start_blocking_with(|_, answered| match answered % 3 {
        0 => {
            let call = (format!("bash_{answered}"), "bash".to_owned(), json!({"cmd": "true"}));
            ScriptedReply::tool_calls([call]).with_text("I hand over.").with_reasoning("another model should")
        }
        1 => ScriptedReply::status(503, r#"{"error": {"message": "not me"}}"#),
        _ => ScriptedReply::text("done").with_reasoning("I finish it"),
    });
    let fixture = fixture_with_all_providers(&server).set("CAPSTAN_MODEL_RETRIES", "0");
    for turn in 0..2 * SWITCHED_MODELS.len() {
        let (from, to) =
            (SWITCHED_MODELS[turn % SWITCHED_MODELS.len()], SWITCHED_MODELS[(turn + 1) % SWITCHED_MODELS.len()]);
        let mut run = fixture.command(&["run", "go"]);
        let output =
            BinaryOutput::from(run.env("CAPSTAN_MODEL", from).env("CAPSTAN_FALLBACK_MODELS", to).output().unwrap());
        assert_eq!(output.stdout, "I hand over.\n\ndone\n", "{from} to {to}: {output:?} {:?}", server.violations());
    }
    assert_no_violations(&server);
    let returned = ["signature", "thoughtSignature", "encrypted_content", "reasoning_details", "reasoning_content"];
    let requests: Vec<String> = server.requests().iter().map(ToString::to_string).collect();
    for key in returned {
        let key = format!("\"{key}\":");
        assert!(requests.iter().any(|request| request.contains(&key)), "{key} returns to the model that issued it");
    }
}

#[test]
fn a08_every_model_continues_the_session_after_a_change_between_turns() {
    let server = ScriptedModel::start_blocking_with(|_, answered| {
        if answered % 2 == 0 {
            let call = (format!("call_{answered}"), "bash".to_owned(), json!({"cmd": "true"}));
            ScriptedReply::tool_calls([call]).with_reasoning("hm")
        } else {
            ScriptedReply::text("done").with_reasoning("aha")
        }
    });
    let fixture = fixture_with_all_providers(&server);
    for model in SWITCHED_MODELS.into_iter().chain(SWITCHED_MODELS).rev() {
        fixture.capstan(&["run", &format!(",model {model}")]).succeeded();
        let output = fixture.capstan(&["run", "go"]);
        assert_eq!(output.stdout, "done\n", "{model}: {output:?} {:?}", server.violations());
    }
    assert_no_violations(&server);
}

#[test]
fn x06_provider_data_is_on_the_tape_and_not_shown_to_the_channel() {
    for model in ["openai-responses:gpt-5", "anthropic:claude-sonnet-4-5", "gemini:gemini-3-pro", "openrouter:a/b"] {
        let call = ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "true"}))]).with_reasoning("hm");
        let server = ScriptedModel::start_blocking(vec![call, ScriptedReply::text("done")]);
        let fixture = provider::fixture_with_model(&server, model).set("CAPSTAN_REASONING", "low");
        let mut stdio = StdioServer::start(&fixture);
        stdio.send_line(&json!({"id": 1, "session": "s", "text": "go", "stream": true}));
        let call = loop {
            let line = stdio.recv_line();
            assert!(line.get("event").is_some(), "{model}: {line}");
            if line["event"]["type"] == "tool_call" {
                break line["event"]["call"].clone();
            }
        };
        let function = json!({"name": "bash", "arguments": r#"{"cmd":"true"}"#});
        assert_eq!(call, json!({"id": "call_1", "type": "function", "function": function}), "{model}");
        while stdio.recv_line().get("event").is_some() {}
        stdio.close().succeeded();
        let entries = fixture.tape("s");
        let provider_data = &entries_of_kind(&entries, "tool_call")[0]["payload"]["calls"][0]["provider"];
        assert!(provider_data.to_string().contains("c2lnbmF0dXJl"), "{model}: {provider_data}");
    }
}

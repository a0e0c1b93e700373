//! The same conversation gives the same tape with every provider.

use std::sync::Arc;

use capstan::protocol::{ContentPart, Event};
use capstan::tape::{MemoryStore, TapeSlice};
use capstan::{Capstan, CapstanBuilder, Host};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

use crate::provider::{PROVIDER_MODELS, assert_no_violations, fixture_with_model, provider_base_url};

const PIXEL_DATA_URL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAAA=";

/// Text, two parallel calls, reasoning and usage; a second step; and a second turn.
fn scripted_replies() -> Vec<ScriptedReply> {
    vec![
        ScriptedReply::tool_calls([
            ("call_1", "bash", json!({"cmd": "echo one, 你好"})),
            ("call_2", "bash", json!({"cmd": "echo two", "timeout_seconds": 20})),
        ])
        .with_text("Let me look.")
        .with_reasoning("two commands will do")
        .with_usage(100, 10),
        ScriptedReply::tool_calls([("call_3", "bash", json!({"cmd": "echo three"}))])
            .with_reasoning("one more")
            .with_usage(200, 20),
        ScriptedReply::text("It is a pixel.").with_reasoning("that is all").with_usage(300, 30),
        ScriptedReply::text("Still a pixel.").with_usage(400, 40),
    ]
}

/// Starts a host in this process, because the command line takes no images.
async fn start_host(configure: impl FnOnce(CapstanBuilder) -> CapstanBuilder) -> (Host, tempfile::TempDir) {
    let workspace = tempfile::tempdir().unwrap();
    let builder = Capstan::builder().workspace(workspace.path()).home(workspace.path());
    let host = configure(builder.store(Arc::new(MemoryStore::new()))).start().await.unwrap();
    (host, workspace)
}

/// Entry without ids, dates, measured times and provider-specific data.
fn normalize_entry(mut value: Value) -> Value {
    fn remove_varying_fields(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let varying = ["run_id", "event_id", "workspace_id", "id", "hash", "date", "at", "elapsed_ms"];
                for name in varying.into_iter().chain(["provider", "model"]) {
                    // The id of a call is the same for all providers here, and pairs the call with its result.
                    let is_call = name == "id" && fields.contains_key("function");
                    if !is_call {
                        fields.remove(name);
                    }
                }
                fields.values_mut().for_each(remove_varying_fields);
            }
            Value::Array(items) => items.iter_mut().for_each(remove_varying_fields),
            _ => {}
        }
    }
    remove_varying_fields(&mut value);
    value
}

async fn run_and_read_tape(model: &str) -> Vec<Value> {
    let server = ScriptedModel::start(scripted_replies()).await;
    let (host, _workspace) = start_host(|builder| {
        let builder = builder.set("model", model).set("api_key", "sk-0123456789abcdef").set("reasoning", "medium");
        // Without this, each message begins with its time of arrival.
        builder.set("api_base", &provider_base_url(&server, model)).set("message_context", "false")
    })
    .await;
    let mut first = Event::message("cli", "local", "what is this?");
    first.input.contents.push(ContentPart::image(PIXEL_DATA_URL));
    for (event, answer) in [(first, "It is a pixel."), (Event::message("cli", "local", "and now?"), "Still a pixel.")] {
        let turn = host.serve(event).await.unwrap();
        assert!(turn.error.is_none(), "{model}: {:?}, {:?}", turn.error, server.violations());
        assert!(format!("{:?}", turn.outcome).contains(answer), "{model}: {:?}", turn.outcome);
    }
    assert_no_violations(&server);
    let requests = server.requests();
    assert_eq!(requests.len(), 4, "{model}");
    assert!(
        requests.iter().all(|request| request.to_string().contains(PIXEL_DATA_URL.rsplit_once(',').unwrap().1)),
        "{model} receives the image"
    );
    let tape = host.tapes().list().await.unwrap().remove(0).name;
    let entries = host.tapes().read(&tape, &TapeSlice::all()).await.unwrap();
    // The records of model calls hold hashes of provider-specific requests.
    let entries = entries.into_iter().filter(|entry| entry.name() != Some("model.call"));
    let mut normalized: Vec<Value> =
        entries.map(|entry| normalize_entry(json!({"kind": entry.kind.as_str(), "payload": entry.payload}))).collect();
    // Calls of one step run in parallel, and their results are recorded in the order of completion.
    for results in normalized.chunk_by_mut(|one, next| one["kind"] == "tool_result" && next["kind"] == "tool_result") {
        results.sort_by_key(Value::to_string);
    }
    normalized
}

#[tokio::test]
async fn a8_the_same_conversation_gives_the_same_tape_on_every_provider() {
    let expected = run_and_read_tape(PROVIDER_MODELS[0]).await;
    let text = serde_json::to_string(&expected).unwrap();
    for part in
        [PIXEL_DATA_URL, "Let me look.", "call_2", "one, 你好", "three", "Still a pixel.", "\"total_tokens\":440"]
    {
        assert!(text.contains(part), "{part} is not on the tape: {text}");
    }
    for model in &PROVIDER_MODELS[1..] {
        assert_eq!(run_and_read_tape(model).await, expected, "{model}");
    }
}

#[test]
fn a8_every_provider_answers_and_calls_tools_through_the_binary() {
    for model in PROVIDER_MODELS {
        let server = ScriptedModel::start_blocking(scripted_replies());
        let fixture = fixture_with_model(&server, model).set("CAPSTAN_REASONING", "low");
        assert_eq!(
            fixture.capstan(&["run", "what is this?"]).succeeded().stdout,
            "Let me look.\n\nIt is a pixel.\n",
            "{model}"
        );
        assert_eq!(fixture.capstan(&["run", "and now?"]).data(), "Still a pixel.\n", "{model}");
        assert_no_violations(&server);
        fixture.assert_undamaged();
    }
}

#[test]
fn p15_recorded_context_equals_the_request_that_each_provider_received() {
    for model in PROVIDER_MODELS {
        let server = ScriptedModel::start_blocking(scripted_replies());
        let fixture = fixture_with_model(&server, model).set("CAPSTAN_REASONING", "low");
        fixture.capstan(&["run", "what is this?"]).succeeded();
        let calls = fixture.capstan(&["tape", "context"]).json();
        let calls = calls.as_array().unwrap();
        assert_eq!(calls.len(), 3, "{model}");
        for (call, request) in calls.iter().zip(server.requests()) {
            let mut body = call["rest"].clone();
            if !call["tools"].as_array().unwrap().is_empty() {
                body["tools"] = call["tools"].clone();
            }
            let key = call["messages_key"].as_str().unwrap_or("messages");
            body[key] = call["messages"].clone();
            assert_eq!(body, request, "{model}");
        }
    }
}

#[test]
fn a8_session_changes_models_between_turns_and_returns() {
    let server = ScriptedModel::start_blocking_with(|_, answered| {
        let call = |name: &str| (format!("call_{name}_{answered}"), "bash".to_owned(), json!({"cmd": "echo hi"}));
        if answered % 2 == 0 {
            ScriptedReply::tool_calls([call("a"), call("b")]).with_reasoning("let me see")
        } else {
            ScriptedReply::text("done").with_reasoning("that was it")
        }
    });
    let mut fixture = fixture_with_model(&server, PROVIDER_MODELS[2]).set("CAPSTAN_REASONING", "low");
    for model in PROVIDER_MODELS.into_iter().chain(PROVIDER_MODELS).rev() {
        fixture = fixture.set("CAPSTAN_MODEL", model).set("CAPSTAN_API_BASE", &provider_base_url(&server, model));
        assert_eq!(fixture.capstan(&["run", "go"]).succeeded().stdout, "done\n", "{model}: {:?}", server.violations());
    }
    assert_no_violations(&server);
}

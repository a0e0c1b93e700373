//! The same conversation gives the same tape with every provider.

use capstan_host::testing::{TestHost, scripted_provider_options};
use capstan_models::{ProviderOptions, WireProtocol};
use capstan_protocol::{ContentPart, Event, Reasoning};
use capstan_tape::TapeSlice;
use capstan_testing::ScriptedModel;
use capstan_testing::providers::{PROVIDER_MODELS, provider_base_url, two_turn_replies};
use serde_json::{Value, json};

const PIXEL_DATA_URL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAAA=";

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
    let server = ScriptedModel::start(two_turn_replies()).await;
    let name = model.split_once(':').unwrap().0;
    let api_base = Some(provider_base_url(&server, model));
    let provider = ProviderOptions { api_base, ..scripted_provider_options(&server) };
    let builder = TestHost::builder().provider(name, WireProtocol::parse(name).unwrap(), provider).model(model);
    let reasoning = Some(Reasoning::Medium);
    let host = builder.options(|options| options.model_options.reasoning = reasoning).start().await;
    let mut first = Event::message("cli", "local", "what is this?");
    first.input.contents.push(ContentPart::from_image_url(PIXEL_DATA_URL));
    for (event, answer) in [(first, "It is a pixel."), (Event::message("cli", "local", "and now?"), "Still a pixel.")] {
        let turn = host.serve(event).await.unwrap();
        assert!(turn.error.is_none(), "{model}: {:?}, {:?}", turn.error, server.violations());
        assert!(format!("{:?}", turn.outcome).contains(answer), "{model}: {:?}", turn.outcome);
    }
    assert_eq!(server.violations(), Vec::<String>::new());
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
async fn a08_the_same_conversation_gives_the_same_tape_on_every_provider() {
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

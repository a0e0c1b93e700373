//! The body sent equals the one returned by `request_body`, so that it can be recorded before it is sent.

use std::sync::Arc;

use capstan_hooks::contracts::{ModelProvider as _, collect_output};
use capstan_models::wire::openai_body;
use capstan_models::{HttpClients, Provider, ProviderOptions, WireProtocol};
use capstan_protocol::{ChatMessage, Content, ContentPart, JsonObject, ModelOptions, ModelRequest, ToolCall};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

use crate::common::{openai_provider_for, provider_for, request, request_for, sample_tools};

const SESSION_START_MESSAGE: &str = r#"[Anchor created: session/start]: {"owner":"human"}"#;

/// Sends a request, compares the received body with the one computed beforehand, and returns it.
async fn sent_body(request: &ModelRequest) -> Value {
    let server = ScriptedModel::start(vec![ScriptedReply::text("ok")]).await;
    collect_output(openai_provider_for(&server).stream(request).await.unwrap()).await.unwrap();
    let body = server.requests().remove(0);
    assert_eq!(body, json!(openai_body(request)));
    body
}

async fn sent_messages(messages: Vec<ChatMessage>) -> Value {
    sent_body(&request(messages)).await["messages"].take()
}

#[tokio::test]
async fn p15_text_with_a_system_prompt_is_sent_as_recorded() {
    let request = ModelRequest {
        system: "Be brief. 简短 🐋".to_owned(),
        ..request(vec![ChatMessage::user("hi\n\"q\"\t\u{1}")])
    };
    let body = sent_body(&request).await;
    let expected = json!([
        {"role": "system", "content": "Be brief. 简短 🐋"},
        {"role": "user", "content": "hi\n\"q\"\t\u{1}"},
    ]);
    assert_eq!(body["messages"], expected);
    assert_eq!(body["stream"], true);
    assert_eq!(body["stream_options"], json!({"include_usage": true}));
}

#[tokio::test]
async fn p15_request_contains_no_unrequested_options() {
    let body = sent_body(&request(vec![ChatMessage::user("hi")])).await;
    let mut keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(keys, ["messages", "model", "stream", "stream_options"]);
}

#[tokio::test]
async fn p15_turns_with_tools_and_a_leading_anchor_are_sent_as_recorded() {
    let first = vec![
        ToolCall::new("call_1", "bash", "{ \"cmd\" : \"echo 你好\", \"n\": 1.0 }"),
        ToolCall::new("call_2", "fs_read", "{not json"),
    ];
    let mut with_text = ChatMessage::from_tool_calls(vec![ToolCall::new("call_3", "fs_read", "\"text\"")]);
    with_text.content = "Let me see.".into();
    let messages = vec![
        ChatMessage::assistant(SESSION_START_MESSAGE),
        ChatMessage::user("go"),
        ChatMessage::from_tool_calls(first),
        ChatMessage::tool_result("call_1", "bash", "你好"),
        ChatMessage::tool_result("call_2", "fs.read", ""),
        ChatMessage::user("continue"),
        with_text,
        ChatMessage::tool_result(
            "call_3",
            "fs.read",
            Content::Parts(vec![ContentPart::from_text("a"), ContentPart::from_text("b")]),
        ),
    ];
    let body = sent_body(&ModelRequest { tools: sample_tools(), ..request(messages) }).await;
    let arguments = |call: usize| body["messages"][2]["tool_calls"][call]["function"]["arguments"].clone();
    assert_eq!(arguments(0), "{ \"cmd\" : \"echo 你好\", \"n\": 1.0 }");
    assert_eq!(arguments(1), r#"{"invalid_arguments":"{not json"}"#);
    assert_eq!(body["messages"][7]["content"], "a\nb");
    assert_eq!(body["tools"][1]["function"]["name"], "fs_read");
    let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    let position = |key: &str| keys.iter().position(|found| *found == key);
    assert!(position("tools") < position("messages"), "tools come first, for prompt caches: {keys:?}");
}

#[tokio::test]
async fn p15_consecutive_messages_of_one_role_are_sent_unchanged() {
    let messages = vec![
        ChatMessage::user("a"),
        ChatMessage::user("b"),
        ChatMessage::assistant("c"),
        ChatMessage::assistant(""),
        ChatMessage::user("d"),
    ];
    assert_eq!(sent_messages(messages).await.as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn p15_images_are_sent_as_recorded() {
    let parts = json!([
        {"type": "text", "text": "look"},
        {"type": "text", "text": "closely"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png?x=1&y=ü", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]);
    let content: Content = serde_json::from_value(parts.clone()).unwrap();
    assert_eq!(sent_messages(vec![ChatMessage::user(content)]).await, json!([{"role": "user", "content": parts}]));
}

#[tokio::test]
async fn p15_system_messages_within_the_conversation_keep_their_position() {
    let mut note = ChatMessage::assistant("note");
    note.role = capstan_protocol::MessageRole::System;
    let messages = sent_messages(vec![ChatMessage::user("a"), note, ChatMessage::user("b")]).await;
    assert_eq!(messages[1], json!({"role": "system", "content": "note"}));
}

#[tokio::test]
async fn p15_names_and_unknown_keys_are_neither_recorded_nor_sent() {
    let mut message = ChatMessage::user("hi");
    message.name = Some("ada".to_owned());
    message.extra = JsonObject::from_iter([("reasoning_content".to_owned(), json!("hm"))]);
    assert_eq!(sent_messages(vec![message]).await, json!([{"role": "user", "content": "hi"}]));
}

#[tokio::test]
async fn p15_model_name_is_sent_unchanged_and_sets_no_option() {
    for name in ["o3-high", "gpt-6", "anthropic::claude", "meta/llama:free", "qwen3-none"] {
        let model = format!("openai:{name}").parse().unwrap();
        let body = sent_body(&ModelRequest { model, ..request(vec![ChatMessage::user("hi")]) }).await;
        assert_eq!(body["model"], name);
        assert_eq!(body.as_object().unwrap().len(), 4, "{body}");
    }
}

#[test]
fn a08_sampling_options_of_a_call_have_the_names_of_each_protocol() {
    let options = ModelOptions {
        temperature: Some(0.25),
        top_p: Some(0.5),
        stop: vec!["END".to_owned()],
        ..ModelOptions::default()
    };
    for wire in WireProtocol::PROTOCOLS {
        let request = ModelRequest { options: options.clone(), ..request_for(wire, vec![ChatMessage::user("hi")]) };
        let body = json!(offline_provider(wire, JsonObject::new()).request_body(&request).unwrap());
        let (sampling, top_p, stop) = match wire {
            WireProtocol::Gemini => (&body["generationConfig"], "topP", "stopSequences"),
            WireProtocol::Ollama => (&body["options"], "top_p", "stop"),
            WireProtocol::Anthropic => (&body, "top_p", "stop_sequences"),
            _ => (&body, "top_p", "stop"),
        };
        assert_eq!((&sampling["temperature"], &sampling[top_p]), (&json!(0.25), &json!(0.5)), "{body}");
        let has_stop = wire != WireProtocol::OpenAiResponses;
        assert_eq!(sampling.get(stop).is_some(), has_stop, "{body}");
    }
}

#[test]
fn a08_body_keys_of_a_call_replace_none_of_the_host_or_the_provider() {
    let settings = json!({"seed": 1}).as_object().cloned().unwrap();
    let body = json!({"seed": 2, "user": "ann", "stream": false, "max_tokens": 9999, "metadata": {"a": 1}});
    let options =
        ModelOptions { max_tokens: Some(10), body: body.as_object().cloned().unwrap(), ..ModelOptions::default() };
    let request = ModelRequest { options, ..request(vec![ChatMessage::user("hi")]) };
    let sent = json!(offline_provider(WireProtocol::OpenAi, settings).request_body(&request).unwrap());
    let expected = json!({"seed": 1, "user": "ann", "stream": true, "max_tokens": 10, "metadata": {"a": 1}});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(sent.get(key), Some(value), "{key}");
    }
}

/// A provider that is never called.
fn offline_provider(wire: WireProtocol, body: JsonObject) -> Provider {
    let options = ProviderOptions { body, ..ProviderOptions::default() };
    Provider::new(wire.name(), wire, options, Arc::new(HttpClients::new()))
}

#[tokio::test]
async fn p15_configured_body_keys_and_headers_are_recorded_and_sent() {
    for wire in WireProtocol::PROTOCOLS {
        let server = ScriptedModel::start(vec![ScriptedReply::text("ok")]).await;
        let more =
            json!({"generationConfig": {"temperature": 0.5}, "options": {"num_ctx": 32_000}, "temperature": 0.5});
        let provider = provider_for(wire, &server, |options| {
            let key = if wire == WireProtocol::Gemini { "generationConfig" } else { "options" };
            options.body = JsonObject::from_iter([(key.to_owned(), more[key].clone())]);
            options.headers = vec![("x-team".to_owned(), "blue".into())];
        });
        let options = ModelOptions { max_tokens: Some(4000), ..ModelOptions::default() };
        let request = ModelRequest { options, ..request_for(wire, vec![ChatMessage::user("hi")]) };
        collect_output(provider.stream(&request).await.unwrap()).await.unwrap();
        assert_eq!(server.violations(), Vec::<String>::new());
        let sent = server.requests().remove(0);
        assert_eq!(Some(&sent), provider.request_body(&request).map(|body| json!(body)).as_ref(), "{}", wire.name());
        assert!(sent.to_string().contains("32000") || sent.to_string().contains("temperature"), "{sent}");
        assert!(sent.to_string().contains("4000"), "merged objects keep their keys: {sent}");
        assert_eq!(server.header_values("x-team"), [Some("blue".to_owned())]);
    }
}

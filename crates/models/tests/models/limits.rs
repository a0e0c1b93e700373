//! Limits on what is read of a response, for every wire.

use std::fmt::Display;

use capstan_hooks::contracts::{ModelErrorKind, ModelProvider as _, collect_output};
use capstan_models::WireProtocol;
use capstan_protocol::ChatMessage;
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

use crate::common::{provider_for, request_for};

/// One wire for each reader: those of `OpenAI` and `OpenRouter` are the same.
const READERS: [WireProtocol; 5] = [
    WireProtocol::OpenAi,
    WireProtocol::OpenAiResponses,
    WireProtocol::Anthropic,
    WireProtocol::Gemini,
    WireProtocol::Ollama,
];

/// Error of a response with these frames.
async fn response_error<F: Display>(wire: WireProtocol, frames: &[F]) -> String {
    let prefix = if wire == WireProtocol::Ollama { "" } else { "data: " };
    let lines: Vec<String> = frames.iter().map(|frame| format!("{prefix}{frame}\n\n")).collect();
    let body = lines.concat();
    let server = ScriptedModel::start(vec![ScriptedReply::raw(body)]).await;
    let provider = provider_for(wire, &server, |_| {});
    let error = match provider.stream(&request_for(wire, vec![ChatMessage::user("hi")])).await {
        Ok(stream) => collect_output(stream).await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.kind, ModelErrorKind::Broken, "{}: {error}", wire.name());
    error.message
}

/// Frames of a response that has a text and, in every frame, a tool call or a part of one.
fn call_frames(wire: WireProtocol, count: usize, arguments: &str) -> Vec<Value> {
    let chat = |index: usize| {
        let call =
            json!({"index": index, "id": format!("c{index}"), "function": {"name": "bash", "arguments": arguments}});
        vec![json!({"choices": [{"delta": {"content": "x", "tool_calls": [call]}}]})]
    };
    let responses = |index: usize| {
        let item =
            json!({"type": "function_call", "call_id": format!("c{index}"), "name": "bash", "arguments": arguments});
        let text = json!({"type": "response.output_text.delta", "delta": "x"});
        vec![text, json!({"type": "response.output_item.done", "item": item})]
    };
    let anthropic = |index: usize| {
        let block = json!({"type": "tool_use", "id": format!("c{index}"), "name": "bash", "input": {}});
        let part = json!({"type": "input_json_delta", "partial_json": arguments});
        vec![
            json!({"type": "content_block_start", "index": 1000, "content_block": {"type": "text", "text": "x"}}),
            json!({"type": "content_block_start", "index": index, "content_block": block}),
            json!({"type": "content_block_delta", "index": index, "delta": part}),
        ]
    };
    let gemini = |_| {
        let parts = json!([{"text": "x"}, {"functionCall": {"name": "bash", "args": {"cmd": arguments}}}]);
        vec![json!({"candidates": [{"content": {"role": "model", "parts": parts}}]})]
    };
    let ollama = |_| {
        let call = json!({"function": {"name": "bash", "arguments": {"cmd": arguments}}});
        vec![json!({"message": {"content": "x", "tool_calls": [call]}, "done": false})]
    };
    (0..count)
        .flat_map(|index| match wire {
            WireProtocol::OpenAi | WireProtocol::OpenRouter => chat(index),
            WireProtocol::OpenAiResponses => responses(index),
            WireProtocol::Anthropic => anthropic(index),
            WireProtocol::Gemini => gemini(index),
            WireProtocol::Ollama => ollama(index),
        })
        .collect()
}

#[tokio::test]
async fn a08_every_wire_stops_at_the_limit_of_tool_calls() {
    for wire in WireProtocol::PROTOCOLS {
        let message = response_error(wire, &call_frames(wire, 1001, "")).await;
        assert!(message.contains("more than 1000 tool calls"), "{}: {message}", wire.name());
    }
}

#[tokio::test]
async fn a08_every_wire_limits_the_size_of_all_tool_calls_together() {
    let arguments = "x".repeat(1 << 20);
    for wire in READERS {
        let message = response_error(wire, &call_frames(wire, 17, &arguments)).await;
        assert!(message.contains("tool calls and reasoning exceeds the size limit"), "{}: {message}", wire.name());
    }
}

#[tokio::test]
async fn a08_reasoning_data_is_limited_too() {
    let data = "x".repeat(1 << 20);
    let detail = json!([{"type": "reasoning.encrypted", "data": data}]);
    let chat = json!({"choices": [{"delta": {"content": "x", "reasoning_details": detail}}]});
    let item = json!({"type": "reasoning", "id": "r", "encrypted_content": data});
    let responses = json!({"type": "response.output_item.done", "item": item});
    let block = json!({"type": "redacted_thinking", "data": data});
    let anthropic = json!({"type": "content_block_start", "index": 0, "content_block": block});
    for (wire, frame) in [
        (WireProtocol::OpenRouter, chat),
        (WireProtocol::OpenAiResponses, responses),
        (WireProtocol::Anthropic, anthropic),
    ] {
        let message = response_error(wire, &vec![frame; 17]).await;
        assert!(message.contains("tool calls and reasoning exceeds the size limit"), "{}: {message}", wire.name());
    }
}

#[tokio::test]
async fn a08_small_json_that_takes_much_memory_is_refused() {
    let objects = |count: usize| format!("[{}]", vec!["{}"; count].join(","));
    for wire in READERS {
        let message = response_error(wire, &[format!(r#"{{"padding":{}}}"#, objects(350_000))]).await;
        assert!(message.contains("an event has too many values"), "{}: {message}", wire.name());
        let arguments = format!(r#"{{"cmd":{}}}"#, objects(100_000));
        let frames = call_frames(wire, 1, &arguments);
        // Gemini and Ollama have arguments as JSON, not as text.
        if !matches!(wire, WireProtocol::Gemini | WireProtocol::Ollama) {
            let end = match wire {
                WireProtocol::Anthropic => {
                    json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
                }
                WireProtocol::OpenAiResponses => json!({"type": "response.completed", "response": {}}),
                _ => json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
            };
            let message = response_error(wire, &[frames, vec![end]].concat()).await;
            assert!(message.contains("a tool call has too many values"), "{}: {message}", wire.name());
        }
    }
}

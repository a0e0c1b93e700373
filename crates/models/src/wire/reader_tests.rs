//! Limits that every reader of responses keeps.

use serde_json::{Value, json};

use super::response_reader::{FrameProgress, MAX_REPLY_CALLS};
use super::{ModelOrigin, ResponseReader, WireProtocol};
use crate::frame_decoder::WireFrame;

fn reader(wire: WireProtocol) -> Box<dyn ResponseReader> {
    wire.reader(ModelOrigin::new(wire.name(), "model"))
}

fn read(reader: &mut dyn ResponseReader, data: &Value) -> FrameProgress {
    reader.read(&WireFrame { event: String::new(), data: data.to_string() }, &mut Vec::new()).unwrap()
}

fn chat_delta(delta: &Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

#[test]
fn a08_frames_without_content_do_not_extend_the_deadline() {
    let call = json!({"index": 0, "id": "a", "function": {"name": "bash", "arguments": ""}});
    let same_call = json!({"index": 0, "id": "a", "type": "function", "function": {"name": "bash", "arguments": ""}});
    let tool_use = json!({"type": "tool_use", "id": "a", "name": "bash", "input": {}});
    let begin_block = |block: Value| json!({"type": "content_block_start", "index": 0, "content_block": block});
    let block_delta = |index: u32, text: &str| json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": text}});
    let gemini_part = |part: Value| json!({"candidates": [{"content": {"role": "model", "parts": [part]}}]});
    let cases = [
        (WireProtocol::OpenAi, chat_delta(&json!({"content": ""})), None),
        (WireProtocol::OpenAi, json!({"choices": [], "usage": {"completion_tokens": 3}}), None),
        (WireProtocol::OpenAi, chat_delta(&json!({"reasoning_details": []})), None),
        (WireProtocol::OpenAi, json!({"choices": [{"delta": {}, "finish_reason": ""}]}), None),
        (
            WireProtocol::OpenAi,
            chat_delta(&json!({"tool_calls": [same_call]})),
            Some(chat_delta(&json!({"tool_calls": [call]}))),
        ),
        (WireProtocol::OpenAiResponses, json!({"type": "response.in_progress"}), None),
        (WireProtocol::OpenAiResponses, json!({"type": "response.output_text.delta", "delta": ""}), None),
        (
            WireProtocol::OpenAiResponses,
            json!({"type": "response.output_item.added", "item": {"type": "reasoning"}}),
            None,
        ),
        (WireProtocol::OpenAiResponses, json!({"type": "response.output_item.done", "item": {"type": "x"}}), None),
        (WireProtocol::Anthropic, json!({"type": "later_event"}), None),
        (WireProtocol::Anthropic, json!({"type": "message_start", "message": {}}), None),
        (WireProtocol::Anthropic, json!({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 1}}), None),
        (WireProtocol::Anthropic, begin_block(json!({"type": "text", "text": ""})), None),
        (WireProtocol::Anthropic, begin_block(json!({"type": "thinking", "thinking": ""})), None),
        (WireProtocol::Anthropic, block_delta(0, ""), Some(begin_block(tool_use.clone()))),
        (WireProtocol::Anthropic, block_delta(7, "{"), Some(begin_block(tool_use))),
        (WireProtocol::Anthropic, json!({"type": "content_block_stop", "index": 3}), None),
        (WireProtocol::Gemini, json!({"usageMetadata": {"totalTokenCount": 3}}), None),
        (WireProtocol::Gemini, gemini_part(json!({"text": "", "thoughtSignature": "s"})), None),
        (WireProtocol::Ollama, json!({"message": {"content": ""}, "done": false}), None),
        (WireProtocol::Ollama, json!({"message": {"content": "", "tool_calls": []}, "done": false}), None),
    ];
    for (wire, empty, before) in cases {
        let mut reader = reader(wire);
        if let Some(before) = &before {
            assert_eq!(read(reader.as_mut(), before), FrameProgress::More, "{before}");
        }
        for _ in 0..2 {
            assert_eq!(read(reader.as_mut(), &empty), FrameProgress::KeepAlive, "{}: {empty}", wire.name());
        }
    }
}

#[test]
fn a08_frames_with_content_extend_the_deadline() {
    let fragment = |id: &str, arguments: &str| {
        let function = json!({"name": "", "arguments": arguments});
        chat_delta(&json!({"tool_calls": [{"index": 0, "id": id, "function": function}]}))
    };
    let thinking =
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "x"}});
    let signature =
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "x"}});
    let begin = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}});
    let encrypted = json!({"type": "reasoning", "id": "r", "encrypted_content": "x"});
    let part = json!({"functionCall": {"name": "bash", "args": {}}});
    let cases = [
        (WireProtocol::OpenAi, vec![fragment("a", ""), fragment("", "{"), fragment("b", "")]),
        (WireProtocol::OpenAi, vec![chat_delta(&json!({"reasoning_details": [{"type": "reasoning.encrypted"}]}))]),
        (
            WireProtocol::OpenAiResponses,
            vec![
                json!({"type": "response.function_call_arguments.delta", "delta": "{"}),
                json!({"type": "response.output_item.done", "item": encrypted}),
            ],
        ),
        (WireProtocol::Gemini, vec![json!({"candidates": [{"content": {"role": "model", "parts": [part]}}]})]),
        (
            WireProtocol::Ollama,
            vec![json!({"message": {"tool_calls": [{"function": {"name": "bash", "arguments": {}}}]}, "done": false})],
        ),
    ];
    for (wire, frames) in cases {
        let mut reader = reader(wire);
        for frame in frames {
            assert_eq!(read(reader.as_mut(), &frame), FrameProgress::More, "{}: {frame}", wire.name());
        }
    }
    let mut reader = reader(WireProtocol::Anthropic);
    read(reader.as_mut(), &begin);
    for frame in [thinking, signature] {
        assert_eq!(read(reader.as_mut(), &frame), FrameProgress::More, "{frame}");
    }
}

#[test]
fn a08_calls_beyond_the_limit_are_not_read() {
    let many = 5 * MAX_REPLY_CALLS;
    let chat =
        |index| json!({"index": index, "id": format!("c{index}"), "function": {"name": "help", "arguments": "{}"}});
    let part = json!({"functionCall": {"name": "help", "args": {}}});
    let ollama = json!({"function": {"name": "help", "arguments": {}}});
    for (wire, frame) in [
        (WireProtocol::OpenAi, chat_delta(&json!({"tool_calls": (0..many).map(chat).collect::<Vec<_>>()}))),
        (WireProtocol::Gemini, json!({"candidates": [{"content": {"parts": vec![part; many]}}]})),
        (WireProtocol::Ollama, json!({"message": {"tool_calls": vec![ollama; many]}, "done": false})),
    ] {
        let mut reader = reader(wire);
        read(reader.as_mut(), &frame);
        assert_eq!(reader.call_count(), MAX_REPLY_CALLS + 1, "{}", wire.name());
    }
}

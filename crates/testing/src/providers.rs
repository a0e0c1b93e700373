//! Models of all providers, and a conversation that every provider can have.

use serde_json::json;

use crate::{ScriptedModel, ScriptedReply};

/// A model of each provider.
pub const PROVIDER_MODELS: [&str; 6] = [
    "openai:gpt-5",
    "openai-responses:gpt-5",
    "anthropic:claude-sonnet-4-5",
    "gemini:gemini-3-pro",
    "openrouter:some/model",
    "ollama:qwen3",
];

/// Base URL under which the scripted server plays the provider of `model`.
pub fn provider_base_url(server: &ScriptedModel, model: &str) -> String {
    if model.starts_with("open") { server.base_url() } else { server.origin() }
}

/// Replies with text, two parallel calls, reasoning and usage; a second step; and a second turn.
pub fn two_turn_replies() -> Vec<ScriptedReply> {
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

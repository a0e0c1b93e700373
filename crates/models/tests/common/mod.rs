//! What the tests of providers share.

#![allow(dead_code, reason = "each test binary uses the part it needs")]

use std::sync::Arc;

use capstan_models::{Http, Provider, Settings, Wire};
use capstan_protocol::{ChatMessage, ModelOptions, ModelRequest, ToolSpec};
use capstan_testing::ScriptedModel;
use serde_json::json;

/// The key every test sends.
pub const KEY: &str = "sk-test-0123456789abcdef";

/// Settings for an endpoint, with the key. Nothing is tried again.
pub fn settings(api_base: String) -> Settings {
    Settings { api_key: Some(KEY.into()), api_base: Some(api_base), retries: 0, ..Settings::default() }
}

/// The provider `openai` with settings of one's own.
pub fn openai(settings: Settings) -> Provider {
    Provider::new("openai", Wire::OpenAi, settings, Arc::new(Http::new()))
}

/// A provider for a scripted server.
pub fn provider(server: &ScriptedModel) -> Provider {
    openai(settings(server.base_url()))
}

/// A provider of each kind for a scripted server.
pub fn provider_of(wire: Wire, server: &ScriptedModel, change: impl FnOnce(&mut Settings)) -> Provider {
    let base = match wire {
        Wire::OpenAi | Wire::OpenAiResponses | Wire::OpenRouter => server.base_url(),
        Wire::Anthropic | Wire::Gemini | Wire::Ollama => server.origin(),
    };
    let mut settings = settings(base);
    change(&mut settings);
    Provider::new(wire.name(), wire, settings, Arc::new(Http::new()))
}

/// A request to a model that each kind has.
pub fn request_to(wire: Wire, messages: Vec<ChatMessage>) -> ModelRequest {
    let name = match wire {
        Wire::OpenAi | Wire::OpenAiResponses => "gpt-5",
        Wire::Anthropic => "claude-sonnet-4-5",
        Wire::Gemini => "gemini-3-pro",
        Wire::OpenRouter => "some/model",
        Wire::Ollama => "qwen3",
    };
    let model = format!("{}:{name}", wire.name()).parse().unwrap();
    ModelRequest { model, tools: tools(), ..request(messages) }
}

/// A request with these messages and nothing else.
pub fn request(messages: Vec<ChatMessage>) -> ModelRequest {
    let model = "openai:fake".parse().unwrap();
    ModelRequest { model, system: String::new(), messages, tools: Arc::default(), options: ModelOptions::default() }
}

/// Two tools, one with a dot in its name.
pub fn tools() -> Arc<[ToolSpec]> {
    let tool = |name: &str, parameters: serde_json::Value| ToolSpec {
        name: name.into(),
        description: format!("Does {name}."),
        parameters: parameters.into(),
    };
    Arc::new([
        tool(
            "bash",
            json!({
                "type": "object",
                "properties": {
                    "cmd": {"type": "string"},
                    "timeout_seconds": {"type": ["integer", "null"], "default": 30},
                },
                "required": ["cmd"],
                "additionalProperties": false,
            }),
        ),
        tool("fs.read", json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})),
    ])
}

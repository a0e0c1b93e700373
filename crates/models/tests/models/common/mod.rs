//! Helpers shared by the provider tests.

use std::sync::Arc;

use capstan_models::{HttpClients, Provider, ProviderOptions, WireProtocol};
use capstan_protocol::{ChatMessage, ModelOptions, ModelRequest, ToolSpec};
use capstan_testing::ScriptedModel;
use serde_json::json;

/// API key sent by every test.
pub const PROVIDER_TEST_KEY: &str = "sk-test-0123456789abcdef";

/// Options for an endpoint, with the key and without retries.
pub fn options_for(api_base: String) -> ProviderOptions {
    ProviderOptions {
        api_keys: vec![PROVIDER_TEST_KEY.into()],
        api_base: Some(api_base),
        retries: 0,
        ..ProviderOptions::default()
    }
}

/// Provider `openai` with these options.
pub fn openai_provider(options: ProviderOptions) -> Provider {
    Provider::new("openai", WireProtocol::OpenAi, options, Arc::new(HttpClients::new()))
}

/// Provider `openai` for a scripted server.
pub fn openai_provider_for(server: &ScriptedModel) -> Provider {
    openai_provider(options_for(server.base_url()))
}

/// Provider of the given protocol for a scripted server, after `change` to its options.
pub fn provider_for(wire: WireProtocol, server: &ScriptedModel, change: impl FnOnce(&mut ProviderOptions)) -> Provider {
    let base = match wire {
        WireProtocol::OpenAi | WireProtocol::OpenAiResponses | WireProtocol::OpenRouter => server.base_url(),
        WireProtocol::Anthropic | WireProtocol::Gemini | WireProtocol::Ollama => server.origin(),
    };
    let mut options = options_for(base);
    change(&mut options);
    Provider::new(wire.name(), wire, options, Arc::new(HttpClients::new()))
}

/// Request to a model of the given protocol, with tools.
pub fn request_for(wire: WireProtocol, messages: Vec<ChatMessage>) -> ModelRequest {
    let name = match wire {
        WireProtocol::OpenAi | WireProtocol::OpenAiResponses => "gpt-5",
        WireProtocol::Anthropic => "claude-sonnet-4-5",
        WireProtocol::Gemini => "gemini-3-pro",
        WireProtocol::OpenRouter => "some/model",
        WireProtocol::Ollama => "qwen3",
    };
    let model = format!("{}:{name}", wire.name()).parse().unwrap();
    ModelRequest { model, tools: sample_tools(), ..request(messages) }
}

/// Request with only these messages.
pub fn request(messages: Vec<ChatMessage>) -> ModelRequest {
    let model = "openai:fake".parse().unwrap();
    ModelRequest { model, system: String::new(), messages, tools: Arc::default(), options: ModelOptions::default() }
}

/// Two tools, one with a dot in its name.
pub fn sample_tools() -> Arc<[ToolSpec]> {
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

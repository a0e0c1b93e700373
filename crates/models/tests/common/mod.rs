//! What the tests of the `OpenAI` provider share.

use capstan_models::{OpenAi, openai::Settings};
use capstan_protocol::{ChatMessage, ModelOptions, ModelRequest, ToolSpec};
use capstan_testing::ScriptedModel;
use serde_json::json;

/// The key every test sends.
pub const KEY: &str = "sk-test-0123456789abcdef";

/// Settings for an endpoint, with the key.
pub fn settings(api_base: String) -> Settings {
    Settings { api_key: Some(KEY.into()), api_base: Some(api_base) }
}

/// A provider for a scripted server.
pub fn provider(server: &ScriptedModel) -> OpenAi {
    OpenAi::new(settings(server.base_url()))
}

/// A request with these messages and nothing else.
pub fn request(messages: Vec<ChatMessage>) -> ModelRequest {
    let model = "openai:fake".parse().unwrap();
    ModelRequest { model, system: String::new(), messages, tools: Vec::new(), options: ModelOptions::default() }
}

/// Two tools, one with a dot in its name.
pub fn tools() -> Vec<ToolSpec> {
    let tool =
        |name: &str, parameters| ToolSpec { name: name.into(), description: format!("Does {name}."), parameters };
    vec![
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
    ]
}

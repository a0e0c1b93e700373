//! Models of all providers, and fixtures for them.

use capstan_testing::ScriptedModel;

use crate::cli_support::{CliFixture, TEST_API_KEY};

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

/// Fixture that uses `model`.
pub fn fixture_with_model(server: &ScriptedModel, model: &str) -> CliFixture {
    let fixture = CliFixture::new().set("CAPSTAN_MODEL", model).set("CAPSTAN_API_KEY", TEST_API_KEY);
    fixture.set("CAPSTAN_API_BASE", &provider_base_url(server, model))
}

/// Asserts that no request broke a rule of its protocol.
#[track_caller]
pub fn assert_no_violations(server: &ScriptedModel) {
    assert_eq!(server.violations(), Vec::<String>::new());
}

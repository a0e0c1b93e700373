//! Models of all providers, and fixtures for them.

use capstan_testing::ScriptedModel;
pub use capstan_testing::providers::{PROVIDER_MODELS, provider_base_url};

use crate::support::{CliFixture, TEST_API_KEY};

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

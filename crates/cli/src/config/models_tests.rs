use super::{ConfigError, ConfigFixture, write_file};

/// The key that a provider is sent.
fn provider_key(place: &ConfigFixture, provider: &str) -> Option<String> {
    let config = place.load().unwrap();
    let key = config.provider(provider).unwrap().settings.api_key.clone();
    key.map(|key| secrecy::ExposeSecret::expose_secret(&key).to_owned())
}

/// The address where a provider is asked, if it is not its own.
fn provider_base(place: &ConfigFixture, provider: &str) -> Option<String> {
    place.load().unwrap().provider(provider).unwrap().settings.api_base.clone()
}

#[test]
fn a8_a_key_belongs_to_its_provider() {
    let place = ConfigFixture::new().variable("CAPSTAN_MODEL", "anthropic:x").variable("OPENAI_API_KEY", "of-openai");
    let place = place.variable("ANTHROPIC_API_KEY", "of-anthropic");
    assert_eq!(provider_key(&place, "anthropic").as_deref(), Some("of-anthropic"));
    let place = place.home("[models.anthropic]\napi_key = 'of-the-table'");
    assert_eq!(provider_key(&place, "anthropic").as_deref(), Some("of-the-table"), "it goes before the usual variable");
    let place = place.variable("CAPSTAN_API_KEY", "of-the-model");
    assert_eq!(
        provider_key(&place, "anthropic").as_deref(),
        Some("of-the-model"),
        "a later layer goes over an earlier one"
    );
    assert_eq!(provider_key(&place, "openai").as_deref(), Some("of-openai"), "and to nobody else");
    assert_eq!(provider_key(&place, "gemini"), None);
    let place = place.variable("CAPSTAN_MODELS__ANTHROPIC__API_KEY", "of-the-provider");
    assert_eq!(
        provider_key(&place, "anthropic").as_deref(),
        Some("of-the-provider"),
        "what names it goes first in its layer"
    );
    let place = place.variable("CAPSTAN_MODELS__OPENAI_RESPONSES__API_KEY", "of-responses");
    assert_eq!(
        provider_key(&place, "openai-responses").as_deref(),
        Some("of-responses"),
        "a dash is written as an underscore"
    );
    assert_eq!(place.setting("models.anthropic.api_key").value.as_deref(), Some("********"));
    assert_eq!(place.setting("models.openai.api_key").origin, "environment OPENAI_API_KEY");
}

#[test]
fn x06_a_key_and_an_address_stay_with_the_provider_they_were_set_for() {
    let place =
        ConfigFixture::new().home("model = 'anthropic:x'\napi_key = 'of-anthropic'\napi_base = 'http://house/v1'");
    let other = place.variable("CAPSTAN_MODEL", "openai:y");
    assert_eq!(
        (provider_key(&other, "openai"), provider_base(&other, "openai")),
        (None, None),
        "another model is no reason to send them"
    );
    assert_eq!(
        provider_key(&other, "anthropic").as_deref(),
        Some("of-anthropic"),
        "its own still has it, as a fallback say"
    );
    let other = other.variable("OPENAI_API_KEY", "of-openai");
    assert_eq!(provider_key(&other, "openai").as_deref(), Some("of-openai"));
    let same = other.variable("CAPSTAN_MODEL", "anthropic:z");
    assert_eq!(provider_key(&same, "anthropic").as_deref(), Some("of-anthropic"), "another model of the same provider");
    assert_eq!(provider_base(&same, "anthropic").as_deref(), Some("http://house/v1"));
    let place = ConfigFixture::new().home("model = 'openai:x'\napi_base = 'http://house/v1'");
    let place = place.variable("CAPSTAN_MODEL", "anthropic:y").variable("ANTHROPIC_API_KEY", "of-anthropic");
    assert_eq!(provider_base(&place, "anthropic"), None, "a key does not go to the address of another");
    let apart = ConfigFixture::new().home("model = 'openai:x'");
    write_file(apart.home.path(), "secrets.toml", "api_key = 'apart'");
    assert_eq!(
        provider_key(&apart, "openai").as_deref(),
        Some("apart"),
        "a layer may set the key for the model of an earlier one"
    );
    let nobodys = ConfigFixture::new().home("api_key = 'of-whom'").variable("CAPSTAN_MODEL", "openai:x");
    assert_eq!(provider_key(&nobodys, "openai"), None, "a key that was set for no model goes to none");
}

#[test]
fn a8_the_address_of_ollama_is_taken_as_its_server_is_told_it() {
    for (host, address) in [
        ("localhost", "http://localhost:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("http://gpu:1234/", "http://gpu:1234"),
        ("https://ollama.example", "https://ollama.example"),
    ] {
        let config = ConfigFixture::new().variable("OLLAMA_HOST", host).load().unwrap();
        assert_eq!(config.provider("ollama").unwrap().settings.api_base.as_deref(), Some(address));
    }
}

#[test]
fn a8_what_is_set_for_models_and_makes_no_sense_is_refused() {
    for broken in
        ["models = 3", "[models]\nopenai = 3", "[models.openai]\nheaders = 'x'", "[models.openai]\napi_key = 3"]
    {
        assert!(matches!(ConfigFixture::new().home(broken).load(), Err(ConfigError::Malformed { .. })), "{broken}");
    }
    for invalid in [
        "[models.mine]\napi_key = 'k'",
        "[models.mine]\napi_base = 'nowhere'",
        "[models.mine]\napi_base = 'http://h'\nwire = 'opnai'",
        "[models.openai]\nwire = 'anthropic'",
        "[models.openai]\nbody = { messages = [] }",
        "[models.openai]\nheaders = { a = 1 }",
        "fallback_models = 'gpt-5'",
        "fallback_models = 'openai:'",
        "reasoning = 'very'",
        "model_timeout_seconds = 0",
        "model_retries = 'often'",
    ] {
        assert!(matches!(ConfigFixture::new().home(invalid).load(), Err(ConfigError::Invalid { .. })), "{invalid}");
    }
    let secret = ConfigFixture::new().variable("CAPSTAN_MODELS__OPENAI__HEADERS", "x-key: 5ecret").load().unwrap_err();
    assert!(!secret.to_string().contains("5ecret"), "{secret}");
    let unknown = ConfigFixture::new().home("[models.openai]\napi_kye = 'k'").load().unwrap_err().to_string();
    assert!(unknown.contains("did you mean \"api_key\"?"), "{unknown}");
    let theirs = ConfigFixture::new().workspace("capstan.toml", "[models.openai]\napi_base = 'https://theirs.example'");
    assert!(matches!(theirs.load(), Err(ConfigError::Untrusted { .. })));
}

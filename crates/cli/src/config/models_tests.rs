use super::{ConfigError, ConfigFixture, write_file};

/// API key sent to a provider.
fn provider_key(fixture: &ConfigFixture, provider: &str) -> Option<String> {
    let config = fixture.load().unwrap();
    let key = config.provider(provider).unwrap().settings.api_key.clone();
    key.map(|key| secrecy::ExposeSecret::expose_secret(&key).to_owned())
}

/// Base URL of a provider, if not its default.
fn provider_base(fixture: &ConfigFixture, provider: &str) -> Option<String> {
    fixture.load().unwrap().provider(provider).unwrap().settings.api_base.clone()
}

#[test]
fn a08_key_is_sent_to_its_own_provider_only() {
    let fixture = ConfigFixture::new().variable("CAPSTAN_MODEL", "anthropic:x").variable("OPENAI_API_KEY", "of-openai");
    let fixture = fixture.variable("ANTHROPIC_API_KEY", "of-anthropic");
    assert_eq!(provider_key(&fixture, "anthropic").as_deref(), Some("of-anthropic"));
    let fixture = fixture.home("[models.anthropic]\napi_key = 'of-the-table'");
    assert_eq!(
        provider_key(&fixture, "anthropic").as_deref(),
        Some("of-the-table"),
        "a table precedes the conventional variable"
    );
    let fixture = fixture.variable("CAPSTAN_API_KEY", "of-the-model");
    assert_eq!(
        provider_key(&fixture, "anthropic").as_deref(),
        Some("of-the-model"),
        "a later layer overrides an earlier one"
    );
    assert_eq!(provider_key(&fixture, "openai").as_deref(), Some("of-openai"), "no other provider gets it");
    assert_eq!(provider_key(&fixture, "gemini"), None);
    let fixture = fixture.variable("CAPSTAN_MODELS__ANTHROPIC__API_KEY", "of-the-provider");
    assert_eq!(
        provider_key(&fixture, "anthropic").as_deref(),
        Some("of-the-provider"),
        "within a layer, the key of the provider precedes the plain key"
    );
    let fixture = fixture.variable("CAPSTAN_MODELS__OPENAI_RESPONSES__API_KEY", "of-responses");
    assert_eq!(
        provider_key(&fixture, "openai-responses").as_deref(),
        Some("of-responses"),
        "a dash is written as an underscore"
    );
    assert_eq!(fixture.setting("models.anthropic.api_key").value.as_deref(), Some("********"));
    assert_eq!(fixture.setting("models.openai.api_key").origin, "environment OPENAI_API_KEY");
}

#[test]
fn x06_key_and_base_url_stay_with_the_provider_they_were_set_for() {
    let fixture =
        ConfigFixture::new().home("model = 'anthropic:x'\napi_key = 'of-anthropic'\napi_base = 'http://house/v1'");
    let other = fixture.variable("CAPSTAN_MODEL", "openai:y");
    assert_eq!(
        (provider_key(&other, "openai"), provider_base(&other, "openai")),
        (None, None),
        "not sent to the provider of another model"
    );
    assert_eq!(
        provider_key(&other, "anthropic").as_deref(),
        Some("of-anthropic"),
        "its own provider still gets it, as for a fallback model"
    );
    let other = other.variable("OPENAI_API_KEY", "of-openai");
    assert_eq!(provider_key(&other, "openai").as_deref(), Some("of-openai"));
    let same = other.variable("CAPSTAN_MODEL", "anthropic:z");
    assert_eq!(provider_key(&same, "anthropic").as_deref(), Some("of-anthropic"), "another model of the same provider");
    assert_eq!(provider_base(&same, "anthropic").as_deref(), Some("http://house/v1"));
    let fixture = ConfigFixture::new().home("model = 'openai:x'\napi_base = 'http://house/v1'");
    let fixture = fixture.variable("CAPSTAN_MODEL", "anthropic:y").variable("ANTHROPIC_API_KEY", "of-anthropic");
    assert_eq!(provider_base(&fixture, "anthropic"), None, "a key is not sent to the base URL of another provider");
    let separate = ConfigFixture::new().home("model = 'openai:x'");
    write_file(separate.home.path(), "secrets.toml", "api_key = 'separate'");
    assert_eq!(
        provider_key(&separate, "openai").as_deref(),
        Some("separate"),
        "a layer may set the key for the model of an earlier one"
    );
    let unassigned = ConfigFixture::new().home("api_key = 'unassigned'").variable("CAPSTAN_MODEL", "openai:x");
    assert_eq!(provider_key(&unassigned, "openai"), None, "a key without a model belongs to no provider");
}

#[test]
fn a08_ollama_host_is_read_as_the_server_reads_it() {
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
fn a08_invalid_model_settings_are_rejected() {
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

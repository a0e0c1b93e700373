use super::{ConfigError, ConfigFixture, write_file};

/// API keys of a provider, in order.
fn provider_keys(fixture: &ConfigFixture, provider: &str) -> Vec<String> {
    let config = fixture.load().unwrap();
    let keys = &config.provider(provider).unwrap().settings.api_keys;
    keys.iter().map(|key| secrecy::ExposeSecret::expose_secret(key).to_owned()).collect()
}

/// API key sent to a provider with at most one.
fn provider_key(fixture: &ConfigFixture, provider: &str) -> Option<String> {
    let mut keys = provider_keys(fixture, provider);
    assert!(keys.len() < 2, "{keys:?}");
    keys.pop()
}

#[test]
fn a08_list_of_keys_follows_the_single_key_of_its_layer() {
    let fixture = ConfigFixture::new().home("[models.openai]\napi_key = 'one'\napi_keys = ['two', 'three']");
    assert_eq!(provider_keys(&fixture, "openai"), ["one", "two", "three"]);
    let fixture = fixture.variable("OPENAI_API_KEY", "of-the-shell");
    assert_eq!(provider_keys(&fixture, "openai"), ["one", "two", "three"], "a file precedes it, as for a single key");
    let fixture = fixture.variable("CAPSTAN_MODELS__OPENAI__API_KEYS", " four,five, ");
    assert_eq!(provider_keys(&fixture, "openai"), ["four", "five"], "a later layer replaces all keys");
    assert_eq!(provider_keys(&fixture, "openai-responses"), ["of-the-shell"]);
    let plain = fixture.variable("CAPSTAN_MODEL", "openai:x").variable("CAPSTAN_API_KEY", "plain");
    assert_eq!(provider_keys(&plain, "openai"), ["four", "five"], "within a layer, those of the provider win");
}

#[test]
fn x06_each_key_of_a_list_is_masked_and_refused_from_a_workspace() {
    let fixture = ConfigFixture::new().home("[models.openai]\napi_keys = ['sk-one-0123', ' sk-two-0123']");
    let fixture = fixture.variable("CAPSTAN_MODELS__OPENAI__API_KEYS", "sk-three-0123, sk-four-0123");
    let secrets = fixture.load().unwrap().secrets();
    for key in ["sk-one-0123", "sk-two-0123", "sk-three-0123", "sk-four-0123"] {
        assert!(secrets.iter().any(|secret| secret == key), "{key}: {secrets:?}");
    }
    assert_eq!(fixture.setting("models.openai.api_keys").value.as_deref(), Some("********"));
    for wrong in ["5", "[5]", "['sk-in-one,sk-in-two']"] {
        let refused = ConfigFixture::new().home(&format!("[models.openai]\napi_keys = {wrong}")).load().unwrap_err();
        assert!(refused.to_string().contains("must be a list") && !refused.to_string().contains("sk-"), "{refused}");
    }
    let theirs = ConfigFixture::new().workspace(".env", "CAPSTAN_MODELS__OPENAI__API_KEYS=sk-theirs").load();
    assert!(matches!(theirs, Err(ConfigError::Untrusted { .. })), "{theirs:?}");
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

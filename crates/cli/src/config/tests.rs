use std::path::Path;
use std::time::Duration;

use capstan_hooks::contracts::{Debounce, Intake};
use capstan_protocol::AdmissionMode;

use super::{Config, ConfigError, Shown, Sources};

#[path = "knowledge_tests.rs"]
mod knowledge;

struct Place {
    home: tempfile::TempDir,
    workspace: tempfile::TempDir,
    environment: Vec<(String, String)>,
}

impl Place {
    fn new() -> Self {
        let folder = || tempfile::tempdir().unwrap();
        Self { home: folder(), workspace: folder(), environment: Vec::new() }
    }

    fn home(self, text: &str) -> Self {
        write(self.home.path(), "config.toml", text);
        self
    }

    fn workspace(self, name: &str, text: &str) -> Self {
        write(self.workspace.path(), name, text);
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn load(&self) -> Result<Config, ConfigError> {
        Config::load(Sources {
            home: self.home.path().to_owned(),
            workspace: self.workspace.path().to_owned(),
            environment: self.environment.clone(),
        })
    }

    fn shown(&self, key: &str) -> Shown {
        self.load().unwrap().shown().into_iter().find(|shown| shown.key == key).unwrap()
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

#[test]
fn each_layer_goes_over_the_one_before_it_and_says_so() {
    let place = Place::new();
    assert_eq!(place.shown("model").origin, "default");
    let place = place.home("model = 'openai:home'\nmax_steps = 3\ntrust_workspace = true");
    assert_eq!(place.shown("model").value.as_deref(), Some("openai:home"));
    let place = place.workspace("capstan.toml", "model = 'openai:workspace'");
    assert!(place.shown("model").origin.ends_with("capstan.toml"));
    let place = place.workspace(".env", "OTHER=1\nCAPSTAN_MODEL=openai:dotenv\n");
    assert!(place.shown("model").origin.ends_with("/.env"));
    let place = place.variable("CAPSTAN_MODEL", "openai:environment");
    assert_eq!(place.shown("model").origin, "environment CAPSTAN_MODEL");
    assert_eq!(place.load().unwrap().model.name(), "environment");
    assert_eq!(place.load().unwrap().max_steps, 3);
}

#[test]
fn a_secret_is_never_shown() {
    let place = Place::new().variable("CAPSTAN_MODEL", "openai:x").variable("CAPSTAN_API_KEY", "sk-very-secret");
    assert_eq!(place.shown("api_key").value.as_deref(), Some("********"));
    assert!(!format!("{:?}", place.load().unwrap().providers).contains("very-secret"));
}

#[test]
fn x06_a_password_in_an_address_and_a_key_in_a_header_are_secrets() {
    let place = Place::new().home("model = 'openai:x'\napi_base = 'http://me:5ecret-of-mine@house/v1'");
    assert_eq!(place.shown("api_base").value.as_deref(), Some("http://me:********@house/v1"));
    let base = "api_base = 'http://me:5ecret-of-mine@ho use'";
    for broken in [base.to_owned(), format!("[models.mine]\n{base}")] {
        let broken = Place::new().home(&broken).load().unwrap_err().to_string();
        assert!(broken.contains("api_base") && !broken.contains("5ecret"), "{broken}");
    }
    let place = Place::new().home("[models.openai]\nheaders = { Authorization = 'Bearer 5ecret-key' }");
    let secrets = place.load().unwrap().secrets();
    assert!(secrets.iter().any(|secret| secret == "5ecret-key"), "as a tool may print it");
}

#[test]
fn a_broken_file_is_refused_with_its_line_and_an_unknown_key_with_a_suggestion() {
    let broken = Place::new().home("model = 'a:b'\nmax_steps = = 3").load().unwrap_err().to_string();
    assert!(broken.contains("config.toml") && broken.contains("line 2"), "{broken}");
    let unknown = Place::new().workspace("capstan.toml", "modle = 'a:b'").load().unwrap_err().to_string();
    assert!(unknown.contains("did you mean \"model\"?"), "{unknown}");
    let value = Place::new().home("max_steps = 'many'").load().unwrap_err().to_string();
    assert!(value.contains("max_steps") && value.contains("many") && value.contains("config.toml"), "{value}");
}

#[test]
fn a_workspace_may_not_decide_who_works_as_the_user() {
    let base = "api_base = 'https://elsewhere.example/v1'";
    let place = Place::new().workspace("capstan.toml", base);
    assert!(matches!(place.load(), Err(ConfigError::Untrusted { key, .. }) if key == "api_base"));
    let theirs =
        Place::new().workspace(".env", "CAPSTAN_API_KEY=sk-theirs\nCAPSTAN_API_BASE=https://theirs.example/v1");
    assert!(matches!(theirs.load(), Err(ConfigError::Untrusted { .. })), "not with a key of its own either");
    let moved = Place::new().workspace("capstan.toml", "tape_store = 'jsonl'");
    assert!(matches!(moved.load(), Err(ConfigError::Untrusted { key, .. }) if key == "tape_store"));
    let trusts_itself = Place::new().workspace("capstan.toml", &format!("{base}\ntrust_workspace = true"));
    assert!(matches!(trusts_itself.load(), Err(ConfigError::Untrusted { .. })));
    let trusted = Place::new().home("trust_workspace = true").workspace("capstan.toml", base);
    assert!(trusted.load().is_ok(), "the user may trust it");
}

#[test]
fn x06_a_workspace_chooses_neither_the_model_nor_its_key() {
    let untrusted = |place: &Place, key: &str| {
        let refused = place.load();
        assert!(matches!(&refused, Err(ConfigError::Untrusted { key: found, .. }) if found == key), "{refused:?}");
    };
    for (key, value) in
        [("model", "openai:pro"), ("fallback_models", "openai:pro"), ("api_key", "sk-theirs"), ("reasoning", "high")]
    {
        let place = Place::new().home("model = 'openai:mine'");
        untrusted(&place.workspace("capstan.toml", &format!("{key} = '{value}'")), key);
        let variable = format!("CAPSTAN_{}={value}", key.to_uppercase());
        untrusted(&Place::new().workspace(".env", &variable), key);
        let trusted = Place::new().variable("CAPSTAN_TRUST_WORKSPACE", "true").workspace(".env", &variable);
        assert!(trusted.load().is_ok(), "{key}: the user may trust it");
    }
    untrusted(&Place::new().workspace(".env", "CAPSTAN_MODELS__OPENAI__API_KEY=sk-theirs"), "models.openai.api_key");
}

#[test]
fn x06_a_workspace_may_only_lower_what_a_run_may_use() {
    let limits = "max_steps = 5\nmax_run_tokens = 1000\nmax_tokens = 100\nrun_timeout_seconds = 60";
    for (key, lower, higher) in [
        ("max_steps", 2, 6),
        ("max_run_tokens", 10, 1001),
        ("max_tokens", 100, 101),
        ("run_timeout_seconds", 30, 61),
        ("tool_timeout_seconds", 599, 601),
        ("model_retries", 0, 4),
        ("spill_bytes", 2048, 32_769),
    ] {
        let place = Place::new().home(limits).workspace("capstan.toml", &format!("{key} = {lower}"));
        assert_eq!(place.shown(key).value, Some(lower.to_string()));
        let variable = format!("CAPSTAN_{}={higher}", key.to_uppercase());
        let refused = place.workspace(".env", &variable).load().unwrap_err();
        assert!(matches!(&refused, ConfigError::Raised { key: found, .. } if found == key), "{refused}");
    }
    let default = Place::new().workspace("capstan.toml", "max_steps = 51").load();
    assert!(matches!(default, Err(ConfigError::Raised { limit, .. }) if limit == "50"));
    let unlimited = Place::new().workspace("capstan.toml", "max_run_tokens = 51\nmax_tokens = 51").load().unwrap();
    assert_eq!((unlimited.limits.max_run_tokens, unlimited.max_tokens), (Some(51), Some(51)));
    let place = Place::new().workspace("capstan.toml", "max_steps = 40").variable("CAPSTAN_MAX_STEPS", "10");
    assert_eq!(
        place.load().unwrap().max_steps,
        10,
        "what the environment says goes over it, and is no reason to refuse"
    );
    let trusted = Place::new().home("trust_workspace = true").workspace("capstan.toml", "max_steps = 51");
    assert_eq!(trusted.load().unwrap().max_steps, 51);
}

#[test]
fn x06_what_tools_may_reach_is_the_users_to_say() {
    let place = Place::new().home("allow_paths = ['/srv/notes', '~/mine']\nweb_allow_private = '[::1]:80, intranet'");
    let tools = place.variable("HOME", "/home/ada").load().unwrap().tools;
    assert_eq!(tools.allow_paths, [Path::new("/srv/notes"), Path::new("/home/ada/mine")]);
    assert_eq!(tools.web.allow_private.len(), 2);
    let set = Place::new().variable("CAPSTAN_BASH_ENVIRONMENT", "ONE, TWO").load().unwrap().tools;
    assert_eq!(set.bash_environment, ["ONE", "TWO"]);
    for wrong in
        ["allow_paths = ['notes']", "web_allow_private = ['http://x']", "web_proxy = 'x'", "message_context = 1"]
    {
        assert!(matches!(Place::new().home(wrong).load(), Err(ConfigError::Invalid { .. })), "{wrong}");
    }
    let proxy = Place::new().home("web_proxy = 'https://me:5ecret@proxy'").load().unwrap_err().to_string();
    assert!(proxy.contains("http://127.0.0.1:3128") && !proxy.contains("5ecret"), "no proxy over TLS: {proxy}");
    for key in ["allow_paths", "bash_environment", "web_allow_private", "web_proxy"] {
        let place = Place::new().workspace("capstan.toml", &format!("{key} = '/'"));
        assert!(matches!(place.load(), Err(ConfigError::Untrusted { .. })), "{key}");
    }
    assert!(matches!(Place::new().home("model = ['a:b']").load(), Err(ConfigError::Broken { .. })), "no list");
}

#[test]
fn only_the_settings_of_a_dotenv_file_are_read() {
    let place = Place::new().workspace(".env", "MSG=it's me\nA B=c\nset -a\nexport CAPSTAN_MAX_STEPS=4\n");
    assert_eq!(place.load().unwrap().max_steps, 4);
    let broken = Place::new().workspace(".env", "A=1\nCAPSTAN_MODEL='open").load().unwrap_err().to_string();
    assert!(broken.contains("line 2") && !broken.contains("open"), "{broken}");
}

#[test]
fn values_that_make_no_sense_are_refused() {
    for (name, value) in [
        ("CAPSTAN_MAX_STEPS", "0"),
        ("CAPSTAN_RUN_TIMEOUT_SECONDS", "0"),
        ("CAPSTAN_MAX_MESSAGE_BYTES", "0"),
        ("CAPSTAN_SESSION_QUEUE", "0"),
        ("CAPSTAN_STOP_GRACE_SECONDS", "soon"),
        ("CAPSTAN_MODEL", "openai:"),
        ("CAPSTAN_API_BASE", "127.0.0.1:1234/v1"),
        ("CAPSTAN_API_BASE", "not a url"),
    ] {
        assert!(
            matches!(Place::new().variable(name, value).load(), Err(ConfigError::Invalid { .. })),
            "{name}={value}"
        );
    }
}

#[test]
fn a_variable_that_looks_like_a_setting_and_is_none_is_reported() {
    let place = Place::new().variable("CAPSTAN_MODLE", "x").variable("CAPSTAN_LOG", "debug");
    assert_eq!(place.load().unwrap().unknown_variables(), ["CAPSTAN_MODLE"]);
}

/// What is set for the channel `stdio`.
fn intake(place: &Place) -> Intake {
    place.load().unwrap().intakes.get(&"stdio".into()).copied().unwrap_or_default()
}

#[test]
fn c03_c04_what_is_set_for_a_channel_goes_over_the_layer_before_it() {
    let place = Place::new();
    assert_eq!(place.load().unwrap().intakes.len(), 0, "it is left to the channels");
    let place = place.home("[channels.stdio]\nadmission = 'steer'\ndebounce_seconds = 2\nactive_window_seconds = 60.5");
    let seconds = Duration::from_secs_f64;
    let debounce = Debounce { quiet: seconds(2.0), max_wait: seconds(10.0), active_window: Some(seconds(60.5)) };
    assert_eq!(intake(&place), Intake { admission: Some(AdmissionMode::Steer), debounce: Some(debounce) });
    let place = place.workspace("capstan.toml", "[channels.stdio]\ndebounce_seconds = 0.5");
    let place = place.workspace(".env", "CAPSTAN_CHANNELS__STDIO__MAX_WAIT_SECONDS=3");
    let place = place.variable("CAPSTAN_CHANNELS__STDIO__ADMISSION", "drop");
    let debounce = Debounce { quiet: seconds(0.5), max_wait: seconds(3.0), ..debounce };
    assert_eq!(intake(&place), Intake { admission: Some(AdmissionMode::Drop), debounce: Some(debounce) });
    assert_eq!(place.shown("channels.stdio.admission").origin, "environment CAPSTAN_CHANNELS__STDIO__ADMISSION");
    assert!(place.shown("channels.stdio.debounce_seconds").origin.ends_with("capstan.toml"));
    assert!(place.shown("channels.stdio.max_wait_seconds").origin.ends_with("/.env"));
}

#[test]
fn c03_a_debounce_that_makes_no_sense_is_refused() {
    for settings in [
        "debounce_seconds = 0",
        "debounce_seconds = -1",
        "debounce_seconds = nan",
        "debounce_seconds = 100000",
        "debounce_seconds = 'soon'",
        "debounce_seconds = 2\nmax_wait_seconds = 1.9",
        "debounce_seconds = 2\nactive_window_seconds = 0",
        "max_wait_seconds = 5",
        "active_window_seconds = 5",
        "admission = 'process'",
    ] {
        let refused = Place::new().home(&format!("[channels.stdio]\n{settings}")).load();
        assert!(matches!(refused, Err(ConfigError::Invalid { .. })), "{settings}: {refused:?}");
    }
    for broken in ["channels = 3", "[channels]\nstdio = 3", "[channels.stdio]\nadmission = true"] {
        assert!(matches!(Place::new().home(broken).load(), Err(ConfigError::Broken { .. })), "{broken}");
    }
}

#[test]
fn c04_what_does_not_exist_is_refused_with_what_is_nearest() {
    let key = Place::new().home("[channels.stdio]\ndebounce_second = 2").load().unwrap_err().to_string();
    assert!(key.contains("channels.stdio.debounce_second\"") && key.contains("mean \"debounce_seconds\""), "{key}");
    let mode = Place::new().variable("CAPSTAN_CHANNELS__STDIO__ADMISSION", "folow_up").load().unwrap_err();
    assert!(mode.to_string().contains("did you mean \"follow_up\"?"), "{mode}");
    let table = Place::new().home("[channel.stdio]\nadmission = 'steer'").load().unwrap_err().to_string();
    assert!(table.contains("did you mean \"channels\"?"), "{table}");
    let known = ["cli".into(), "stdio".into()];
    let unknown = Place::new().home("[channels.sdtio]\nadmission = 'steer'").load().unwrap();
    let unknown = unknown.unprovided_channels(&known).join("\n");
    assert!(unknown.contains("config.toml sets channels.sdtio") && unknown.contains("channels.stdio\"?"), "{unknown}");
    let variable = Place::new().variable("CAPSTAN_CHANNELS__STDIO__ADMISION", "steer");
    assert_eq!(variable.load().unwrap().unknown_variables(), ["CAPSTAN_CHANNELS__STDIO__ADMISION"]);
    assert_eq!(variable.load().unwrap().unprovided_channels(&known), [""; 0]);
}

/// The key that a provider is sent.
fn key(place: &Place, provider: &str) -> Option<String> {
    let config = place.load().unwrap();
    let key = config.provider(provider).unwrap().settings.api_key.clone();
    key.map(|key| secrecy::ExposeSecret::expose_secret(&key).to_owned())
}

/// The address where a provider is asked, if it is not its own.
fn base(place: &Place, provider: &str) -> Option<String> {
    place.load().unwrap().provider(provider).unwrap().settings.api_base.clone()
}

#[test]
fn a8_a_key_belongs_to_its_provider() {
    let place = Place::new().variable("CAPSTAN_MODEL", "anthropic:x").variable("OPENAI_API_KEY", "of-openai");
    let place = place.variable("ANTHROPIC_API_KEY", "of-anthropic");
    assert_eq!(key(&place, "anthropic").as_deref(), Some("of-anthropic"));
    let place = place.home("[models.anthropic]\napi_key = 'of-the-table'");
    assert_eq!(key(&place, "anthropic").as_deref(), Some("of-the-table"), "it goes before the usual variable");
    let place = place.variable("CAPSTAN_API_KEY", "of-the-model");
    assert_eq!(key(&place, "anthropic").as_deref(), Some("of-the-model"), "a later layer goes over an earlier one");
    assert_eq!(key(&place, "openai").as_deref(), Some("of-openai"), "and to nobody else");
    assert_eq!(key(&place, "gemini"), None);
    let place = place.variable("CAPSTAN_MODELS__ANTHROPIC__API_KEY", "of-the-provider");
    assert_eq!(key(&place, "anthropic").as_deref(), Some("of-the-provider"), "what names it goes first in its layer");
    let place = place.variable("CAPSTAN_MODELS__OPENAI_RESPONSES__API_KEY", "of-responses");
    assert_eq!(key(&place, "openai-responses").as_deref(), Some("of-responses"), "a dash is written as an underscore");
    assert_eq!(place.shown("models.anthropic.api_key").value.as_deref(), Some("********"));
    assert_eq!(place.shown("models.openai.api_key").origin, "environment OPENAI_API_KEY");
}

#[test]
fn x06_a_key_and_an_address_stay_with_the_provider_they_were_set_for() {
    let place = Place::new().home("model = 'anthropic:x'\napi_key = 'of-anthropic'\napi_base = 'http://house/v1'");
    let other = place.variable("CAPSTAN_MODEL", "openai:y");
    assert_eq!(
        (key(&other, "openai"), base(&other, "openai")),
        (None, None),
        "another model is no reason to send them"
    );
    assert_eq!(key(&other, "anthropic").as_deref(), Some("of-anthropic"), "its own still has it, as a fallback say");
    let other = other.variable("OPENAI_API_KEY", "of-openai");
    assert_eq!(key(&other, "openai").as_deref(), Some("of-openai"));
    let same = other.variable("CAPSTAN_MODEL", "anthropic:z");
    assert_eq!(key(&same, "anthropic").as_deref(), Some("of-anthropic"), "another model of the same provider");
    assert_eq!(base(&same, "anthropic").as_deref(), Some("http://house/v1"));
    let place = Place::new().home("model = 'openai:x'\napi_base = 'http://house/v1'");
    let place = place.variable("CAPSTAN_MODEL", "anthropic:y").variable("ANTHROPIC_API_KEY", "of-anthropic");
    assert_eq!(base(&place, "anthropic"), None, "a key does not go to the address of another");
    let apart = Place::new().home("model = 'openai:x'");
    write(apart.home.path(), "secrets.toml", "api_key = 'apart'");
    assert_eq!(
        key(&apart, "openai").as_deref(),
        Some("apart"),
        "a layer may set the key for the model of an earlier one"
    );
    let nobodys = Place::new().home("api_key = 'of-whom'").variable("CAPSTAN_MODEL", "openai:x");
    assert_eq!(key(&nobodys, "openai"), None, "a key that was set for no model goes to none");
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
        let config = Place::new().variable("OLLAMA_HOST", host).load().unwrap();
        assert_eq!(config.provider("ollama").unwrap().settings.api_base.as_deref(), Some(address));
    }
}

#[test]
fn a8_what_is_set_for_models_and_makes_no_sense_is_refused() {
    for broken in
        ["models = 3", "[models]\nopenai = 3", "[models.openai]\nheaders = 'x'", "[models.openai]\napi_key = 3"]
    {
        assert!(matches!(Place::new().home(broken).load(), Err(ConfigError::Broken { .. })), "{broken}");
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
        assert!(matches!(Place::new().home(invalid).load(), Err(ConfigError::Invalid { .. })), "{invalid}");
    }
    let secret = Place::new().variable("CAPSTAN_MODELS__OPENAI__HEADERS", "x-key: 5ecret").load().unwrap_err();
    assert!(!secret.to_string().contains("5ecret"), "{secret}");
    let unknown = Place::new().home("[models.openai]\napi_kye = 'k'").load().unwrap_err().to_string();
    assert!(unknown.contains("did you mean \"api_key\"?"), "{unknown}");
    let theirs = Place::new().workspace("capstan.toml", "[models.openai]\napi_base = 'https://theirs.example'");
    assert!(matches!(theirs.load(), Err(ConfigError::Untrusted { .. })));
}

#[test]
fn k04_the_limits_of_runs_can_be_set_within_bounds_and_a_workspace_may_only_lower_them() {
    let set = Place::new().home("api_calls_per_second = 5\nresult_state_bytes = 2048\naction_timeout_seconds = 3");
    let limits = set.load().unwrap().limits;
    assert_eq!((limits.api.calls_per_second, limits.results.state_bytes), (5, 2048));
    assert_eq!(limits.action_timeout, std::time::Duration::from_secs(3));
    for out_of_bounds in ["api_calls_in_flight = 0", "api_payload_bytes = 10", "result_artifact_bytes = 9999999999"] {
        let error = Place::new().home(out_of_bounds).load().unwrap_err().to_string();
        assert!(error.contains("it must be from"), "{error}");
    }
    let lowers = Place::new().workspace("capstan.toml", "api_content_bytes = 4096");
    assert_eq!(lowers.load().unwrap().limits.api.content_bytes, 4096);
    let raises = Place::new().workspace("capstan.toml", "api_calls_per_second = 5000");
    assert!(matches!(raises.load(), Err(ConfigError::Raised { .. })));
}

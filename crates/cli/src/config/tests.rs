use std::path::Path;

use super::{Config, ConfigError, ConfigSources, SettingListing};

#[path = "channels_tests.rs"]
mod channels;
#[path = "knowledge_tests.rs"]
mod knowledge;
#[path = "limits_tests.rs"]
mod limits;
#[path = "models_tests.rs"]
mod models;

struct ConfigFixture {
    home: tempfile::TempDir,
    workspace: tempfile::TempDir,
    environment: Vec<(String, String)>,
}

impl ConfigFixture {
    fn new() -> Self {
        let folder = || tempfile::tempdir().unwrap();
        Self { home: folder(), workspace: folder(), environment: Vec::new() }
    }

    fn home(self, text: &str) -> Self {
        write_file(self.home.path(), "config.toml", text);
        self
    }

    fn workspace(self, name: &str, text: &str) -> Self {
        write_file(self.workspace.path(), name, text);
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn load(&self) -> Result<Config, ConfigError> {
        Config::load(ConfigSources {
            home: self.home.path().to_owned(),
            workspace: self.workspace.path().to_owned(),
            environment: self.environment.clone(),
        })
    }

    fn setting(&self, key: &str) -> SettingListing {
        self.load().unwrap().list_settings().into_iter().find(|shown| shown.key == key).unwrap()
    }
}

fn write_file(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

#[test]
fn each_layer_goes_over_the_one_before_it_and_says_so() {
    let place = ConfigFixture::new();
    assert_eq!(place.setting("model").origin, "default");
    let place = place.home("model = 'openai:home'\nmax_steps = 3\ntrust_workspace = true");
    assert_eq!(place.setting("model").value.as_deref(), Some("openai:home"));
    let place = place.workspace("capstan.toml", "model = 'openai:workspace'");
    assert!(place.setting("model").origin.ends_with("capstan.toml"));
    let place = place.workspace(".env", "OTHER=1\nCAPSTAN_MODEL=openai:dotenv\n");
    assert!(place.setting("model").origin.ends_with("/.env"));
    let place = place.variable("CAPSTAN_MODEL", "openai:environment");
    assert_eq!(place.setting("model").origin, "environment CAPSTAN_MODEL");
    assert_eq!(place.load().unwrap().model.name(), "environment");
    assert_eq!(place.load().unwrap().max_steps, 3);
}

#[test]
fn a_secret_is_never_shown() {
    let place =
        ConfigFixture::new().variable("CAPSTAN_MODEL", "openai:x").variable("CAPSTAN_API_KEY", "sk-very-secret");
    assert_eq!(place.setting("api_key").value.as_deref(), Some("********"));
    assert!(!format!("{:?}", place.load().unwrap().providers).contains("very-secret"));
}

#[test]
fn x06_a_password_in_an_address_and_a_key_in_a_header_are_secrets() {
    let place = ConfigFixture::new().home("model = 'openai:x'\napi_base = 'http://me:5ecret-of-mine@house/v1'");
    assert_eq!(place.setting("api_base").value.as_deref(), Some("http://me:********@house/v1"));
    let base = "api_base = 'http://me:5ecret-of-mine@ho use'";
    for broken in [base.to_owned(), format!("[models.mine]\n{base}")] {
        let broken = ConfigFixture::new().home(&broken).load().unwrap_err().to_string();
        assert!(broken.contains("api_base") && !broken.contains("5ecret"), "{broken}");
    }
    let place = ConfigFixture::new().home("[models.openai]\nheaders = { Authorization = 'Bearer 5ecret-key' }");
    let secrets = place.load().unwrap().secrets();
    assert!(secrets.iter().any(|secret| secret == "5ecret-key"), "as a tool may print it");
}

#[test]
fn a_broken_file_is_refused_with_its_line_and_an_unknown_key_with_a_suggestion() {
    let broken = ConfigFixture::new().home("model = 'a:b'\nmax_steps = = 3").load().unwrap_err().to_string();
    assert!(broken.contains("config.toml") && broken.contains("line 2"), "{broken}");
    let unknown = ConfigFixture::new().workspace("capstan.toml", "modle = 'a:b'").load().unwrap_err().to_string();
    assert!(unknown.contains("did you mean \"model\"?"), "{unknown}");
    let value = ConfigFixture::new().home("max_steps = 'many'").load().unwrap_err().to_string();
    assert!(value.contains("max_steps") && value.contains("many") && value.contains("config.toml"), "{value}");
}

#[test]
fn a_workspace_may_not_decide_who_works_as_the_user() {
    let base = "api_base = 'https://elsewhere.example/v1'";
    let place = ConfigFixture::new().workspace("capstan.toml", base);
    assert!(matches!(place.load(), Err(ConfigError::Untrusted { key, .. }) if key == "api_base"));
    let theirs =
        ConfigFixture::new().workspace(".env", "CAPSTAN_API_KEY=sk-theirs\nCAPSTAN_API_BASE=https://theirs.example/v1");
    assert!(matches!(theirs.load(), Err(ConfigError::Untrusted { .. })), "not with a key of its own either");
    let moved = ConfigFixture::new().workspace("capstan.toml", "tape_store = 'jsonl'");
    assert!(matches!(moved.load(), Err(ConfigError::Untrusted { key, .. }) if key == "tape_store"));
    let trusts_itself = ConfigFixture::new().workspace("capstan.toml", &format!("{base}\ntrust_workspace = true"));
    assert!(matches!(trusts_itself.load(), Err(ConfigError::Untrusted { .. })));
    let trusted = ConfigFixture::new().home("trust_workspace = true").workspace("capstan.toml", base);
    assert!(trusted.load().is_ok(), "the user may trust it");
}

#[test]
fn x06_a_workspace_chooses_neither_the_model_nor_its_key() {
    let untrusted = |place: &ConfigFixture, key: &str| {
        let refused = place.load();
        assert!(matches!(&refused, Err(ConfigError::Untrusted { key: found, .. }) if found == key), "{refused:?}");
    };
    for (key, value) in
        [("model", "openai:pro"), ("fallback_models", "openai:pro"), ("api_key", "sk-theirs"), ("reasoning", "high")]
    {
        let place = ConfigFixture::new().home("model = 'openai:mine'");
        untrusted(&place.workspace("capstan.toml", &format!("{key} = '{value}'")), key);
        let variable = format!("CAPSTAN_{}={value}", key.to_uppercase());
        untrusted(&ConfigFixture::new().workspace(".env", &variable), key);
        let trusted = ConfigFixture::new().variable("CAPSTAN_TRUST_WORKSPACE", "true").workspace(".env", &variable);
        assert!(trusted.load().is_ok(), "{key}: the user may trust it");
    }
    untrusted(
        &ConfigFixture::new().workspace(".env", "CAPSTAN_MODELS__OPENAI__API_KEY=sk-theirs"),
        "models.openai.api_key",
    );
}

#[test]
fn x06_what_tools_may_reach_is_the_users_to_say() {
    let place =
        ConfigFixture::new().home("allow_paths = ['/srv/notes', '~/mine']\nweb_allow_private = '[::1]:80, intranet'");
    let tools = place.variable("HOME", "/home/ada").load().unwrap().tools;
    assert_eq!(tools.allow_paths, [Path::new("/srv/notes"), Path::new("/home/ada/mine")]);
    assert_eq!(tools.web.allow_private.len(), 2);
    let set = ConfigFixture::new().variable("CAPSTAN_BASH_ENVIRONMENT", "ONE, TWO").load().unwrap().tools;
    assert_eq!(set.bash_environment, ["ONE", "TWO"]);
    for wrong in
        ["allow_paths = ['notes']", "web_allow_private = ['http://x']", "web_proxy = 'x'", "message_context = 1"]
    {
        assert!(matches!(ConfigFixture::new().home(wrong).load(), Err(ConfigError::Invalid { .. })), "{wrong}");
    }
    let proxy = ConfigFixture::new().home("web_proxy = 'https://me:5ecret@proxy'").load().unwrap_err().to_string();
    assert!(proxy.contains("http://127.0.0.1:3128") && !proxy.contains("5ecret"), "no proxy over TLS: {proxy}");
    for key in ["allow_paths", "bash_environment", "web_allow_private", "web_proxy"] {
        let place = ConfigFixture::new().workspace("capstan.toml", &format!("{key} = '/'"));
        assert!(matches!(place.load(), Err(ConfigError::Untrusted { .. })), "{key}");
    }
    assert!(
        matches!(ConfigFixture::new().home("model = ['a:b']").load(), Err(ConfigError::Malformed { .. })),
        "no list"
    );
}

#[test]
fn only_the_settings_of_a_dotenv_file_are_read() {
    let place = ConfigFixture::new().workspace(".env", "MSG=it's me\nA B=c\nset -a\nexport CAPSTAN_MAX_STEPS=4\n");
    assert_eq!(place.load().unwrap().max_steps, 4);
    let broken = ConfigFixture::new().workspace(".env", "A=1\nCAPSTAN_MODEL='open").load().unwrap_err().to_string();
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
            matches!(ConfigFixture::new().variable(name, value).load(), Err(ConfigError::Invalid { .. })),
            "{name}={value}"
        );
    }
}

#[test]
fn a_variable_that_looks_like_a_setting_and_is_none_is_reported() {
    let place = ConfigFixture::new().variable("CAPSTAN_MODLE", "x").variable("CAPSTAN_LOG", "debug");
    assert_eq!(place.load().unwrap().unknown_variables(), ["CAPSTAN_MODLE"]);
}

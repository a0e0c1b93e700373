use std::path::Path;

use super::key::{CONFIG_KEYS, WorkspaceRule};
use super::{Config, ConfigError, ConfigSources, SettingListing};

#[path = "channels_tests.rs"]
mod channels;
#[path = "knowledge_tests.rs"]
mod knowledge;
#[path = "limits_tests.rs"]
mod limits;
#[path = "models_tests.rs"]
mod models;
#[path = "plugins_tests.rs"]
mod plugins;

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
        self.load().unwrap().list_settings().into_iter().find(|setting| setting.key == key).unwrap()
    }
}

fn write_file(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

#[test]
fn later_layer_overrides_earlier_ones_and_is_named_as_origin() {
    let fixture = ConfigFixture::new();
    assert_eq!(fixture.setting("model").origin, "default");
    let fixture = fixture.home("model = 'openai:home'\nmax_steps = 3\ntrust_workspace = true");
    assert_eq!(fixture.setting("model").value.as_deref(), Some("openai:home"));
    let fixture = fixture.workspace("capstan.toml", "model = 'openai:workspace'");
    assert!(fixture.setting("model").origin.ends_with("capstan.toml"));
    let fixture = fixture.workspace(".env", "OTHER=1\nCAPSTAN_MODEL=openai:dotenv\n");
    assert!(fixture.setting("model").origin.ends_with("/.env"));
    let fixture = fixture.variable("CAPSTAN_MODEL", "openai:environment");
    assert_eq!(fixture.setting("model").origin, "environment CAPSTAN_MODEL");
    assert_eq!(fixture.load().unwrap().model.name(), "environment");
    assert_eq!(fixture.load().unwrap().max_steps, 3);
}

#[test]
fn secret_is_masked() {
    let fixture =
        ConfigFixture::new().variable("CAPSTAN_MODEL", "openai:x").variable("CAPSTAN_API_KEY", "sk-very-secret");
    assert_eq!(fixture.setting("api_key").value.as_deref(), Some("********"));
    assert!(!format!("{:?}", fixture.load().unwrap().providers).contains("very-secret"));
}

#[test]
fn x06_password_in_a_url_and_key_in_a_header_are_secrets() {
    let fixture = ConfigFixture::new().home("model = 'openai:x'\napi_base = 'http://me:5ecret-of-mine@house/v1'");
    assert_eq!(fixture.setting("api_base").value.as_deref(), Some("http://me:********@house/v1"));
    let base = "api_base = 'http://me:5ecret-of-mine@ho use'";
    for broken in [base.to_owned(), format!("[models.mine]\n{base}")] {
        let broken = ConfigFixture::new().home(&broken).load().unwrap_err().to_string();
        assert!(broken.contains("api_base") && !broken.contains("5ecret"), "{broken}");
    }
    let fixture = ConfigFixture::new().home("[models.openai]\nheaders = { Authorization = 'Bearer 5ecret-key' }");
    let secrets = fixture.load().unwrap().secrets();
    assert!(secrets.iter().any(|secret| secret == "5ecret-key"), "also without the scheme");
}

#[test]
fn x06_secrets_in_the_query_of_a_url_and_in_a_body_are_known() {
    let fixture = ConfigFixture::new().home(
        "model = 'openai:x'\napi_base = 'http://h/v1?api-key=5ecret-of-mine'\n\
         [models.openai]\nbody = { temperature = 0.2, token = 'of mine', user = 'sk-0123456789abcdef01', \
         service_tier = 'flex', extra = { list = [{ password = 'pass-of-mine' }] } }",
    );
    assert_eq!(fixture.setting("api_base").value.as_deref(), Some("http://h/v1?api-key=********"));
    let body = fixture.setting("models.openai.body").value.unwrap();
    assert!(body.contains("0.2") && body.contains("flex"), "{body}");
    let secrets = fixture.load().unwrap().secrets();
    for secret in ["5ecret-of-mine", "of mine", "sk-0123456789abcdef01", "pass-of-mine"] {
        assert!(secrets.iter().any(|known| known == secret), "{secret}");
        assert!(!body.contains(secret), "{body}");
    }
    assert!(!secrets.iter().any(|known| known == "flex"));
}

#[test]
fn errors_name_the_line_of_a_malformed_file_and_suggest_known_keys() {
    let broken = ConfigFixture::new().home("model = 'a:b'\nmax_steps = = 3").load().unwrap_err().to_string();
    assert!(broken.contains("config.toml") && broken.contains("line 2"), "{broken}");
    let unknown = ConfigFixture::new().workspace("capstan.toml", "modle = 'a:b'").load().unwrap_err().to_string();
    assert!(unknown.contains("did you mean \"model\"?"), "{unknown}");
    let value = ConfigFixture::new().home("max_steps = 'many'").load().unwrap_err().to_string();
    assert!(value.contains("max_steps") && value.contains("many") && value.contains("config.toml"), "{value}");
}

#[test]
fn untrusted_workspace_cannot_set_restricted_keys() {
    let base = "api_base = 'https://elsewhere.example/v1'";
    let fixture = ConfigFixture::new().workspace("capstan.toml", base);
    assert!(matches!(fixture.load(), Err(ConfigError::Untrusted { key, .. }) if key == "api_base"));
    let theirs =
        ConfigFixture::new().workspace(".env", "CAPSTAN_API_KEY=sk-theirs\nCAPSTAN_API_BASE=https://theirs.example/v1");
    assert!(matches!(theirs.load(), Err(ConfigError::Untrusted { .. })), "not even with its own key");
    let moved = ConfigFixture::new().workspace("capstan.toml", "tape_store = 'jsonl'");
    assert!(matches!(moved.load(), Err(ConfigError::Untrusted { key, .. }) if key == "tape_store"));
    let trusts_itself = ConfigFixture::new().workspace("capstan.toml", &format!("{base}\ntrust_workspace = true"));
    assert!(matches!(trusts_itself.load(), Err(ConfigError::Untrusted { .. })));
    let trusted = ConfigFixture::new().home("trust_workspace = true").workspace("capstan.toml", base);
    assert!(trusted.load().is_ok(), "the user may trust it");
}

#[test]
fn x06_workspace_cannot_set_the_model_or_its_key() {
    let untrusted = |fixture: &ConfigFixture, key: &str| {
        let loaded = fixture.load();
        assert!(matches!(&loaded, Err(ConfigError::Untrusted { key: found, .. }) if found == key), "{loaded:?}");
    };
    for (key, value) in
        [("model", "openai:pro"), ("fallback_models", "openai:pro"), ("api_key", "sk-theirs"), ("reasoning", "high")]
    {
        let fixture = ConfigFixture::new().home("model = 'openai:mine'");
        untrusted(&fixture.workspace("capstan.toml", &format!("{key} = '{value}'")), key);
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
fn x06_workspace_cannot_remove_the_headers_of_messages() {
    for value in ["true", "false"] {
        let settings = [
            ConfigFixture::new().workspace("capstan.toml", &format!("message_context = {value}")),
            ConfigFixture::new().workspace(".env", &format!("CAPSTAN_MESSAGE_CONTEXT={value}")),
        ];
        for fixture in settings {
            assert!(matches!(fixture.load(), Err(ConfigError::Untrusted { key, .. }) if key == "message_context"));
        }
    }
    let own = ConfigFixture::new().home("message_context = false").load().unwrap();
    assert!(!own.tools.message_context, "the user may set it");
}

#[test]
fn x06_workspace_cannot_widen_the_reach_of_tools() {
    let fixture =
        ConfigFixture::new().home("allow_paths = ['/srv/notes', '~/mine']\nweb_allow_private = '[::1]:80, intranet'");
    let tools = fixture.variable("HOME", "/home/ada").load().unwrap().tools;
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
        let fixture = ConfigFixture::new().workspace("capstan.toml", &format!("{key} = '/'"));
        assert!(matches!(fixture.load(), Err(ConfigError::Untrusted { .. })), "{key}");
    }
    assert!(
        matches!(ConfigFixture::new().home("model = ['a:b']").load(), Err(ConfigError::Malformed { .. })),
        "not a list"
    );
}

#[test]
fn other_lines_of_a_dotenv_file_are_ignored() {
    let fixture = ConfigFixture::new().workspace(".env", "MSG=it's me\nA B=c\nset -a\nexport CAPSTAN_MAX_STEPS=4\n");
    assert_eq!(fixture.load().unwrap().max_steps, 4);
    let broken = ConfigFixture::new().workspace(".env", "A=1\nCAPSTAN_MODEL='open").load().unwrap_err().to_string();
    assert!(broken.contains("line 2") && !broken.contains("open"), "{broken}");
}

#[test]
fn invalid_values_are_rejected() {
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
fn unknown_capstan_variable_is_reported() {
    let fixture = ConfigFixture::new().variable("CAPSTAN_MODLE", "x").variable("CAPSTAN_LOG", "debug");
    assert_eq!(fixture.load().unwrap().unknown_variables(), ["CAPSTAN_MODLE"]);
}

/// Keys in backquotes in the paragraph of `docs/configuration.md` that begins with this text.
fn documented_keys(beginning: &str) -> Vec<&'static str> {
    let page = include_str!("../../../../docs/configuration.md");
    let (_, rest) = page.split_once(beginning).expect("the paragraph");
    let end = rest.find("\n- ").into_iter().chain(rest.find("\n\n")).min().expect("the end of the paragraph");
    rest[..end].split('`').skip(1).step_by(2).collect()
}

#[test]
fn x06_keys_that_an_untrusted_workspace_may_not_set_are_documented() {
    let lists = [
        (WorkspaceRule::Forbidden, documented_keys("\n- may not set ")),
        (WorkspaceRule::LowerOnly, documented_keys("\n- may lower but not raise ")),
    ];
    for (rule, documented) in lists {
        let names = CONFIG_KEYS.iter().filter(|key| key.workspace == rule).map(|key| key.name);
        let is_documented = |name: &&str| {
            documented.iter().any(|listed| listed == name || listed.ends_with('_') && name.starts_with(listed))
        };
        let missing: Vec<&str> = names.filter(|name| !is_documented(name)).collect();
        assert_eq!(missing, [""; 0], "{rule:?}");
    }
}

use std::path::Path;

use super::{Config, ConfigError, Shown, Sources};

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
    let place = place.home("model = 'openai:home'\nmax_steps = 3");
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
    let place = Place::new().variable("CAPSTAN_API_KEY", "sk-very-secret");
    assert_eq!(place.shown("api_key").value.as_deref(), Some("********"));
    assert!(!format!("{:?}", place.load().unwrap().api_key).contains("very-secret"));
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
fn a_workspace_may_not_send_the_users_key_to_its_own_address() {
    let place = Place::new()
        .variable("CAPSTAN_API_KEY", "sk-mine")
        .workspace("capstan.toml", "api_base = 'https://elsewhere.example/v1'");
    assert!(matches!(place.load(), Err(ConfigError::UntrustedBase { .. })));
    let place = place.workspace(".env", "CAPSTAN_API_KEY=sk-theirs");
    assert!(matches!(place.load(), Err(ConfigError::UntrustedBase { .. })), "the environment's key still counts");
    let own = Place::new().workspace(".env", "CAPSTAN_API_KEY=sk-theirs\nCAPSTAN_API_BASE=https://theirs.example/v1");
    assert!(own.load().is_ok());
}

#[test]
fn a_variable_that_looks_like_a_setting_and_is_none_is_reported() {
    let place = Place::new().variable("CAPSTAN_MODLE", "x").variable("CAPSTAN_LOG", "debug");
    assert_eq!(place.load().unwrap().unknown_variables(), ["CAPSTAN_MODLE"]);
}

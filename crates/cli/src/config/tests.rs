use std::path::Path;
use std::time::Duration;

use capstan_hooks::contracts::{Debounce, Intake};
use capstan_protocol::AdmissionMode;

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
fn a_workspace_may_not_decide_who_works_as_the_user() {
    let base = "api_base = 'https://elsewhere.example/v1'";
    let place = Place::new().workspace("capstan.toml", base);
    assert!(matches!(place.load(), Err(ConfigError::Untrusted { key: "api_base", .. })));
    let theirs =
        Place::new().workspace(".env", "CAPSTAN_API_KEY=sk-theirs\nCAPSTAN_API_BASE=https://theirs.example/v1");
    assert!(matches!(theirs.load(), Err(ConfigError::Untrusted { .. })), "not with a key of its own either");
    let moved = Place::new().workspace("capstan.toml", "tape_store = 'jsonl'");
    assert!(matches!(moved.load(), Err(ConfigError::Untrusted { key: "tape_store", .. })));
    let trusts_itself = Place::new().workspace("capstan.toml", &format!("{base}\ntrust_workspace = true"));
    assert!(matches!(trusts_itself.load(), Err(ConfigError::Untrusted { .. })));
    let trusted = Place::new().home("trust_workspace = true").workspace("capstan.toml", base);
    assert!(trusted.load().is_ok(), "the user may trust it");
    assert!(Place::new().workspace(".env", "CAPSTAN_API_KEY=sk-mine").load().is_ok());
}

#[test]
fn only_the_settings_of_a_dotenv_file_are_read() {
    let place = Place::new().workspace(".env", "MSG=it's me\nA B=c\nset -a\nexport CAPSTAN_MODEL=openai:x\n");
    assert_eq!(place.load().unwrap().model.name(), "x");
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

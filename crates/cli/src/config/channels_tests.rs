use std::time::Duration;

use capstan_hooks::contracts::{DebounceOptions, IntakeOptions};
use capstan_protocol::AdmissionMode;

use super::{ConfigError, ConfigFixture};

/// Intake options of the channel `stdio`.
fn stdio_intake(fixture: &ConfigFixture) -> IntakeOptions {
    fixture.load().unwrap().intakes.get(&"stdio".into()).copied().unwrap_or_default()
}

#[test]
fn c03_c04_channel_settings_override_earlier_layers() {
    let fixture = ConfigFixture::new();
    assert_eq!(fixture.load().unwrap().intakes.len(), 0, "the channels decide");
    let fixture =
        fixture.home("[channels.stdio]\nadmission = 'steer'\ndebounce_seconds = 2\nactive_window_seconds = 60.5");
    let seconds = Duration::from_secs_f64;
    let debounce =
        DebounceOptions { quiet_period: seconds(2.0), max_wait: seconds(10.0), active_window: Some(seconds(60.5)) };
    assert_eq!(
        stdio_intake(&fixture),
        IntakeOptions { admission: Some(AdmissionMode::Steer), debounce: Some(debounce) }
    );
    let fixture = fixture.workspace("capstan.toml", "[channels.stdio]\ndebounce_seconds = 0.5");
    let fixture = fixture.workspace(".env", "CAPSTAN_CHANNELS__STDIO__MAX_WAIT_SECONDS=3");
    let fixture = fixture.variable("CAPSTAN_CHANNELS__STDIO__ADMISSION", "drop");
    let debounce = DebounceOptions { quiet_period: seconds(0.5), max_wait: seconds(3.0), ..debounce };
    assert_eq!(
        stdio_intake(&fixture),
        IntakeOptions { admission: Some(AdmissionMode::Drop), debounce: Some(debounce) }
    );
    assert_eq!(fixture.setting("channels.stdio.admission").origin, "environment CAPSTAN_CHANNELS__STDIO__ADMISSION");
    assert!(fixture.setting("channels.stdio.debounce_seconds").origin.ends_with("capstan.toml"));
    assert!(fixture.setting("channels.stdio.max_wait_seconds").origin.ends_with("/.env"));
}

#[test]
fn c03_invalid_debounce_is_rejected() {
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
        let refused = ConfigFixture::new().home(&format!("[channels.stdio]\n{settings}")).load();
        assert!(matches!(refused, Err(ConfigError::Invalid { .. })), "{settings}: {refused:?}");
    }
    for broken in ["channels = 3", "[channels]\nstdio = 3", "[channels.stdio]\nadmission = true"] {
        assert!(matches!(ConfigFixture::new().home(broken).load(), Err(ConfigError::Malformed { .. })), "{broken}");
    }
}

#[test]
fn c04_unknown_name_is_rejected_with_the_nearest_known_one() {
    let key = ConfigFixture::new().home("[channels.stdio]\ndebounce_second = 2").load().unwrap_err().to_string();
    assert!(key.contains("channels.stdio.debounce_second\"") && key.contains("mean \"debounce_seconds\""), "{key}");
    let mode = ConfigFixture::new().variable("CAPSTAN_CHANNELS__STDIO__ADMISSION", "folow_up").load().unwrap_err();
    assert!(mode.to_string().contains("did you mean \"follow_up\"?"), "{mode}");
    let table = ConfigFixture::new().home("[channel.stdio]\nadmission = 'steer'").load().unwrap_err().to_string();
    assert!(table.contains("did you mean \"channels\"?"), "{table}");
    let known = ["cli".into(), "stdio".into()];
    let unknown = ConfigFixture::new().home("[channels.sdtio]\nadmission = 'steer'").load().unwrap();
    let unknown = unknown.unprovided_channels(&known).join("\n");
    assert!(unknown.contains("config.toml sets channels.sdtio") && unknown.contains("channels.stdio\"?"), "{unknown}");
    let variable = ConfigFixture::new().variable("CAPSTAN_CHANNELS__STDIO__ADMISION", "steer");
    assert_eq!(variable.load().unwrap().unknown_variables(), ["CAPSTAN_CHANNELS__STDIO__ADMISION"]);
    assert_eq!(variable.load().unwrap().unprovided_channels(&known), [""; 0]);
}

#[test]
fn x06_untrusted_workspace_can_neither_delay_nor_drop_messages() {
    let load = |user: &str, workspace: &str| {
        let fixture = ConfigFixture::new().home(&format!("[channels.cli]\n{user}"));
        fixture.workspace("capstan.toml", &format!("[channels.cli]\n{workspace}")).load()
    };
    for (user, workspace) in [
        ("", "debounce_seconds = 0.1"),
        ("", "debounce_seconds = 86400"),
        ("debounce_seconds = 2", "debounce_seconds = 2.5"),
        ("debounce_seconds = 2", "max_wait_seconds = 10.5"),
        ("debounce_seconds = 2\nmax_wait_seconds = 3", "max_wait_seconds = 4"),
        ("debounce_seconds = 2", "active_window_seconds = 60"),
        ("debounce_seconds = 2\nactive_window_seconds = 50", "active_window_seconds = 60"),
    ] {
        let refused = load(user, workspace);
        assert!(matches!(refused, Err(ConfigError::LimitRaised { .. })), "{user:?} {workspace}: {refused:?}");
    }
    let dropped = load("", "admission = 'drop'").unwrap_err();
    assert!(matches!(&dropped, ConfigError::Untrusted { key, .. } if key == "channels.cli.admission"), "{dropped}");
    for (user, workspace) in [
        ("", "admission = 'steer'"),
        ("admission = 'drop'", "admission = 'drop'"),
        ("debounce_seconds = 2\nmax_wait_seconds = 3", "debounce_seconds = 1\nmax_wait_seconds = 3"),
        ("debounce_seconds = 2\nactive_window_seconds = 50", "active_window_seconds = 40"),
    ] {
        assert!(load(user, workspace).is_ok(), "{user:?} {workspace}");
    }
    let variable = ConfigFixture::new().workspace(".env", "CAPSTAN_CHANNELS__CLI__DEBOUNCE_SECONDS=5").load();
    assert!(matches!(variable, Err(ConfigError::LimitRaised { .. })));
    let trusted = ConfigFixture::new().home("trust_workspace = true");
    trusted.workspace("capstan.toml", "[channels.cli]\ndebounce_seconds = 5\nadmission = 'drop'").load().unwrap();
}

use super::super::CONFIG_KEYS;
use super::{ConfigError, ConfigFixture};

#[test]
fn x06_workspace_may_only_lower_limits() {
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
        let fixture = ConfigFixture::new().home(limits).workspace("capstan.toml", &format!("{key} = {lower}"));
        assert_eq!(fixture.setting(key).value, Some(lower.to_string()));
        let variable = format!("CAPSTAN_{}={higher}", key.to_uppercase());
        let refused = fixture.workspace(".env", &variable).load().unwrap_err();
        assert!(matches!(&refused, ConfigError::LimitRaised { key: found, .. } if found == key), "{refused}");
    }
    let default = ConfigFixture::new().workspace("capstan.toml", "max_steps = 51").load();
    assert!(matches!(default, Err(ConfigError::LimitRaised { limit, .. }) if limit == "50"));
    let unlimited =
        ConfigFixture::new().workspace("capstan.toml", "max_run_tokens = 51\nmax_tokens = 51").load().unwrap();
    assert_eq!((unlimited.limits.max_run_tokens, unlimited.max_tokens), (Some(51), Some(51)));
    let fixture = ConfigFixture::new().workspace("capstan.toml", "max_steps = 40").variable("CAPSTAN_MAX_STEPS", "10");
    assert_eq!(
        fixture.load().unwrap().max_steps,
        10,
        "the environment overrides it, so the workspace does not raise the limit"
    );
    let trusted = ConfigFixture::new().home("trust_workspace = true").workspace("capstan.toml", "max_steps = 51");
    assert_eq!(trusted.load().unwrap().max_steps, 51);
}

#[test]
fn k04_run_limits_are_bounded_and_a_workspace_may_only_lower_them() {
    let set =
        ConfigFixture::new().home("api_calls_per_second = 5\nresult_state_bytes = 2048\naction_timeout_seconds = 3");
    let limits = set.load().unwrap().limits;
    assert_eq!((limits.api.calls_per_second, limits.results.state_bytes), (5, 2048));
    assert_eq!(limits.action_timeout, std::time::Duration::from_secs(3));
    let mut checked = 0;
    for key in CONFIG_KEYS.iter().filter(|key| is_run_limit(key.name)) {
        let Some(default) = key.default else { continue };
        let default: u64 = default.parse().unwrap();
        let (lower, higher) = (format!("{} = {}", key.name, default - 1), format!("{} = {}", key.name, default + 1));
        let lowers = ConfigFixture::new().workspace("capstan.toml", &lower);
        assert_eq!(lowers.setting(key.name).value, Some((default - 1).to_string()));
        let raises = ConfigFixture::new().workspace("capstan.toml", &higher).load();
        assert!(
            matches!(&raises, Err(ConfigError::LimitRaised { key: found, .. }) if found == key.name),
            "{higher}: {raises:?}"
        );
        assert!(ConfigFixture::new().home(&higher).load().is_ok(), "{higher}: the user may");
        for out_of_bounds in [0, i64::MAX] {
            let refused = ConfigFixture::new().home(&format!("{} = {out_of_bounds}", key.name)).load();
            assert!(matches!(refused, Err(ConfigError::Invalid { .. })), "{}: {refused:?}", key.name);
        }
        checked += 1;
    }
    assert!(checked > 10, "the name patterns still match the limits");
}

#[test]
fn x01_timeout_that_would_overflow_is_rejected() {
    let mut checked = 0;
    for key in CONFIG_KEYS.iter().filter(|key| key.name.ends_with("_seconds")) {
        let refused = ConfigFixture::new().home(&format!("{} = {}", key.name, i64::MAX)).load();
        assert!(matches!(refused, Err(ConfigError::Invalid { .. })), "{}: {refused:?}", key.name);
        checked += 1;
    }
    assert!(checked > 4, "the name pattern still matches the timeouts");
}

/// Checks if a key limits the calls or results of a runner.
fn is_run_limit(name: &str) -> bool {
    let is_of_api = name.starts_with("api_") && !["api_key", "api_base"].contains(&name);
    is_of_api || name.starts_with("max_run_") || name.starts_with("result_") || name == "action_timeout_seconds"
}

#[test]
fn x06_workspace_may_not_raise_waits_sizes_and_queues() {
    for setting in [
        "model_timeout_seconds = 301",
        "max_message_bytes = 1048577",
        "session_wait_seconds = 61",
        "session_queue = 65",
        "stop_grace_seconds = 31",
        "max_active_turns = 1001",
        "delivery_stale_after = 86401",
        "delivery_stale_after = 0",
    ] {
        let raised = ConfigFixture::new().workspace("capstan.toml", setting).load();
        assert!(matches!(raised, Err(ConfigError::LimitRaised { .. })), "{setting}");
    }
    let raised = ConfigFixture::new().home("max_active_turns = 5").workspace("capstan.toml", "max_active_turns = 6");
    assert!(matches!(raised.load(), Err(ConfigError::LimitRaised { .. })));
    for setting in ["model_timeout_seconds = 299", "max_active_turns = 1000", "delivery_stale_after = 86399"] {
        ConfigFixture::new().workspace("capstan.toml", setting).load().unwrap();
    }
    let never = ConfigFixture::new().home("delivery_stale_after = 0");
    never.workspace("capstan.toml", "delivery_stale_after = 0").load().unwrap();
}

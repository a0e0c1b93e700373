//! Start, failure and end of a plugin process.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{ScriptedPlugin, collect, failure, message, runner, stop};

/// Options of tests in which failures must not make the next run wait.
fn without_pause(plugin: ScriptedPlugin) -> ScriptedPlugin {
    plugin.with_options(|options| options.first_backoff = Duration::ZERO)
}

#[tokio::test]
async fn x05_a_program_that_contradicts_its_manifest_fails_with_the_difference() {
    let hooks = ScriptedPlugin::new("liar", "");
    let hooks = hooks.register();
    let reason = failure(&collect(&runner(&hooks), "run-1", "x").await);
    assert!(reason.contains("ann/scripted") && reason.contains("does not implement the runner hello"), "{reason}");
}

#[tokio::test]
async fn x05_a_program_that_cannot_start_names_plugin_and_reason() {
    let plugin = ScriptedPlugin::new("exits_at_initialize", "");
    let hooks = plugin.register();
    let reason = failure(&collect(&runner(&hooks), "run-1", "x").await);
    assert!(reason.contains("it exited with status 7"), "{reason}");
    let plugin = ScriptedPlugin::new("echo", "");
    plugin.edit_manifest("python3", "no-such-program");
    let reason = failure(&collect(&runner(&plugin.register()), "run-1", "x").await);
    assert!(reason.contains("\"no-such-program\" cannot be started"), "{reason}");
}

#[tokio::test]
async fn x05_a_program_that_hangs_at_its_start_is_ended() {
    let plugin = ScriptedPlugin::new("hangs_at_initialize", "");
    let plugin = plugin.with_options(|options| options.start_timeout = Duration::from_millis(100));
    let hooks = plugin.register();
    let reason = failure(&collect(&runner(&hooks), "run-1", "x").await);
    assert!(reason.contains("no answer in time"), "{reason}");
}

#[tokio::test]
async fn x05_prints_between_the_messages_are_survived() {
    let plugin = ScriptedPlugin::new("garbage", "");
    let hooks = plugin.register();
    assert_eq!(message(&collect(&runner(&hooks), "run-1", "x").await), "you said x");
    stop(&hooks).await;
}

#[tokio::test]
async fn x05_a_plugin_that_exits_fails_its_runs_and_is_started_again() {
    let plugin = without_pause(ScriptedPlugin::new("exits", ""));
    let hooks = plugin.register();
    let runner = runner(&hooks);
    for round in 0..2 {
        assert_eq!(message(&collect(&runner, "run-1", "x").await), "you said x", "{round}");
        let reason = failure(&collect(&runner, "run-2", "exit").await);
        assert!(reason.contains("it exited with status 3"), "{reason}");
    }
    stop(&hooks).await;
}

#[tokio::test]
async fn x05_a_plugin_that_is_killed_names_the_signal() {
    let plugin = ScriptedPlugin::new("killed", "");
    let hooks = plugin.register();
    let reason = failure(&collect(&runner(&hooks), "run-1", "x").await);
    assert!(reason.contains("signal 9"), "{reason}");
}

#[tokio::test]
async fn h07_a_plugin_that_failed_is_not_started_before_its_pause_is_over() {
    let plugin = ScriptedPlugin::new("exits", "");
    let plugin = plugin.with_options(|options| options.first_backoff = Duration::from_hours(1));
    let hooks = plugin.register();
    let runner = runner(&hooks);
    failure(&collect(&runner, "run-1", "exit").await);
    let reason = failure(&collect(&runner, "run-2", "x").await);
    assert!(reason.contains("it exited with status 3"), "the reason of the failure: {reason}");
}

#[tokio::test]
async fn x06_a_plugin_gets_its_settings_and_nothing_of_the_environment_of_the_host() {
    let mut plugin = ScriptedPlugin::new("settings", "");
    plugin.settings.insert("city".to_owned(), json!("Paris"));
    let hooks = plugin.register();
    let results = collect(&runner(&hooks), "run-1", "x").await;
    let seen: Value = serde_json::from_str(message(&results)).unwrap();
    assert_eq!(seen[0], json!({"city": "Paris"}));
    let variables = seen[1].as_object().unwrap();
    // The shell and the version manager of an installation of Python add variables of their own.
    let inherited = std::env::vars().filter(|(name, value)| variables.get(name).is_some_and(|seen| seen == value));
    let allowed = ["LANG", "TERM", "TMPDIR", "TZ", "SHLVL", "PWD", "OLDPWD", "_"];
    let unexpected: Vec<String> = inherited
        .map(|(name, _)| name)
        .filter(|name| !allowed.contains(&name.as_str()) && !name.starts_with("LC_") && !name.starts_with("PYENV_"))
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
    assert!(!variables.keys().any(|name| name.starts_with("CARGO")), "{variables:?}");
    assert_eq!(seen[1]["HOME"], plugin.data_dir().display().to_string());
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "the host has variables that the plugin has not");
    stop(&hooks).await;
}

#[tokio::test]
async fn k06_a_plugin_that_does_not_answer_shutdown_is_ended() {
    let plugin = ScriptedPlugin::new("ignores_shutdown", "");
    let plugin = plugin.with_options(|options| options.shutdown_timeout = Duration::from_millis(50));
    let hooks = plugin.register();
    collect(&runner(&hooks), "run-1", "x").await;
    stop(&hooks).await;
}

#[tokio::test]
async fn k06_a_plugin_that_was_stopped_is_started_when_it_is_needed_again() {
    let plugin = ScriptedPlugin::new("echo", "");
    let hooks = plugin.register();
    for run in ["run-1", "run-2"] {
        assert_eq!(message(&collect(&runner(&hooks), run, "x").await), "you said x");
        stop(&hooks).await;
    }
}

#[tokio::test]
async fn x05_a_plugin_that_does_not_answer_a_ping_is_ended() {
    let plugin = without_pause(ScriptedPlugin::new("silent", "")).with_options(|options| {
        options.heartbeat_interval = Duration::from_millis(50);
        options.heartbeat_timeout = Duration::from_millis(100);
    });
    let script = plugin.folder.path().join("main.py");
    let text = std::fs::read_to_string(&script).unwrap();
    // Once a run hangs, so does the program.
    let hangs = "        if text == \"hang\":\n            time.sleep(1000)\n        if text != \"hang\":";
    std::fs::write(&script, text.replace("        if text != \"hang\":", hangs)).unwrap();
    let hooks = plugin.register();
    let reason = failure(&collect(&runner(&hooks), "run-1", "hang").await);
    assert!(reason.contains("did not answer a ping"), "{reason}");
    assert_eq!(message(&collect(&runner(&hooks), "run-2", "x").await), "you said x");
    stop(&hooks).await;
}

#[tokio::test]
async fn x05_no_process_is_left_after_a_plugin_was_stopped() {
    let plugin = ScriptedPlugin::new("leaves_a_child", "");
    let hooks = plugin.register();
    collect(&runner(&hooks), "run-1", "x").await;
    stop(&hooks).await;
    let lock = std::fs::File::open(plugin.data_dir().join("lock")).unwrap();
    lock.try_lock().expect("the daemon that held the lock has ended");
}

#[tokio::test]
async fn x05_a_plugin_reaches_its_own_files_in_the_home_and_no_others() {
    let mut plugin = ScriptedPlugin::new("reads_files", "");
    let home = plugin.folder.path().to_owned();
    std::fs::write(home.join("capstan.db"), "secret").unwrap();
    let installed = home.join("plugins/scripted");
    std::fs::create_dir_all(&installed).unwrap();
    for name in ["plugin.toml", "main.py", "plugin.json"] {
        std::fs::copy(home.join(name), installed.join(name)).unwrap();
    }
    let outside = tempfile::tempdir().unwrap();
    let [database, script, data, other] =
        [home.join("capstan.db"), installed.join("main.py"), home.join("data/note"), outside.path().join("file")];
    plugin.options.home = Some(home);
    let hooks = plugin.register_from(&installed);
    let paths = json!([database, script, data, other]).to_string();
    let results = collect(&runner(&hooks), "run-1", &paths).await;
    let seen: Value = serde_json::from_str(message(&results)).unwrap();
    let of = |path: &std::path::Path| seen[path.to_str().unwrap()].as_str().unwrap().to_owned();
    assert_eq!([of(&database), of(&script), of(&data), of(&other)], ["", "r", "a", "a"].map(str::to_owned), "{seen}");
    stop(&hooks).await;
}

#[tokio::test]
async fn k06_requests_before_the_end_of_the_handshake_are_refused() {
    let plugin = ScriptedPlugin::new("early", "");
    let hooks = plugin.register();
    assert_eq!(message(&collect(&runner(&hooks), "run-1", "x").await), "you said -32004");
    stop(&hooks).await;
}

#[tokio::test]
async fn x05_floods_of_messages_and_of_stderr_are_survived() {
    let plugin = ScriptedPlugin::new("flood", "");
    let hooks = plugin.register();
    assert_eq!(message(&collect(&runner(&hooks), "run-1", "x").await), "you said x");
    stop(&hooks).await;
}

#[tokio::test]
async fn x05_a_plugin_that_never_reads_fails_its_run_in_time() {
    let plugin = ScriptedPlugin::new("never_reads", "");
    let plugin = plugin.with_options(|options| {
        options.start_timeout = Duration::from_secs(5);
        options.shutdown_timeout = Duration::from_millis(50);
    });
    let hooks = plugin.register();
    let runner = runner(&hooks);
    // More than a pipe holds, so that the host cannot even write.
    let text = "x".repeat(1024 * 1024);
    let runs = (0..4).map(|number| collect(&runner, ["a", "b", "c", "d"][number], &text));
    for results in futures::future::join_all(runs).await {
        assert!(failure(&results).contains("no answer in time"), "{results:?}");
    }
    stop(&hooks).await;
}

//! Configuration files. In a workspace, their paths may hold anything.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::{BinaryOutput, CliFixture, make_pipe};

/// Commands of every kind. None may block on a configuration file, or read it without limit.
const COMMANDS_READING_CONFIG: &[&[&str]] = &[
    &["run", "hello"],
    &["chat"],
    &["onboard", "--yes"],
    &["events", "send", "{}"],
    &["bindings", "list"],
    &["runners", "list"],
    &["runs", "list"],
    &["state", "list"],
    &["store", "migrate"],
    &["serve", "--channel", "stdio"],
    &["hooks"],
    &["tape", "list"],
    &["skills", "list"],
    &["config", "show"],
];
/// One byte more than the maximum size of a configuration file.
const OVERSIZED_CONFIG_BYTES: usize = (1 << 20) + 1;

/// Runs the binary. The timeout is reached only if the test fails.
fn run_with_timeout(fixture: &CliFixture, arguments: &[&str]) -> BinaryOutput {
    let command = fixture.command(arguments);
    let mut bounded = Command::new("timeout");
    bounded.arg("60").arg(command.get_program()).args(command.get_args()).current_dir(fixture.workspace());
    bounded.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    BinaryOutput::from(bounded.output().expect("the binary starts"))
}

#[track_caller]
fn assert_config_refused(fixture: &CliFixture, arguments: &[&str], reason: &str) {
    let output = run_with_timeout(fixture, arguments).refused("config-invalid", 3);
    assert!(output.stderr.contains(reason), "{reason}: {output:?}");
    assert!(output.stderr.contains("hint: replace it by a regular file of at most 1 MiB"), "{output:?}");
}

#[test]
fn x06_workspace_settings_that_are_no_file_block_no_command() {
    for name in [".env", "capstan.toml"] {
        let fixture = CliFixture::new();
        make_pipe(&fixture.workspace().join(name));
        for command in COMMANDS_READING_CONFIG {
            assert_config_refused(&fixture, command, "it is not a regular file");
        }
        let examined = run_with_timeout(&fixture, &["doctor"]);
        assert!(examined.code == Some(1) && examined.stdout.contains("it is not a regular file"), "{examined:?}");
    }
}

#[test]
fn x06_workspace_settings_are_bounded_and_must_not_link_outside() {
    let show = ["config", "show"];
    for name in [".env", "capstan.toml"] {
        let fixture = CliFixture::new();
        let path = fixture.workspace().join(name);
        let beside = fixture.file("beside", "");
        for target in [beside.as_str(), "/dev/null", "../beside"] {
            symlink(target, &path).unwrap();
            assert_config_refused(&fixture, &show, "is outside the workspace");
            std::fs::remove_file(&path).unwrap();
        }
        symlink("nowhere", &path).unwrap();
        assert_config_refused(&fixture, &show, "a dangling symbolic link");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_config_refused(&fixture, &show, "it is a directory");
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, "#".repeat(OVERSIZED_CONFIG_BYTES)).unwrap();
        assert_config_refused(&fixture, &show, "it is larger than 1048576 bytes");
        std::fs::write(&path, "#".repeat(OVERSIZED_CONFIG_BYTES - 1)).unwrap();
        run_with_timeout(&fixture, &show).succeeded();
    }
}

#[test]
fn zero_max_tokens_is_rejected() {
    for name in ["MAX_TOKENS", "MAX_RUN_TOKENS", "MAX_STEPS"] {
        let fixture = CliFixture::new().set(&format!("CAPSTAN_{name}"), "0");
        let output = run_with_timeout(&fixture, &["run", "hello"]).refused("config-invalid", 3);
        assert!(output.stderr.contains(": must be at least 1"), "{output:?}");
    }
}

#[test]
fn link_within_the_workspace_is_followed() {
    let fixture = CliFixture::new();
    std::fs::create_dir(fixture.workspace().join("settings")).unwrap();
    std::fs::write(fixture.workspace().join("settings/env"), "CAPSTAN_MAX_STEPS=7\n").unwrap();
    symlink("settings/env", fixture.workspace().join(".env")).unwrap();
    let shown = run_with_timeout(&fixture, &["config", "show", "--json"]).json();
    let settings = shown.as_array().unwrap();
    assert!(settings.iter().any(|setting| setting["key"] == "max_steps" && setting["value"] == "7"), "{shown}");
}

#[test]
fn home_settings_are_regular_bounded_files_and_may_be_links() {
    for name in ["config.toml", "secrets.toml"] {
        let fixture = CliFixture::new();
        std::fs::create_dir(fixture.home()).unwrap();
        let path = fixture.home().join(name);
        make_pipe(&path);
        for command in [&["config", "show"][..], &["onboard", "--yes"], &["run", "hello"]] {
            assert_config_refused(&fixture, command, "it is not a regular file");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "#".repeat(OVERSIZED_CONFIG_BYTES)).unwrap();
        assert_config_refused(&fixture, &["config", "show"], "it is larger than 1048576 bytes");
        std::fs::remove_file(&path).unwrap();
        // The home belongs to the user, who may link to files elsewhere.
        symlink(fixture.file("kept", "max_steps = 7\n"), &path).unwrap();
        let shown = run_with_timeout(&fixture, &["config", "show"]).succeeded();
        assert!(shown.stdout.lines().any(|line| line.starts_with("max_steps") && line.contains('7')), "{shown:?}");
    }
}

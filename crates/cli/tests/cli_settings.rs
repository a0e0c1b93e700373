//! The files that settings are read from: in a workspace they may be anything that somebody put there.

mod cli_support;

use std::os::unix::fs::symlink;
use std::process::Command;

use cli_support::{BinaryOutput, CliFixture, make_pipe};

/// A command of every kind. None of them may wait for a file of settings, or read it without an end.
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
    &["a-plugin-s-own"],
];
/// One byte more than a file of settings may have.
const OVERSIZED_CONFIG_BYTES: usize = (1 << 20) + 1;

/// What the binary says, which ends by itself: the deadline is for the day on which it does not.
fn run_with_timeout(place: &CliFixture, arguments: &[&str]) -> BinaryOutput {
    let command = place.command(arguments);
    let mut bounded = Command::new("timeout");
    bounded.arg("60").arg(command.get_program()).args(command.get_args()).current_dir(place.workspace());
    bounded.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    BinaryOutput::from(bounded.output().expect("the binary starts"))
}

#[track_caller]
fn assert_config_refused(place: &CliFixture, arguments: &[&str], reason: &str) {
    let said = run_with_timeout(place, arguments).refused("config-invalid", 3);
    assert!(said.stderr.contains(reason), "{reason}: {said:?}");
    assert!(said.stderr.contains("hint: put a regular file of at most 1 MiB there"), "{said:?}");
}

#[test]
fn x06_a_workspace_whose_settings_are_no_file_holds_up_no_command() {
    for name in [".env", "capstan.toml"] {
        let place = CliFixture::new();
        make_pipe(&place.workspace().join(name));
        for command in COMMANDS_READING_CONFIG {
            assert_config_refused(&place, command, "it is not a regular file");
        }
        let examined = run_with_timeout(&place, &["doctor"]);
        assert!(examined.code == Some(1) && examined.stdout.contains("it is not a regular file"), "{examined:?}");
    }
}

#[test]
fn x06_the_settings_of_a_workspace_are_bounded_and_lead_nowhere_else() {
    let show = ["config", "show"];
    for name in [".env", "capstan.toml"] {
        let place = CliFixture::new();
        let path = place.workspace().join(name);
        let beside = place.file("beside", "");
        for target in [beside.as_str(), "/dev/null", "../beside"] {
            symlink(target, &path).unwrap();
            assert_config_refused(&place, &show, "is outside the workspace");
            std::fs::remove_file(&path).unwrap();
        }
        symlink("nowhere", &path).unwrap();
        assert_config_refused(&place, &show, "a link to something that is not there");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_config_refused(&place, &show, "it is a folder");
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, "#".repeat(OVERSIZED_CONFIG_BYTES)).unwrap();
        assert_config_refused(&place, &show, "it has more than the 1048576 bytes allowed");
        std::fs::write(&path, "#".repeat(OVERSIZED_CONFIG_BYTES - 1)).unwrap();
        run_with_timeout(&place, &show).succeeded();
    }
}

#[test]
fn a_reply_of_no_tokens_is_refused_as_other_limits_of_nothing_are() {
    for name in ["MAX_TOKENS", "MAX_RUN_TOKENS", "MAX_STEPS"] {
        let place = CliFixture::new().set(&format!("CAPSTAN_{name}"), "0");
        let said = run_with_timeout(&place, &["run", "hello"]).refused("config-invalid", 3);
        assert!(said.stderr.contains("which is not valid: it must be at least 1"), "{said:?}");
    }
}

#[test]
fn a_link_within_the_workspace_is_followed() {
    let place = CliFixture::new();
    std::fs::create_dir(place.workspace().join("settings")).unwrap();
    std::fs::write(place.workspace().join("settings/env"), "CAPSTAN_MAX_STEPS=7\n").unwrap();
    symlink("settings/env", place.workspace().join(".env")).unwrap();
    let shown = run_with_timeout(&place, &["config", "show", "--json"]).json();
    let settings = shown.as_array().unwrap();
    assert!(settings.iter().any(|setting| setting["key"] == "max_steps" && setting["value"] == "7"), "{shown}");
}

#[test]
fn the_files_of_the_home_are_regular_and_bounded_wherever_they_are_kept() {
    for name in ["config.toml", "secrets.toml"] {
        let place = CliFixture::new();
        std::fs::create_dir(place.home()).unwrap();
        let path = place.home().join(name);
        make_pipe(&path);
        for command in [&["config", "show"][..], &["onboard", "--yes"], &["run", "hello"]] {
            assert_config_refused(&place, command, "it is not a regular file");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "#".repeat(OVERSIZED_CONFIG_BYTES)).unwrap();
        assert_config_refused(&place, &["config", "show"], "it has more than the 1048576 bytes allowed");
        std::fs::remove_file(&path).unwrap();
        // The home is the user's, who may keep its files elsewhere.
        symlink(place.file("kept", "max_steps = 7\n"), &path).unwrap();
        let shown = run_with_timeout(&place, &["config", "show"]).succeeded();
        assert!(shown.stdout.lines().any(|line| line.starts_with("max_steps") && line.contains('7')), "{shown:?}");
    }
}

//! Snapshots of whole outputs.

use crate::support::{CliFixture, TEST_API_KEY};
use serde_json::Value;

fn run_and_mask_root(fixture: &CliFixture, arguments: &[&str]) -> String {
    fixture.capstan(arguments).data().replace(fixture.root().to_str().unwrap(), "[ROOT]")
}

#[test]
fn help() {
    insta::assert_snapshot!(run_and_mask_root(&CliFixture::new(), &["--help"]));
}

#[test]
fn help_of_run() {
    insta::assert_snapshot!(run_and_mask_root(&CliFixture::new(), &["run", "--help"]));
}

#[test]
fn help_of_serve() {
    insta::assert_snapshot!(run_and_mask_root(&CliFixture::new(), &["serve", "--help"]));
}

#[test]
fn help_of_tape() {
    insta::assert_snapshot!(run_and_mask_root(&CliFixture::new(), &["tape", "--help"]));
}

#[test]
fn help_of_doctor() {
    insta::assert_snapshot!(run_and_mask_root(&CliFixture::new(), &["doctor", "--help"]));
}

#[test]
fn help_of_runs() {
    insta::assert_snapshot!(run_and_mask_root(&CliFixture::new(), &["runs", "--help"]));
}

#[test]
fn help_of_store() {
    insta::assert_snapshot!(run_and_mask_root(&CliFixture::new(), &["store", "--help"]));
}

#[test]
fn x01_doctor() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    // Disk space and schema version vary.
    let text = run_and_mask_root(&fixture, &["doctor"]);
    let mut is_left_out = false;
    let lines = text.lines().filter(|line| {
        // Details of a check are indented below its line.
        is_left_out =
            if line.starts_with(' ') { is_left_out } else { line.starts_with("disk") || line.starts_with("database") };
        !is_left_out
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn h08_hooks() {
    insta::assert_snapshot!(run_and_mask_root(&CliFixture::new(), &["hooks"]));
}

#[test]
fn h05_h08_the_hooks_command_lists_the_arguments_that_plugins_declare() {
    let listing = CliFixture::new().capstan(&["hooks", "--json"]).data();
    let listing: Value = serde_json::from_str(&listing).unwrap();
    let find_hook = |name: &str| listing["hooks"].as_array().unwrap().iter().find(|hook| hook["hook"] == name).cloned();
    let stages =
        ["resolve_session", "load_state", "build_prompt", "save_state", "render_outbound", "dispatch_outbound"];
    let lines: Vec<String> = stages.iter().map(|name| find_hook(name).unwrap().to_string()).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn config_show_with_defaults() {
    insta::assert_snapshot!(run_and_mask_root(&CliFixture::new().with_message_context(), &["config", "show"]));
}

#[test]
fn config_show_with_every_layer() {
    let fixture = CliFixture::new().with_message_context().config(
        "model = 'openai:of-the-home'\nmax_steps = 12\nrun_timeout_seconds = 60\n\
        [channels.stdio]\nadmission = 'steer'\ndebounce_seconds = 1.5\n",
    );
    std::fs::write(fixture.workspace().join("capstan.toml"), "max_steps = 9\nmax_tokens = 500\n").unwrap();
    std::fs::write(fixture.workspace().join(".env"), "CAPSTAN_MAX_TOKENS=600\nOTHER=1\n").unwrap();
    let fixture = fixture.set("CAPSTAN_API_KEY", TEST_API_KEY).set("CAPSTAN_TAPE_STORE", "jsonl");
    let fixture = fixture.set("CAPSTAN_CHANNELS__STDIO__ADMISSION", "collect");
    insta::assert_snapshot!(run_and_mask_root(&fixture, &["config", "show"]));
}

#[test]
fn help_and_config_show_write_nothing() {
    let fixture = CliFixture::new();
    for arguments in [vec!["--help"], vec!["--version"], vec!["hooks"], vec!["config", "show"]] {
        fixture.capstan(&arguments).data();
    }
    assert!(!fixture.home().exists());
}

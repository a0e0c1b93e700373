//! Whole outputs, so that a reader sees how they look.

mod cli_support;

use cli_support::{CliFixture, TEST_API_KEY};

fn run_and_mask_root(place: &CliFixture, arguments: &[&str]) -> String {
    place.capstan(arguments).data().replace(place.root().to_str().unwrap(), "[ROOT]")
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
    let place = CliFixture::new();
    place.capstan(&["run", "hello"]).data();
    // Neither the disk nor the version of the tables is what this is about.
    let text = run_and_mask_root(&place, &["doctor"]);
    let mut is_left_out = false;
    let lines = text.lines().filter(|line| {
        // What is said to a line stands below it, set in.
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
fn config_show_before_anything_is_set() {
    insta::assert_snapshot!(run_and_mask_root(&CliFixture::new().with_message_context(), &["config", "show"]));
}

#[test]
fn config_show_with_every_layer() {
    let place = CliFixture::new().with_message_context().config(
        "model = 'openai:of-the-home'\nmax_steps = 12\nrun_timeout_seconds = 60\n\
        [channels.stdio]\nadmission = 'steer'\ndebounce_seconds = 1.5\n",
    );
    std::fs::write(place.workspace().join("capstan.toml"), "max_steps = 9\nmax_tokens = 500\n").unwrap();
    std::fs::write(place.workspace().join(".env"), "CAPSTAN_MAX_TOKENS=600\nOTHER=1\n").unwrap();
    let place = place.set("CAPSTAN_API_KEY", TEST_API_KEY).set("CAPSTAN_TAPE_STORE", "jsonl");
    let place = place.set("CAPSTAN_CHANNELS__STDIO__ADMISSION", "collect");
    insta::assert_snapshot!(run_and_mask_root(&place, &["config", "show"]));
}

#[test]
fn asking_for_help_or_settings_writes_nothing() {
    let place = CliFixture::new();
    for arguments in [vec!["--help"], vec!["--version"], vec!["hooks"], vec!["config", "show"]] {
        place.capstan(&arguments).data();
    }
    assert!(!place.home().exists());
}

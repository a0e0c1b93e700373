//! `capstan onboard`.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::support::{CTRL_C, CliFixture, ENTER, TEST_API_KEY, TerminalSession};
use capstan_testing::{ScriptedModel, ScriptedReply};

const UNAUTHORIZED_BODY: &str = r#"{"error": {"message": "no such key"}}"#;

/// Names of the files in the home.
fn home_file_names(fixture: &CliFixture) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(fixture.home()) else { return Vec::new() };
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn read_home_file(fixture: &CliFixture, name: &str) -> String {
    std::fs::read_to_string(fixture.home().join(name)).unwrap()
}

#[test]
fn h02_flags_answer_every_question_and_the_key_is_stored_separately() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("ready"), ScriptedReply::text("hello")]);
    let fixture = CliFixture::new().config("# my settings\nmax_steps = 7 # enough\n");
    let base = server.base_url();
    let arguments = ["onboard", "--provider", "openai", "--model", "scripted", "--api-base", &base, "--api-key-stdin"];
    let output = fixture.capstan_with_input(&arguments, format!("{TEST_API_KEY}\n").as_bytes()).succeeded();
    assert!(output.stderr.contains("Testing openai:scripted with a short question"), "{output:?}");
    assert!(output.stderr.contains("without a sandbox"), "{output:?}");
    assert!(!output.stdout.contains(TEST_API_KEY) && !output.stderr.contains(TEST_API_KEY));
    assert_eq!(server.authorization_headers(), [Some(format!("Bearer {TEST_API_KEY}"))]);
    let config = read_home_file(&fixture, "config.toml");
    assert_eq!(
        config,
        format!(
            "# my settings\nmax_steps = 7 # enough\nmodel = \"openai:scripted\"\n\n\
             [models.openai]\napi_base = \"{base}\"\n"
        )
    );
    assert_eq!(read_home_file(&fixture, "secrets.toml"), format!("[models.openai]\napi_key = \"{TEST_API_KEY}\"\n"));
    let mode = std::fs::metadata(fixture.home().join("secrets.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fixture.capstan(&["run", "hello"]).data(), "hello\n", "the written settings are used");
    let shown = fixture.capstan(&["config", "show"]).data();
    assert!(shown.contains("secrets.toml") && !shown.contains(TEST_API_KEY), "{shown}");
}

#[test]
fn h02_second_onboarding_changes_only_the_given_answers() {
    let fixture = CliFixture::new();
    let first =
        ["onboard", "--model", "openai:one", "--api-base", "http://127.0.0.1:1/v1", "--api-key-stdin", "--skip-test"];
    fixture.capstan_with_input(&first, TEST_API_KEY.as_bytes()).succeeded();
    let before = (read_home_file(&fixture, "config.toml"), read_home_file(&fixture, "secrets.toml"));
    let same = fixture.capstan(&["onboard", "--yes", "--skip-test"]).succeeded();
    assert_eq!(same.stdout, "", "nothing was written");
    assert_eq!((read_home_file(&fixture, "config.toml"), read_home_file(&fixture, "secrets.toml")), before);
    fixture.capstan(&["onboard", "--provider", "openai", "--model", "two", "--skip-test"]).succeeded();
    assert_eq!(read_home_file(&fixture, "config.toml"), before.0.replace("openai:one", "openai:two"));
    assert_eq!(read_home_file(&fixture, "secrets.toml"), before.1);
}

#[test]
fn h02_missing_answers_keep_the_settings_of_the_home() {
    let config = "model = \"openai:mine\"\n";
    let fixture = CliFixture::new().config(config).set("CAPSTAN_MODEL", "demo:");
    let output = fixture.capstan(&["onboard", "--yes", "--skip-test"]).succeeded();
    assert_eq!(
        (output.stdout.as_str(), read_home_file(&fixture, "config.toml").as_str()),
        ("", config),
        "nothing was written"
    );
    let fixture = CliFixture::new().config("trust_workspace = true\nmodel = \"openai:mine\"\n");
    std::fs::write(fixture.workspace().join("capstan.toml"), "model = 'anthropic:theirs'\n").unwrap();
    fixture.capstan(&["onboard", "--yes", "--skip-test"]).succeeded();
    assert_eq!(read_home_file(&fixture, "config.toml"), "trust_workspace = true\nmodel = \"openai:mine\"\n");
    fixture.capstan(&["onboard", "--yes", "--model", "next", "--skip-test"]).succeeded();
    assert_eq!(read_home_file(&fixture, "config.toml"), "trust_workspace = true\nmodel = \"openai:next\"\n");
}

#[test]
fn x06_key_is_not_sent_to_another_provider() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("ready"), ScriptedReply::text("hello")]);
    let another = ["onboard", "--provider", "openai", "--model", "scripted", "--yes"];
    for old in [
        "model = 'anthropic:x'\napi_key = 'sk-of-anthropic-01234'\n",
        "model = 'anthropic:x'\n[models.anthropic]\napi_key = 'sk-of-anthropic-01234'\n",
    ] {
        let fixture = CliFixture::new().config(old);
        fixture.capstan(&another).refused("model-unauthorized", 1);
        assert_eq!(read_home_file(&fixture, "config.toml"), old, "nothing was written");
        fixture.capstan(&[another.as_slice(), &["--skip-test"]].concat()).succeeded();
        fixture.capstan(&["run", "hello"]).refused("model-unauthorized", 1);
    }
    let fixture = CliFixture::new().config("model = 'anthropic:x'\napi_base = 'http://127.0.0.1:1'\n");
    std::fs::write(fixture.home().join("secrets.toml"), "api_key = 'sk-of-anthropic-01234' # mine\n").unwrap();
    let fixture = fixture.set("OPENAI_API_KEY", TEST_API_KEY).set("OPENAI_BASE_URL", &server.base_url());
    fixture.capstan(&another).succeeded();
    assert_eq!(fixture.capstan(&["run", "hello"]).data(), "hello\n");
    assert_eq!(
        server.authorization_headers(),
        [Some(format!("Bearer {TEST_API_KEY}")), Some(format!("Bearer {TEST_API_KEY}"))]
    );
    assert_eq!(read_home_file(&fixture, "secrets.toml"), "[models.anthropic]\napi_key = \"sk-of-anthropic-01234\"\n");
    let config = "model = \"openai:scripted\"\n\n[models.anthropic]\napi_base = \"http://127.0.0.1:1\"\n";
    assert_eq!(read_home_file(&fixture, "config.toml"), config, "the other provider has kept its key");
}

#[test]
fn x06_environment_key_of_another_provider_is_not_tested() {
    let another = ["onboard", "--provider", "openai", "--model", "scripted", "--yes"];
    let fixture = CliFixture::new().set("CAPSTAN_MODEL", "anthropic:x").set("CAPSTAN_API_KEY", "sk-of-anthropic-01234");
    fixture.capstan(&another).refused("model-unauthorized", 1);
    let output = fixture.capstan(&[another.as_slice(), &["--skip-test"]].concat()).succeeded();
    assert!(output.stderr.contains("warning: CAPSTAN_API_KEY is set in your environment"), "{output:?}");
    let fixture = CliFixture::new().config("api_key = 'sk-of-whom-0123456789'\n");
    let output = fixture.capstan(&another);
    assert!(output.stderr.contains("without a provider"), "{output:?}");
    output.refused("config-invalid", 3);
}

#[test]
fn x06_key_is_not_sent_to_another_server() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("ready"), ScriptedReply::text("ready")]);
    let base = server.base_url();
    let elsewhere = ["onboard", "--api-base", &base, "--yes"];
    for (config, secrets) in [
        ("model = \"openai:x\"\n", "[models.openai]\napi_key = \"sk-of-the-usual-address\"\n"),
        ("model = \"openai:x\"\napi_key = \"sk-of-the-usual-address\"\n", ""),
        ("model = \"openai:x\"\n[models.openai]\napi_base = \"http://127.0.0.1:1/v1\"\napi_key = \"sk-of-one\"\n", ""),
        ("model = \"openai:x\"\n[models.openai]\nheaders = { authorization = \"Bearer sk-of-one\" }\n", ""),
    ] {
        let fixture = CliFixture::new().config(config);
        std::fs::write(fixture.home().join("secrets.toml"), secrets).unwrap();
        for skip in [&["--skip-test"][..], &[]] {
            let output = fixture.capstan(&[elsewhere.as_slice(), skip].concat());
            assert!(output.stderr.contains(&format!("is not sent to {}", base.trim_end_matches("/v1"))), "{output:?}");
            output.refused("key-elsewhere", 3);
        }
        assert_eq!(
            (read_home_file(&fixture, "config.toml").as_str(), read_home_file(&fixture, "secrets.toml").as_str()),
            (config, secrets)
        );
    }
    assert_eq!(server.authorization_headers(), [], "no request was sent");
    let fixture = CliFixture::new()
        .config(&format!("model = \"openai:x\"\napi_base = \"{base}\"\napi_key = \"{TEST_API_KEY}\"\n"));
    fixture.capstan(&["onboard", "--api-base", &format!("{base}/"), "--yes"]).succeeded();
    let fixture = CliFixture::new().config("model = \"openai:x\"\napi_key = \"sk-of-the-usual-address\"\n");
    fixture
        .capstan_with_input(&["onboard", "--api-base", &base, "--api-key-stdin"], TEST_API_KEY.as_bytes())
        .succeeded();
    assert_eq!(
        server.authorization_headers(),
        [Some(format!("Bearer {TEST_API_KEY}")), Some(format!("Bearer {TEST_API_KEY}"))]
    );
}

#[test]
fn x06_key_is_tested_without_being_written() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("ready")]);
    let fixture = CliFixture::new();
    // Every user can create directories in the one for temporary files, and read files there.
    let no_folder = fixture.file("no folder", "");
    let fixture = fixture.set("TMPDIR", &no_folder);
    let arguments = ["onboard", "--model", "openai:scripted", "--api-base", &server.base_url(), "--api-key-stdin"];
    fixture.capstan_with_input(&arguments, TEST_API_KEY.as_bytes()).succeeded();
}

#[test]
fn h02_rejected_key_changes_nothing() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::status(401, UNAUTHORIZED_BODY)]);
    let fixture = CliFixture::new();
    let arguments = ["onboard", "--model", "openai:scripted", "--api-base", &server.base_url(), "--api-key-stdin"];
    let output = fixture.capstan_with_input(&arguments, TEST_API_KEY.as_bytes());
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output.stderr.contains("error[model-unauthorized]") && output.stderr.contains("nothing was written"),
        "{output:?}"
    );
    assert!(!output.stderr.contains(TEST_API_KEY));
    assert_eq!(home_file_names(&fixture), [""; 0]);
}

#[test]
fn h02_invalid_answers_are_rejected_and_nothing_is_written() {
    let fixture = CliFixture::new();
    fixture.capstan(&["onboard"]).refused("usage", 2);
    fixture.capstan(&["onboard", "--provider", "missing"]).refused("model-unknown", 2);
    fixture.capstan(&["onboard", "--provider", "openai"]).refused("usage", 2);
    fixture
        .capstan(&["onboard", "--model", "openai:x", "--api-base", "nonsense", "--skip-test"])
        .refused("config-invalid", 3);
    fixture
        .capstan_with_input(&["onboard", "--model", "openai:x", "--api-key-stdin"], b" \n")
        .refused("input-invalid", 2);
    fixture
        .capstan_with_input(&["onboard", "--model", "openai:x", "--api-key-stdin"], b"a b\n")
        .refused("input-invalid", 2);
    assert_eq!(home_file_names(&fixture), [""; 0]);
}

#[test]
fn h02_prompts_do_not_echo_the_key() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("ready")]);
    let fixture = CliFixture::new();
    let screen = TerminalSession::open(&fixture.command(&["onboard"]), 100, 30);
    for (question, answer) in [("Provider", "openai"), ("Model:", "scripted"), ("Base URL", server.base_url().as_str())]
    {
        screen.wait_for(question);
        screen.send(&format!("{answer}{ENTER}"));
    }
    screen.wait_for("API key, not shown");
    screen.send(TEST_API_KEY);
    screen.send(ENTER);
    screen.wait_for("Run `capstan chat` to start a conversation.");
    assert!(!screen.raw().contains(TEST_API_KEY));
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert_eq!(read_home_file(&fixture, "secrets.toml"), format!("[models.openai]\napi_key = \"{TEST_API_KEY}\"\n"));
}

#[test]
fn h02_failed_test_prompts_again_with_the_previous_answers() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::status(401, UNAUTHORIZED_BODY),
        ScriptedReply::text("ready"),
    ]);
    let fixture = CliFixture::new();
    let screen = TerminalSession::open(&fixture.command(&["onboard"]), 100, 40);
    let base = server.base_url();
    for (question, answer) in [
        ("Provider", "missing"),
        ("unknown model provider missing", "openai"),
        ("Model: ", ""),
        ("the provider openai needs a model name", "scripted"),
        ("Base URL", "nonsense"),
    ] {
        screen.wait_for(question);
        screen.send(&format!("{answer}{ENTER}"));
    }
    screen.wait_for("API key, not shown (enter for none)");
    screen.send(&format!("two words{ENTER}"));
    screen.wait_for("a key must not contain blanks");
    screen.send(&format!("wrong{ENTER}"));
    screen.wait_for("What next? (retry, quit) [retry]: ");
    screen.send(ENTER);
    for (question, answer) in [("[openai]: ", ""), ("Model [scripted]: ", ""), ("[nonsense]: ", base.as_str())] {
        screen.wait_for(question);
        screen.send(&format!("{answer}{ENTER}"));
    }
    screen.wait_for("(enter to keep the one you entered)");
    screen.send(ENTER);
    screen.wait_for("error[model-unauthorized]");
    screen.wait_for("What next? (retry, keep, quit) [retry]: ");
    assert_eq!(home_file_names(&fixture), [""; 0]);
    screen.send(&format!("r{ENTER}"));
    let address = format!("[{base}]: ");
    for (times, question) in [(2, "[openai]: "), (2, "Model [scripted]: "), (1, &address)] {
        screen.wait(question, |screen| screen.matches(question).count() == times);
        screen.send(ENTER);
    }
    screen.wait("the question for the key once more", |screen| {
        screen.matches("to keep the one you entered").count() == 2
    });
    screen.send(&format!("{TEST_API_KEY}{ENTER}"));
    screen.wait_for("Run `capstan chat` to start a conversation.");
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert_eq!(read_home_file(&fixture, "secrets.toml"), format!("[models.openai]\napi_key = \"{TEST_API_KEY}\"\n"));
    assert_eq!(
        server.authorization_headers(),
        [Some("Bearer wrong".to_owned()), Some(format!("Bearer {TEST_API_KEY}"))]
    );
}

#[test]
fn h02_untested_answers_can_be_kept() {
    let fixture = CliFixture::new();
    let arguments = ["onboard", "--model", "openai:x", "--api-base", "http://127.0.0.1:1/v1"];
    let screen = TerminalSession::open(&fixture.command(&arguments), 100, 30);
    screen.wait_for("API key, not shown");
    screen.send(&format!("{TEST_API_KEY}{ENTER}"));
    screen.wait_for("error[model-unreachable]");
    screen.wait_for("What next?");
    screen.send(&format!("keep{ENTER}"));
    screen.wait_for("Run `capstan chat` to start a conversation.");
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert_eq!(read_home_file(&fixture, "secrets.toml"), format!("[models.openai]\napi_key = \"{TEST_API_KEY}\"\n"));
}

#[test]
fn h02_files_are_private_whatever_the_umask() {
    let fixture = CliFixture::new();
    let onboard = fixture.command(&["onboard", "--model", "openai:x", "--api-key-stdin", "--skip-test"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "umask 0; echo key-of-mine | exec \"$0\" \"$@\""]).arg(onboard.get_program());
    shell.args(onboard.get_args()).envs(onboard.get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert!(shell.current_dir(fixture.workspace()).status().unwrap().success());
    let mode = |name: &str| std::fs::metadata(fixture.home().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("secrets.toml"), mode("config.toml")), (0o700, 0o600, 0o600));
    std::fs::set_permissions(fixture.home().join("secrets.toml"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let again = ["onboard", "--yes", "--api-key-stdin", "--skip-test"];
    fixture.capstan_with_input(&again, b"key-of-mine").succeeded();
    assert_eq!(mode("secrets.toml"), 0o600, "the same key, now private");
}

#[test]
fn h02_cancelled_onboarding_changes_nothing() {
    let fixture = CliFixture::new();
    let screen = TerminalSession::open(&fixture.command(&["onboard"]), 100, 30);
    for (question, answer) in [("Provider", "openai"), ("Model:", "scripted"), ("Base URL", "")] {
        screen.wait_for(question);
        screen.send(&format!("{answer}{ENTER}"));
    }
    screen.wait_for("API key, not shown");
    screen.send("half a key");
    screen.send(CTRL_C);
    screen.wait_for("error[run-cancelled]: cancelled, nothing was written");
    assert_eq!(screen.wait_for_exit(), Some(130));
    assert_eq!(home_file_names(&fixture), [""; 0]);
}

#[test]
fn h02_overriding_environment_variable_is_a_warning() {
    let fixture = CliFixture::new().set("CAPSTAN_MODEL", "demo:");
    let mut command = fixture.command(&["onboard", "--model", "openai:x", "--skip-test"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("warning: CAPSTAN_MODEL is set in your environment"), "{stderr}");
}

//! `capstan onboard`.

mod cli_support;

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use capstan_testing::{ScriptedModel, ScriptedReply};
use cli_support::{CTRL_C, CliFixture, ENTER, TEST_API_KEY, TerminalSession};

const UNAUTHORIZED_BODY: &str = r#"{"error": {"message": "no such key"}}"#;

/// The names of what is in the home.
fn home_file_names(place: &CliFixture) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(place.home()) else { return Vec::new() };
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn read_home_file(place: &CliFixture, name: &str) -> String {
    std::fs::read_to_string(place.home().join(name)).unwrap()
}

#[test]
fn h02_a_script_can_give_every_answer_and_the_key_stands_apart() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("ready"), ScriptedReply::text("hello")]);
    let place = CliFixture::new().config("# my settings\nmax_steps = 7 # enough\n");
    let base = server.base_url();
    let arguments = ["onboard", "--provider", "openai", "--model", "scripted", "--api-base", &base, "--api-key-stdin"];
    let said = place.capstan_with_input(&arguments, format!("{TEST_API_KEY}\n").as_bytes()).succeeded();
    assert!(said.stderr.contains("Asking openai:scripted one short question"), "{said:?}");
    assert!(said.stderr.contains("without a sandbox"), "{said:?}");
    assert!(!said.stdout.contains(TEST_API_KEY) && !said.stderr.contains(TEST_API_KEY));
    assert_eq!(server.authorization_headers(), [Some(format!("Bearer {TEST_API_KEY}"))]);
    let config = read_home_file(&place, "config.toml");
    assert_eq!(
        config,
        format!(
            "# my settings\nmax_steps = 7 # enough\nmodel = \"openai:scripted\"\n\n\
             [models.openai]\napi_base = \"{base}\"\n"
        )
    );
    assert_eq!(read_home_file(&place, "secrets.toml"), format!("[models.openai]\napi_key = \"{TEST_API_KEY}\"\n"));
    let mode = std::fs::metadata(place.home().join("secrets.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(place.capstan(&["run", "hello"]).data(), "hello\n", "what was written is used");
    let shown = place.capstan(&["config", "show"]).data();
    assert!(shown.contains("secrets.toml") && !shown.contains(TEST_API_KEY), "{shown}");
}

#[test]
fn h02_again_only_what_is_answered_changes() {
    let place = CliFixture::new();
    let first =
        ["onboard", "--model", "openai:one", "--api-base", "http://127.0.0.1:1/v1", "--api-key-stdin", "--skip-test"];
    place.capstan_with_input(&first, TEST_API_KEY.as_bytes()).succeeded();
    let before = (read_home_file(&place, "config.toml"), read_home_file(&place, "secrets.toml"));
    let same = place.capstan(&["onboard", "--yes", "--skip-test"]).succeeded();
    assert_eq!(same.stdout, "", "nothing was written");
    assert_eq!((read_home_file(&place, "config.toml"), read_home_file(&place, "secrets.toml")), before);
    place.capstan(&["onboard", "--provider", "openai", "--model", "two", "--skip-test"]).succeeded();
    assert_eq!(read_home_file(&place, "config.toml"), before.0.replace("openai:one", "openai:two"));
    assert_eq!(read_home_file(&place, "secrets.toml"), before.1);
}

#[test]
fn h02_what_is_not_given_stays_as_the_home_has_it_whatever_the_environment_says() {
    let config = "model = \"openai:mine\"\n";
    let place = CliFixture::new().config(config).set("CAPSTAN_MODEL", "demo:");
    let said = place.capstan(&["onboard", "--yes", "--skip-test"]).succeeded();
    assert_eq!(
        (said.stdout.as_str(), read_home_file(&place, "config.toml").as_str()),
        ("", config),
        "nothing was written"
    );
    let place = CliFixture::new().config("trust_workspace = true\nmodel = \"openai:mine\"\n");
    std::fs::write(place.workspace().join("capstan.toml"), "model = 'anthropic:theirs'\n").unwrap();
    place.capstan(&["onboard", "--yes", "--skip-test"]).succeeded();
    assert_eq!(read_home_file(&place, "config.toml"), "trust_workspace = true\nmodel = \"openai:mine\"\n");
    place.capstan(&["onboard", "--yes", "--model", "next", "--skip-test"]).succeeded();
    assert_eq!(read_home_file(&place, "config.toml"), "trust_workspace = true\nmodel = \"openai:next\"\n");
}

#[test]
fn x06_a_key_does_not_follow_to_another_provider() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("ready"), ScriptedReply::text("hello")]);
    let another = ["onboard", "--provider", "openai", "--model", "scripted", "--yes"];
    for old in [
        "model = 'anthropic:x'\napi_key = 'sk-of-anthropic-01234'\n",
        "model = 'anthropic:x'\n[models.anthropic]\napi_key = 'sk-of-anthropic-01234'\n",
    ] {
        let place = CliFixture::new().config(old);
        place.capstan(&another).refused("model-unauthorized", 1);
        assert_eq!(read_home_file(&place, "config.toml"), old, "nothing was written");
        place.capstan(&[another.as_slice(), &["--skip-test"]].concat()).succeeded();
        place.capstan(&["run", "hello"]).refused("model-unauthorized", 1);
    }
    let place = CliFixture::new().config("model = 'anthropic:x'\napi_base = 'http://127.0.0.1:1'\n");
    std::fs::write(place.home().join("secrets.toml"), "api_key = 'sk-of-anthropic-01234' # mine\n").unwrap();
    let place = place.set("OPENAI_API_KEY", TEST_API_KEY).set("OPENAI_BASE_URL", &server.base_url());
    place.capstan(&another).succeeded();
    assert_eq!(place.capstan(&["run", "hello"]).data(), "hello\n");
    assert_eq!(
        server.authorization_headers(),
        [Some(format!("Bearer {TEST_API_KEY}")), Some(format!("Bearer {TEST_API_KEY}"))]
    );
    assert_eq!(read_home_file(&place, "secrets.toml"), "[models.anthropic]\napi_key = \"sk-of-anthropic-01234\"\n");
    let config = "model = \"openai:scripted\"\n\n[models.anthropic]\napi_base = \"http://127.0.0.1:1\"\n";
    assert_eq!(read_home_file(&place, "config.toml"), config, "the other one has kept what was its own");
}

#[test]
fn x06_a_key_of_the_environment_that_was_meant_for_another_provider_is_not_tried() {
    let another = ["onboard", "--provider", "openai", "--model", "scripted", "--yes"];
    let place = CliFixture::new().set("CAPSTAN_MODEL", "anthropic:x").set("CAPSTAN_API_KEY", "sk-of-anthropic-01234");
    place.capstan(&another).refused("model-unauthorized", 1);
    let said = place.capstan(&[another.as_slice(), &["--skip-test"]].concat()).succeeded();
    assert!(said.stderr.contains("warning: CAPSTAN_API_KEY is set in your environment"), "{said:?}");
    let place = CliFixture::new().config("api_key = 'sk-of-whom-0123456789'\n");
    let said = place.capstan(&another);
    assert!(said.stderr.contains("does not say for which provider"), "{said:?}");
    said.refused("config-invalid", 3);
}

#[test]
fn x06_a_key_does_not_follow_to_another_address() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("ready"), ScriptedReply::text("ready")]);
    let base = server.base_url();
    let elsewhere = ["onboard", "--api-base", &base, "--yes"];
    for (config, secrets) in [
        ("model = \"openai:x\"\n", "[models.openai]\napi_key = \"sk-of-the-usual-address\"\n"),
        ("model = \"openai:x\"\napi_key = \"sk-of-the-usual-address\"\n", ""),
        ("model = \"openai:x\"\n[models.openai]\napi_base = \"http://127.0.0.1:1/v1\"\napi_key = \"sk-of-one\"\n", ""),
        ("model = \"openai:x\"\n[models.openai]\nheaders = { authorization = \"Bearer sk-of-one\" }\n", ""),
    ] {
        let place = CliFixture::new().config(config);
        std::fs::write(place.home().join("secrets.toml"), secrets).unwrap();
        for skip in [&["--skip-test"][..], &[]] {
            let said = place.capstan(&[elsewhere.as_slice(), skip].concat());
            assert!(said.stderr.contains(&format!("is not sent to {}", base.trim_end_matches("/v1"))), "{said:?}");
            said.refused("key-elsewhere", 3);
        }
        assert_eq!(
            (read_home_file(&place, "config.toml").as_str(), read_home_file(&place, "secrets.toml").as_str()),
            (config, secrets)
        );
    }
    assert_eq!(server.authorization_headers(), [], "nobody was asked anything");
    let place = CliFixture::new()
        .config(&format!("model = \"openai:x\"\napi_base = \"{base}\"\napi_key = \"{TEST_API_KEY}\"\n"));
    place.capstan(&["onboard", "--api-base", &format!("{base}/"), "--yes"]).succeeded();
    let place = CliFixture::new().config("model = \"openai:x\"\napi_key = \"sk-of-the-usual-address\"\n");
    place.capstan_with_input(&["onboard", "--api-base", &base, "--api-key-stdin"], TEST_API_KEY.as_bytes()).succeeded();
    assert_eq!(
        server.authorization_headers(),
        [Some(format!("Bearer {TEST_API_KEY}")), Some(format!("Bearer {TEST_API_KEY}"))]
    );
}

#[test]
fn x06_a_key_that_is_tried_is_written_nowhere_for_it() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("ready")]);
    let place = CliFixture::new();
    // Everybody can make folders in the one for temporary files, and read what is put there.
    let no_folder = place.file("no folder", "");
    let place = place.set("TMPDIR", &no_folder);
    let arguments = ["onboard", "--model", "openai:scripted", "--api-base", &server.base_url(), "--api-key-stdin"];
    place.capstan_with_input(&arguments, TEST_API_KEY.as_bytes()).succeeded();
}

#[test]
fn h02_a_key_that_is_refused_leaves_everything_as_it_was() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::status(401, UNAUTHORIZED_BODY)]);
    let place = CliFixture::new();
    let arguments = ["onboard", "--model", "openai:scripted", "--api-base", &server.base_url(), "--api-key-stdin"];
    let said = place.capstan_with_input(&arguments, TEST_API_KEY.as_bytes());
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.stderr.contains("error[model-unauthorized]") && said.stderr.contains("nothing was written"),
        "{said:?}"
    );
    assert!(!said.stderr.contains(TEST_API_KEY));
    assert_eq!(home_file_names(&place), [""; 0]);
}

#[test]
fn h02_what_makes_no_sense_is_refused_and_nothing_is_written() {
    let place = CliFixture::new();
    place.capstan(&["onboard"]).refused("usage", 2);
    place.capstan(&["onboard", "--provider", "nobody"]).refused("model-unknown", 2);
    place.capstan(&["onboard", "--provider", "openai"]).refused("usage", 2);
    place
        .capstan(&["onboard", "--model", "openai:x", "--api-base", "nonsense", "--skip-test"])
        .refused("config-invalid", 3);
    place
        .capstan_with_input(&["onboard", "--model", "openai:x", "--api-key-stdin"], b" \n")
        .refused("input-invalid", 2);
    place
        .capstan_with_input(&["onboard", "--model", "openai:x", "--api-key-stdin"], b"a b\n")
        .refused("input-invalid", 2);
    assert_eq!(home_file_names(&place), [""; 0]);
}

#[test]
fn h02_a_person_is_asked_and_the_key_is_not_shown() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("ready")]);
    let place = CliFixture::new();
    let screen = TerminalSession::open(&place.command(&["onboard"]), 100, 30);
    for (question, answer) in [("Provider", "openai"), ("Model:", "scripted"), ("Address", server.base_url().as_str())]
    {
        screen.wait_for(question);
        screen.send(&format!("{answer}{ENTER}"));
    }
    screen.wait_for("Key, which is not shown");
    screen.send(TEST_API_KEY);
    screen.send(ENTER);
    screen.wait_for("`capstan chat` begins a conversation.");
    assert!(!screen.raw().contains(TEST_API_KEY));
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert_eq!(read_home_file(&place, "secrets.toml"), format!("[models.openai]\napi_key = \"{TEST_API_KEY}\"\n"));
}

#[test]
fn h02_a_person_whose_answers_do_not_work_answers_again_and_need_not_repeat_the_rest() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::status(401, UNAUTHORIZED_BODY),
        ScriptedReply::text("ready"),
    ]);
    let place = CliFixture::new();
    let screen = TerminalSession::open(&place.command(&["onboard"]), 100, 40);
    let base = server.base_url();
    for (question, answer) in [
        ("Provider", "nobody"),
        ("there is no provider nobody", "openai"),
        ("Model: ", ""),
        ("the provider openai needs the name of a model", "scripted"),
        ("Address", "nonsense"),
    ] {
        screen.wait_for(question);
        screen.send(&format!("{answer}{ENTER}"));
    }
    screen.wait_for("Key, which is not shown (enter for none)");
    screen.send(&format!("two words{ENTER}"));
    screen.wait_for("a key has no blanks");
    screen.send(&format!("wrong{ENTER}"));
    screen.wait_for("And now? (again, quit) [again]: ");
    screen.send(ENTER);
    for (question, answer) in [("[openai]: ", ""), ("Model [scripted]: ", ""), ("[nonsense]: ", base.as_str())] {
        screen.wait_for(question);
        screen.send(&format!("{answer}{ENTER}"));
    }
    screen.wait_for("(enter keeps the one you gave)");
    screen.send(ENTER);
    screen.wait_for("error[model-unauthorized]");
    screen.wait_for("And now? (again, keep, quit) [again]: ");
    assert_eq!(home_file_names(&place), [""; 0]);
    screen.send(&format!("a{ENTER}"));
    let address = format!("[{base}]: ");
    for (times, question) in [(2, "[openai]: "), (2, "Model [scripted]: "), (1, &address)] {
        screen.wait(question, |screen| screen.matches(question).count() == times);
        screen.send(ENTER);
    }
    screen.wait("the question for the key once more", |screen| screen.matches("keeps the one you gave").count() == 2);
    screen.send(&format!("{TEST_API_KEY}{ENTER}"));
    screen.wait_for("`capstan chat` begins a conversation.");
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert_eq!(read_home_file(&place, "secrets.toml"), format!("[models.openai]\napi_key = \"{TEST_API_KEY}\"\n"));
    assert_eq!(
        server.authorization_headers(),
        [Some("Bearer wrong".to_owned()), Some(format!("Bearer {TEST_API_KEY}"))]
    );
}

#[test]
fn h02_a_person_without_a_network_can_keep_what_could_not_be_tried() {
    let place = CliFixture::new();
    let arguments = ["onboard", "--model", "openai:x", "--api-base", "http://127.0.0.1:1/v1"];
    let screen = TerminalSession::open(&place.command(&arguments), 100, 30);
    screen.wait_for("Key, which is not shown");
    screen.send(&format!("{TEST_API_KEY}{ENTER}"));
    screen.wait_for("error[model-unreachable]");
    screen.wait_for("And now?");
    screen.send(&format!("keep{ENTER}"));
    screen.wait_for("`capstan chat` begins a conversation.");
    assert_eq!(screen.wait_for_exit(), Some(0));
    assert_eq!(read_home_file(&place, "secrets.toml"), format!("[models.openai]\napi_key = \"{TEST_API_KEY}\"\n"));
}

#[test]
fn h02_the_files_are_ones_own_whatever_new_files_are_by_default() {
    let place = CliFixture::new();
    let onboard = place.command(&["onboard", "--model", "openai:x", "--api-key-stdin", "--skip-test"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "umask 0; echo key-of-mine | exec \"$0\" \"$@\""]).arg(onboard.get_program());
    shell.args(onboard.get_args()).envs(onboard.get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert!(shell.current_dir(place.workspace()).status().unwrap().success());
    let mode = |name: &str| std::fs::metadata(place.home().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("secrets.toml"), mode("config.toml")), (0o700, 0o600, 0o600));
    std::fs::set_permissions(place.home().join("secrets.toml"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let again = ["onboard", "--yes", "--api-key-stdin", "--skip-test"];
    place.capstan_with_input(&again, b"key-of-mine").succeeded();
    assert_eq!(mode("secrets.toml"), 0o600, "the same key, and from now on one's own");
}

#[test]
fn h02_whoever_breaks_off_has_changed_nothing() {
    let place = CliFixture::new();
    let screen = TerminalSession::open(&place.command(&["onboard"]), 100, 30);
    for (question, answer) in [("Provider", "openai"), ("Model:", "scripted"), ("Address", "")] {
        screen.wait_for(question);
        screen.send(&format!("{answer}{ENTER}"));
    }
    screen.wait_for("Key, which is not shown");
    screen.send("half a key");
    screen.send(CTRL_C);
    screen.wait_for("error[run-cancelled]: nothing was written");
    assert_eq!(screen.wait_for_exit(), Some(130));
    assert_eq!(home_file_names(&place), [""; 0]);
}

#[test]
fn h02_what_the_environment_says_goes_before_and_that_is_told() {
    let place = CliFixture::new().set("CAPSTAN_MODEL", "demo:");
    let mut command = place.command(&["onboard", "--model", "openai:x", "--skip-test"]);
    let said = command.stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8(said.stderr).unwrap();
    assert!(stderr.contains("warning: CAPSTAN_MODEL is set in your environment"), "{stderr}");
}

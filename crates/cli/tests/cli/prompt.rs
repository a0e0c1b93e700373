//! Input of the model: the system prompt, skills, and the context of messages (A5, A6, A7).

use std::ffi::OsStr;
use std::process::Command;

use crate::support::{CliFixture, ENTER, TerminalSession, entries_of_kind};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

fn write_skill(fixture: &CliFixture, name: &str, text: &str) {
    let folder = fixture.workspace().join(".agents/skills").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("SKILL.md"), text).unwrap();
}

fn write_release_notes_skill(fixture: &CliFixture) {
    write_skill(
        fixture,
        "release-notes",
        "---\nname: release-notes\ndescription: Writes release notes.\n---\nBe brief.\n",
    );
}

fn system_prompt(request: &Value) -> &str {
    request["messages"][0]["content"].as_str().expect("a system prompt")
}

fn last_message_text(request: &Value) -> &str {
    request["messages"].as_array().and_then(|all| all.last()).and_then(|one| one["content"].as_str()).expect("a text")
}

#[test]
fn a06_system_prompt_names_workspace_skills_and_tools_and_is_stable() {
    let server = ScriptedModel::start_blocking((0..3).map(|_| ScriptedReply::text("hi")).collect());
    let fixture = CliFixture::with_model(&server).with_message_context().trusted();
    std::fs::write(fixture.workspace().join("AGENTS.md"), "Speak softly.").unwrap();
    write_release_notes_skill(&fixture);
    for text in ["one", "two"] {
        fixture.capstan(&["run", text]).data();
    }
    let requests = server.requests();
    let prompt = system_prompt(&requests[0]);
    for part in [
        "Speak softly.",
        "\n- release-notes: Writes release notes.\n- skill-creator: ",
        "\n\nYour tools: artifact_read, bash, bash_kill, ",
    ] {
        assert!(prompt.contains(part), "{part:?} is not in {prompt}");
    }
    assert_eq!(prompt, system_prompt(&requests[1]), "identical bytes");
    assert_eq!(requests[0]["tools"], requests[1]["tools"]);
    let first = requests[0]["messages"].as_array().unwrap();
    assert_eq!(
        requests[1]["messages"].as_array().unwrap()[..first.len()],
        first[..],
        "earlier messages stay unchanged"
    );
    std::fs::write(fixture.workspace().join("AGENTS.md"), "Speak up.").unwrap();
    fixture.capstan(&["run", "three"]).data();
    assert!(system_prompt(&server.requests()[2]).contains("Speak up."));
}

#[test]
fn a07_message_context_is_sent_to_the_model_and_stored_on_the_tape() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("hi")]);
    let fixture = CliFixture::with_model(&server).with_message_context();
    fixture.capstan(&["run", "hello", "--chat-id", "42", "--sender-id", "ada"]).data();
    let requests = server.requests();
    let text = last_message_text(&requests[0]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[2]), ("channel: cli, chat: 42, from: ada", "hello"));
    assert!(lines[1].starts_with("---Date: 20") && lines[1].ends_with("+00:00---"), "{text}");
    let entries = fixture.tape("cli:42");
    assert_eq!(entries_of_kind(&entries, "message")[0]["payload"]["content"], json!(text));
}

#[test]
fn a07_a03_message_context_does_not_hide_a_command() {
    let fixture = CliFixture::new().with_message_context();
    assert!(fixture.capstan(&["run", ",tape.info"]).data().starts_with("tape: "));
    let output = fixture.capstan(&["run", "[[tool:bash cmd='echo one']] hello"]).succeeded().stdout;
    assert!(output.contains("bash answered:\none") && output.ends_with("You said: hello\n"), "{output}");
}

#[test]
fn a05_skill_is_loaded_by_its_tool_and_by_mention() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([("call_1", "skill", json!({"name": "release-notes"}))]),
        ScriptedReply::text("done"),
        ScriptedReply::text("done"),
    ]);
    let fixture = CliFixture::with_model(&server).trusted();
    write_release_notes_skill(&fixture);
    fixture.capstan(&["run", "write the notes"]).succeeded();
    assert!(
        last_message_text(&server.requests()[1]).contains("<skill name=\"release-notes\""),
        "{}",
        server.requests()[1]
    );
    fixture.capstan(&["run", "use $release-notes for v2"]).succeeded();
    let requests = server.requests();
    let sent_text = last_message_text(&requests[2]);
    assert!(
        sent_text.starts_with("use $release-notes for v2\n\n<skill") && sent_text.contains("\nBe brief.\n</skill>"),
        "{sent_text}"
    );
    let listed = fixture.capstan(&["run", ",skill"]).data();
    assert!(listed.starts_with("release-notes: ") && listed.contains("\nskill-creator: "), "{listed}");
    let none = fixture.capstan(&["run", ",skill nothing"]).failed("command-failed", 1).stdout;
    assert!(none.contains("there is no skill \"nothing\"") && none.contains("release-notes, skill-creator"), "{none}");
}

#[test]
fn a05_skills_are_listed_shown_and_checked() {
    let fixture = CliFixture::new().trusted();
    assert_eq!(fixture.capstan(&["skills", "check"]).data(), "all 1 skills are valid\n");
    write_release_notes_skill(&fixture);
    let list = fixture.capstan(&["skills", "list"]).lines();
    assert_eq!(list[0], "release-notes  workspace  Writes release notes.");
    assert!(list[1].starts_with("skill-creator  built-in   How to write a skill"), "{list:?}");
    assert_eq!(fixture.capstan(&["skills", "show", "release-notes"]).data(), "Be brief.\n");
    let json = fixture.capstan(&["skills", "list", "--json"]).json();
    assert_eq!(json[0]["name"], "release-notes");
    fixture.capstan(&["skills", "show", "nothing"]).refused("skill-unknown", 2);
}

#[test]
fn a05_invalid_skill_is_reported_and_ignored() {
    let fixture = CliFixture::new().trusted();
    write_release_notes_skill(&fixture);
    write_skill(&fixture, "broken", "no head");
    let run = fixture.capstan(&["run", "hello"]).succeeded();
    assert!(
        run.stderr.contains("broken/SKILL.md is ignored: the file does not start with front matter"),
        "{}",
        run.stderr
    );
    let check = fixture.capstan(&["skills", "check"]).failed("skill-invalid", 1);
    assert!(check.stdout.contains("broken/SKILL.md: the file does not start"), "{}", check.stdout);
    let check = fixture.capstan(&["skills", "check", "--json"]);
    let json: Value = serde_json::from_str(&check.stdout).unwrap();
    assert_eq!((&json["valid"][0], &json["invalid"][0]["origin"]), (&json!("release-notes"), &json!("workspace")));
    let list = fixture.capstan(&["skills", "list"]).succeeded();
    assert!(list.stderr.contains("1 invalid"), "{}", list.stderr);
    fixture.capstan(&["skills", "show", "broken"]).refused("skill-invalid", 2);
}

#[test]
fn a06_instructions_of_a_workspace_are_used_only_after_capstan_trust() {
    let server = ScriptedModel::start_blocking((0..3).map(|_| ScriptedReply::text("hi")).collect());
    let fixture = CliFixture::with_model(&server);
    std::fs::write(fixture.workspace().join("AGENTS.md"), "Speak softly.").unwrap();
    write_release_notes_skill(&fixture);
    let workspace = fixture.workspace().display().to_string();
    let notice = format!("its AGENTS.md and .agents are not used; to trust it: capstan trust {workspace}");
    let has_instructions = |number: usize| {
        let prompt = system_prompt(&server.requests()[number]).to_owned();
        (prompt.contains("Speak softly."), prompt.contains("release-notes"))
    };
    let untrusted = fixture.capstan(&["run", "one"]).succeeded();
    assert!(untrusted.stderr.contains(&notice), "{}", untrusted.stderr);
    assert_eq!(has_instructions(0), (false, false));
    assert_eq!(fixture.capstan(&["trust"]).data(), format!("trusted: {workspace}\n"));
    assert_eq!(fixture.capstan(&["trust", "--list"]).data(), format!("{workspace}\n"));
    let trusted = fixture.capstan(&["run", "two"]).succeeded();
    assert!(!trusted.stderr.contains("trust"), "{}", trusted.stderr);
    assert_eq!(has_instructions(1), (true, true));
    fixture.capstan(&["untrust", &workspace]).succeeded();
    assert_eq!(fixture.capstan(&["trust", "--list"]).data(), "");
    assert!(fixture.capstan(&["run", "three"]).succeeded().stderr.contains(&notice));
    assert_eq!(has_instructions(2), (false, false));
}

#[test]
fn a06_trust_and_untrust_act_on_the_workspace_of_the_global_option() {
    let fixture = CliFixture::new().trusted();
    let (own, other) = (fixture.workspace().display().to_string(), fixture.path("other"));
    std::fs::create_dir(&other).unwrap();
    assert_eq!(fixture.capstan(&["trust", "-w", &other]).data(), format!("trusted: {other}\n"));
    assert_eq!(fixture.capstan(&["-w", &other, "untrust"]).data(), format!("not trusted: {other}\n"));
    assert_eq!(fixture.capstan(&["trust", "--remove", "--workspace", &own]).data(), format!("not trusted: {own}\n"));
    for command in ["trust", "untrust"] {
        fixture.capstan(&[command, &own, "-w", &other]).refused("usage", 2);
        fixture.capstan(&["-w", &other, command, &own]).refused("usage", 2);
    }
    assert_eq!(fixture.capstan(&["trust", "--list"]).data(), "");
}

#[test]
fn a06_terminal_user_is_asked_about_a_workspace_once() {
    let fixture = CliFixture::new();
    std::fs::write(fixture.workspace().join("AGENTS.md"), "Speak softly.").unwrap();
    let screen = TerminalSession::open(&fixture.command(&["run", "hello"]), 120, 30);
    screen.wait_for("Trust it? [y/N]");
    screen.send("n");
    screen.send(ENTER);
    screen.wait_for("capstan trust");
    assert_eq!(screen.wait_for_exit(), Some(0));
    let screen = TerminalSession::open(&fixture.command(&["run", "again"]), 120, 30);
    let shown = screen.wait_for("capstan trust");
    assert!(!shown.contains("Trust it?"), "{shown}");
    assert_eq!(screen.wait_for_exit(), Some(0));
}

#[test]
fn a06_unattended_terminal_is_not_asked_about_a_workspace() {
    let fixture = CliFixture::new();
    std::fs::write(fixture.workspace().join("AGENTS.md"), "Speak softly.").unwrap();
    let expect_no_question = |command: &Command| {
        let screen = TerminalSession::open(command, 120, 30);
        let shown = screen.wait_for("You said: hello");
        assert!(shown.contains("capstan trust") && !shown.contains("Trust it?"), "{shown}");
        assert_eq!(screen.wait_for_exit(), Some(0));
    };
    let mut automated = fixture.command(&["run", "hello"]);
    expect_no_question(automated.env("CI", "true"));

    // A job in the background that reads from the terminal would be stopped.
    let run = fixture.command(&["run", "hello"]);
    let mut shell = Command::new("bash");
    let script = "set -m; \"$0\" run hello & wait $!";
    shell.args([OsStr::new("-c"), OsStr::new(script), run.get_program()]).current_dir(fixture.workspace()).env_clear();
    shell.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    expect_no_question(&shell);
}

#[test]
fn a05_skill_that_replaces_another_is_reported() {
    let fixture = CliFixture::new().trusted();
    write_skill(&fixture, "skill-creator", "---\nname: skill-creator\ndescription: Mine.\n---\nx\n");
    let warning = "the workspace skill skill-creator replaces the built-in skill of that name";
    for arguments in [["skills", "list"], ["skills", "check"], ["run", "hello"]] {
        let output = fixture.capstan(&arguments).succeeded();
        assert!(output.stderr.contains(warning), "{arguments:?}: {}", output.stderr);
    }
}

#[test]
fn x06_trusted_workspace_may_set_every_key() {
    let fixture = CliFixture::new();
    std::fs::write(fixture.workspace().join("capstan.toml"), "max_steps = 100\n").unwrap();
    fixture.capstan(&["run", "hello"]).refused("config-untrusted", 3);
    fixture.capstan(&["trust"]).succeeded();
    fixture.capstan(&["run", "hello"]).succeeded();
}

#[test]
fn x06_config_show_does_not_print_control_characters_of_a_workspace() {
    let fixture = CliFixture::new();
    let settings = "[channels.\"x\\u001b]52;c;cHduZWQ=\\u0007\"]\nadmission = \"steer\"\n";
    std::fs::write(fixture.workspace().join("capstan.toml"), settings).unwrap();
    let refused = fixture.capstan(&["config", "show"]).refused("config-invalid", 3);
    assert!(!refused.stderr.contains('\u{1b}') && refused.stderr.contains("control characters"), "{}", refused.stderr);
}

#[test]
fn x06_path_of_an_untrusted_workspace_hides_nothing_of_the_notice() {
    let fixture = CliFixture::new();
    let workspace = fixture.path("we\u{1b}]x\u{202e}b");
    std::fs::create_dir(&workspace).unwrap();
    std::fs::write(std::path::Path::new(&workspace).join("AGENTS.md"), "Speak softly.").unwrap();
    let untrusted = fixture.capstan(&["run", "hello", "-w", &workspace]).succeeded();
    assert!(untrusted.stderr.contains("/we\\x1b]x\\u{202e}b"), "{}", untrusted.stderr);
    let screen = TerminalSession::open(&fixture.command(&["run", "hello", "-w", &workspace]), 120, 30);
    let shown = screen.wait_for("Trust it? [y/N]");
    assert!(shown.contains("/we\\x1b]x\\u{202e}b has AGENTS.md."), "{shown}");
    screen.send("n");
    screen.send(ENTER);
    assert_eq!(screen.wait_for_exit(), Some(0));
}

//! What the model is told: the system prompt, skills, and where a message came from (A5, A6, A7).

mod cli_support;

use capstan_testing::{ScriptedModel, ScriptedReply};
use cli_support::{CliFixture, entries_of_kind};
use serde_json::{Value, json};

fn write_skill(place: &CliFixture, name: &str, text: &str) {
    let folder = place.workspace().join(".agents/skills").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("SKILL.md"), text).unwrap();
}

fn write_release_notes_skill(place: &CliFixture) {
    write_skill(
        place,
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
fn a06_the_system_prompt_has_the_workspace_the_skills_and_the_tools_and_stays_the_same() {
    let server = ScriptedModel::start_blocking((0..3).map(|_| ScriptedReply::text("hi")).collect());
    let place = CliFixture::with_model(&server).with_message_context();
    std::fs::write(place.workspace().join("AGENTS.md"), "Speak softly.").unwrap();
    write_release_notes_skill(&place);
    for text in ["one", "two"] {
        place.capstan(&["run", text]).data();
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
    assert_eq!(prompt, system_prompt(&requests[1]), "the same to the last byte");
    assert_eq!(requests[0]["tools"], requests[1]["tools"]);
    let first = requests[0]["messages"].as_array().unwrap();
    assert_eq!(requests[1]["messages"].as_array().unwrap()[..first.len()], first[..], "what was said stays as it was");
    std::fs::write(place.workspace().join("AGENTS.md"), "Speak up.").unwrap();
    place.capstan(&["run", "three"]).data();
    assert!(system_prompt(&server.requests()[2]).contains("Speak up."));
}

#[test]
fn a07_a_message_tells_where_it_came_from_and_when_and_stands_on_the_tape_like_that() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("hi")]);
    let place = CliFixture::with_model(&server).with_message_context();
    place.capstan(&["run", "hello", "--chat-id", "42", "--sender-id", "ada"]).data();
    let requests = server.requests();
    let text = last_message_text(&requests[0]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[2]), ("channel: cli, chat: 42, from: ada", "hello"));
    assert!(lines[1].starts_with("---Date: 20") && lines[1].ends_with("+00:00---"), "{text}");
    let entries = place.tape("cli:42");
    assert_eq!(entries_of_kind(&entries, "message")[0]["payload"]["content"], json!(text));
}

#[test]
fn a07_a03_with_where_it_came_from_a_command_is_a_command_and_the_demo_model_repeats_what_was_said() {
    let place = CliFixture::new().with_message_context();
    assert!(place.capstan(&["run", ",tape.info"]).data().starts_with("tape: "));
    let said = place.capstan(&["run", "[[tool:bash cmd='echo one']] hello"]).succeeded().stdout;
    assert!(said.contains("bash answered:\none") && said.ends_with("You said: hello\n"), "{said}");
}

#[test]
fn a05_a_skill_is_read_by_its_tool_and_where_a_message_names_it() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([("call_1", "skill", json!({"name": "release-notes"}))]),
        ScriptedReply::text("done"),
        ScriptedReply::text("done"),
    ]);
    let place = CliFixture::with_model(&server);
    write_release_notes_skill(&place);
    place.capstan(&["run", "write the notes"]).succeeded();
    assert!(
        last_message_text(&server.requests()[1]).contains("<skill name=\"release-notes\""),
        "{}",
        server.requests()[1]
    );
    place.capstan(&["run", "use $release-notes for v2"]).succeeded();
    let requests = server.requests();
    let asked = last_message_text(&requests[2]);
    assert!(
        asked.starts_with("use $release-notes for v2\n\n<skill") && asked.contains("\nBe brief.\n</skill>"),
        "{asked}"
    );
    let none = place.capstan(&["run", ",skill nothing"]).stdout;
    assert!(none.contains("there is no skill \"nothing\"") && none.contains("release-notes, skill-creator"), "{none}");
}

#[test]
fn a05_skills_are_listed_shown_and_checked() {
    let place = CliFixture::new();
    assert_eq!(place.capstan(&["skills", "check"]).data(), "all 1 skills are valid\n");
    write_release_notes_skill(&place);
    let list = place.capstan(&["skills", "list"]).lines();
    assert_eq!(list[0], "release-notes  workspace  Writes release notes.");
    assert!(list[1].starts_with("skill-creator  built-in   How to write a skill"), "{list:?}");
    assert_eq!(place.capstan(&["skills", "show", "release-notes"]).data(), "Be brief.\n");
    let json = place.capstan(&["skills", "list", "--json"]).json();
    assert_eq!(json[0]["name"], "release-notes");
    place.capstan(&["skills", "show", "nothing"]).refused("skill-unknown", 2);
}

#[test]
fn a05_an_invalid_skill_is_reported_and_hurts_nobody() {
    let place = CliFixture::new();
    write_release_notes_skill(&place);
    write_skill(&place, "broken", "no head");
    let run = place.capstan(&["run", "hello"]).succeeded();
    assert!(
        run.stderr.contains("broken/SKILL.md is ignored: the file does not start with front matter"),
        "{}",
        run.stderr
    );
    let check = place.capstan(&["skills", "check"]).failed("skill-invalid", 1);
    assert!(check.stdout.contains("broken/SKILL.md: the file does not start"), "{}", check.stdout);
    let check = place.capstan(&["skills", "check", "--json"]);
    let json: Value = serde_json::from_str(&check.stdout).unwrap();
    assert_eq!((&json["valid"][0], &json["invalid"][0]["origin"]), (&json!("release-notes"), &json!("workspace")));
    let list = place.capstan(&["skills", "list"]).succeeded();
    assert!(list.stderr.contains("1 not used"), "{}", list.stderr);
    place.capstan(&["skills", "show", "broken"]).refused("skill-invalid", 2);
}

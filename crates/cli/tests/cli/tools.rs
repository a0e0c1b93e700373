//! Built-in tools of the real binary: files, background jobs, the model of a session, the tape.

use std::path::Path;

use crate::support::{CliFixture, StdioServer, entries_named, entries_of_kind};
use capstan_testing::{ScriptedModel, ScriptedReply, send_signal};
use serde_json::{Value, json};

/// The reply to a message or a command.
fn run_message(fixture: &CliFixture, message: &str) -> String {
    fixture.capstan(&["run", message]).succeeded().stdout
}

/// Checks if a process is running. A killed process that was not reaped is not.
fn is_process_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

fn wait_for_process_exit(pid: &str) {
    while is_process_running(pid) {
        std::thread::yield_now();
    }
}

#[test]
fn a04_files_are_written_edited_and_read() {
    let fixture = CliFixture::new();
    assert_eq!(run_message(&fixture, ",fs.write notes/a.txt 'one two'"), "created notes/a.txt (1 line, 7 bytes)\n");
    let edited = run_message(&fixture, ",fs.edit notes/a.txt two three");
    assert_eq!(edited, "edited notes/a.txt\n@@ line 1 @@\n-one two\n+one three\n");
    assert_eq!(run_message(&fixture, ",fs.read notes/a.txt"), "one three\n");
}

#[test]
fn a04_background_job_runs_across_messages_and_ends_with_the_host() {
    let fixture = CliFixture::new();
    let mut stdio = StdioServer::start(&fixture);
    let ask = |stdio: &mut StdioServer, session: &str, text: &str| -> String {
        let answer = stdio.send_and_recv(&json!({"session": session, "text": text}));
        answer["text"].as_str().unwrap().to_owned()
    };
    let started = ask(&mut stdio, "a", ",bash 'echo $$; exec sleep 1000' background=true");
    assert!(started.starts_with("job-1 runs in the background"), "{started}");
    let mut output = String::new();
    while !output.contains('\n') {
        output = ask(&mut stdio, "a", ",bash.output job-1");
    }
    let (pid, status) = output.split_once('\n').unwrap();
    assert!(is_process_running(pid) && status == "[job-1 is running]", "{output}");
    assert!(ask(&mut stdio, "b", ",bash.output").contains("no background jobs"), "another session has its own jobs");
    assert!(ask(&mut stdio, "b", ",bash.kill job-1").contains("there is no job job-1"));
    let other = ask(&mut stdio, "a", ",bash 'exec sleep 1000' background=true");
    assert!(other.starts_with("job-2"), "{other}");
    assert_eq!(ask(&mut stdio, "a", ",bash.kill job-2"), "[job-2 was killed]");
    let end = stdio.close();
    assert_eq!(end.code, Some(0), "{end:?}");
    wait_for_process_exit(pid);
}

#[test]
fn a04_background_job_does_not_outlive_a_killed_host() {
    let fixture = CliFixture::new();
    let mut stdio = StdioServer::start(&fixture);
    stdio.send_and_recv(&json!({"session": "a", "text": ",bash 'echo $$ > pid; exec sleep 1000' background=true"}));
    let pid = || std::fs::read_to_string(fixture.workspace().join("pid")).unwrap_or_default().trim().to_owned();
    while pid().is_empty() {
        std::thread::yield_now();
    }
    stdio.signal("KILL");
    wait_for_process_exit(&pid());
    assert_eq!(stdio.wait_for_exit().code, None);
}

#[test]
fn a04_cancelled_run_leaves_no_process() {
    let fixture = CliFixture::new();
    let pids = fixture.workspace().join("pids");
    let command = "(setsid bash -c 'echo $$; exec sleep 1000' >> pids &); echo $$ >> pids; exec sleep 1000";
    let child = fixture.command(&["run", &format!(",bash \"{command}\"").replace("$$", "\\$\\$")]).spawn().unwrap();
    let written = || std::fs::read_to_string(&pids).unwrap_or_default();
    while written().lines().count() < 2 {
        std::thread::yield_now();
    }
    send_signal(child.id(), "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    written().lines().for_each(wait_for_process_exit);
}

#[test]
fn a08_session_can_have_its_own_model() {
    let server = ScriptedModel::start_blocking((0..4).map(|_| ScriptedReply::text("hi")).collect());
    let fixture = CliFixture::with_model(&server);
    assert_eq!(run_message(&fixture, ",model"), "openai:scripted (the default)\n");
    assert_eq!(run_message(&fixture, ",model openai:other"), "this conversation uses openai:other from now on\n");
    assert_eq!(run_message(&fixture, ",model"), "openai:other (chosen for this conversation)\n");
    run_message(&fixture, "one");
    fixture.capstan(&["run", "two", "--session-id", "another"]).succeeded();
    assert!(fixture.capstan(&["run", ",model missing:x"]).stdout.contains("no model provider \"missing\""));
    assert!(fixture.capstan(&["run", ",model nonsense"]).stdout.contains("provider:name"));
    run_message(&fixture, "three");
    run_message(&fixture, ",model default");
    run_message(&fixture, "four");
    let models: Vec<Value> = server.requests().iter().map(|request| request["model"].clone()).collect();
    assert_eq!(models, ["other", "scripted", "other", "scripted"]);
    fixture.assert_undamaged();
}

#[test]
fn p11_tape_reset_command_starts_a_new_generation() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text("noted"),
        ScriptedReply::text("what word?"),
        ScriptedReply::tool_calls([("call_1", "tape_reset", json!({}))]),
        ScriptedReply::text("I may not"),
    ]);
    let fixture = CliFixture::with_model(&server);
    run_message(&fixture, "the word is anchor");
    assert_eq!(
        run_message(&fixture, ",tape.reset archive=true"),
        "the conversation was reset; the old one is archived\n"
    );
    run_message(&fixture, "what was the word?");
    let second = server.requests()[1]["messages"].to_string();
    assert!(!second.contains("anchor\""), "the context contains none of it: {second}");
    let old = fixture.capstan(&["tape", "export", "cli:local", "--generation", "1"]).succeeded().stdout;
    assert!(old.contains("the word is anchor"), "it stays readable");
    let entries = fixture.entries();
    assert_eq!(entries_named(&entries, "session/start").len(), 1);
    run_message(&fixture, "forget everything");
    let entries = fixture.entries();
    let refused = entries_of_kind(&entries, "tool_result")[0].to_string();
    assert!(refused.contains("there is no tool tape_reset"), "{refused}");
    fixture.assert_undamaged();
    fixture.capstan(&["doctor"]).succeeded();
}

#[test]
fn a04_quit_command_does_nothing_outside_a_chat() {
    let fixture = CliFixture::new();
    assert!(run_message(&fixture, ",quit").contains("no chat to leave"));
    let help = run_message(&fixture, ",help");
    for tool in ["bash.output", "bash.kill", "fs.write", "fs.edit", "web.fetch", "tape.reset", "skill", "model", "quit"]
    {
        assert!(help.contains(&format!("  ,{tool}")), "{tool}: {help}");
    }
}

#[test]
fn a04_models_are_not_offered_the_commands_that_are_for_people() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("hi")]);
    let fixture = CliFixture::with_model(&server);
    run_message(&fixture, "hello");
    let request = &server.requests()[0];
    let names: Vec<&str> =
        request["tools"].as_array().unwrap().iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
    assert!(names.contains(&"bash") && names.contains(&"tape_handoff"), "{names:?}");
    for name in ["quit", "model", "tape_reset", "help"] {
        assert!(!names.contains(&name), "{name} in {names:?}");
    }
    let help = run_message(&fixture, ",help");
    for command in [",quit", ",model", ",tape.reset", ",help"] {
        assert!(help.contains(&format!("  {command}")), "{command}: {help}");
    }
}

#[test]
fn a07_g02_sent_video_reaches_the_model_as_a_line_with_its_address() {
    let server = ScriptedModel::start_blocking(vec![ScriptedReply::text("seen")]);
    let fixture = CliFixture::with_model(&server);
    let video = json!({"type": "video_url", "video_url": {"url": "https://videos.example/a.mp4"}});
    let event = json!({
        "source": "cli", "event_type": "message.received", "conversation_id": "local",
        "input": {"text": "watch", "contents": [video]},
    });
    fixture.capstan_with_input(&["events", "send", "-"], event.to_string().as_bytes()).succeeded();
    let sent = server.requests()[0]["messages"].to_string();
    assert!(sent.contains("[video: https://videos.example/a.mp4]"), "{sent}");
}

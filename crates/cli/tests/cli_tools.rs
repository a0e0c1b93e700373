//! The built-in tools through the real binary: files, jobs in the background, the model of a session, the tape.

mod cli_support;

use std::path::Path;

use capstan_testing::{ScriptedModel, ScriptedReply, send_signal};
use cli_support::{CliFixture, StdioServer, entries_named, entries_of_kind};
use serde_json::{Value, json};

/// The reply to a message or a command.
fn run_message(place: &CliFixture, message: &str) -> String {
    place.capstan(&["run", message]).succeeded().stdout
}

/// Whether a process runs. One that was killed and not reaped does not.
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
    let place = CliFixture::new();
    assert_eq!(run_message(&place, ",fs.write notes/a.txt 'one two'"), "created notes/a.txt (1 lines, 7 bytes)\n");
    let edited = run_message(&place, ",fs.edit notes/a.txt two three");
    assert_eq!(edited, "edited notes/a.txt\n@@ line 1 @@\n-one two\n+one three\n");
    assert_eq!(run_message(&place, ",fs.read notes/a.txt"), "one three\n");
}

#[test]
fn a04_a_job_in_the_background_goes_on_between_messages_and_ends_with_the_host() {
    let place = CliFixture::new();
    let mut wire = StdioServer::start(&place);
    let ask = |wire: &mut StdioServer, session: &str, text: &str| -> String {
        let answer = wire.send_and_recv(&json!({"session": session, "text": text}));
        answer["text"].as_str().unwrap().to_owned()
    };
    let begun = ask(&mut wire, "a", ",bash 'echo $$; exec sleep 1000' background=true");
    assert!(begun.starts_with("job-1 runs in the background"), "{begun}");
    let mut said = String::new();
    while !said.contains('\n') {
        said = ask(&mut wire, "a", ",bash.output job-1");
    }
    let (pid, status) = said.split_once('\n').unwrap();
    assert!(is_process_running(pid) && status == "[job-1 is running]", "{said}");
    assert!(ask(&mut wire, "b", ",bash.output").contains("no background jobs"), "another session has jobs of its own");
    assert!(ask(&mut wire, "b", ",bash.kill job-1").contains("there is no job job-1"));
    let other = ask(&mut wire, "a", ",bash 'exec sleep 1000' background=true");
    assert!(other.starts_with("job-2"), "{other}");
    assert_eq!(ask(&mut wire, "a", ",bash.kill job-2"), "[job-2 was killed]");
    let end = wire.close();
    assert_eq!(end.code, Some(0), "{end:?}");
    wait_for_process_exit(pid);
}

#[test]
fn a04_a_job_in_the_background_does_not_outlive_a_host_that_is_killed() {
    let place = CliFixture::new();
    let mut wire = StdioServer::start(&place);
    wire.send_and_recv(&json!({"session": "a", "text": ",bash 'echo $$ > pid; exec sleep 1000' background=true"}));
    let pid = || std::fs::read_to_string(place.workspace().join("pid")).unwrap_or_default().trim().to_owned();
    while pid().is_empty() {
        std::thread::yield_now();
    }
    wire.signal("KILL");
    wait_for_process_exit(&pid());
    assert_eq!(wire.wait_for_exit().code, None);
}

#[test]
fn a04_a_run_that_is_cancelled_leaves_nothing_running() {
    let place = CliFixture::new();
    let pids = place.workspace().join("pids");
    let command = "(setsid bash -c 'echo $$; exec sleep 1000' >> pids &); echo $$ >> pids; exec sleep 1000";
    let child = place.command(&["run", &format!(",bash \"{command}\"").replace("$$", "\\$\\$")]).spawn().unwrap();
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
fn a08_a_session_can_use_a_model_of_its_own() {
    let server = ScriptedModel::start_blocking((0..4).map(|_| ScriptedReply::text("hi")).collect());
    let place = CliFixture::with_model(&server);
    assert_eq!(run_message(&place, ",model"), "openai:scripted (the default)\n");
    assert_eq!(run_message(&place, ",model openai:other"), "this conversation uses openai:other from now on\n");
    assert_eq!(run_message(&place, ",model"), "openai:other (chosen for this conversation)\n");
    run_message(&place, "one");
    place.capstan(&["run", "two", "--session-id", "another"]).succeeded();
    assert!(place.capstan(&["run", ",model nobody:x"]).stdout.contains("no model provider \"nobody\""));
    assert!(place.capstan(&["run", ",model nonsense"]).stdout.contains("provider:name"));
    run_message(&place, "three");
    run_message(&place, ",model default");
    run_message(&place, "four");
    let models: Vec<Value> = server.requests().iter().map(|request| request["model"].clone()).collect();
    assert_eq!(models, ["other", "scripted", "other", "scripted"]);
    place.assert_undamaged();
}

#[test]
fn p11_a_person_can_begin_the_tape_anew() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text("noted"),
        ScriptedReply::text("what word?"),
        ScriptedReply::tool_calls([("call_1", "tape_reset", json!({}))]),
        ScriptedReply::text("I may not"),
    ]);
    let place = CliFixture::with_model(&server);
    run_message(&place, "the word is anchor");
    assert_eq!(
        run_message(&place, ",tape.reset archive=true"),
        "the conversation starts over; the old one is archived\n"
    );
    run_message(&place, "what was the word?");
    let second = server.requests()[1]["messages"].to_string();
    assert!(!second.contains("anchor\""), "nothing of it is in the context: {second}");
    let old = place.capstan(&["tape", "export", "cli:local", "--generation", "1"]).succeeded().stdout;
    assert!(old.contains("the word is anchor"), "it stays readable");
    let entries = place.entries();
    assert_eq!(entries_named(&entries, "session/start").len(), 1);
    run_message(&place, "forget everything");
    let entries = place.entries();
    let refused = entries_of_kind(&entries, "tool_result")[0].to_string();
    assert!(refused.contains("only a person"), "{refused}");
    place.assert_undamaged();
    place.capstan(&["doctor"]).succeeded();
}

#[test]
fn a04_quit_is_known_and_does_no_harm_where_there_is_no_chat() {
    let place = CliFixture::new();
    assert!(run_message(&place, ",quit").contains("no chat to leave"));
    let help = run_message(&place, ",help");
    for tool in ["bash.output", "bash.kill", "fs.write", "fs.edit", "web.fetch", "tape.reset", "skill", "model", "quit"]
    {
        assert!(help.contains(&format!("  ,{tool}")), "{tool}: {help}");
    }
}

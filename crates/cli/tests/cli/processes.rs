//! Several processes: killed ones, and concurrent ones.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    BinaryOutput, CliFixture, StdioServer, entries_named, entries_of_kind, hold_pipe_reader, make_pipe,
    wait_for_barrier,
};
use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply, send_signal};
use serde_json::{Value, json};

#[test]
fn x02_session_of_a_killed_process_is_available_at_once() {
    let barrier = ReplyBarrier::new();
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::text("never received completely").with_barrier(&barrier),
        ScriptedReply::text("a late reply"),
        ScriptedReply::text("still here"),
        ScriptedReply::text("and again"),
    ]);
    // If the lease of the dead process were still valid, the run would fail without waiting.
    let fixture = CliFixture::with_model(&server).set("CAPSTAN_SESSION_WAIT_SECONDS", "0");
    let mut killed = fixture.command(&["run", "first"]).spawn().unwrap();
    wait_for_barrier(&barrier);
    killed.kill().unwrap();
    assert_eq!(BinaryOutput::from(killed.wait_with_output().unwrap()).code, None, "ended by the signal");

    assert_eq!(fixture.capstan(&["run", "second"]).data(), "still here\n");
    assert_eq!(fixture.capstan(&["run", "third"]).data(), "and again\n");
    assert_eq!(server.violations(), Vec::<String>::new());
    let entries = fixture.entries();
    let user_messages: Vec<&Value> =
        entries_of_kind(&entries, "message").iter().map(|entry| &entry["payload"]["content"]).collect();
    assert_eq!(user_messages, ["first", "a late reply", "second", "still here", "third", "and again"]);
    fixture.capstan(&["tape", "show", "cli:local"]).data();
    fixture.assert_undamaged();
    barrier.release();
}

#[test]
fn x02_tool_call_interrupted_by_a_kill_is_closed_and_not_repeated() {
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::tool_calls([("call_1", "bash", json!({"cmd": "echo made >> effects; cat pipe"}))]),
        ScriptedReply::text("I see it was interrupted."),
    ]);
    let fixture = CliFixture::with_model(&server).set("CAPSTAN_SESSION_WAIT_SECONDS", "0");
    let pipe = fixture.workspace().join("pipe");
    make_pipe(&pipe);
    let mut killed = fixture.command(&["run", "first"]).spawn().unwrap();
    let pipe_writer = hold_pipe_reader(&pipe);
    killed.kill().unwrap();
    killed.wait().unwrap();
    drop(pipe_writer);

    assert_eq!(fixture.capstan(&["run", "second"]).data(), "I see it was interrupted.\n");
    assert_eq!(server.violations(), Vec::<String>::new());
    let messages = server.requests()[1]["messages"].clone();
    let answer = messages.as_array().unwrap().iter().find(|message| message["role"] == "tool").expect("a result");
    assert_eq!(answer["tool_call_id"], "call_1");
    assert!(answer["content"].as_str().unwrap().contains("interrupted"), "{answer}");
    assert_eq!(std::fs::read_to_string(fixture.workspace().join("effects")).unwrap(), "made\n");
    fixture.assert_undamaged();
}

#[test]
fn t13_x04_turns_of_several_processes_on_one_session_do_not_interleave() {
    const PROCESS_COUNT: usize = 6;
    let server = ScriptedModel::start_blocking_with(|request, _| {
        let messages = request["messages"].as_array().expect("messages");
        let last = messages.last().expect("a message");
        let text = last["content"].as_str().unwrap_or_default();
        if last["role"] == "tool" {
            return ScriptedReply::text(format!("done with {text}"));
        }
        ScriptedReply::tool_calls([(format!("call_{text}"), "bash".to_owned(), json!({"cmd": format!("echo {text}")}))])
    });
    let fixture = CliFixture::with_model(&server);
    let start = |number| fixture.command(&["run", &format!("m{number}"), "--json"]).spawn().unwrap();
    let processes: Vec<Child> = (0..PROCESS_COUNT).map(start).collect();
    let mut runs = BTreeSet::new();
    for (number, process) in processes.into_iter().enumerate() {
        let output = BinaryOutput::from(process.wait_with_output().unwrap()).json();
        assert_eq!(output["output"], format!("done with m{number}"));
        runs.insert(output["run_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(runs.len(), PROCESS_COUNT);
    assert_eq!(server.violations(), Vec::<String>::new());

    let entries = fixture.entries();
    assert_eq!(entries_of_kind(&entries, "anchor").len(), 1, "started once");
    assert_eq!(entries_named(&entries, "event.accepted").len(), PROCESS_COUNT);
    for run in &runs {
        let is_own = |entry: &Value| entry["meta"]["run_id"] == **run;
        let first = entries.iter().position(is_own).expect("a first entry");
        let last = entries.iter().rposition(is_own).expect("a last entry");
        let strangers: Vec<&Value> = entries[first..=last]
            .iter()
            .filter(|entry| !is_own(entry) && entry["payload"]["name"] != "event.accepted")
            .collect();
        assert_eq!(strangers, Vec::<&Value>::new());
        let own: Vec<Value> = entries[first..=last].iter().filter(|entry| is_own(entry)).cloned().collect();
        assert_eq!(entries_of_kind(&own, "message").len(), 2);
        assert_eq!((entries_of_kind(&own, "tool_call").len(), entries_of_kind(&own, "tool_result").len()), (1, 1));
    }
    assert_eq!(fixture.outcomes(), (6, 0));
    fixture.assert_undamaged();
}

/// Resumes and kills a stopped host when a test fails; otherwise it would stay forever.
struct StoppableProcess(Option<Child>);

impl StoppableProcess {
    fn signal(&self, name: &str) {
        send_signal(self.0.as_ref().map(Child::id).unwrap(), name);
    }

    fn wait_for_exit(mut self) -> BinaryOutput {
        BinaryOutput::from(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for StoppableProcess {
    fn drop(&mut self) {
        if let Some(host) = &mut self.0 {
            host.kill().unwrap();
        }
    }
}

#[test]
fn a04_command_that_ended_while_its_host_was_stopped_did_not_time_out() {
    const BASH_TIMEOUT: Duration = Duration::from_secs(2);
    let fixture = CliFixture::new();
    // The command stops its host itself, so it cannot have timed out by then. A thread that still runs
    // could reap the command, so the command ends only when every thread has stopped.
    let command = "kill -STOP $PPID; while grep -h ^State /proc/$PPID/task/*/status | grep -qv T; do :; done; \
                   echo $$ > pid; echo finished";
    let text = format!("[[tool:bash cmd=\"{command}\" timeout_seconds={}]]", BASH_TIMEOUT.as_secs());
    let mut host = fixture.command(&["run", &text]);
    let host = StoppableProcess(Some(host.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()));
    let wait_until = |condition: &dyn Fn() -> bool| {
        let started = Instant::now();
        while !condition() {
            assert!(started.elapsed() < Duration::from_mins(1), "not reached");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let pid = fixture.workspace().join("pid");
    let leader = || std::fs::read_to_string(&pid).ok().filter(|text| text.ends_with('\n'));
    wait_until(&|| leader().is_some());
    let (stopped, stat) = (Instant::now(), format!("/proc/{}/stat", leader().unwrap().trim()));
    // The command has ended, and its host learns of that only together with the timeout.
    wait_until(&|| std::fs::read_to_string(&stat).unwrap().contains(") Z ") && stopped.elapsed() > BASH_TIMEOUT * 2);
    host.signal("CONT");
    let output = host.wait_for_exit();
    assert_eq!(output.code, Some(0), "{output:?}");
    let results = fixture.entries();
    let result = entries_of_kind(&results, "tool_result")[0]["payload"].to_string();
    assert!(result.contains("finished") && !result.contains("timed out after"), "{result}");
}

/// A model whose first reply waits for `barrier`; the others do not.
fn model_with_held_first_reply(barrier: &ReplyBarrier) -> ScriptedModel {
    let barrier = barrier.clone();
    ScriptedModel::start_blocking_with(move |_, number| match number {
        0 => ScriptedReply::text("from the first").with_barrier(&barrier),
        _ => ScriptedReply::text("from the second"),
    })
}

#[test]
fn x04_caller_of_a_host_that_lost_its_lease_gets_the_recorded_outcome() {
    let barrier = ReplyBarrier::new();
    let model = model_with_held_first_reply(&barrier);
    let fixture = CliFixture::with_model(&model);
    let mut first = StdioServer::start(&fixture);
    first.send_line(&json!({"id": "a", "session": "s", "text": "hello", "event_id": "a"}));
    wait_for_barrier(&barrier);
    // A stopped process cannot create its lock file again.
    first.signal("STOP");
    for file in std::fs::read_dir(fixture.home().join("owners")).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let second = StdioServer::start(&fixture);
    while fixture.outcomes() != (1, 0) {
        std::thread::sleep(Duration::from_millis(20));
    }
    first.signal("CONT");
    barrier.release();
    let line = first.recv_line();
    assert_eq!(
        (&line["id"], &line["outcome"], &line["text"]),
        (&json!("a"), &json!("replied"), &json!("from the second"))
    );
    assert_eq!(line["duplicate"], Value::Null, "the line was sent once");
    let output = first.close();
    assert_eq!((output.stdout.as_str(), output.code), ("", Some(0)), "one answer: {}", output.stderr);
    assert_eq!(second.close().stdout, "");
    let database = rusqlite::Connection::open(fixture.database()).unwrap();
    let statuses: String = database.query_row("SELECT group_concat(status) FROM outbox", [], |row| row.get(0)).unwrap();
    assert_eq!(statuses, r#"{"status":"sent"}"#, "the caller has the message");
    fixture.assert_undamaged();
}

#[test]
fn x04_host_whose_lock_file_was_removed_is_not_taken_for_dead() {
    let barrier = ReplyBarrier::new();
    let model = model_with_held_first_reply(&barrier);
    let fixture = CliFixture::with_model(&model);
    let mut first = StdioServer::start(&fixture);
    first.send_line(&json!({"id": "a", "session": "s", "text": "hello", "event_id": "a"}));
    wait_for_barrier(&barrier);
    std::fs::remove_dir_all(fixture.home().join("owners")).unwrap();
    let mut second = StdioServer::start(&fixture);
    // Orphaned events are recovered before new lines are read.
    let other = second.send_and_recv(&json!({"id": "b", "session": "other", "text": "hello"}));
    assert_eq!(other["text"], "from the second");
    assert_eq!(fixture.outcomes(), (1, 1), "the second host leaves the event to the first");
    barrier.release();
    let line = first.recv_line();
    assert_eq!((&line["outcome"], &line["text"]), (&json!("replied"), &json!("from the first")));
    first.close().succeeded();
    second.close().succeeded();
    assert_eq!(model.requests().len(), 2);
    fixture.assert_undamaged();
}

//! More than one process: one that is killed, and several at once.

mod cli_support;

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use capstan_testing::{Gate, Reply, ScriptedModel};
use cli_support::{Place, Said, hold_reader_of, make_pipe, named, of_kind, wait_for};
use serde_json::{Value, json};

#[test]
fn x02_a_killed_process_leaves_a_session_that_goes_on_at_once() {
    let gate = Gate::new();
    let server = ScriptedModel::start_blocking(vec![
        Reply::text("never heard to its end").held_at(&gate),
        Reply::text("late, but there"),
        Reply::text("still here"),
        Reply::text("and again"),
    ]);
    // Were the lease of the dead process still good, there would be no waiting for it.
    let place = Place::with_model(&server).set("CAPSTAN_SESSION_WAIT_SECONDS", "0");
    let mut killed = place.command(&["run", "first"]).spawn().unwrap();
    wait_for(&gate);
    killed.kill().unwrap();
    assert_eq!(Said::from(killed.wait_with_output().unwrap()).code, None, "ended by the signal");

    assert_eq!(place.capstan(&["run", "second"]).data(), "still here\n");
    assert_eq!(place.capstan(&["run", "third"]).data(), "and again\n");
    assert_eq!(server.violations(), Vec::<String>::new());
    let entries = place.entries();
    let asked: Vec<&Value> = of_kind(&entries, "message").iter().map(|entry| &entry["payload"]["content"]).collect();
    assert_eq!(asked, ["first", "late, but there", "second", "still here", "third", "and again"]);
    place.capstan(&["tape", "show", "cli:local"]).data();
    place.assert_undamaged();
    gate.open();
}

#[test]
fn x02_a_tool_call_cut_off_by_a_kill_is_closed_in_the_next_view_and_not_made_again() {
    let server = ScriptedModel::start_blocking(vec![
        Reply::tool_calls([("call_1", "bash", json!({"cmd": "echo made >> effects; cat pipe"}))]),
        Reply::text("I see it was interrupted."),
    ]);
    let place = Place::with_model(&server).set("CAPSTAN_SESSION_WAIT_SECONDS", "0");
    let pipe = place.workspace().join("pipe");
    make_pipe(&pipe);
    let mut killed = place.command(&["run", "first"]).spawn().unwrap();
    let held = hold_reader_of(&pipe);
    killed.kill().unwrap();
    killed.wait().unwrap();
    drop(held);

    assert_eq!(place.capstan(&["run", "second"]).data(), "I see it was interrupted.\n");
    assert_eq!(server.violations(), Vec::<String>::new());
    let messages = server.requests()[1]["messages"].clone();
    let answer = messages.as_array().unwrap().iter().find(|message| message["role"] == "tool").expect("a result");
    assert_eq!(answer["tool_call_id"], "call_1");
    assert!(answer["content"].as_str().unwrap().contains("interrupted"), "{answer}");
    assert_eq!(std::fs::read_to_string(place.workspace().join("effects")).unwrap(), "made\n");
    place.assert_undamaged();
}

#[test]
fn t13_x04_turns_of_several_processes_on_one_session_do_not_interleave() {
    const PROCESSES: usize = 6;
    let server = ScriptedModel::start_blocking_with(|request, _| {
        let messages = request["messages"].as_array().expect("messages");
        let last = messages.last().expect("a message");
        let text = last["content"].as_str().unwrap_or_default();
        if last["role"] == "tool" {
            return Reply::text(format!("done with {text}"));
        }
        Reply::tool_calls([(format!("call_{text}"), "bash".to_owned(), json!({"cmd": format!("echo {text}")}))])
    });
    let place = Place::with_model(&server);
    let start = |number| place.command(&["run", &format!("m{number}"), "--json"]).spawn().unwrap();
    let processes: Vec<Child> = (0..PROCESSES).map(start).collect();
    let mut runs = BTreeSet::new();
    for (number, process) in processes.into_iter().enumerate() {
        let said = Said::from(process.wait_with_output().unwrap()).json();
        assert_eq!(said["output"], format!("done with m{number}"));
        runs.insert(said["run_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(runs.len(), PROCESSES);
    assert_eq!(server.violations(), Vec::<String>::new());

    let entries = place.entries();
    assert_eq!(of_kind(&entries, "anchor").len(), 1, "begun once");
    assert_eq!(named(&entries, "event.accepted").len(), PROCESSES);
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
        assert_eq!(of_kind(&own, "message").len(), 2);
        assert_eq!((of_kind(&own, "tool_call").len(), of_kind(&own, "tool_result").len()), (1, 1));
    }
    assert_eq!(place.outcomes(), (6, 0));
    place.assert_undamaged();
}

/// A host that is stopped when something goes wrong would stay for good.
struct Continued(Option<Child>);

impl Continued {
    fn signal(&self, name: &str) {
        let id = self.0.as_ref().map(Child::id).unwrap().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    fn ended(mut self) -> Said {
        Said::from(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Continued {
    fn drop(&mut self) {
        if let Some(host) = &mut self.0 {
            host.kill().unwrap();
        }
    }
}

#[test]
fn a04_a_command_that_ended_while_its_host_was_stopped_did_not_run_out_of_time() {
    const LIMIT: Duration = Duration::from_secs(2);
    let place = Place::new();
    // It stops its host itself, so it cannot have run out of time by then.
    let command = "kill -STOP $PPID; echo $$ > pid; echo finished";
    let text = format!("[[tool:bash cmd=\"{command}\" timeout_seconds={}]]", LIMIT.as_secs());
    let mut host = place.command(&["run", &text]);
    let host = Continued(Some(host.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()));
    let until = |is_so: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_mins(1), "it does not come to that");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let pid = place.workspace().join("pid");
    let leader = || std::fs::read_to_string(&pid).ok().filter(|text| text.ends_with('\n'));
    until(&|| leader().is_some());
    let (stopped, stat) = (Instant::now(), format!("/proc/{}/stat", leader().unwrap().trim()));
    // It has ended, and its host can only learn of it together with its time being up.
    until(&|| std::fs::read_to_string(&stat).unwrap().contains(") Z ") && stopped.elapsed() > LIMIT * 2);
    host.signal("-CONT");
    let said = host.ended();
    assert_eq!(said.code, Some(0), "{said:?}");
    let results = place.entries();
    let result = of_kind(&results, "tool_result")[0]["payload"].to_string();
    assert!(result.contains("finished") && !result.contains("ended after"), "{result}");
}

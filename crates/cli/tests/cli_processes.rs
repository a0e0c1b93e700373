//! More than one process: one that is killed, and several at once.

mod cli_support;

use std::collections::BTreeSet;
use std::process::Child;
use std::time::Duration;

use capstan_testing::{Gate, Reply, ScriptedModel};
use cli_support::{Place, Said, named, of_kind};
use serde_json::Value;

/// Waits until an answer stands at the gate. The limit only ends a test that would hang.
fn wait_for(gate: &Gate) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let reached = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), gate.reached()).await });
    reached.expect("an answer comes to the gate");
}

#[test]
fn x02_a_killed_process_leaves_a_session_that_goes_on_at_once() {
    let gate = Gate::new();
    let server = ScriptedModel::start_blocking(vec![
        Reply::text("never heard to its end").held_at(&gate),
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
    assert_eq!(asked, ["first", "second", "still here", "third", "and again"]);
    place.capstan(&["tape", "show", "cli:local"]).data();
    place.assert_undamaged();
    gate.open();
}

#[test]
fn x02_a_tool_call_cut_off_by_a_kill_is_closed_in_the_next_view_and_not_made_again() {
    let gate = Gate::new();
    let server = ScriptedModel::start_blocking(vec![
        Reply::tool_calls([("call_1", "bash", serde_json::json!({"cmd": "echo made >> effects; sleep 600"}))]),
        Reply::text("I see it was interrupted.").held_at(&gate),
    ]);
    let place = Place::with_model(&server).set("CAPSTAN_SESSION_WAIT_SECONDS", "0");
    let mut killed = place.command(&["run", "first"]).spawn().unwrap();
    let effects = place.workspace().join("effects");
    while !effects.exists() {
        assert!(killed.try_wait().unwrap().is_none(), "it runs until it is killed");
        std::thread::yield_now();
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    gate.open();

    assert_eq!(place.capstan(&["run", "second"]).data(), "I see it was interrupted.\n");
    assert_eq!(server.violations(), Vec::<String>::new());
    let messages = server.requests()[1]["messages"].clone();
    let answer = messages.as_array().unwrap().iter().find(|message| message["role"] == "tool").expect("a result");
    assert_eq!(answer["tool_call_id"], "call_1");
    assert!(answer["content"].as_str().unwrap().contains("interrupted"), "{answer}");
    assert_eq!(std::fs::read_to_string(effects).unwrap(), "made\n");
    place.assert_undamaged();
}

#[test]
fn t13_x04_turns_of_several_processes_on_one_session_do_not_interleave() {
    const PROCESSES: usize = 6;
    let server = ScriptedModel::start_blocking_with(|request, _| {
        let messages = request["messages"].as_array().expect("messages");
        let last = messages.last().expect("a message");
        match last["role"].as_str() {
            Some("tool") => Reply::text(format!("done with {}", last["content"].as_str().unwrap_or_default())),
            _ => {
                let text = last["content"].as_str().unwrap_or_default();
                let command = serde_json::json!({"cmd": format!("echo {text}")});
                Reply::tool_calls([(format!("call_{text}"), "bash".to_owned(), command)])
            }
        }
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
    assert_eq!(place.outcomes(), (PROCESSES as u64, 0));
    place.assert_undamaged();
}

use capstan_protocol::{
    BindingId, EntryId, EventKey, Outcome, RunId, RunnerId, SessionId, TapeName, Timestamp, ToolCall, ToolOutput,
};
use capstan_tape::{Draft, Entry, InFlight, RunRecord, RunStatus, TakenIn};
use serde_json::json;

use super::{COMMAND, COMMAND_START, Verdict, judge, open_calls, together};

fn key(id: &str) -> EventKey {
    EventKey { source: "wire".into(), bot_id: String::new(), event_id: id.into() }
}

/// An event that a dead process left; a run may have taken it in.
fn left(id: &str, entry: u64, run: Option<&str>) -> InFlight {
    InFlight {
        key: key(id),
        session: SessionId::new("s"),
        tape: TapeName::parse("t").unwrap(),
        entry: EntryId(entry),
        at: Timestamp::from_millis(0),
        owner: Some("dead".to_owned()),
        adoptions: 0,
        taken_in: run.map(|run| TakenIn { run_id: RunId::new(run), message: EntryId(entry + 10) }),
    }
}

fn run(id: &str, event: &str) -> RunRecord {
    RunRecord {
        run_id: RunId::new(id),
        session: SessionId::new("s"),
        tape: TapeName::parse("t").unwrap(),
        begins_after: EntryId(0),
        parent: None,
        event: key(event),
        others: Vec::new(),
        binding: BindingId::new("default"),
        runner: RunnerId::new("builtin:agent"),
        grant: crate::runs::grant::compute(
            &capstan_protocol::Authority::all(),
            &crate::default_binding(),
            crate::runs::grant::Scope::from(&capstan_protocol::Event::message("wire", "1", "hi")),
        ),
        status: RunStatus::Running,
        started_at: Timestamp::from_millis(0),
        ended_at: None,
        usage: None,
        bypasses_host: false,
        cancel_requested: false,
    }
}

fn on_tape(drafts: Vec<Draft>) -> Vec<Entry> {
    let run_id = RunId::new("r");
    let entry =
        |(id, draft): (u64, Draft)| draft.of_run(&run_id).into_entry(EntryId(id), Timestamp::from_millis(0), &[]);
    (1..).zip(drafts).map(entry).collect()
}

fn call(id: &str, name: &str) -> ToolCall {
    ToolCall::new(id, name, "{}")
}

fn open(drafts: Vec<Draft>) -> Vec<String> {
    open_calls(&RunId::new("r"), &on_tape(drafts))
}

fn notice(verdict: Verdict) -> String {
    match verdict {
        Verdict::GivenUp(notice) => notice,
        Verdict::TakenUp | Verdict::Ended(_) => panic!("it was not given up"),
    }
}

#[test]
fn a09_the_events_of_a_run_return_together_and_the_others_alone() {
    let events = vec![left("a", 1, Some("r1")), left("b", 2, None), left("c", 3, Some("r1")), left("d", 4, None)];
    let groups = together(events, &[run("r1", "a"), run("r2", "d")]);
    let told: Vec<(Option<&str>, Vec<&str>)> = groups
        .iter()
        .map(|left| {
            let ids = left.events.iter().map(|event| event.key.event_id.as_str()).collect();
            (left.run.as_ref().map(|run| run.run_id.as_str()), ids)
        })
        .collect();
    // The run of `d` had begun and taken nothing in.
    assert_eq!(told, [(Some("r1"), vec!["a", "c"]), (None, vec!["b"]), (Some("r2"), vec!["d"])]);
}

#[test]
fn x02_events_that_became_one_turn_return_together_although_their_run_took_nothing_in() {
    let began = RunRecord { others: vec![key("a"), key("b")], ..run("r", "c") };
    let groups = together(vec![left("a", 1, None), left("b", 2, None), left("c", 3, None)], &[began]);
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].events.len(), 3);
}

#[test]
fn x02_a_call_without_a_result_is_open_and_ids_may_come_again() {
    let done = ToolOutput::ok("done");
    assert_eq!(open(vec![Draft::tool_call(&[call("1", "bash")])]), ["bash"]);
    assert!(open(vec![Draft::tool_call(&[call("1", "bash")]), Draft::tool_result("1", &done)]).is_empty());
    let again = vec![
        Draft::tool_call(&[call("1", "bash")]),
        Draft::tool_result("1", &done),
        Draft::tool_call(&[call("1", "mail"), call("2", "bash")]),
        Draft::tool_result("2", &done),
    ];
    assert_eq!(open(again), ["mail"]);
}

#[test]
fn x02_a_command_that_began_and_did_not_end_is_open() {
    let began = || Draft::event(COMMAND_START, json!({ "name": "bash" }));
    assert_eq!(open(vec![began()]), ["bash"]);
    assert!(open(vec![began(), Draft::event(COMMAND, json!({ "name": "bash" }))]).is_empty());
}

#[test]
fn x02_what_another_run_left_open_is_not_this_ones() {
    let entries = on_tape(vec![Draft::tool_call(&[call("1", "bash")])]);
    assert!(open_calls(&RunId::new("another"), &entries).is_empty());
}

#[test]
fn x02_events_are_taken_up_only_when_nothing_of_unknown_effect_was_begun() {
    let events = [left("a", 1, Some("r"))];
    assert!(matches!(judge(&events, None), Verdict::TakenUp));
    assert!(matches!(judge(&events, Some((&run("r", "a"), &[], &[]))), Verdict::TakenUp));
    assert!(notice(judge(&events, Some((&run("r", "a"), &["bash".to_owned()], &[])))).contains("bash was at work"));
    let done = notice(judge(&events, Some((&run("r", "a"), &[], &["message.delete".to_owned()]))));
    assert!(done.contains("after message.delete was asked for"), "{done}");
    let bypasses = RunRecord { bypasses_host: true, ..run("r", "a") };
    assert!(notice(judge(&events, Some((&bypasses, &[], &[])))).contains("cannot tell what was done"));
}

#[test]
fn x02_an_event_that_may_be_what_kills_the_host_is_given_up() {
    let tried = |adoptions| [InFlight { adoptions, ..left("a", 1, None) }];
    assert!(matches!(judge(&tried(2), None), Verdict::TakenUp));
    assert!(notice(judge(&tried(3), None)).contains("interrupted 4 times"));
}

#[test]
fn g10_a_run_that_was_to_be_cancelled_is_not_taken_up() {
    let asked = RunRecord { cancel_requested: true, ..run("r", "a") };
    assert!(matches!(judge(&[left("a", 1, Some("r"))], Some((&asked, &[], &[]))), Verdict::Ended(Outcome::Cancelled)));
}

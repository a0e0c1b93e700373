use capstan_protocol::{
    BindingId, EntryId, EventKey, Outcome, RunId, RunnerId, SessionId, TapeName, Timestamp, ToolCall, ToolOutput,
};
use capstan_tape::{Entry, EntryDraft, EventIngestion, InFlightEvent, RunRecord, RunStatus};
use serde_json::json;

use super::{RecoveryVerdict, decide_recovery, group_by_run, unanswered_calls};

fn event_key(id: &str) -> EventKey {
    EventKey { source: "wire".into(), bot_id: String::new(), event_id: id.into() }
}

/// An event that a dead process left; a run may have taken it in.
fn orphaned_event(id: &str, entry: u64, run: Option<&str>) -> InFlightEvent {
    InFlightEvent {
        key: event_key(id),
        session: SessionId::new("s"),
        tape: TapeName::parse("t").unwrap(),
        entry: EntryId(entry),
        accepted_at: Timestamp::from_millis(0),
        owner: Some("dead".to_owned()),
        adoptions: 0,
        ingestion: run.map(|run| EventIngestion { run_id: RunId::new(run), message: EntryId(entry + 10) }),
    }
}

fn run_record(id: &str, event: &str) -> RunRecord {
    RunRecord {
        run_id: RunId::new(id),
        session: SessionId::new("s"),
        tape: TapeName::parse("t").unwrap(),
        begins_after: EntryId(0),
        parent: None,
        event: event_key(event),
        others: Vec::new(),
        binding: BindingId::new("default"),
        runner: RunnerId::new("builtin:agent"),
        grant: capstan_policy::compute_grant(
            &capstan_protocol::PermissionSet::all(),
            &capstan_policy::default_binding(),
            capstan_policy::EventScope::from(&capstan_protocol::Event::message("wire", "1", "hi")),
        ),
        status: RunStatus::Running,
        started_at: Timestamp::from_millis(0),
        ended_at: None,
        usage: None,
        bypasses_host: false,
        cancel_requested: false,
    }
}

fn to_entries(drafts: Vec<EntryDraft>) -> Vec<Entry> {
    let run_id = RunId::new("r");
    let entry = |(id, draft): (u64, EntryDraft)| {
        draft.with_run_id(&run_id).into_entry(EntryId(id), Timestamp::from_millis(0), &[])
    };
    (1..).zip(drafts).map(entry).collect()
}

fn tool_call(id: &str, name: &str) -> ToolCall {
    ToolCall::new(id, name, "{}")
}

fn unanswered_call_names(drafts: Vec<EntryDraft>) -> Vec<String> {
    unanswered_calls(&RunId::new("r"), &to_entries(drafts))
}

fn give_up_notice(verdict: RecoveryVerdict) -> String {
    match verdict {
        RecoveryVerdict::GiveUp(notice) => notice,
        RecoveryVerdict::Resume | RecoveryVerdict::Settle(_) => panic!("it was not given up"),
    }
}

#[test]
fn a09_the_events_of_a_run_return_together_and_the_others_alone() {
    let events = vec![
        orphaned_event("a", 1, Some("r1")),
        orphaned_event("b", 2, None),
        orphaned_event("c", 3, Some("r1")),
        orphaned_event("d", 4, None),
    ];
    let groups = group_by_run(events, &[run_record("r1", "a"), run_record("r2", "d")]);
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
    let began = RunRecord { others: vec![event_key("a"), event_key("b")], ..run_record("r", "c") };
    let groups = group_by_run(
        vec![orphaned_event("a", 1, None), orphaned_event("b", 2, None), orphaned_event("c", 3, None)],
        &[began],
    );
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].events.len(), 3);
}

#[test]
fn x02_a_call_without_a_result_is_open_and_ids_may_come_again() {
    let done = ToolOutput::ok("done");
    assert_eq!(unanswered_call_names(vec![EntryDraft::tool_call(&[tool_call("1", "bash")])]), ["bash"]);
    assert!(
        unanswered_call_names(vec![
            EntryDraft::tool_call(&[tool_call("1", "bash")]),
            EntryDraft::tool_result("1", &done)
        ])
        .is_empty()
    );
    let again = vec![
        EntryDraft::tool_call(&[tool_call("1", "bash")]),
        EntryDraft::tool_result("1", &done),
        EntryDraft::tool_call(&[tool_call("1", "mail"), tool_call("2", "bash")]),
        EntryDraft::tool_result("2", &done),
    ];
    assert_eq!(unanswered_call_names(again), ["mail"]);
}

#[test]
fn x02_a_command_that_began_and_did_not_end_is_open() {
    let began = || EntryDraft::event("command.start", json!({ "raw": ",bash", "name": "bash" }));
    assert_eq!(unanswered_call_names(vec![began()]), ["bash"]);
    assert!(unanswered_call_names(vec![began(), EntryDraft::event("command", json!({ "name": "bash" }))]).is_empty());
}

#[test]
fn x02_what_another_run_left_open_is_not_this_ones() {
    let entries = to_entries(vec![EntryDraft::tool_call(&[tool_call("1", "bash")])]);
    assert!(unanswered_calls(&RunId::new("another"), &entries).is_empty());
}

#[test]
fn x02_events_are_taken_up_only_when_nothing_of_unknown_effect_was_begun() {
    let events = [orphaned_event("a", 1, Some("r"))];
    assert!(matches!(decide_recovery(&events, None), RecoveryVerdict::Resume));
    assert!(matches!(decide_recovery(&events, Some((&run_record("r", "a"), &[], &[]))), RecoveryVerdict::Resume));
    assert!(
        give_up_notice(decide_recovery(&events, Some((&run_record("r", "a"), &["bash".to_owned()], &[]))))
            .contains("bash was at work")
    );
    let done =
        give_up_notice(decide_recovery(&events, Some((&run_record("r", "a"), &[], &["message.delete".to_owned()]))));
    assert!(done.contains("after message.delete was asked for"), "{done}");
    let bypasses = RunRecord { bypasses_host: true, ..run_record("r", "a") };
    assert!(
        give_up_notice(decide_recovery(&events, Some((&bypasses, &[], &[])))).contains("cannot tell what was done")
    );
}

#[test]
fn x02_an_event_that_may_be_what_kills_the_host_is_given_up() {
    let tried = |adoptions| [InFlightEvent { adoptions, ..orphaned_event("a", 1, None) }];
    assert!(matches!(decide_recovery(&tried(2), None), RecoveryVerdict::Resume));
    assert!(give_up_notice(decide_recovery(&tried(3), None)).contains("interrupted 4 times"));
}

#[test]
fn g10_a_run_that_was_to_be_cancelled_is_not_taken_up() {
    let asked = RunRecord { cancel_requested: true, ..run_record("r", "a") };
    assert!(matches!(
        decide_recovery(&[orphaned_event("a", 1, Some("r"))], Some((&asked, &[], &[]))),
        RecoveryVerdict::Settle(Outcome::Cancelled)
    ));
}

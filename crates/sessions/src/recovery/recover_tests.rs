use capstan_protocol::{
    BindingId, EntryId, EventKey, EventOrigin, Outcome, RunId, RunnerId, SessionId, TapeName, Timestamp, ToolCall,
    ToolOutput,
};
use capstan_tape::{Entry, EntryDraft, EventIngestion, InFlightEvent, RESTORED_OWNER, RunRecord, RunStatus};
use serde_json::json;

use super::{InterruptedRun, RecoveryVerdict, decide_recovery, group_by_run, unanswered_calls};

fn event_key(id: &str) -> EventKey {
    EventKey { source: "wire".into(), bot_id: String::new(), event_id: id.into() }
}

/// An orphaned event, which a run may have ingested.
fn orphaned_event(id: &str, entry: u64, run: Option<&str>) -> InFlightEvent {
    InFlightEvent {
        key: event_key(id),
        session: SessionId::new("s"),
        tape: TapeName::parse("t").unwrap(),
        entry: EntryId(entry),
        accepted_at: Timestamp::from_millis(0),
        owner: Some("dead".to_owned()),
        adoptions: 0,
        ingestion: run.map(|run| EventIngestion { run_id: RunId::new(run), message_entry: EntryId(entry + 10) }),
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
            capstan_policy::EventScope {
                origin: EventOrigin::Trusted,
                names_terminal: true,
                has_actor: false,
                has_subject: false,
            },
            &capstan_protocol::AllowList::All,
        ),
        status: RunStatus::Running,
        started_at: Timestamp::from_millis(0),
        deadline: None,
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
        RecoveryVerdict::Resume | RecoveryVerdict::SettleQuietly(_) => panic!("the events were not given up"),
    }
}

#[test]
fn a09_events_of_a_run_are_recovered_together_and_the_others_alone() {
    let events = vec![
        orphaned_event("a", 1, Some("r1")),
        orphaned_event("b", 2, None),
        orphaned_event("c", 3, Some("r1")),
        orphaned_event("d", 4, None),
    ];
    let groups = group_by_run(events, &[run_record("r1", "a"), run_record("r2", "d")]);
    let recovered: Vec<(Option<&str>, Vec<&str>)> = groups
        .iter()
        .map(|group| {
            let ids = group.events.iter().map(|event| event.key.event_id.as_str()).collect();
            (group.run.as_ref().map(|run| run.run_id.as_str()), ids)
        })
        .collect();
    // The run of `d` had begun and ingested nothing.
    assert_eq!(recovered, [(Some("r1"), vec!["a", "c"]), (None, vec!["b"]), (Some("r2"), vec!["d"])]);
}

#[test]
fn x02_events_of_one_turn_are_recovered_together_even_if_their_run_ingested_nothing() {
    let run = RunRecord { others: vec![event_key("a"), event_key("b")], ..run_record("r", "c") };
    let groups = group_by_run(
        vec![orphaned_event("a", 1, None), orphaned_event("b", 2, None), orphaned_event("c", 3, None)],
        &[run],
    );
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].events.len(), 3);
}

#[test]
fn x02_a_call_without_a_result_is_unanswered_even_if_its_id_was_used_before() {
    let done = ToolOutput::ok("done");
    assert_eq!(unanswered_call_names(vec![EntryDraft::tool_call(&[tool_call("1", "bash")])]), ["bash"]);
    assert!(
        unanswered_call_names(vec![
            EntryDraft::tool_call(&[tool_call("1", "bash")]),
            EntryDraft::tool_result("1", &done)
        ])
        .is_empty()
    );
    let reused_id = vec![
        EntryDraft::tool_call(&[tool_call("1", "bash")]),
        EntryDraft::tool_result("1", &done),
        EntryDraft::tool_call(&[tool_call("1", "mail"), tool_call("2", "bash")]),
        EntryDraft::tool_result("2", &done),
    ];
    assert_eq!(unanswered_call_names(reused_id), ["mail"]);
}

#[test]
fn x02_a_command_that_began_and_did_not_end_is_unanswered() {
    let command_start = || EntryDraft::event("command.start", json!({ "raw": ",bash", "name": "bash" }));
    assert_eq!(unanswered_call_names(vec![command_start()]), ["bash"]);
    assert!(
        unanswered_call_names(vec![command_start(), EntryDraft::event("command", json!({ "name": "bash" }))])
            .is_empty()
    );
}

#[test]
fn x02_unanswered_calls_of_another_run_are_not_counted() {
    let entries = to_entries(vec![EntryDraft::tool_call(&[tool_call("1", "bash")])]);
    assert!(unanswered_calls(&RunId::new("another"), &entries).is_empty());
}

fn interrupted<'a>(record: &'a RunRecord, unfinished: &'a [String], finished: &'a [String]) -> InterruptedRun<'a> {
    InterruptedRun { record, unfinished, finished }
}

#[test]
fn x02_events_resume_only_if_nothing_of_unknown_effect_was_begun() {
    let events = [orphaned_event("a", 1, Some("r"))];
    assert!(matches!(decide_recovery(&events, None), RecoveryVerdict::Resume));
    assert!(matches!(
        decide_recovery(&events, Some(interrupted(&run_record("r", "a"), &[], &[]))),
        RecoveryVerdict::Resume
    ));
    assert!(
        give_up_notice(decide_recovery(&events, Some(interrupted(&run_record("r", "a"), &["bash".to_owned()], &[]))))
            .contains("bash was at work")
    );
    let done = give_up_notice(decide_recovery(
        &events,
        Some(interrupted(&run_record("r", "a"), &[], &["message.delete".to_owned()])),
    ));
    assert!(done.contains("after message.delete was asked for"), "{done}");
    let bypasses = RunRecord { bypasses_host: true, ..run_record("r", "a") };
    assert!(
        give_up_notice(decide_recovery(&events, Some(interrupted(&bypasses, &[], &[]))))
            .contains("cannot tell what was done")
    );
}

#[test]
fn x02_an_event_that_may_crash_the_host_is_given_up() {
    let adopted = |adoptions| [InFlightEvent { adoptions, ..orphaned_event("a", 1, None) }];
    assert!(matches!(decide_recovery(&adopted(2), None), RecoveryVerdict::Resume));
    assert!(give_up_notice(decide_recovery(&adopted(3), None)).contains("interrupted 4 times"));
}

#[test]
fn x07_events_in_flight_in_a_restored_copy_are_given_up() {
    let restored = || [InFlightEvent { owner: Some(RESTORED_OWNER.to_owned()), ..orphaned_event("a", 1, Some("r")) }];
    assert!(give_up_notice(decide_recovery(&restored(), None)).contains("restored from a backup"));
    let run = run_record("r", "a");
    let notice = give_up_notice(decide_recovery(&restored(), Some(interrupted(&run, &[], &[]))));
    assert!(notice.contains("please check"), "{notice}");
    let cancelled = RunRecord { cancel_requested: true, ..run };
    assert!(matches!(
        decide_recovery(&restored(), Some(interrupted(&cancelled, &[], &[]))),
        RecoveryVerdict::SettleQuietly(Outcome::Cancelled)
    ));
}

#[test]
fn g10_events_of_a_run_with_a_requested_cancellation_do_not_resume() {
    let cancelled = RunRecord { cancel_requested: true, ..run_record("r", "a") };
    assert!(matches!(
        decide_recovery(&[orphaned_event("a", 1, Some("r"))], Some(interrupted(&cancelled, &[], &[]))),
        RecoveryVerdict::SettleQuietly(Outcome::Cancelled)
    ));
}

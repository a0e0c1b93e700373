use std::time::Duration;

use capstan_hooks::contracts::DebounceOptions;
use capstan_protocol::AdmissionMode::{self, Collect, Drop, FollowUp, Interrupt, Steer};

use super::{ArrivalKind, EventArrival, MailboxDecision, SessionActivity, SessionMailbox};

const ADDRESSED_MESSAGE: ArrivalKind = ArrivalKind::Message { addressed: true };
const UNADDRESSED_MESSAGE: ArrivalKind = ArrivalKind::Message { addressed: false };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn arrival_with_mode(mode: AdmissionMode) -> EventArrival {
    EventArrival { mode, kind: ADDRESSED_MESSAGE, debounce: None }
}

/// Arrival with a quiet period of 2 s, a maximum wait of 10 s and an active window of 60 s.
fn debounced_arrival(kind: ArrivalKind) -> EventArrival {
    let debounce =
        DebounceOptions { quiet_period: seconds(2), max_wait: seconds(10), active_window: Some(seconds(60)) };
    EventArrival { mode: FollowUp, kind, debounce: Some(debounce) }
}

/// Mailbox of a busy session to which these messages were admitted.
fn busy_mailbox<'a>(messages: &[(&'a str, AdmissionMode)]) -> SessionMailbox<&'a str> {
    let mut mailbox = SessionMailbox::default();
    for (text, mode) in messages {
        mailbox.admit(*text, &arrival_with_mode(*mode), SessionActivity::Busy, seconds(0));
    }
    mailbox
}

fn drain_turns<T>(mailbox: &mut SessionMailbox<T>, now: Duration) -> Vec<Vec<T>> {
    std::iter::from_fn(|| mailbox.next_turn(now)).collect()
}

#[test]
fn t13_in_an_idle_session_every_mode_begins_a_turn() {
    for mode in AdmissionMode::MODES {
        let mut mailbox = SessionMailbox::default();
        assert_eq!(
            mailbox.admit("hello", &arrival_with_mode(mode), SessionActivity::Idle, seconds(0)),
            MailboxDecision::Wait
        );
        assert_eq!(drain_turns(&mut mailbox, seconds(0)), [["hello"]], "{mode:?}");
    }
}

#[test]
fn t13_follow_ups_get_turns_of_their_own_in_order() {
    assert_eq!(drain_turns(&mut busy_mailbox(&[("one", FollowUp), ("two", FollowUp)]), seconds(0)), [["one"], ["two"]]);
}

#[test]
fn t13_collected_messages_become_one_turn() {
    let mut mailbox = busy_mailbox(&[("one", Collect), ("two", Collect)]);
    assert_eq!(drain_turns(&mut mailbox, seconds(0)), [vec!["one", "two"]]);
    let mut mailbox = busy_mailbox(&[("one", Collect), ("two", FollowUp), ("three", Collect), ("four", Collect)]);
    assert_eq!(drain_turns(&mut mailbox, seconds(0)), [vec!["one"], vec!["two"], vec!["three", "four"]]);
}

#[test]
fn t13_steering_is_offered_to_the_run_and_dropped_messages_are_returned() {
    let mut mailbox = SessionMailbox::default();
    assert_eq!(
        mailbox.admit("left", &arrival_with_mode(Steer), SessionActivity::Busy, seconds(0)),
        MailboxDecision::Steer("left")
    );
    assert_eq!(
        mailbox.admit("no", &arrival_with_mode(Drop), SessionActivity::Busy, seconds(0)),
        MailboxDecision::Drop("no")
    );
    assert!(mailbox.is_empty());
}

#[test]
fn t13_steering_does_not_overtake_queued_events() {
    let mut mailbox = SessionMailbox::default();
    let command = EventArrival { kind: ArrivalKind::Command, ..arrival_with_mode(Steer) };
    mailbox.admit("reset", &command, SessionActivity::Busy, seconds(0));
    assert_eq!(
        mailbox.admit("then this", &arrival_with_mode(Steer), SessionActivity::Busy, seconds(0)),
        MailboxDecision::Wait
    );
    assert_eq!(drain_turns(&mut mailbox, seconds(0)), [["reset"], ["then this"]]);
    let mut mailbox = busy_mailbox(&[("one", FollowUp), ("two", Steer)]);
    assert_eq!(drain_turns(&mut mailbox, seconds(0)), [["one"], ["two"]]);
    // Debounced messages are not overtaken either: the steering message joins them.
    let mut mailbox = SessionMailbox::default();
    mailbox.admit("one", &debounced_arrival(ADDRESSED_MESSAGE), SessionActivity::Idle, seconds(0));
    let steering = EventArrival { mode: Steer, ..debounced_arrival(ADDRESSED_MESSAGE) };
    assert_eq!(mailbox.admit("two", &steering, SessionActivity::Busy, seconds(1)), MailboxDecision::Wait);
    assert_eq!(drain_turns(&mut mailbox, seconds(3)), [vec!["one", "two"]]);
}

#[test]
fn t13_interruption_absorbs_queued_messages_and_so_does_the_next() {
    let mut mailbox = busy_mailbox(&[("one", FollowUp), ("two", Collect), ("stop", Interrupt), ("do this", Interrupt)]);
    mailbox.admit("then that", &arrival_with_mode(FollowUp), SessionActivity::Busy, seconds(0));
    assert_eq!(drain_turns(&mut mailbox, seconds(0)), [vec!["one", "two", "stop", "do this"], vec!["then that"]]);
}

#[test]
fn t13_interruption_between_two_turns_absorbs_queued_messages() {
    let mut mailbox = busy_mailbox(&[("one", FollowUp), ("two", FollowUp)]);
    assert_eq!(
        mailbox.admit("stop", &arrival_with_mode(Interrupt), SessionActivity::Idle, seconds(0)),
        MailboxDecision::Wait
    );
    assert_eq!(drain_turns(&mut mailbox, seconds(0)), [["one", "two", "stop"]]);
}

#[test]
fn t13_interruption_absorbs_debounced_messages() {
    let mut mailbox = SessionMailbox::default();
    mailbox.admit("one", &debounced_arrival(ADDRESSED_MESSAGE), SessionActivity::Busy, seconds(0));
    mailbox.admit("stop", &arrival_with_mode(Interrupt), SessionActivity::Busy, seconds(1));
    assert_eq!(drain_turns(&mut mailbox, seconds(20)), [["one", "stop"]]);
}

#[test]
fn t13_command_keeps_its_position_among_interruptions() {
    let command = EventArrival { kind: ArrivalKind::Command, ..arrival_with_mode(Interrupt) };
    let mut mailbox = busy_mailbox(&[("one", FollowUp)]);
    assert_eq!(mailbox.admit(",reset", &command, SessionActivity::Busy, seconds(0)), MailboxDecision::Interrupt);
    mailbox.admit("two", &arrival_with_mode(FollowUp), SessionActivity::Busy, seconds(0));
    mailbox.admit("stop", &arrival_with_mode(Interrupt), SessionActivity::Busy, seconds(0));
    assert_eq!(drain_turns(&mut mailbox, seconds(0)), [vec!["one"], vec![",reset"], vec!["two", "stop"]]);
}

#[test]
fn a09_events_that_a_run_did_not_ingest_are_requeued_in_order_of_arrival() {
    let arrival = |text: &&str| text.as_bytes()[0];
    let mut mailbox = busy_mailbox(&[("1 before", FollowUp), ("4 after", FollowUp)]);
    mailbox.requeue(vec!["2 steer", "3 steer", "5 steer"], arrival);
    assert_eq!(
        drain_turns(&mut mailbox, seconds(0)),
        [["1 before"], ["2 steer"], ["3 steer"], ["4 after"], ["5 steer"]]
    );
    let mut mailbox = busy_mailbox(&[("1 before", FollowUp), ("4 after", FollowUp), ("6 stop", Interrupt)]);
    mailbox.requeue(vec!["2 steer", "5 steer", "7 steer"], arrival);
    let interruption = vec!["1 before", "2 steer", "4 after", "5 steer", "6 stop"];
    assert_eq!(drain_turns(&mut mailbox, seconds(0)), [interruption, vec!["7 steer"]]);
}

#[test]
fn t13_commands_are_not_steered_and_some_run_concurrently() {
    let mut mailbox = SessionMailbox::default();
    let command = EventArrival { kind: ArrivalKind::Command, ..arrival_with_mode(Steer) };
    assert_eq!(mailbox.admit("reset", &command, SessionActivity::Busy, seconds(0)), MailboxDecision::Wait);
    let concurrent = EventArrival { kind: ArrivalKind::ConcurrentCommand, ..arrival_with_mode(Drop) };
    assert_eq!(
        mailbox.admit("info", &concurrent, SessionActivity::Busy, seconds(0)),
        MailboxDecision::RunConcurrently("info")
    );
    assert_eq!(mailbox.admit("help", &concurrent, SessionActivity::Idle, seconds(0)), MailboxDecision::Wait);
    assert_eq!(drain_turns(&mut mailbox, seconds(0)), [["reset"], ["help"]]);
}

#[test]
fn c03_messages_wait_for_the_quiet_period() {
    let mut mailbox = SessionMailbox::default();
    mailbox.admit("one", &debounced_arrival(ADDRESSED_MESSAGE), SessionActivity::Idle, seconds(0));
    mailbox.admit("two", &debounced_arrival(ADDRESSED_MESSAGE), SessionActivity::Idle, seconds(1));
    assert_eq!(mailbox.next_turn(seconds(2)), None);
    assert_eq!(mailbox.next_wakeup(), Some(seconds(3)));
    assert_eq!(mailbox.next_turn(seconds(3)), Some(vec!["one", "two"]));
}

#[test]
fn c03_continuous_messages_get_a_turn_after_the_maximum_wait() {
    let mut mailbox = SessionMailbox::default();
    for second in 0..=9 {
        mailbox.admit(second, &debounced_arrival(ADDRESSED_MESSAGE), SessionActivity::Idle, seconds(second));
    }
    assert_eq!(mailbox.next_turn(seconds(9)), None);
    assert_eq!(mailbox.next_turn(seconds(10)).map(|events| events.len()), Some(10));
}

#[test]
fn c03_commands_are_not_debounced() {
    let mut mailbox = SessionMailbox::default();
    mailbox.admit("one", &debounced_arrival(ADDRESSED_MESSAGE), SessionActivity::Idle, seconds(0));
    mailbox.admit(",help", &debounced_arrival(ArrivalKind::Command), SessionActivity::Idle, seconds(1));
    assert_eq!(mailbox.next_turn(seconds(1)), Some(vec![",help"]));
    assert_eq!(drain_turns(&mut mailbox, seconds(2)), [["one"]]);
}

#[test]
fn c03_unaddressed_messages_are_accepted_only_in_the_active_window() {
    let mut mailbox = SessionMailbox::default();
    assert_eq!(
        mailbox.admit("chatter", &debounced_arrival(UNADDRESSED_MESSAGE), SessionActivity::Idle, seconds(0)),
        MailboxDecision::Drop("chatter")
    );
    mailbox.admit("bot!", &debounced_arrival(ADDRESSED_MESSAGE), SessionActivity::Idle, seconds(10));
    assert_eq!(
        mailbox.admit("yes, do", &debounced_arrival(UNADDRESSED_MESSAGE), SessionActivity::Idle, seconds(11)),
        MailboxDecision::Wait
    );
    assert_eq!(mailbox.next_turn(seconds(12)), None, "an unaddressed message waits for the maximum time");
    assert_eq!(mailbox.next_turn(seconds(20)), Some(vec!["bot!", "yes, do"]));
    assert_eq!(
        mailbox.admit("late", &debounced_arrival(UNADDRESSED_MESSAGE), SessionActivity::Idle, seconds(70)),
        MailboxDecision::Drop("late")
    );
}

#[test]
fn c03_active_window_ends() {
    let mut mailbox = SessionMailbox::default();
    mailbox.admit("bot!", &debounced_arrival(ADDRESSED_MESSAGE), SessionActivity::Idle, seconds(0));
    assert!(mailbox.next_turn(seconds(2)).is_some());
    assert_eq!(mailbox.next_wakeup(), Some(seconds(60)));
    mailbox.expire_window(seconds(60));
    assert_eq!(mailbox.next_wakeup(), None);
    assert!(mailbox.is_empty());
}

#[test]
fn g02_event_with_its_own_authority_gets_its_own_turn_and_ends_no_other() {
    for mode in [FollowUp, Steer, Collect, Interrupt] {
        let standalone = EventArrival { kind: ArrivalKind::Standalone, ..arrival_with_mode(mode) };
        assert!(!standalone.can_bypass_queue());
        let mut mailbox = busy_mailbox(&[("one", Collect)]);
        assert_eq!(
            mailbox.admit("query", &standalone, SessionActivity::Busy, seconds(0)),
            MailboxDecision::Wait,
            "{mode:?}"
        );
        mailbox.admit("two", &arrival_with_mode(Collect), SessionActivity::Busy, seconds(0));
        mailbox.admit("stop", &arrival_with_mode(Interrupt), SessionActivity::Busy, seconds(0));
        assert_eq!(
            drain_turns(&mut mailbox, seconds(0)),
            [vec!["one"], vec!["query"], vec!["two", "stop"]],
            "{mode:?}"
        );
    }
    let dropped = EventArrival { kind: ArrivalKind::Standalone, ..arrival_with_mode(Drop) };
    assert_eq!(
        SessionMailbox::default().admit("query", &dropped, SessionActivity::Busy, seconds(0)),
        MailboxDecision::Drop("query")
    );
}

use std::time::Duration;

use capstan_hooks::contracts::Debounce;
use capstan_protocol::AdmissionMode::{self, Collect, Drop, FollowUp, Interrupt, Steer};

use super::{Arrival, ArrivalKind, Decision, Mailbox, Session};

const MESSAGE: ArrivalKind = ArrivalKind::Message { addressed: true };
const OVERHEARD: ArrivalKind = ArrivalKind::Message { addressed: false };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at_once(mode: AdmissionMode) -> Arrival {
    Arrival { mode, kind: MESSAGE, debounce: None }
}

/// Quiet for 2 s, at most 10 s, others are let in for 60 s.
fn debounced(kind: ArrivalKind) -> Arrival {
    let debounce = Debounce { quiet: seconds(2), max_wait: seconds(10), active_window: Some(seconds(60)) };
    Arrival { mode: FollowUp, kind, debounce: Some(debounce) }
}

/// A session in which a turn is going on and these messages came.
fn busy<'a>(messages: &[(&'a str, AdmissionMode)]) -> Mailbox<&'a str> {
    let mut mailbox = Mailbox::default();
    for (text, mode) in messages {
        mailbox.arrive(*text, &at_once(*mode), Session::Busy, seconds(0));
    }
    mailbox
}

fn turns<T>(mailbox: &mut Mailbox<T>, now: Duration) -> Vec<Vec<T>> {
    std::iter::from_fn(|| mailbox.next(now)).collect()
}

#[test]
fn t13_in_a_free_session_every_mode_is_a_turn() {
    for mode in AdmissionMode::ALL {
        let mut mailbox = Mailbox::default();
        assert_eq!(mailbox.arrive("hello", &at_once(mode), Session::Free, seconds(0)), Decision::Waits);
        assert_eq!(turns(&mut mailbox, seconds(0)), [["hello"]], "{mode:?}");
    }
}

#[test]
fn t13_follow_ups_have_turns_of_their_own_in_order() {
    assert_eq!(turns(&mut busy(&[("one", FollowUp), ("two", FollowUp)]), seconds(0)), [["one"], ["two"]]);
}

#[test]
fn t13_what_is_collected_becomes_one_turn() {
    let mut mailbox = busy(&[("one", Collect), ("two", Collect)]);
    assert_eq!(turns(&mut mailbox, seconds(0)), [vec!["one", "two"]]);
    let mut mailbox = busy(&[("one", Collect), ("two", FollowUp), ("three", Collect), ("four", Collect)]);
    assert_eq!(turns(&mut mailbox, seconds(0)), [vec!["one"], vec!["two"], vec!["three", "four"]]);
}

#[test]
fn t13_steering_is_offered_to_the_run_and_dropping_is_said() {
    let mut mailbox = Mailbox::default();
    assert_eq!(mailbox.arrive("left", &at_once(Steer), Session::Busy, seconds(0)), Decision::Steer("left"));
    assert_eq!(mailbox.arrive("no", &at_once(Drop), Session::Busy, seconds(0)), Decision::Drop("no"));
    assert!(mailbox.is_empty());
}

#[test]
fn t13_steering_does_not_get_ahead_of_what_waits() {
    let mut mailbox = Mailbox::default();
    let command = Arrival { kind: ArrivalKind::Command, ..at_once(Steer) };
    mailbox.arrive("reset", &command, Session::Busy, seconds(0));
    assert_eq!(mailbox.arrive("then this", &at_once(Steer), Session::Busy, seconds(0)), Decision::Waits);
    assert_eq!(turns(&mut mailbox, seconds(0)), [["reset"], ["then this"]]);
    let mut mailbox = busy(&[("one", FollowUp), ("two", Steer)]);
    assert_eq!(turns(&mut mailbox, seconds(0)), [["one"], ["two"]]);
    // Nor of what is held back: they are held together.
    let mut mailbox = Mailbox::default();
    mailbox.arrive("one", &debounced(MESSAGE), Session::Free, seconds(0));
    let steers = Arrival { mode: Steer, ..debounced(MESSAGE) };
    assert_eq!(mailbox.arrive("two", &steers, Session::Busy, seconds(1)), Decision::Waits);
    assert_eq!(turns(&mut mailbox, seconds(3)), [vec!["one", "two"]]);
}

#[test]
fn t13_an_interruption_takes_along_what_waits_and_so_does_the_next() {
    let mut mailbox = busy(&[("one", FollowUp), ("two", Collect), ("stop", Interrupt), ("do this", Interrupt)]);
    mailbox.arrive("then that", &at_once(FollowUp), Session::Busy, seconds(0));
    assert_eq!(turns(&mut mailbox, seconds(0)), [vec!["one", "two", "stop", "do this"], vec!["then that"]]);
}

#[test]
fn t13_an_interruption_between_two_turns_takes_along_what_waits() {
    let mut mailbox = busy(&[("one", FollowUp), ("two", FollowUp)]);
    assert_eq!(mailbox.arrive("stop", &at_once(Interrupt), Session::Free, seconds(0)), Decision::Waits);
    assert_eq!(turns(&mut mailbox, seconds(0)), [["one", "two", "stop"]]);
}

#[test]
fn t13_an_interruption_takes_along_what_is_held_back() {
    let mut mailbox = Mailbox::default();
    mailbox.arrive("one", &debounced(MESSAGE), Session::Busy, seconds(0));
    mailbox.arrive("stop", &at_once(Interrupt), Session::Busy, seconds(1));
    assert_eq!(turns(&mut mailbox, seconds(20)), [["one", "stop"]]);
}

#[test]
fn t13_a_command_keeps_its_place_among_interruptions() {
    let command = Arrival { kind: ArrivalKind::Command, ..at_once(Interrupt) };
    let mut mailbox = busy(&[("one", FollowUp)]);
    assert_eq!(mailbox.arrive(",reset", &command, Session::Busy, seconds(0)), Decision::Interrupts);
    mailbox.arrive("two", &at_once(FollowUp), Session::Busy, seconds(0));
    mailbox.arrive("stop", &at_once(Interrupt), Session::Busy, seconds(0));
    assert_eq!(turns(&mut mailbox, seconds(0)), [vec!["one"], vec![",reset"], vec!["two", "stop"]]);
}

#[test]
fn a09_what_a_run_left_is_put_back_where_it_would_have_waited() {
    let came = |text: &&str| text.as_bytes()[0];
    let mut mailbox = busy(&[("1 before", FollowUp), ("4 after", FollowUp)]);
    mailbox.put_back(vec!["2 steer", "3 steer", "5 steer"], came);
    assert_eq!(turns(&mut mailbox, seconds(0)), [["1 before"], ["2 steer"], ["3 steer"], ["4 after"], ["5 steer"]]);
    let mut mailbox = busy(&[("1 before", FollowUp), ("4 after", FollowUp), ("6 stop", Interrupt)]);
    mailbox.put_back(vec!["2 steer", "5 steer", "7 steer"], came);
    let stop = vec!["1 before", "2 steer", "4 after", "5 steer", "6 stop"];
    assert_eq!(turns(&mut mailbox, seconds(0)), [stop, vec!["7 steer"]]);
}

#[test]
fn t13_commands_are_not_steered_and_some_run_beside() {
    let mut mailbox = Mailbox::default();
    let command = Arrival { kind: ArrivalKind::Command, ..at_once(Steer) };
    assert_eq!(mailbox.arrive("reset", &command, Session::Busy, seconds(0)), Decision::Waits);
    let beside = Arrival { kind: ArrivalKind::Beside, ..at_once(Drop) };
    assert_eq!(mailbox.arrive("info", &beside, Session::Busy, seconds(0)), Decision::Beside("info"));
    assert_eq!(mailbox.arrive("help", &beside, Session::Free, seconds(0)), Decision::Waits);
    assert_eq!(turns(&mut mailbox, seconds(0)), [["reset"], ["help"]]);
}

#[test]
fn c03_messages_are_held_until_nobody_says_more() {
    let mut mailbox = Mailbox::default();
    mailbox.arrive("one", &debounced(MESSAGE), Session::Free, seconds(0));
    mailbox.arrive("two", &debounced(MESSAGE), Session::Free, seconds(1));
    assert_eq!(mailbox.next(seconds(2)), None);
    assert_eq!(mailbox.look_again(), Some(seconds(3)));
    assert_eq!(mailbox.next(seconds(3)), Some(vec!["one", "two"]));
}

#[test]
fn c03_whoever_never_stops_talking_is_answered_after_the_maximum_wait() {
    let mut mailbox = Mailbox::default();
    for second in 0..=9 {
        mailbox.arrive(second, &debounced(MESSAGE), Session::Free, seconds(second));
    }
    assert_eq!(mailbox.next(seconds(9)), None);
    assert_eq!(mailbox.next(seconds(10)).map(|items| items.len()), Some(10));
}

#[test]
fn c03_commands_bypass_the_wait() {
    let mut mailbox = Mailbox::default();
    mailbox.arrive("one", &debounced(MESSAGE), Session::Free, seconds(0));
    mailbox.arrive(",help", &debounced(ArrivalKind::Command), Session::Free, seconds(1));
    assert_eq!(mailbox.next(seconds(1)), Some(vec![",help"]));
    assert_eq!(turns(&mut mailbox, seconds(2)), [["one"]]);
}

#[test]
fn c03_what_is_overheard_counts_only_while_the_conversation_is_active() {
    let mut mailbox = Mailbox::default();
    assert_eq!(mailbox.arrive("chatter", &debounced(OVERHEARD), Session::Free, seconds(0)), Decision::Drop("chatter"));
    mailbox.arrive("bot!", &debounced(MESSAGE), Session::Free, seconds(10));
    assert_eq!(mailbox.arrive("yes, do", &debounced(OVERHEARD), Session::Free, seconds(11)), Decision::Waits);
    assert_eq!(mailbox.next(seconds(12)), None, "what was overheard waits for as long as it may");
    assert_eq!(mailbox.next(seconds(20)), Some(vec!["bot!", "yes, do"]));
    assert_eq!(mailbox.arrive("late", &debounced(OVERHEARD), Session::Free, seconds(70)), Decision::Drop("late"));
}

#[test]
fn c03_the_window_ends() {
    let mut mailbox = Mailbox::default();
    mailbox.arrive("bot!", &debounced(MESSAGE), Session::Free, seconds(0));
    assert!(mailbox.next(seconds(2)).is_some());
    assert_eq!(mailbox.look_again(), Some(seconds(60)));
    mailbox.pass(seconds(60));
    assert_eq!(mailbox.look_again(), None);
    assert!(mailbox.is_empty());
}

#[test]
fn g02_what_has_authority_of_its_own_keeps_its_turn_and_ends_nobody_elses() {
    for mode in [FollowUp, Steer, Collect, Interrupt] {
        let alone = Arrival { kind: ArrivalKind::Alone, ..at_once(mode) };
        assert!(!alone.gets_through());
        let mut mailbox = busy(&[("one", Collect)]);
        assert_eq!(mailbox.arrive("query", &alone, Session::Busy, seconds(0)), Decision::Waits, "{mode:?}");
        mailbox.arrive("two", &at_once(Collect), Session::Busy, seconds(0));
        mailbox.arrive("stop", &at_once(Interrupt), Session::Busy, seconds(0));
        assert_eq!(turns(&mut mailbox, seconds(0)), [vec!["one"], vec!["query"], vec!["two", "stop"]], "{mode:?}");
    }
    let dropped = Arrival { kind: ArrivalKind::Alone, ..at_once(Drop) };
    assert_eq!(Mailbox::default().arrive("query", &dropped, Session::Busy, seconds(0)), Decision::Drop("query"));
}

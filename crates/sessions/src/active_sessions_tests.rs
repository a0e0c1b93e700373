use std::sync::Arc;

use capstan_protocol::{AdmissionMode, TapeName};
use capstan_turn::{ArrivalKind, EventArrival};

use super::{ActiveSessions, BYPASS_SLOTS, SessionInbox, SessionReservation, SessionSignal};
use crate::LeaseOwner;
use crate::test_support::accepted_event;

/// Maximum number of queued events of the session.
const QUEUE_SIZE: usize = 2;

/// Reserves a session that is not active, and returns the inbox of its actor.
fn activate(sessions: &ActiveSessions, tape: &TapeName) -> (SessionReservation, SessionInbox) {
    let mut actor_inbox = None;
    let reservation = sessions.reserve(tape, QUEUE_SIZE, |inbox| {
        actor_inbox = Some(inbox);
        Arc::new(LeaseOwner::anonymous().claim(tape))
    });
    (reservation, actor_inbox.expect("the session was not active"))
}

/// Reserves a session that is active.
fn reserve_active(sessions: &ActiveSessions, tape: &TapeName) -> SessionReservation {
    sessions.reserve(tape, QUEUE_SIZE, |_| panic!("the session is active"))
}

#[tokio::test]
async fn g04_the_inbox_of_a_session_is_bounded_however_often_it_is_woken() {
    let (sessions, tape) = (ActiveSessions::default(), TapeName::parse("t").unwrap());
    let (first, mut inbox) = activate(&sessions, &tape);
    for number in 0..1000 {
        let reservation = reserve_active(&sessions, &tape);
        if number % 2 == 0 { reservation.request_recovery(1) } else { drop(reservation) }
    }
    assert!(matches!(inbox.next_signal().await, SessionSignal::Wake));
    assert!(futures::poll!(Box::pin(inbox.next_signal())).is_pending(), "there is one wake signal");
    assert!(sessions.take_recovery_request(&tape) && !sessions.take_recovery_request(&tape), "there is one request");
    assert!(!sessions.passivate(&tape), "the first sender is still pending");
    drop(first);
    assert!(matches!(inbox.next_signal().await, SessionSignal::Wake), "the drop wakes the actor");
    assert!(sessions.passivate(&tape));
}

#[tokio::test]
async fn g04_a_session_is_sent_as_many_events_as_it_has_slots() {
    let (sessions, tape) = (ActiveSessions::default(), TapeName::parse("t").unwrap());
    let message = EventArrival::follow_up();
    let interrupt = EventArrival { mode: AdmissionMode::Interrupt, ..message };
    let command = EventArrival { kind: ArrivalKind::ConcurrentCommand, ..message };
    let (_reservation, mut inbox) = activate(&sessions, &tape);
    let try_send = |arrival: EventArrival| {
        let mut reservation = reserve_active(&sessions, &tape);
        let has_slot = reservation.acquire_slot(&arrival);
        if has_slot {
            reservation.send(accepted_event(arrival));
        }
        has_slot
    };
    assert!(try_send(message) && try_send(command), "the queue has two slots");
    assert!(!try_send(message));
    for _ in 0..BYPASS_SLOTS / 2 {
        assert!(try_send(interrupt) && try_send(command), "these bypass the full queue");
    }
    assert!(!try_send(interrupt) && !try_send(command));
    let received: Vec<_> = std::iter::from_fn(|| inbox.try_next_event()).collect();
    assert_eq!(received.len(), 2 + BYPASS_SLOTS, "every event arrived");
    drop(received);
    assert!(try_send(message), "events that are no longer queued free their slots");
}

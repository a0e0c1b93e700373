use capstan_protocol::{AdmissionMode, TapeName};
use capstan_turn::{ArrivalKind, EventArrival};

use super::{ActiveSessions, BYPASS_SLOTS, SessionReservation, SessionSignal};
use crate::LeaseOwner;
use crate::test_support::accepted_event;

#[tokio::test]
async fn g04_what_a_lane_has_to_hear_is_bounded_however_often_it_is_called() {
    let (sessions, owner, tape) = (ActiveSessions::default(), LeaseOwner::anonymous(), TapeName::parse("t").unwrap());
    let (first, lane) = sessions.reserve(&tape, || owner.claim(&tape), 2);
    let mut inbox = lane.expect("it was asleep").inbox;
    for number in 0..1000 {
        let (reservation, lane) = sessions.reserve(&tape, || owner.claim(&tape), 2);
        assert!(lane.is_none(), "it is awake");
        if number % 2 == 0 { reservation.request_recovery(1) } else { drop(reservation) }
    }
    assert!(matches!(inbox.next_signal().await, SessionSignal::Wake));
    assert!(futures::poll!(Box::pin(inbox.next_signal())).is_pending(), "once");
    assert!(sessions.take_recovery_request(&tape) && !sessions.take_recovery_request(&tape), "and is told so once");
    assert!(!sessions.passivate(&tape), "one is still about to send something");
    drop(first);
    assert!(matches!(inbox.next_signal().await, SessionSignal::Wake), "it hears that this one does not");
    assert!(sessions.passivate(&tape));
}

#[tokio::test]
async fn g04_as_many_events_are_sent_to_a_lane_as_have_places() {
    let (sessions, owner, tape) = (ActiveSessions::default(), LeaseOwner::anonymous(), TapeName::parse("t").unwrap());
    let plain = EventArrival::follow_up();
    let interrupts = EventArrival { mode: AdmissionMode::Interrupt, ..plain };
    let looks = EventArrival { kind: ArrivalKind::ConcurrentCommand, ..plain };
    let (_awake, lane) = sessions.reserve(&tape, || owner.claim(&tape), 2);
    let sends = |arrival: EventArrival| {
        let (mut reservation, _): (SessionReservation, _) = sessions.reserve(&tape, || owner.claim(&tape), 2);
        let has_place = reservation.acquire_slot(&arrival);
        if has_place {
            reservation.send(accepted_event(arrival));
        }
        has_place
    };
    assert!(sends(plain) && sends(looks), "two may wait");
    assert!(!sends(plain));
    for _ in 0..BYPASS_SLOTS / 2 {
        assert!(sends(interrupts) && sends(looks), "these get through");
    }
    assert!(!sends(interrupts) && !sends(looks));
    let mut inbox = lane.expect("it was asleep").inbox;
    let heard: Vec<_> = std::iter::from_fn(|| inbox.try_next_event()).collect();
    assert_eq!(heard.len(), 2 + BYPASS_SLOTS, "every one arrived");
    drop(heard);
    assert!(sends(plain), "those that do not wait any more leave their places");
}

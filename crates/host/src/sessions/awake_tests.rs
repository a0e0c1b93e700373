use capstan_protocol::{AdmissionMode, TapeName};
use capstan_turn::{Arrival, ArrivalKind};

use super::{Heard, Reservation, SPARE, Sessions};
use crate::Owner;
use crate::runs::steering::Steering;
use crate::test_host::item;

#[tokio::test]
async fn g04_what_a_lane_has_to_hear_is_bounded_however_often_it_is_called() {
    let (sessions, owner, tape) = (Sessions::default(), Owner::anonymous(), TapeName::parse("t").unwrap());
    let (first, lane) = sessions.reserve(&tape, &owner, 2);
    let mut inbox = lane.expect("it was asleep").inbox;
    for number in 0..1000 {
        let (reservation, lane) = sessions.reserve(&tape, &owner, 2);
        assert!(lane.is_none(), "it is awake");
        if number % 2 == 0 { reservation.take_up(1) } else { drop(reservation) }
    }
    assert!(matches!(inbox.next().await, Heard::Call));
    assert!(futures::poll!(Box::pin(inbox.next())).is_pending(), "once");
    assert!(sessions.is_to_take_up(&tape) && !sessions.is_to_take_up(&tape), "and is told so once");
    assert!(!sessions.fall_asleep(&tape), "one is still about to send something");
    drop(first);
    assert!(matches!(inbox.next().await, Heard::Call), "it hears that this one does not");
    assert!(sessions.fall_asleep(&tape));
}

#[tokio::test]
async fn g04_as_many_events_are_sent_to_a_lane_as_have_places() {
    let (sessions, owner, tape) = (Sessions::default(), Owner::anonymous(), TapeName::parse("t").unwrap());
    let plain = Arrival::plain();
    let interrupts = Arrival { mode: AdmissionMode::Interrupt, ..plain };
    let looks = Arrival { kind: ArrivalKind::Beside, ..plain };
    let (_awake, lane) = sessions.reserve(&tape, &owner, 2);
    let sends = |arrival: Arrival| {
        let (mut reservation, _): (Reservation, _) = sessions.reserve(&tape, &owner, 2);
        let has_place = reservation.take_place(&arrival);
        if has_place {
            reservation.send(item(arrival), None);
        }
        has_place
    };
    assert!(sends(plain) && sends(looks), "two may wait");
    assert!(!sends(plain));
    for _ in 0..SPARE / 2 {
        assert!(sends(interrupts) && sends(looks), "these get through");
    }
    assert!(!sends(interrupts) && !sends(looks));
    let mut inbox = lane.expect("it was asleep").inbox;
    let heard: Vec<_> = std::iter::from_fn(|| inbox.next_event()).collect();
    assert_eq!(heard.len(), 2 + SPARE, "every one arrived");
    drop(heard);
    assert!(sends(plain), "those that do not wait any more leave their places");
}

#[tokio::test]
async fn a09_what_a_run_took_in_waits_no_more_and_leaves_its_place() {
    let (sessions, owner, tape) = (Sessions::default(), Owner::anonymous(), TapeName::parse("t").unwrap());
    let plain = Arrival::plain();
    let (mut reservation, lane) = sessions.reserve(&tape, &owner, 1);
    assert!(reservation.take_place(&plain));
    reservation.send(item(plain), None);
    let mut inbox = lane.expect("it was asleep").inbox;
    let arrived = inbox.next_event().expect("it arrived");
    let (key, steering) = (arrived.item.key.clone(), Steering::default());
    assert!(steering.offer(*arrived.item).is_none());
    assert!(!sessions.reserve(&tape, &owner, 1).0.take_place(&plain), "it is only offered");
    assert!(steering.take(&key));
    assert!(sessions.reserve(&tape, &owner, 1).0.take_place(&plain));
}

use std::collections::BTreeSet;
use std::sync::Arc;

use capstan_protocol::{Event, EventId, EventKey, Outcome, SessionId, TapeName, Timestamp, WorkspaceId};
use capstan_tape::{Batch, EntryDraft, EntryRef, Fact, MemoryStore, NewTape, TapeRepository, TapeSlice};
use serde_json::json;

use super::{ConservationReport, EventLedger, EventOnTape, SurplusEvent, SurplusReason};

fn parse_tape(name: &str) -> TapeName {
    TapeName::parse(name).unwrap()
}

fn event_on_tape(name: &str, event: &str) -> EventOnTape {
    let event = EventKey { source: "cli".into(), bot_id: String::new(), event_id: EventId::new(event) };
    EventOnTape { tape: parse_tape(name), event }
}

fn events_on_t<const N: usize>(events: [&str; N]) -> BTreeSet<EventOnTape> {
    events.into_iter().map(|event| event_on_tape("t", event)).collect()
}

fn event_ledger<const A: usize, const O: usize, const F: usize>(
    a: [&str; A],
    o: [&str; O],
    f: [&str; F],
) -> EventLedger {
    let accepted = a.into_iter().map(|event| event_on_tape("t", event)).collect();
    EventLedger { accepted, outcomes: events_on_t(o), in_flight: events_on_t(f) }
}

fn surplus_event(event: &str, why: SurplusReason) -> SurplusEvent {
    SurplusEvent { event: event_on_tape("t", event), why }
}

#[test]
fn x01_a_ledger_with_every_event_once_is_balanced() {
    assert_eq!(EventLedger::default().compare(), Default::default());
    assert_eq!(event_ledger(["a", "b", "c"], ["a", "c"], ["b"]).compare(), Default::default());
}

#[test]
fn x01_an_event_without_a_row_is_missing_even_if_the_counts_agree() {
    let found = event_ledger(["a", "b"], ["a"], ["x"]).compare();
    assert_eq!(found.missing, [event_on_tape("t", "b")]);
    assert_eq!(found.surplus, [surplus_event("x", SurplusReason::InFlightWithoutEntry)]);
}

#[test]
fn x01_an_event_recorded_twice_is_surplus() {
    let found = event_ledger(["a", "b", "b"], ["a", "b", "x"], ["a"]).compare();
    assert!(found.missing.is_empty());
    let expected = [
        ("a", SurplusReason::OutcomeAndInFlight),
        ("b", SurplusReason::AcceptedTwice),
        ("x", SurplusReason::OutcomeWithoutEntry),
    ];
    assert_eq!(found.surplus, expected.map(|(event, why)| surplus_event(event, why)));
}

#[test]
fn x01_an_outcome_on_another_tape_does_not_count() {
    let mut ledger = event_ledger(["a"], [], []);
    ledger.outcomes.insert(event_on_tape("u", "a"));
    let found = ledger.compare();
    assert_eq!(found.missing, [event_on_tape("t", "a")]);
    assert_eq!(found.surplus[0].event, event_on_tape("u", "a"));
}

/// Tapes of a host that accepts events.
struct AcceptingTapes(TapeRepository);

impl AcceptingTapes {
    fn new() -> Self {
        Self(TapeRepository::new(Arc::new(MemoryStore::new())))
    }

    async fn accept(&self, name: &str, id: &str) -> EventKey {
        let mut event = Event::message("cli", "local", "hello");
        event.event_id = EventId::new(id);
        let (key, session) = (EventKey::from(&event), SessionId::new(format!("session of {name}")));
        let mut batch = Batch::new();
        let (known, workspace) = (Some(session.clone()), Some(WorkspaceId::new("/w")));
        batch.push(Fact::EnsureTape(NewTape {
            session: known,
            workspace,
            ..NewTape::without_session(parse_tape(name))
        }));
        let entry =
            batch.append(&parse_tape(name), EntryDraft::event("event.accepted", json!({ "event": event })).hidden());
        self.commit_accept(batch, &key, session, name, entry).await;
        key
    }

    async fn commit_accept(&self, mut batch: Batch, key: &EventKey, session: SessionId, name: &str, entry: EntryRef) {
        let (at, owner) = (Timestamp::from_millis(0), "host-1".to_owned());
        batch.push(Fact::AcceptEvent {
            key: key.clone(),
            session,
            tape: parse_tape(name),
            entry,
            accepted_at: at,
            owner,
        });
        self.0.commit(batch).await.unwrap();
    }

    async fn settle(&self, key: EventKey) {
        let mut batch = Batch::new();
        batch.push(Fact::SettleEvent { key, outcome: Outcome::Silent, run_id: None });
        self.0.commit(batch).await.unwrap();
    }

    async fn copy(&self, from: &str, to: &str) {
        let entries = self.0.read(&parse_tape(from), &TapeSlice::all()).await.unwrap();
        let mut batch = Batch::new();
        batch.push(Fact::EnsureTape(NewTape::without_session(parse_tape(to))));
        batch.push(Fact::ImportEntries { tape: parse_tape(to), entries });
        self.0.commit(batch).await.unwrap();
    }

    async fn check(&self) -> ConservationReport {
        ConservationReport::check(&self.0).await.unwrap()
    }
}

#[tokio::test]
async fn x01_events_of_every_generation_are_counted_by_session() {
    let tapes = AcceptingTapes::new();
    let first = tapes.accept("t", "a").await;
    tapes.settle(first).await;
    tapes.0.reset(&parse_tape("t"), false).await.unwrap();
    tapes.accept("t", "b").await;
    tapes.accept("u", "c").await;
    let found = tapes.check().await;
    assert!(found.is_balanced(), "{found:?}");
    assert_eq!((found.accepted, found.outcomes, found.in_flight), (3, 1, 2));
    let counts = found
        .sessions
        .iter()
        .map(|ledger| (ledger.session.as_str(), ledger.accepted, ledger.outcomes, ledger.in_flight));
    assert_eq!(counts.collect::<Vec<_>>(), [("session of t", 2, 1, 1), ("session of u", 1, 0, 1)]);
}

#[tokio::test]
async fn x01_an_entry_without_a_row_is_missing() {
    let tapes = AcceptingTapes::new();
    let key = tapes.accept("t", "a").await;
    let mut event = Event::message("cli", "local", "lost");
    event.event_id = EventId::new("lost");
    let mut batch = Batch::new();
    batch.append(&parse_tape("t"), EntryDraft::event("event.accepted", json!({ "event": event })));
    batch.append(&parse_tape("t"), EntryDraft::event("event.accepted", json!({ "event": "not an event" })));
    tapes.0.commit(batch).await.unwrap();
    tapes.settle(key).await;
    let found = tapes.check().await;
    assert_eq!(found.missing, [event_on_tape("t", "lost")]);
    assert_eq!(found.unreadable.len(), 1);
    assert!(!found.is_balanced());
}

#[tokio::test]
async fn x01_copies_of_a_tape_are_not_counted() {
    let tapes = AcceptingTapes::new();
    tapes.accept("t", "a").await;
    tapes.0.fork(&parse_tape("t"), &parse_tape("fork"), None).await.unwrap();
    tapes.copy("t", "copy").await;
    let found = tapes.check().await;
    assert!(found.is_balanced(), "{found:?}");
    assert_eq!((found.accepted, found.in_flight, found.sessions.len()), (1, 1, 1));
}

#[tokio::test]
async fn x01_events_of_another_host_on_an_imported_tape_are_not_counted() {
    let other_host = AcceptingTapes::new();
    other_host.accept("t", "old").await;
    let tapes = AcceptingTapes::new();
    let entries = other_host.0.read(&parse_tape("t"), &TapeSlice::all()).await.unwrap();
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(parse_tape("t"))));
    batch.push(Fact::ImportEntries { tape: parse_tape("t"), entries });
    tapes.0.commit(batch).await.unwrap();
    tapes.accept("t", "new").await;
    let found = tapes.check().await;
    assert!(found.is_balanced(), "{found:?}");
    assert_eq!((found.accepted, found.in_flight, found.brought_along), (1, 1, 1));
}

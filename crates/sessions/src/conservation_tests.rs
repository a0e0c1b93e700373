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
    SurplusEvent { standing: event_on_tape("t", event), why }
}

#[test]
fn x01_books_in_which_every_event_is_once_do_not_differ() {
    assert_eq!(EventLedger::default().compare(), Default::default());
    assert_eq!(event_ledger(["a", "b", "c"], ["a", "c"], ["b"]).compare(), Default::default());
}

#[test]
fn x01_an_event_that_is_nowhere_is_missing_also_when_the_numbers_agree() {
    let found = event_ledger(["a", "b"], ["a"], ["x"]).compare();
    assert_eq!(found.missing, [event_on_tape("t", "b")]);
    assert_eq!(found.surplus, [surplus_event("x", SurplusReason::InFlightWithoutEntry)]);
}

#[test]
fn x01_an_event_that_is_somewhere_twice_is_surplus() {
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
    let mut elsewhere = event_ledger(["a"], [], []);
    elsewhere.outcomes.insert(event_on_tape("u", "a"));
    let found = elsewhere.compare();
    assert_eq!(found.missing, [event_on_tape("t", "a")]);
    assert_eq!(found.surplus[0].standing, event_on_tape("u", "a"));
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
        batch.push(Fact::EnsureTape(NewTape { session: known, workspace, ..NewTape::with_name(parse_tape(name)) }));
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
        batch.push(Fact::EnsureTape(NewTape::with_name(parse_tape(to))));
        batch.push(Fact::ImportEntries { tape: parse_tape(to), entries });
        self.0.commit(batch).await.unwrap();
    }

    async fn check(&self) -> ConservationReport {
        ConservationReport::check(&self.0).await.unwrap()
    }
}

#[tokio::test]
async fn x01_events_of_every_generation_are_counted_by_session() {
    let journal = AcceptingTapes::new();
    let first = journal.accept("t", "a").await;
    journal.settle(first).await;
    journal.0.reset(&parse_tape("t"), false).await.unwrap();
    journal.accept("t", "b").await;
    journal.accept("u", "c").await;
    let found = journal.check().await;
    assert!(found.is_balanced(), "{found:?}");
    assert_eq!((found.accepted, found.outcomes, found.in_flight), (3, 1, 2));
    let numbers = found.sessions.iter().map(|one| (one.session.as_str(), one.accepted, one.outcomes, one.in_flight));
    assert_eq!(numbers.collect::<Vec<_>>(), [("session of t", 2, 1, 1), ("session of u", 1, 0, 1)]);
}

#[tokio::test]
async fn x01_an_entry_without_a_row_is_missing() {
    let journal = AcceptingTapes::new();
    let key = journal.accept("t", "a").await;
    let mut event = Event::message("cli", "local", "lost");
    event.event_id = EventId::new("lost");
    let mut batch = Batch::new();
    batch.append(&parse_tape("t"), EntryDraft::event("event.accepted", json!({ "event": event })));
    batch.append(&parse_tape("t"), EntryDraft::event("event.accepted", json!({ "event": "what" })));
    journal.0.commit(batch).await.unwrap();
    journal.settle(key).await;
    let found = journal.check().await;
    assert_eq!(found.missing, [event_on_tape("t", "lost")]);
    assert_eq!(found.unreadable.len(), 1);
    assert!(!found.is_balanced());
}

#[tokio::test]
async fn x01_copies_of_a_tape_count_for_nothing() {
    let journal = AcceptingTapes::new();
    journal.accept("t", "a").await;
    journal.0.fork(&parse_tape("t"), &parse_tape("fork"), None).await.unwrap();
    journal.copy("t", "copy").await;
    let found = journal.check().await;
    assert!(found.is_balanced(), "{found:?}");
    assert_eq!((found.accepted, found.in_flight, found.sessions.len()), (1, 1, 1));
}

#[tokio::test]
async fn x01_what_another_host_accepted_counts_for_nothing_when_its_tape_goes_on_here() {
    let elsewhere = AcceptingTapes::new();
    elsewhere.accept("t", "old").await;
    let journal = AcceptingTapes::new();
    let entries = elsewhere.0.read(&parse_tape("t"), &TapeSlice::all()).await.unwrap();
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::with_name(parse_tape("t"))));
    batch.push(Fact::ImportEntries { tape: parse_tape("t"), entries });
    journal.0.commit(batch).await.unwrap();
    journal.accept("t", "new").await;
    let found = journal.check().await;
    assert!(found.is_balanced(), "{found:?}");
    assert_eq!((found.accepted, found.in_flight, found.brought_along), (1, 1, 1));
}

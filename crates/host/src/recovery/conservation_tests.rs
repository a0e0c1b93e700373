use std::collections::BTreeSet;
use std::sync::Arc;

use capstan_protocol::{Event, EventId, EventKey, Outcome, SessionId, TapeName, Timestamp, WorkspaceId};
use capstan_tape::{Batch, Draft, EntryRef, Fact, MemoryStore, NewTape, Slice, Tapes};
use serde_json::json;

use super::{Books, Conservation, Excess, Standing, Surplus};

fn tape(name: &str) -> TapeName {
    TapeName::parse(name).unwrap()
}

fn standing(name: &str, event: &str) -> Standing {
    let event = EventKey { source: "cli".into(), bot_id: String::new(), event_id: EventId::new(event) };
    Standing { tape: tape(name), event }
}

fn on_t<const N: usize>(events: [&str; N]) -> BTreeSet<Standing> {
    events.into_iter().map(|event| standing("t", event)).collect()
}

fn books<const A: usize, const O: usize, const F: usize>(a: [&str; A], o: [&str; O], f: [&str; F]) -> Books {
    let accepted = a.into_iter().map(|event| standing("t", event)).collect();
    Books { accepted, outcomes: on_t(o), in_flight: on_t(f) }
}

fn surplus(event: &str, why: Excess) -> Surplus {
    Surplus { standing: standing("t", event), why }
}

#[test]
fn x01_books_in_which_every_event_is_once_do_not_differ() {
    assert_eq!(Books::default().compare(), Default::default());
    assert_eq!(books(["a", "b", "c"], ["a", "c"], ["b"]).compare(), Default::default());
}

#[test]
fn x01_an_event_that_is_nowhere_is_missing_also_when_the_numbers_agree() {
    let found = books(["a", "b"], ["a"], ["x"]).compare();
    assert_eq!(found.missing, [standing("t", "b")]);
    assert_eq!(found.surplus, [surplus("x", Excess::InFlightWithoutEntry)]);
}

#[test]
fn x01_an_event_that_is_somewhere_twice_is_surplus() {
    let found = books(["a", "b", "b"], ["a", "b", "x"], ["a"]).compare();
    assert!(found.missing.is_empty());
    let expected =
        [("a", Excess::OutcomeAndInFlight), ("b", Excess::AcceptedTwice), ("x", Excess::OutcomeWithoutEntry)];
    assert_eq!(found.surplus, expected.map(|(event, why)| surplus(event, why)));
}

#[test]
fn x01_an_outcome_on_another_tape_does_not_count() {
    let mut elsewhere = books(["a"], [], []);
    elsewhere.outcomes.insert(standing("u", "a"));
    let found = elsewhere.compare();
    assert_eq!(found.missing, [standing("t", "a")]);
    assert_eq!(found.surplus[0].standing, standing("u", "a"));
}

/// Tapes of a host that accepts events.
struct Journal(Tapes);

impl Journal {
    fn new() -> Self {
        Self(Tapes::new(Arc::new(MemoryStore::new())))
    }

    async fn accept(&self, name: &str, id: &str) -> EventKey {
        let mut event = Event::message("cli", "local", "hello");
        event.event_id = EventId::new(id);
        let (key, session) = (EventKey::from(&event), SessionId::new(format!("session of {name}")));
        let mut batch = Batch::new();
        let (known, workspace) = (Some(session.clone()), Some(WorkspaceId::new("/w")));
        batch.push(Fact::EnsureTape(NewTape { session: known, workspace, ..NewTape::named(tape(name)) }));
        let entry = batch.append(&tape(name), Draft::event("event.accepted", json!({ "event": event })).hidden());
        self.commit_accept(batch, &key, session, name, entry).await;
        key
    }

    async fn commit_accept(&self, mut batch: Batch, key: &EventKey, session: SessionId, name: &str, entry: EntryRef) {
        let (at, owner) = (Timestamp::from_millis(0), "host-1".to_owned());
        batch.push(Fact::Accept { key: key.clone(), session, tape: tape(name), entry, at, owner });
        self.0.commit(batch).await.unwrap();
    }

    async fn settle(&self, key: EventKey) {
        let mut batch = Batch::new();
        batch.push(Fact::Settle { key, outcome: Outcome::Silent, run_id: None });
        self.0.commit(batch).await.unwrap();
    }

    async fn copy(&self, from: &str, to: &str) {
        let entries = self.0.read(&tape(from), &Slice::all()).await.unwrap();
        let mut batch = Batch::new();
        batch.push(Fact::EnsureTape(NewTape::named(tape(to))));
        batch.push(Fact::Import { tape: tape(to), entries });
        self.0.commit(batch).await.unwrap();
    }

    async fn check(&self) -> Conservation {
        Conservation::check(&self.0).await.unwrap()
    }
}

#[tokio::test]
async fn x01_events_of_every_generation_are_counted_by_session() {
    let journal = Journal::new();
    let first = journal.accept("t", "a").await;
    journal.settle(first).await;
    journal.0.reset(&tape("t"), false).await.unwrap();
    journal.accept("t", "b").await;
    journal.accept("u", "c").await;
    let found = journal.check().await;
    assert!(found.holds(), "{found:?}");
    assert_eq!((found.accepted, found.outcomes, found.in_flight), (3, 1, 2));
    let numbers = found.sessions.iter().map(|one| (one.session.as_str(), one.accepted, one.outcomes, one.in_flight));
    assert_eq!(numbers.collect::<Vec<_>>(), [("session of t", 2, 1, 1), ("session of u", 1, 0, 1)]);
}

#[tokio::test]
async fn x01_an_entry_without_a_row_is_missing() {
    let journal = Journal::new();
    let key = journal.accept("t", "a").await;
    let mut event = Event::message("cli", "local", "lost");
    event.event_id = EventId::new("lost");
    let mut batch = Batch::new();
    batch.append(&tape("t"), Draft::event("event.accepted", json!({ "event": event })));
    batch.append(&tape("t"), Draft::event("event.accepted", json!({ "event": "what" })));
    journal.0.commit(batch).await.unwrap();
    journal.settle(key).await;
    let found = journal.check().await;
    assert_eq!(found.missing, [standing("t", "lost")]);
    assert_eq!(found.unreadable.len(), 1);
    assert!(!found.holds());
}

#[tokio::test]
async fn x01_copies_of_a_tape_count_for_nothing() {
    let journal = Journal::new();
    journal.accept("t", "a").await;
    journal.0.fork(&tape("t"), &tape("fork"), None).await.unwrap();
    journal.copy("t", "copy").await;
    let found = journal.check().await;
    assert!(found.holds(), "{found:?}");
    assert_eq!((found.accepted, found.in_flight, found.sessions.len()), (1, 1, 1));
}

#[tokio::test]
async fn x01_what_another_host_accepted_counts_for_nothing_when_its_tape_goes_on_here() {
    let elsewhere = Journal::new();
    elsewhere.accept("t", "old").await;
    let journal = Journal::new();
    let entries = elsewhere.0.read(&tape("t"), &Slice::all()).await.unwrap();
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::named(tape("t"))));
    batch.push(Fact::Import { tape: tape("t"), entries });
    journal.0.commit(batch).await.unwrap();
    journal.accept("t", "new").await;
    let found = journal.check().await;
    assert!(found.holds(), "{found:?}");
    assert_eq!((found.accepted, found.in_flight, found.brought_along), (1, 1, 1));
}

//! Events in flight, open runs and pending messages.

use capstan_protocol::{EntryId, OutboundMessage, Outcome, RunId};
use capstan_tape::{
    EntryRef, EventIngestion, Fact, InFlightEvent, NewOutboxMessage, OutboxId, OutboxStatus, RunRecord, RunStatus,
    SettledEvent, Store, StoreError,
};

use super::fixture::{
    batch_entry, commit, create_tape_batch, event_key, new_outbound, run_record, single_fact_batch, tape_name,
    timestamp, user_message,
};

fn in_flight_event(event_id: &str, entry: u64) -> InFlightEvent {
    InFlightEvent {
        key: event_key(event_id),
        session: "s".into(),
        tape: tape_name("t"),
        entry: EntryId(entry),
        accepted_at: timestamp(1),
        owner: Some("p1".to_owned()),
        adoptions: 0,
        ingestion: None,
    }
}

fn accept_fact(event_id: &str, entry: EntryRef) -> Fact {
    let InFlightEvent { key, session, tape, accepted_at, .. } = in_flight_event(event_id, 0);
    Fact::AcceptEvent { key, session, tape, entry, accepted_at, owner: "p1".to_owned() }
}

pub(super) async fn event_is_in_flight_until_it_is_settled(store: &dyn Store) {
    let (tape, elsewhere) = (tape_name("t"), tape_name("elsewhere"));
    let mut batch = create_tape_batch(&tape, [user_message("one"), user_message("two")]);
    batch.push(accept_fact("b", batch_entry(1)));
    batch.push(accept_fact("a", batch_entry(2)));
    commit(store, batch).await;
    let both = [in_flight_event("b", 1), in_flight_event("a", 2)];
    assert_eq!(store.in_flight_events(None).collect().await.unwrap(), both, "in the order of their entries");
    assert_eq!(store.in_flight_events(Some(&tape)).collect().await.unwrap(), both);
    assert_eq!(store.in_flight_events(Some(&elsewhere)).collect().await.unwrap(), []);
    assert_eq!(store.settled_events().collect().await.unwrap(), []);

    commit(store, single_fact_batch(Fact::SettleEvent { key: event_key("b"), outcome: Outcome::Silent, run_id: None }))
        .await;
    assert_eq!(store.in_flight_events(Some(&tape)).collect().await.unwrap(), [in_flight_event("a", 2)]);
    assert_eq!(store.settled_events().collect().await.unwrap(), [SettledEvent { key: event_key("b"), tape }]);
}

pub(super) async fn event_is_adopted_from_its_owner(store: &dyn Store) {
    let mut batch = create_tape_batch(&tape_name("t"), [user_message("one")]);
    batch.push(accept_fact("e", batch_entry(1)));
    commit(store, batch).await;
    let adopt = |from: &str, owner: &str| Fact::AdoptEvent {
        key: event_key("e"),
        from: Some(from.to_owned()),
        owner: owner.to_owned(),
        was_in_progress: true,
    };
    commit(store, single_fact_batch(adopt("p1", "p2"))).await;
    let late = store.commit(single_fact_batch(adopt("p1", "p3"))).await;
    assert_eq!(
        late,
        Err(StoreError::EventNotInFlight { key: event_key("e") }),
        "only one of two owners adopts an event"
    );
    let adopted = InFlightEvent { owner: Some("p2".to_owned()), adoptions: 1, ..in_flight_event("e", 1) };
    assert_eq!(store.in_flight_events(None).collect().await.unwrap(), [adopted]);
    commit(store, single_fact_batch(Fact::SettleEvent { key: event_key("e"), outcome: Outcome::Silent, run_id: None }))
        .await;
    assert_eq!(
        store.commit(single_fact_batch(adopt("p2", "p3"))).await,
        Err(StoreError::EventNotInFlight { key: event_key("e") })
    );
}

pub(super) async fn ingested_event_refers_to_its_message(store: &dyn Store) {
    let mut batch = create_tape_batch(&tape_name("t"), [user_message("one")]);
    batch.push(accept_fact("e", batch_entry(1)));
    commit(store, batch).await;
    let ingest = |run: &str, message| Fact::IngestEvent { key: event_key("e"), run_id: RunId::new(run), message };
    let ingested = |run: &str, message| InFlightEvent {
        ingestion: Some(EventIngestion { run_id: RunId::new(run), message_entry: EntryId(message) }),
        ..in_flight_event("e", 1)
    };
    let mut batch = create_tape_batch(&tape_name("t"), [user_message("one")]);
    batch.push(ingest("r1", batch_entry(1)));
    commit(store, batch).await;
    assert_eq!(store.in_flight_events(None).collect().await.unwrap(), [ingested("r1", 2)]);
    commit(store, single_fact_batch(ingest("r2", EntryRef::Id(EntryId(2))))).await;
    assert_eq!(
        store.in_flight_events(None).collect().await.unwrap(),
        [ingested("r2", 2)],
        "a later run ingests the same message"
    );
    commit(store, single_fact_batch(Fact::SettleEvent { key: event_key("e"), outcome: Outcome::Silent, run_id: None }))
        .await;
    let late = store.commit(single_fact_batch(ingest("r3", EntryRef::Id(EntryId(2))))).await;
    assert_eq!(late, Err(StoreError::EventNotInFlight { key: event_key("e") }));
}

pub(super) async fn open_run_is_listed_and_can_be_cancelled(store: &dyn Store) {
    for id in ["r1", "r2"] {
        commit(store, single_fact_batch(Fact::OpenRun(Box::new(run_record(id, timestamp(7)))))).await;
    }
    let end =
        Fact::EndRun { run_id: RunId::new("r1"), status: RunStatus::Completed, usage: None, ended_at: timestamp(9) };
    commit(store, single_fact_batch(end)).await;
    assert_eq!(store.open_runs().collect().await.unwrap(), [run_record("r2", timestamp(7))]);
    for id in ["r1", "r2", "none"] {
        commit(store, single_fact_batch(Fact::RequestCancel { run_id: RunId::new(id) })).await;
    }
    let cancel_requested: Vec<bool> =
        store.open_runs().collect().await.unwrap().iter().map(|run| run.cancel_requested).collect();
    assert_eq!(cancel_requested, [true]);
    let ended = store.run(&RunId::new("r1")).await.unwrap().unwrap();
    assert_eq!((ended.status, ended.cancel_requested), (RunStatus::Completed, false), "an ended run does not change");
}

pub(super) async fn run_is_created_started_and_ended_once(store: &dyn Store) {
    let run_id = RunId::new("r");
    let created = RunRecord { status: RunStatus::Created, ..run_record("r", timestamp(7)) };
    commit(store, single_fact_batch(Fact::OpenRun(Box::new(created.clone())))).await;
    assert_eq!(store.open_runs().collect().await.unwrap(), [created], "a created run is open");
    let status = async || store.run(&run_id).await.unwrap().unwrap().status;
    let start = || Fact::StartRun { run_id: run_id.clone() };
    commit(store, single_fact_batch(start())).await;
    assert_eq!(status().await, RunStatus::Running);
    for ended_as in [RunStatus::Interrupted, RunStatus::Completed] {
        commit(
            store,
            single_fact_batch(Fact::EndRun {
                run_id: run_id.clone(),
                status: ended_as,
                usage: None,
                ended_at: timestamp(9),
            }),
        )
        .await;
        assert_eq!(status().await, RunStatus::Interrupted, "the first end counts");
    }
    commit(store, single_fact_batch(start())).await;
    assert_eq!(status().await, RunStatus::Interrupted, "an ended run does not start again");
    assert_eq!(store.open_runs().collect().await.unwrap(), []);
}

pub(super) async fn messages_are_pending_until_their_delivery_is_recorded(store: &dyn Store) {
    for text in ["one", "two", "three"] {
        commit(store, single_fact_batch(Fact::EnqueueOutbound(new_outbound(text)))).await;
    }
    let rows = store.pending_outbound().collect().await.unwrap();
    let elsewhere = NewOutboxMessage {
        message: OutboundMessage { chat_id: "2".into(), ..rows[0].message.clone() },
        ..new_outbound("x")
    };
    let first = OutboxId(0);
    let before =
        async |row: usize, message| store.pending_outbound_before(rows[row].id, message, first, 10).await.unwrap();
    assert_eq!(before(2, &rows[2].message).await, rows[..2], "the messages that were staged before it");
    assert_eq!(before(0, &rows[0].message).await, []);
    assert_eq!(before(2, &elsewhere.message).await, [], "to another chat");
    let page =
        async |after, limit| store.pending_outbound_before(rows[2].id, &rows[2].message, after, limit).await.unwrap();
    assert_eq!(page(first, 1).await, rows[..1], "at most the limit");
    assert_eq!(page(rows[0].id, 1).await, rows[1..2], "then the messages after the cursor");
    assert_eq!(page(rows[1].id, 1).await, []);
    let statuses = [
        OutboxStatus::sent(),
        OutboxStatus::Waiting { attempts: 1, may_have_been_sent: true, reason: Some("no answer".to_owned()) },
        OutboxStatus::Undelivered { reason: "gone".to_owned() },
    ];
    for (row, status) in rows.iter().zip(statuses.clone()) {
        commit(store, single_fact_batch(Fact::RecordDelivery { id: row.id, status })).await;
    }
    let adopt = |row: usize, from: &str| Fact::AdoptOutbound {
        id: rows[row].id,
        from: Some(from.to_owned()),
        owner: "p2".to_owned(),
    };
    commit(store, single_fact_batch(adopt(1, "p1"))).await;
    for conflicting in [adopt(0, "p1"), adopt(1, "p1")] {
        assert!(
            matches!(store.commit(single_fact_batch(conflicting)).await, Err(StoreError::OutboxConflict { .. })),
            "the message was sent or has another owner"
        );
    }
    let waiting = store.pending_outbound().collect().await.unwrap();
    assert_eq!(waiting.iter().map(|row| row.owner.as_deref()).collect::<Vec<_>>(), [Some("p2")]);
    assert_eq!(waiting.iter().map(|row| row.status.clone()).collect::<Vec<_>>(), [statuses[1].clone()]);
    assert_eq!((waiting[0].id, &waiting[0].event), (rows[1].id, &event_key("e")));
    assert_eq!(before(2, &rows[2].message).await, waiting, "a message that is not pending is not listed");
    let all = store.outbox_records(&event_key("e")).collect().await.unwrap();
    assert_eq!(all.into_iter().map(|row| row.status).collect::<Vec<_>>(), statuses);
}

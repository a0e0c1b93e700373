//! Events between acceptance and outcome, runs that have not ended, messages that wait.

use capstan_protocol::{EntryId, Outbound, Outcome, RunId};
use capstan_tape::{
    EntryRef, Fact, InFlight, NewOutbound, OutboxId, OutboxStatus, RunRecord, RunStatus, Settled, Store, StoreError,
    TakenIn,
};

use super::fixture::{at, begin, commit, in_batch, just, key, name, outbound, run_record, user};

fn accepted(event_id: &str, entry: u64) -> InFlight {
    InFlight {
        key: key(event_id),
        session: "s".into(),
        tape: name("t"),
        entry: EntryId(entry),
        at: at(1),
        owner: Some("p1".to_owned()),
        adoptions: 0,
        taken_in: None,
    }
}

fn accept(event_id: &str, entry: EntryRef) -> Fact {
    let InFlight { key, session, tape, at, .. } = accepted(event_id, 0);
    Fact::Accept { key, session, tape, entry, at, owner: "p1".to_owned() }
}

pub(super) async fn an_event_is_in_flight_until_it_is_settled(store: &dyn Store) {
    let (tape, elsewhere) = (name("t"), name("elsewhere"));
    let mut batch = begin(&tape, [user("one"), user("two")]);
    batch.push(accept("b", in_batch(1)));
    batch.push(accept("a", in_batch(2)));
    commit(store, batch).await;
    let both = [accepted("b", 1), accepted("a", 2)];
    assert_eq!(store.in_flight(None).await.unwrap(), both, "in the order of their entries");
    assert_eq!(store.in_flight(Some(&tape)).await.unwrap(), both);
    assert_eq!(store.in_flight(Some(&elsewhere)).await.unwrap(), []);
    assert_eq!(store.settled().await.unwrap(), []);

    commit(store, just(Fact::Settle { key: key("b"), outcome: Outcome::Silent, run_id: None })).await;
    assert_eq!(store.in_flight(Some(&tape)).await.unwrap(), [accepted("a", 2)]);
    assert_eq!(store.settled().await.unwrap(), [Settled { key: key("b"), tape }]);
}

pub(super) async fn an_event_is_taken_over_from_whoever_had_it(store: &dyn Store) {
    let mut batch = begin(&name("t"), [user("one")]);
    batch.push(accept("e", in_batch(1)));
    commit(store, batch).await;
    let adopt = |from: &str, owner: &str| Fact::Adopt {
        key: key("e"),
        from: Some(from.to_owned()),
        owner: owner.to_owned(),
        was_worked_on: true,
    };
    commit(store, just(adopt("p1", "p2"))).await;
    let late = store.commit(just(adopt("p1", "p3"))).await;
    assert_eq!(late, Err(StoreError::NotOpen { key: key("e") }), "only one of two takes it over");
    let adopted = InFlight { owner: Some("p2".to_owned()), adoptions: 1, ..accepted("e", 1) };
    assert_eq!(store.in_flight(None).await.unwrap(), [adopted]);
    commit(store, just(Fact::Settle { key: key("e"), outcome: Outcome::Silent, run_id: None })).await;
    assert_eq!(store.commit(just(adopt("p2", "p3"))).await, Err(StoreError::NotOpen { key: key("e") }));
}

pub(super) async fn an_event_that_was_taken_in_knows_its_message(store: &dyn Store) {
    let mut batch = begin(&name("t"), [user("one")]);
    batch.push(accept("e", in_batch(1)));
    commit(store, batch).await;
    let takes = |run: &str, message| Fact::TakeIn { key: key("e"), run_id: RunId::new(run), message };
    let after = |run: &str, message| InFlight {
        taken_in: Some(TakenIn { run_id: RunId::new(run), message: EntryId(message) }),
        ..accepted("e", 1)
    };
    let mut batch = begin(&name("t"), [user("one")]);
    batch.push(takes("r1", in_batch(1)));
    commit(store, batch).await;
    assert_eq!(store.in_flight(None).await.unwrap(), [after("r1", 2)]);
    commit(store, just(takes("r2", EntryRef::Id(EntryId(2))))).await;
    assert_eq!(store.in_flight(None).await.unwrap(), [after("r2", 2)], "a later run takes the same message in");
    commit(store, just(Fact::Settle { key: key("e"), outcome: Outcome::Silent, run_id: None })).await;
    let late = store.commit(just(takes("r3", EntryRef::Id(EntryId(2))))).await;
    assert_eq!(late, Err(StoreError::NotOpen { key: key("e") }));
}

pub(super) async fn a_run_that_has_not_ended_is_found_and_can_be_asked_to_end(store: &dyn Store) {
    for id in ["r1", "r2"] {
        commit(store, just(Fact::OpenRun(Box::new(run_record(id, at(7)))))).await;
    }
    let end = Fact::EndRun { run_id: RunId::new("r1"), status: RunStatus::Completed, usage: None, at: at(9) };
    commit(store, just(end)).await;
    assert_eq!(store.running().await.unwrap(), [run_record("r2", at(7))]);
    for id in ["r1", "r2", "none"] {
        commit(store, just(Fact::RequestCancel { run_id: RunId::new(id) })).await;
    }
    let asked: Vec<bool> = store.running().await.unwrap().iter().map(|run| run.cancel_requested).collect();
    assert_eq!(asked, [true]);
    let ended = store.run(&RunId::new("r1")).await.unwrap().unwrap();
    assert_eq!((ended.status, ended.cancel_requested), (RunStatus::Completed, false), "what has ended stays as it is");
}

pub(super) async fn a_run_is_created_started_and_ended_once(store: &dyn Store) {
    let run_id = RunId::new("r");
    let created = RunRecord { status: RunStatus::Created, ..run_record("r", at(7)) };
    commit(store, just(Fact::OpenRun(Box::new(created.clone())))).await;
    assert_eq!(store.running().await.unwrap(), [created], "it has not ended");
    let status = async || store.run(&run_id).await.unwrap().unwrap().status;
    let start = || Fact::StartRun { run_id: run_id.clone() };
    commit(store, just(start())).await;
    assert_eq!(status().await, RunStatus::Running);
    for (ends, is) in [(RunStatus::Interrupted, RunStatus::Interrupted), (RunStatus::Completed, RunStatus::Interrupted)]
    {
        commit(store, just(Fact::EndRun { run_id: run_id.clone(), status: ends, usage: None, at: at(9) })).await;
        assert_eq!(status().await, is, "the first end counts");
    }
    commit(store, just(start())).await;
    assert_eq!(status().await, RunStatus::Interrupted, "what has ended does not start");
    assert_eq!(store.running().await.unwrap(), []);
}

pub(super) async fn messages_wait_until_their_fate_is_known(store: &dyn Store) {
    for text in ["one", "two", "three"] {
        commit(store, just(Fact::Enqueue(outbound(text)))).await;
    }
    let rows = store.waiting().await.unwrap();
    let elsewhere =
        NewOutbound { message: Outbound { chat_id: "2".into(), ..rows[0].message.clone() }, ..outbound("x") };
    let first = OutboxId(0);
    let before = async |row: usize, message| store.waiting_before(rows[row].id, message, first, 10).await.unwrap();
    assert_eq!(before(2, &rows[2].message).await, rows[..2], "those that were staged before it");
    assert_eq!(before(0, &rows[0].message).await, []);
    assert_eq!(before(2, &elsewhere.message).await, [], "to another chat");
    let page = async |after, limit| store.waiting_before(rows[2].id, &rows[2].message, after, limit).await.unwrap();
    assert_eq!(page(first, 1).await, rows[..1], "no more than are asked for");
    assert_eq!(page(rows[0].id, 1).await, rows[1..2], "and then those after them");
    assert_eq!(page(rows[1].id, 1).await, []);
    let became = [
        OutboxStatus::sent(),
        OutboxStatus::Waiting { attempts: 1, fate_unknown: true, reason: Some("no answer".to_owned()) },
        OutboxStatus::Undelivered { reason: "gone".to_owned() },
    ];
    for (row, status) in rows.iter().zip(became.clone()) {
        commit(store, just(Fact::Delivery { id: row.id, status })).await;
    }
    let adopt = |row: usize, from: &str| Fact::AdoptOutbound {
        id: rows[row].id,
        from: Some(from.to_owned()),
        owner: "p2".to_owned(),
    };
    commit(store, just(adopt(1, "p1"))).await;
    for taken in [adopt(0, "p1"), adopt(1, "p1")] {
        assert!(matches!(store.commit(just(taken)).await, Err(StoreError::Taken { .. })), "sent, or another's by now");
    }
    let waiting = store.waiting().await.unwrap();
    assert_eq!(waiting.iter().map(|row| row.owner.as_deref()).collect::<Vec<_>>(), [Some("p2")]);
    assert_eq!(waiting.iter().map(|row| row.status.clone()).collect::<Vec<_>>(), [became[1].clone()]);
    assert_eq!((waiting[0].id, &waiting[0].event), (rows[1].id, &key("e")));
    assert_eq!(before(2, &rows[2].message).await, waiting, "what does not wait any more is not before it");
    let all = store.outbox(&key("e")).await.unwrap();
    assert_eq!(all.into_iter().map(|row| row.status).collect::<Vec<_>>(), became);
}

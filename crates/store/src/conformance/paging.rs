//! Listings page by page.

use capstan_protocol::{EventKey, Outcome, RunId, Timestamp};
use capstan_tape::{
    Batch, Fact, InFlightEvent, KeyValueRecord, NewOutboxMessage, OutboxId, OutboxStatus, RunStatus, Store,
};
use serde_json::json;

use super::fixture::{
    batch_entry, commit, create_tape_batch, ensure_tape, event_key, new_outbound, run_record, single_fact_batch,
    tape_name, timestamp, user_message,
};

/// More rows than one page of a listing has.
const MANY_ROWS: usize = 600;

fn numbered(prefix: &str, number: usize) -> String {
    format!("{prefix}{number:04}")
}

pub(super) async fn tapes_are_listed_page_by_page(store: &dyn Store) {
    let names: Vec<_> = (0..MANY_ROWS).map(|number| tape_name(&numbered("t", number))).collect();
    commit(store, Batch { facts: names.iter().rev().map(ensure_tape).collect(), ..Batch::new() }).await;
    let page = async |after: Option<&_>, limit| {
        let page = store.tape_page(after, limit).await.unwrap();
        page.into_iter().map(|tape| tape.name).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 2).await, names[..2]);
    assert_eq!(page(Some(&names[1]), 3).await, names[2..5]);
    assert_eq!(page(Some(&tape_name("t0001x")), 1).await, names[2..3], "a cursor need not be a row");
    assert_eq!(page(names.last(), 3).await, []);
    assert_eq!(page(None, 0).await, []);
    let all: Vec<_> = store.tapes().collect().await.unwrap().into_iter().map(|tape| tape.name).collect();
    assert_eq!(all, names);
}

pub(super) async fn runs_are_listed_page_by_page(store: &dyn Store) {
    let ids: Vec<RunId> = (0..MANY_ROWS).map(|number| RunId::new(numbered("r", MANY_ROWS - number))).collect();
    let open = |id: &RunId| Fact::OpenRun(Box::new(run_record(id.as_str(), timestamp(7))));
    commit(store, Batch { facts: ids.iter().map(open).collect(), ..Batch::new() }).await;
    let end = |id: &RunId| Fact::EndRun {
        run_id: id.clone(),
        status: RunStatus::Completed,
        usage: None,
        ended_at: timestamp(9),
    };
    commit(store, Batch { facts: ids.iter().step_by(2).map(end).collect(), ..Batch::new() }).await;
    let newest_first: Vec<RunId> = ids.iter().rev().cloned().collect();
    let still_open: Vec<RunId> = ids.iter().skip(1).step_by(2).cloned().collect();

    let page = async |before: Option<&RunId>, limit| {
        store.run_page(before, limit).await.unwrap().into_iter().map(|run| run.run_id).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 2).await, newest_first[..2]);
    assert_eq!(page(Some(&newest_first[1]), 3).await, newest_first[2..5]);
    assert_eq!(page(newest_first.last(), 3).await, []);
    assert_eq!(page(Some(&RunId::new("none")), 3).await, [], "no run comes before an unknown one");
    let open_page = async |after: Option<&RunId>, limit| {
        store.open_run_page(after, limit).await.unwrap().into_iter().map(|run| run.run_id).collect::<Vec<_>>()
    };
    assert_eq!(open_page(None, 2).await, still_open[..2]);
    assert_eq!(open_page(Some(&still_open[1]), 2).await, still_open[2..4]);
    assert_eq!(open_page(Some(&ids[0]), 1).await, still_open[..1], "the run of a cursor may have ended");
    assert_eq!(open_page(Some(&RunId::new("none")), 3).await, []);

    let run_ids = |runs: Vec<capstan_tape::RunRecord>| runs.into_iter().map(|run| run.run_id).collect::<Vec<_>>();
    assert_eq!(run_ids(store.runs().collect().await.unwrap()), newest_first);
    assert_eq!(run_ids(store.open_runs().collect().await.unwrap()), still_open);
}

/// Accepts events on a tape, all of which refer to its first entry.
async fn accept_events(store: &dyn Store, tape: &str, keys: &[EventKey]) {
    let tape = tape_name(tape);
    let mut batch = create_tape_batch(&tape, [user_message("one")]);
    for key in keys {
        batch.push(Fact::AcceptEvent {
            key: key.clone(),
            session: "s".into(),
            tape: tape.clone(),
            entry: batch_entry(1),
            accepted_at: timestamp(1),
            owner: "p1".to_owned(),
        });
    }
    commit(store, batch).await;
}

pub(super) async fn events_are_listed_page_by_page(store: &dyn Store) {
    let keys: Vec<EventKey> = (0..MANY_ROWS).map(|number| event_key(&numbered("e", number))).collect();
    let (first, second) = keys.split_at(MANY_ROWS / 2);
    accept_events(store, "b", first).await;
    accept_events(store, "a", second).await;
    let expected: Vec<EventKey> = second.iter().chain(first).cloned().collect();
    let (a, b) = (tape_name("a"), tape_name("b"));

    let all = store.in_flight_events(None).collect().await.unwrap();
    let event_keys = |events: &[InFlightEvent]| events.iter().map(|event| event.key.clone()).collect::<Vec<_>>();
    assert_eq!(event_keys(&all), expected, "by tape, entry and key");
    assert_eq!(event_keys(&store.in_flight_events(Some(&b)).collect().await.unwrap()), first);
    let boundary = second.len() - 1;
    assert_eq!(store.in_flight_page(None, Some(&all[boundary]), 2).await.unwrap(), all[boundary + 1..boundary + 3]);
    assert_eq!(store.in_flight_page(Some(&a), Some(&all[boundary]), 2).await.unwrap(), []);
    assert_eq!(store.in_flight_page(Some(&a), Some(&all[0]), 1).await.unwrap(), all[1..2]);
    assert_eq!(store.in_flight_event(&keys[0]).await.unwrap().as_ref(), Some(&all[boundary + 1]));

    let settle = |key: &EventKey| Fact::SettleEvent { key: key.clone(), outcome: Outcome::Silent, run_id: None };
    commit(store, Batch { facts: keys.iter().rev().map(settle).collect(), ..Batch::new() }).await;
    assert_eq!(store.in_flight_event(&keys[0]).await.unwrap(), None, "a settled event is not in flight");
    let after_settled = store.in_flight_page(None, Some(&all[0]), 5).await.unwrap();
    assert_eq!(after_settled, [], "the event of a cursor may be settled");
    let settled = store.settled_events().collect().await.unwrap();
    assert_eq!(settled.iter().map(|event| event.key.clone()).collect::<Vec<_>>(), keys);
    assert_eq!(store.settled_page(Some(&keys[1]), 2).await.unwrap(), settled[2..4]);
    assert_eq!(store.settled_page(keys.last(), 2).await.unwrap(), []);
}

pub(super) async fn messages_are_listed_page_by_page(store: &dyn Store) {
    let message = |number: usize| {
        let event = event_key(if number.is_multiple_of(3) { "third" } else { "e" });
        Fact::EnqueueOutbound(NewOutboxMessage { event, ..new_outbound(&numbered("m", number)) })
    };
    commit(store, Batch { facts: (0..MANY_ROWS).map(message).collect(), ..Batch::new() }).await;
    let rows = store.pending_outbound().collect().await.unwrap();
    let texts: Vec<String> = rows.iter().map(|row| row.message.content.text()).collect();
    assert_eq!(texts, (0..MANY_ROWS).map(|number| numbered("m", number)).collect::<Vec<_>>());
    assert_eq!(store.pending_page(OutboxId(0), 2).await.unwrap(), rows[..2]);
    assert_eq!(store.pending_page(rows[1].id, 2).await.unwrap(), rows[2..4]);
    commit(store, single_fact_batch(Fact::RecordDelivery { id: rows[2].id, status: OutboxStatus::sent() })).await;
    assert_eq!(store.pending_page(rows[1].id, 1).await.unwrap(), rows[3..4], "a sent message is not pending");

    let of_third = store.outbox_records(&event_key("third")).collect().await.unwrap();
    let expected: Vec<_> = rows.iter().step_by(3).cloned().collect();
    assert_eq!(of_third, expected);
    let page = store.outbox_page(&event_key("third"), of_third[0].id, 2).await.unwrap();
    assert_eq!(page, of_third[1..3]);
}

pub(super) async fn values_and_namespaces_are_listed_page_by_page(store: &dyn Store) {
    let put = |namespace: String, key: String| {
        Fact::PutKeyValue(KeyValueRecord {
            space: namespace,
            key,
            value: json!(1),
            at: Timestamp::from_millis(1),
            by: None,
        })
    };
    let keys: Vec<String> = (0..MANY_ROWS).map(|number| numbered("k", number)).collect();
    let names: Vec<String> = (0..MANY_ROWS).map(|number| numbered("state:", number)).collect();
    let values = keys.iter().map(|key| put("n".to_owned(), key.clone()));
    let namespaces = names.iter().map(|name| put(name.clone(), "k".to_owned()));
    commit(store, Batch { facts: values.chain(namespaces).collect(), ..Batch::new() }).await;

    let stored: Vec<String> =
        store.key_values("n").collect().await.unwrap().into_iter().map(|record| record.key).collect();
    assert_eq!(stored, keys);
    let listed = async |prefix: &str| {
        let records = store.namespaces(prefix).collect().await.unwrap();
        records.into_iter().map(|record| record.space).collect::<Vec<_>>()
    };
    assert_eq!(listed("state:").await, names);
    assert_eq!(listed("").await.len(), MANY_ROWS + 1);
    let page = async |prefix: &str, after: Option<&str>, limit| {
        let page = store.namespace_page(prefix, after, limit).await.unwrap();
        page.into_iter().map(|record| record.space).collect::<Vec<_>>()
    };
    assert_eq!(page("state:", None, 2).await, names[..2]);
    assert_eq!(page("state:", Some(&names[1]), 2).await, names[2..4]);
    assert_eq!(page("state:", Some("a"), 1).await, names[..1], "a cursor before the prefix");
    assert_eq!(page("state:", Some("z"), 1).await, Vec::<String>::new());
    assert_eq!(page("other:", None, 1).await, Vec::<String>::new());
}

pub(super) async fn rows_written_while_a_listing_is_read_are_seen_after_its_cursor(store: &dyn Store) {
    let enqueue = |text: &str| single_fact_batch(Fact::EnqueueOutbound(new_outbound(text)));
    for number in 0..MANY_ROWS {
        commit(store, enqueue(&numbered("m", number))).await;
    }
    let mut rows = store.pending_outbound();
    let first = rows.next().await.unwrap().unwrap();
    commit(store, single_fact_batch(Fact::RecordDelivery { id: first.id, status: OutboxStatus::sent() })).await;
    commit(store, enqueue("last")).await;
    let mut texts = Vec::new();
    while let Some(row) = rows.next().await.unwrap() {
        texts.push(row.message.content.text());
    }
    assert_eq!(texts.len(), MANY_ROWS, "each row once");
    assert_eq!(texts.last().map(String::as_str), Some("last"));
}

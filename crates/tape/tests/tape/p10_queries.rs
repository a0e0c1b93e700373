//! P10: queries on random tapes, compared with a linear scan.

use std::sync::Arc;

use crate::support::{name, run, write};
use capstan_protocol::{EntryId, JsonObject};
use capstan_tape::{
    DateRange, Entry, EntryDate, EntryDraft, EntryKind, EntryOrder, MemoryStore, Query, QueryStart, TapeRepository,
    TapeSlice,
};
use proptest::prelude::*;
use serde_json::json;

const ENTRY_TEXTS: [&str; 4] = ["alpha", "bravo-charlie", "delta 你好", "echo"];
const ANCHOR_NAMES: [&str; 3] = ["a", "b", "c"];
const ENTRY_DATES: [&str; 5] =
    ["2020-01-01T00:00:00Z", "2020-01-01T23:59:59.999999+00:00", "2020-01-02T00:30:00+01:00", "2020-01-03", "someday"];
const DATE_RANGES: [(&str, &str); 3] =
    [("2020-01-01", "2020-01-01"), ("2020-01-02", "2020-01-03"), ("2020-01-03T00:00:00Z", "2020-01-03T00:00:00Z")];

fn draft() -> impl Strategy<Value = EntryDraft> {
    let word = prop::sample::select(&ENTRY_TEXTS[..]);
    let plain = prop_oneof![
        3 => word.clone().prop_map(crate::support::user),
        1 => word.clone().prop_map(|word| EntryDraft::event(word, json!({}))),
        1 => word.prop_map(|word| EntryDraft::new(EntryKind::from("odd"), json!([word]))),
        2 => prop::sample::select(&ANCHOR_NAMES[..]).prop_map(|name| EntryDraft::anchor(name, &JsonObject::new())),
    ];
    (plain, prop::sample::select(&ENTRY_DATES[..]))
        .prop_map(|(draft, date)| EntryDraft { date: Some(EntryDate::verbatim(date)), ..draft })
}

fn query() -> impl Strategy<Value = Query> {
    let anchor_name = || prop::sample::select(&ANCHOR_NAMES[..]).prop_map(str::to_owned);
    let start = prop_oneof![
        Just(QueryStart::Beginning),
        Just(QueryStart::LastAnchor),
        anchor_name().prop_map(QueryStart::Anchor),
        (0..30_u64).prop_map(|id| QueryStart::After(EntryId(id))),
    ];
    let kinds = prop::sample::subsequence(
        vec![EntryKind::Message, EntryKind::Anchor, EntryKind::Event, EntryKind::from("odd")],
        0..3,
    );
    let date_range = prop::option::weighted(0.3, prop::sample::select(&DATE_RANGES[..]));
    let text = prop::option::weighted(0.3, prop::sample::select(vec!["alpha", "charlie", "你好", "echo"]));
    let order = prop_oneof![Just(EntryOrder::OldestFirst), Just(EntryOrder::NewestFirst)];
    let until_anchor = prop::option::weighted(0.3, anchor_name());
    (start, until_anchor, date_range, kinds, text, order, prop::option::weighted(0.4, 0..5_usize)).prop_map(
        |(start, until_anchor, date_range, kinds, text, order, limit)| {
            let date_range = date_range.map(|(first, last)| DateRange::between(first, last).unwrap());
            Query { start, until_anchor, date_range, kinds, text: text.map(str::to_owned), order, limit }
        },
    )
}

/// Expected result of a query, found by a linear scan.
fn expected_ids(tape: &[Entry], query: &Query) -> Vec<u64> {
    let is_anchor = |entry: &&Entry, name: &str| entry.kind == EntryKind::Anchor && entry.payload["name"] == name;
    let newest = |predicate: &dyn Fn(&&Entry) -> bool| tape.iter().rfind(predicate).map(|entry| entry.id.0);
    let after = match &query.start {
        QueryStart::Beginning => Some(0),
        QueryStart::LastAnchor => newest(&|entry| entry.kind == EntryKind::Anchor),
        QueryStart::Anchor(name) => newest(&|entry| is_anchor(entry, name)),
        QueryStart::After(id) => Some(id.0),
    };
    let Some(after) = after else { return Vec::new() };
    let mut rest: Vec<&Entry> = tape.iter().filter(|entry| entry.id.0 > after).collect();
    if let Some(name) = &query.until_anchor {
        let Some(end) = rest.iter().position(|entry| is_anchor(entry, name)) else { return Vec::new() };
        rest.truncate(end);
    }
    rest.retain(|entry| query.kinds.is_empty() || query.kinds.contains(&entry.kind));
    rest.retain(|entry| {
        query.date_range.is_none_or(|range| entry.date.timestamp().is_some_and(|at| range.contains(at)))
    });
    rest.retain(|entry| query.text.as_ref().is_none_or(|text| entry.payload.to_string().contains(text)));
    if query.order == EntryOrder::NewestFirst {
        rest.reverse();
    }
    rest.iter().take(query.limit.unwrap_or(usize::MAX)).map(|entry| entry.id.0).collect()
}

proptest! {
    #[test]
    fn p10_query_finds_the_same_entries_as_a_linear_scan(
        old in prop::collection::vec(draft(), 0..10),
        drafts in prop::collection::vec(draft(), 0..25),
        forked in prop::option::of(prop::collection::vec(draft(), 0..10)),
        queries in prop::collection::vec(query(), 1..12),
    ) {
        run(async {
            let tapes = TapeRepository::new(Arc::new(MemoryStore::new()));
            let mut tape = name("t");
            write(&tapes, &tape, old).await;
            tapes.reset(&tape, false).await.unwrap();
            write(&tapes, &tape, drafts).await;
            if let Some(forked) = forked {
                tapes.fork(&tape, &name("f"), None).await.unwrap();
                tape = name("f");
                write(&tapes, &tape, forked).await;
            }
            let entries = tapes.read(&tape, &TapeSlice::all()).await.unwrap();
            for query in queries {
                let found: Vec<u64> = tapes.query(&tape, &query).await.unwrap().iter().map(|entry| entry.id.0).collect();
                prop_assert_eq!(found, expected_ids(&entries, &query), "{:?}", query);
            }
            Ok(())
        })?;
    }
}

//! Queries of a tape.

use capstan_tape::{DateRange, EntryDate, EntryDraft, EntryKind, EntryOrder, Query, QueryStart, TapeRepository};

use super::fixture::{
    anchor, append_batch, commit_to_tapes, create_tape_batch, entry_texts, tape_name, tool_call, tool_result,
    user_message,
};

async fn query_texts(tapes: &TapeRepository, query: Query) -> Vec<String> {
    entry_texts(&tapes.query(&tape_name("t"), &query).await.unwrap())
}

pub(super) async fn p10_queries_by_anchor(tapes: &TapeRepository) {
    let tape = tape_name("t");
    let drafts = [
        anchor("a"),
        user_message("1"),
        anchor("b"),
        user_message("2"),
        anchor("a"),
        user_message("3"),
        anchor("b"),
        user_message("4"),
    ];
    commit_to_tapes(tapes, create_tape_batch(&tape, drafts)).await;
    let after = |name: &str| Query { start: QueryStart::Anchor(name.into()), ..Query::default() };
    assert_eq!(query_texts(tapes, Query { start: QueryStart::LastAnchor, ..Query::default() }).await, ["4"]);
    assert_eq!(query_texts(tapes, after("a")).await, ["3", "b", "4"], "after the newest anchor with that name");
    assert_eq!(query_texts(tapes, Query { until_anchor: Some("b".into()), ..after("a") }).await, ["3"]);
    assert_eq!(query_texts(tapes, Query { until_anchor: Some("b".into()), ..Query::default() }).await, ["a", "1"]);
    assert!(query_texts(tapes, after("unknown")).await.is_empty());
    assert!(query_texts(tapes, Query { until_anchor: Some("a".into()), ..after("b") }).await.is_empty());
    assert!(tapes.query(&tape_name("unknown"), &Query::default()).await.unwrap().is_empty());
}

pub(super) async fn p10_queries_by_date_kind_limit_and_text(tapes: &TapeRepository) {
    let tape = tape_name("t");
    let dated = |text: &str, date: &str| EntryDraft { date: Some(EntryDate::verbatim(date)), ..user_message(text) };
    let drafts = [
        dated("the capstan", "2020-11-14T23:59:59.999Z"),
        dated("winds the anchor rope", "2020-11-15T00:00:00Z"),
        dated("of a ship", "2020-11-16T01:30:00+02:00"),
        dated("the next day", "2020-11-16"),
    ];
    commit_to_tapes(tapes, create_tape_batch(&tape, drafts)).await;
    commit_to_tapes(tapes, append_batch(&tape, [tool_call("c"), tool_result("c")])).await;
    let day = DateRange::between("2020-11-15", "2020-11-15").ok();
    assert_eq!(
        query_texts(tapes, Query { date_range: day, ..Query::default() }).await,
        ["winds the anchor rope", "of a ship"]
    );
    let calls = Query { kinds: vec![EntryKind::ToolCall, EntryKind::ToolResult], ..Query::default() };
    assert_eq!(query_texts(tapes, calls).await, ["tool_call", "tool_result"]);
    assert_eq!(query_texts(tapes, Query { limit: Some(1), ..Query::default() }).await, ["the capstan"]);
    let newest =
        Query { limit: Some(1), order: EntryOrder::NewestFirst, kinds: vec![EntryKind::Message], ..Query::default() };
    assert_eq!(query_texts(tapes, newest).await, ["the next day"]);
    assert_eq!(
        query_texts(tapes, Query::search("the")).await,
        ["the next day", "winds the anchor rope", "the capstan"]
    );
    assert_eq!(query_texts(tapes, Query::search("cpastan")).await, ["the capstan"], "a typo is tolerated");
    assert_eq!(query_texts(tapes, Query { date_range: day, ..Query::search("the") }).await, ["winds the anchor rope"]);
}

pub(super) async fn p10_search_continues_beyond_one_page(tapes: &TapeRepository) {
    let tape = tape_name("t");
    let noise = (0..2_300).map(|_| user_message("noise"));
    commit_to_tapes(
        tapes,
        create_tape_batch(
            &tape,
            [user_message("needle one")].into_iter().chain(noise).chain([user_message("needle two")]),
        ),
    )
    .await;
    assert_eq!(query_texts(tapes, Query::search("needle")).await, ["needle two", "needle one"]);
    let oldest = Query { order: EntryOrder::OldestFirst, limit: Some(1), ..Query::search("needle") };
    assert_eq!(query_texts(tapes, oldest).await, ["needle one"]);
}

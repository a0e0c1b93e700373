//! Questions about a tape.

use capstan_tape::{DateRange, Draft, EntryDate, Kind, Order, Query, Start, Tapes};

use super::fixture::{anchor, begin, call, more, name, result, said, user, write};

async fn ask(tapes: &Tapes, query: Query) -> Vec<String> {
    said(&tapes.query(&name("t"), &query).await.unwrap())
}

pub(super) async fn p10_queries_by_anchor(tapes: &Tapes) {
    let tape = name("t");
    let drafts = [anchor("a"), user("1"), anchor("b"), user("2"), anchor("a"), user("3"), anchor("b"), user("4")];
    write(tapes, begin(&tape, drafts)).await;
    let after = |name: &str| Query { start: Start::Anchor(name.into()), ..Query::default() };
    assert_eq!(ask(tapes, Query { start: Start::LastAnchor, ..Query::default() }).await, ["4"]);
    assert_eq!(ask(tapes, after("a")).await, ["3", "b", "4"], "after the newest of that name");
    assert_eq!(ask(tapes, Query { until_anchor: Some("b".into()), ..after("a") }).await, ["3"]);
    assert_eq!(ask(tapes, Query { until_anchor: Some("b".into()), ..Query::default() }).await, ["a", "1"]);
    assert!(ask(tapes, after("unknown")).await.is_empty());
    assert!(ask(tapes, Query { until_anchor: Some("a".into()), ..after("b") }).await.is_empty());
    assert!(tapes.query(&name("unknown"), &Query::default()).await.unwrap().is_empty());
}

pub(super) async fn p10_queries_by_date_kind_limit_and_text(tapes: &Tapes) {
    let tape = name("t");
    let dated = |text: &str, date: &str| Draft { date: Some(EntryDate::verbatim(date)), ..user(text) };
    let drafts = [
        dated("the capstan", "2020-11-14T23:59:59.999Z"),
        dated("winds the anchor rope", "2020-11-15T00:00:00Z"),
        dated("of a ship", "2020-11-16T01:30:00+02:00"),
        dated("the next day", "2020-11-16"),
    ];
    write(tapes, begin(&tape, drafts)).await;
    write(tapes, more(&tape, [call("c"), result("c")])).await;
    let day = DateRange::between("2020-11-15", "2020-11-15").ok();
    assert_eq!(ask(tapes, Query { dated: day, ..Query::default() }).await, ["winds the anchor rope", "of a ship"]);
    let calls = Query { kinds: vec![Kind::ToolCall, Kind::ToolResult], ..Query::default() };
    assert_eq!(ask(tapes, calls).await, ["tool_call", "tool_result"]);
    assert_eq!(ask(tapes, Query { limit: Some(1), ..Query::default() }).await, ["the capstan"]);
    let newest = Query { limit: Some(1), order: Order::NewestFirst, kinds: vec![Kind::Message], ..Query::default() };
    assert_eq!(ask(tapes, newest).await, ["the next day"]);
    assert_eq!(ask(tapes, Query::search("the")).await, ["the next day", "winds the anchor rope", "the capstan"]);
    assert_eq!(ask(tapes, Query::search("cpastan")).await, ["the capstan"], "a typo is forgiven");
    assert_eq!(ask(tapes, Query { dated: day, ..Query::search("the") }).await, ["winds the anchor rope"]);
}

pub(super) async fn p10_a_search_looks_beyond_one_page(tapes: &Tapes) {
    let tape = name("t");
    let noise = (0..2_300).map(|_| user("noise"));
    write(tapes, begin(&tape, [user("needle one")].into_iter().chain(noise).chain([user("needle two")]))).await;
    assert_eq!(ask(tapes, Query::search("needle")).await, ["needle two", "needle one"]);
    let oldest = Query { order: Order::OldestFirst, limit: Some(1), ..Query::search("needle") };
    assert_eq!(ask(tapes, oldest).await, ["needle one"]);
}

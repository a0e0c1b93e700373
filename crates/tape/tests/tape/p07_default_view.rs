//! P7: messages of the default view for each kind of entry.

use std::sync::Arc;

use crate::support::{assistant, calls, name, result, sample, user, write};
use capstan_protocol::{ChatMessage, EntryId, JsonObject};
use capstan_tape::conversation::INTERRUPTED_RESULT;
use capstan_tape::{
    Batch, ContextWindow, DefaultView, EntryDraft, EntryKind, EntryRef, Fact, IncrementalWindow, MemoryStore, NewTape,
    TapeRepository, TapeSlice,
};
use serde_json::{Value, json};

async fn view_messages(drafts: impl IntoIterator<Item = EntryDraft>) -> Vec<ChatMessage> {
    let tapes = TapeRepository::new(Arc::new(MemoryStore::new()));
    write(&tapes, &name("t"), drafts).await;
    DefaultView.messages(&tapes.window(&name("t")).await.unwrap())
}

fn to_json(messages: &[ChatMessage]) -> Value {
    serde_json::to_value(messages).unwrap()
}

/// Window of the sample tape, cut after an entry.
async fn sample_window(up_to: u64) -> ContextWindow {
    let tapes = TapeRepository::new(Arc::new(MemoryStore::new()));
    let entries = sample().into_iter().filter(|entry| entry.id.0 <= up_to).collect();
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(name("t"))));
    batch.push(Fact::ImportEntries { tape: name("t"), entries });
    tapes.commit(batch).await.unwrap();
    tapes.window(&name("t")).await.unwrap()
}

#[tokio::test]
async fn p07_sample_is_read_from_its_last_anchor() {
    insta::assert_json_snapshot!(DefaultView.messages(&sample_window(33).await));
}

#[tokio::test]
async fn p07_sample_is_read_from_its_first_anchor() {
    insta::assert_json_snapshot!(DefaultView.messages(&sample_window(30).await));
}

#[tokio::test]
async fn p07_sample_without_the_last_result_ends_with_an_interrupted_one() {
    let messages = DefaultView.messages(&sample_window(21).await);
    let last = messages.last().unwrap();
    assert_eq!(last.tool_call_id.as_deref(), Some("call_2_1"));
    assert_eq!(last.content.text(), INTERRUPTED_RESULT);
}

#[tokio::test]
async fn p07_anchor_is_shown_with_its_state() {
    let state = JsonObject::from_iter([("summary".to_owned(), json!("第一步 done")), ("n".to_owned(), json!(1))]);
    let messages = view_messages([user("before"), EntryDraft::anchor("phase-1", &state), user("after")]).await;
    assert_eq!(
        to_json(&messages),
        json!([
            {"role": "assistant", "content": "[Anchor created: phase-1]: {\"summary\":\"第一步 done\",\"n\":1}"},
            {"role": "user", "content": "after"},
        ])
    );
}

#[tokio::test]
async fn p07_message_is_shown_unchanged() {
    let parts = json!([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:,"}}]);
    let payload = json!({"role": "user", "content": parts, "name": "ann", "vendor": {"kept": true}});
    let messages = view_messages([EntryDraft::new(EntryKind::Message, payload.clone())]).await;
    assert_eq!(to_json(&messages), json!([payload]));
}

#[tokio::test]
async fn p07_step_is_an_assistant_message_and_one_tool_message_per_call() {
    let messages = view_messages([user("go"), calls(&["a", "b"]), result("b", "two"), result("a", "one")]).await;
    let call = |id| json!({"id": id, "type": "function", "function": {"name": "bash", "arguments": "{}"}});
    assert_eq!(
        to_json(&messages),
        json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "", "tool_calls": [call("a"), call("b")]},
            {"role": "tool", "content": "one", "tool_call_id": "a", "name": "bash"},
            {"role": "tool", "content": "two", "tool_call_id": "b", "name": "bash"},
        ])
    );
}

#[tokio::test]
async fn p07_results_without_ids_are_assigned_by_position() {
    let results = EntryDraft::new(EntryKind::ToolResult, json!({"results": ["one", {"two": 2}]}));
    let messages = view_messages([user("go"), calls(&["a", "b"]), results]).await;
    let shown: Vec<_> = messages[2..].iter().map(|m| (m.tool_call_id.clone().unwrap(), m.content.text())).collect();
    assert_eq!(shown, [("a".to_owned(), "one".to_owned()), ("b".to_owned(), "{\"two\":2}".to_owned())]);
}

#[tokio::test]
async fn p07_hidden_entries_and_entries_that_are_not_messages_are_omitted() {
    let messages = view_messages([
        user("shown"),
        user("hidden").hidden(),
        calls(&["a"]).hidden(),
        result("a", "hidden").hidden(),
        EntryDraft::event("message.received", json!({"text": "accepted"})),
        EntryDraft::error("model", "failed"),
        EntryDraft::new(EntryKind::System, json!({"content": "prompt"})),
        EntryDraft::new(EntryKind::from("bub.custom"), json!({"content": "x"})),
        assistant("also shown"),
    ])
    .await;
    let texts: Vec<String> = messages.iter().map(|message| message.content.text()).collect();
    assert_eq!(texts, ["shown", "also shown"]);
}

#[tokio::test]
async fn p07_messages_that_an_anchor_carries_over_follow_it() {
    let tapes = TapeRepository::new(Arc::new(MemoryStore::new()));
    let tape = name("t");
    let ids = write(&tapes, &tape, [user("old"), user("ingested"), calls(&["a"]), result("a", "gone")]).await;
    let named = vec![EntryRef::Id(EntryId(ids[1]))];
    write(
        &tapes,
        &tape,
        [EntryDraft::anchor("handoff", &JsonObject::new()).with_named_messages(named), assistant("continues")],
    )
    .await;
    let messages = DefaultView.messages(&tapes.window(&tape).await.unwrap());
    let texts: Vec<String> = messages.iter().map(|message| message.content.text()).collect();
    assert_eq!(texts, ["[Anchor created: handoff]: {}", "ingested", "continues"]);
    assert_eq!(tapes.read(&tape, &TapeSlice::all()).await.unwrap().len(), 6, "an anchor deletes nothing");
}

#[tokio::test]
async fn a08_opaque_provider_data_stays_with_its_message() {
    let data = json!({"anthropic": {"thinking": []}});
    let messages = view_messages([user("hi"), assistant("hello").with_meta("provider", data.clone())]).await;
    assert_eq!(messages[0].extra, JsonObject::new());
    assert_eq!(messages[1].extra, JsonObject::from_iter([("provider".to_owned(), data)]));
}

#[tokio::test]
async fn p07_view_reads_only_the_kinds_that_it_needs() {
    let (tapes, tape) = (TapeRepository::new(Arc::new(MemoryStore::new())), name("t"));
    let call = || EntryDraft::event("model.call", json!({}));
    let anchor = EntryDraft::anchor("a", &JsonObject::new());
    let drafts = [call(), anchor, user("hi"), call(), calls(&["a"]), result("a", "done"), call(), assistant("bye")];
    write(&tapes, &tape, drafts).await;
    let whole = tapes.window(&tape).await.unwrap();
    let mut part = IncrementalWindow::default();
    let part = part.refresh(&tapes, &tape, DefaultView::KINDS).await.unwrap();
    assert_eq!((whole.following.len(), part.following.len()), (6, 4));
    assert_eq!(DefaultView.messages(part), DefaultView.messages(&whole));
}

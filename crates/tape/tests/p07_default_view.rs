//! P7: what the default view makes of each entry.

mod support;

use std::sync::Arc;

use capstan_protocol::{ChatMessage, EntryId, JsonObject};
use capstan_tape::conversation::INTERRUPTED_RESULT;
use capstan_tape::{
    Batch, ContextWindow, DefaultView, EntryDraft, EntryKind, EntryRef, Fact, IncrementalWindow, MemoryStore, NewTape,
    TapeRepository, TapeSlice, View,
};
use serde_json::{Value, json};
use support::{assistant, calls, name, result, sample, user, write};

async fn view_messages(drafts: impl IntoIterator<Item = EntryDraft>) -> Vec<ChatMessage> {
    let tapes = TapeRepository::new(Arc::new(MemoryStore::new()));
    write(&tapes, &name("t"), drafts).await;
    DefaultView.messages(&tapes.window(&name("t")).await.unwrap())
}

fn to_json(messages: &[ChatMessage]) -> Value {
    serde_json::to_value(messages).unwrap()
}

/// The sample up to an entry, as its view reads it.
async fn sample_window(up_to: u64) -> ContextWindow {
    let tapes = TapeRepository::new(Arc::new(MemoryStore::new()));
    let entries = sample().into_iter().filter(|entry| entry.id.0 <= up_to).collect();
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::with_name(name("t"))));
    batch.push(Fact::ImportEntries { tape: name("t"), entries });
    tapes.commit(batch).await.unwrap();
    tapes.window(&name("t")).await.unwrap()
}

#[tokio::test]
async fn p07_the_sample_from_its_last_anchor_on() {
    insta::assert_json_snapshot!(DefaultView.messages(&sample_window(33).await));
}

#[tokio::test]
async fn p07_the_sample_from_its_first_anchor_on() {
    insta::assert_json_snapshot!(DefaultView.messages(&sample_window(30).await));
}

#[tokio::test]
async fn p07_the_sample_cut_between_a_call_and_its_result() {
    let messages = DefaultView.messages(&sample_window(21).await);
    let last = messages.last().unwrap();
    assert_eq!(last.tool_call_id.as_deref(), Some("call_2_1"));
    assert_eq!(last.content.text(), INTERRUPTED_RESULT);
}

#[tokio::test]
async fn p07_an_anchor_is_shown_with_its_state() {
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
async fn p07_a_message_is_shown_as_it_is() {
    let parts = json!([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:,"}}]);
    let payload = json!({"role": "user", "content": parts, "name": "ann", "vendor": {"kept": true}});
    let messages = view_messages([EntryDraft::new(EntryKind::Message, payload.clone())]).await;
    assert_eq!(to_json(&messages), json!([payload]));
}

#[tokio::test]
async fn p07_a_step_is_an_assistant_message_and_one_tool_message_per_call() {
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
async fn p07_results_without_ids_go_by_position() {
    let results = EntryDraft::new(EntryKind::ToolResult, json!({"results": ["one", {"two": 2}]}));
    let messages = view_messages([user("go"), calls(&["a", "b"]), results]).await;
    let answers: Vec<_> = messages[2..].iter().map(|m| (m.tool_call_id.clone().unwrap(), m.content.text())).collect();
    assert_eq!(answers, [("a".to_owned(), "one".to_owned()), ("b".to_owned(), "{\"two\":2}".to_owned())]);
}

#[tokio::test]
async fn p07_what_is_hidden_or_not_said_is_left_out() {
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
async fn p07_the_messages_an_anchor_names_stand_between_it_and_what_follows() {
    let tapes = TapeRepository::new(Arc::new(MemoryStore::new()));
    let tape = name("t");
    let written = write(&tapes, &tape, [user("old"), user("taken in"), calls(&["a"]), result("a", "gone")]).await;
    let named = vec![EntryRef::Id(EntryId(written[1]))];
    write(
        &tapes,
        &tape,
        [EntryDraft::anchor("handoff", &JsonObject::new()).with_named_messages(named), assistant("goes on")],
    )
    .await;
    let messages = DefaultView.messages(&tapes.window(&tape).await.unwrap());
    let texts: Vec<String> = messages.iter().map(|message| message.content.text()).collect();
    assert_eq!(texts, ["[Anchor created: handoff]: {}", "taken in", "goes on"]);
    assert_eq!(tapes.read(&tape, &TapeSlice::all()).await.unwrap().len(), 6, "an anchor deletes nothing");
}

#[tokio::test]
async fn a08_what_only_a_provider_understands_rides_with_its_message() {
    let given = json!({"anthropic": {"thinking": []}});
    let messages = view_messages([user("hi"), assistant("hello").with_meta("provider", given.clone())]).await;
    assert_eq!(messages[0].extra, JsonObject::new());
    assert_eq!(messages[1].extra, JsonObject::from_iter([("provider".to_owned(), given)]));
}

#[tokio::test]
async fn p07_a_view_that_wants_some_kinds_reads_no_others_and_shows_the_same() {
    let (tapes, tape) = (TapeRepository::new(Arc::new(MemoryStore::new())), name("t"));
    let call = || EntryDraft::event("model.call", json!({}));
    let anchor = EntryDraft::anchor("a", &JsonObject::new());
    let said = [call(), anchor, user("hi"), call(), calls(&["a"]), result("a", "done"), call(), assistant("bye")];
    write(&tapes, &tape, said).await;
    let whole = tapes.window(&tape).await.unwrap();
    let mut part = IncrementalWindow::default();
    let part = part.refresh(&tapes, &tape, DefaultView.kinds()).await.unwrap();
    assert_eq!((whole.following.len(), part.following.len()), (6, 4));
    assert_eq!(DefaultView.messages(part), DefaultView.messages(&whole));
}

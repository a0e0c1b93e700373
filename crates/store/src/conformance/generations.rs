//! Generations of a tape, and the context window that a view reads.

use capstan_protocol::EntryId;
use capstan_tape::{ContextWindow, EntryKind, IncrementalWindow, TapeRepository, TapeSlice};

use super::fixture::{
    anchor, append_batch, batch_entry, commit_to_tapes, create_tape_batch, entry_ids, entry_texts, read_texts,
    tape_name, tool_call, tool_result, user_message,
};

pub(super) async fn p11_reset_begins_with_session_start_and_ids_continue(tapes: &TapeRepository) {
    let tape = tape_name("t");
    commit_to_tapes(tapes, create_tape_batch(&tape, [anchor("old"), user_message("one")])).await;
    tapes.reset(&tape, false).await.unwrap();
    commit_to_tapes(tapes, append_batch(&tape, [user_message("two")])).await;
    assert_eq!(read_texts(tapes, &tape).await, ["session/start", "handoff", "two"]);
    let now = tapes.read(&tape, &TapeSlice::all()).await.unwrap();
    assert_eq!(entry_ids(&now), [3, 4, 5]);
    assert_eq!(now[0].payload["state"], serde_json::json!({"owner": "human"}));
    assert_eq!(tapes.window(&tape).await.unwrap().anchor.unwrap().name(), Some("session/start"));
}

pub(super) async fn p11_past_generation_stays_readable(tapes: &TapeRepository) {
    let tape = tape_name("t");
    commit_to_tapes(tapes, create_tape_batch(&tape, [user_message("one"), user_message("two")])).await;
    tapes.reset(&tape, true).await.unwrap();
    commit_to_tapes(tapes, append_batch(&tape, [user_message("three")])).await;
    tapes.reset(&tape, false).await.unwrap();
    let generation =
        async |number| entry_texts(&tapes.read_generation(&tape, number, &TapeSlice::all()).await.unwrap());
    assert_eq!(generation(1).await, ["one", "two"]);
    assert_eq!(generation(2).await, ["session/start", "handoff", "three"]);
    assert_eq!(generation(3).await, ["session/start", "handoff"]);
    assert!(generation(4).await.is_empty());
    let newest = tapes.read_generation(&tape, 1, &TapeSlice::last()).await.unwrap();
    assert_eq!(entry_texts(&newest), ["two"]);
    let record = tapes.record(&tape).await.unwrap().unwrap();
    assert_eq!(record.past_generations.iter().map(|past| past.archived).collect::<Vec<_>>(), [true, false]);
    assert!(tapes.reset(&tape_name("unknown"), false).await.is_err());
}

pub(super) async fn p04_window_has_the_anchor_its_messages_and_later_entries(tapes: &TapeRepository) {
    let tape = tape_name("t");
    commit_to_tapes(tapes, create_tape_batch(&tape, [user_message("before any anchor")])).await;
    let window = tapes.window(&tape).await.unwrap();
    assert_eq!((window.anchor, entry_texts(&window.following)), (None, vec!["before any anchor".to_owned()]));

    commit_to_tapes(tapes, append_batch(&tape, [anchor("first"), user_message("forgotten")])).await;
    let mut batch = append_batch(&tape, [user_message("ingested"), user_message("not named"), user_message("steered")]);
    batch.append(&tape, anchor("second").with_named_messages(vec![batch_entry(0), batch_entry(2)]));
    batch.append(&tape, user_message("follows"));
    commit_to_tapes(tapes, batch).await;
    let window = tapes.window(&tape).await.unwrap();
    assert_eq!(
        entry_texts(&window.entries().cloned().collect::<Vec<_>>()),
        ["second", "ingested", "steered", "follows"]
    );
    assert_eq!(window.anchor.map(|anchor| anchor.id), Some(EntryId(7)));
}

pub(super) async fn p04_incremental_window_equals_the_full_window(tapes: &TapeRepository) {
    let (tape, messages) = (tape_name("t"), [EntryKind::Message]);
    let (mut all, mut some) = (IncrementalWindow::default(), IncrementalWindow::default());
    let mut check = async || {
        let window = tapes.window(&tape).await.unwrap();
        assert_eq!(*all.refresh(tapes, &tape, &[]).await.unwrap(), window);
        let following = window.following.into_iter().filter(|entry| entry.kind == EntryKind::Message).collect();
        assert_eq!(*some.refresh(tapes, &tape, &messages).await.unwrap(), ContextWindow { following, ..window });
    };
    check().await;
    commit_to_tapes(tapes, create_tape_batch(&tape, [user_message("before any anchor")])).await;
    check().await;
    commit_to_tapes(
        tapes,
        append_batch(&tape, [anchor("first"), tool_call("a"), tool_result("a"), user_message("follows")]),
    )
    .await;
    check().await;
    check().await;
    let large = "x".repeat(100_000);
    commit_to_tapes(tapes, append_batch(&tape, [user_message(&large), user_message("after a large one")])).await;
    check().await;
    commit_to_tapes(tapes, append_batch(&tape, (0..100).map(|number| user_message(&format!("one of many: {number}")))))
        .await;
    check().await;
    let mut batch = append_batch(&tape, [user_message("ingested")]);
    batch.append(&tape, anchor("second").with_named_messages(vec![batch_entry(0)]));
    commit_to_tapes(tapes, batch).await;
    check().await;
    commit_to_tapes(tapes, append_batch(&tape, [user_message("follows the second")])).await;
    check().await;
    tapes.fork(&tape, &tape_name("fork"), None).await.unwrap();
    commit_to_tapes(tapes, append_batch(&tape_name("fork"), [user_message("written to a fork")])).await;
    check().await;
    tapes.merge(&tape_name("fork")).await.unwrap();
    check().await;
    tapes.reset(&tape, false).await.unwrap();
    check().await;
    commit_to_tapes(tapes, append_batch(&tape, [user_message("after the reset")])).await;
    check().await;
}

//! Generations of a tape, and the window a view reads.

use capstan_protocol::EntryId;
use capstan_tape::{GrowingWindow, Kind, Slice, Tapes, Window};

use super::fixture::{anchor, begin, call, ids, in_batch, more, name, result, said, seen, user, write};

pub(super) async fn p11_a_reset_begins_with_session_start_and_ids_go_on(tapes: &Tapes) {
    let tape = name("t");
    write(tapes, begin(&tape, [anchor("old"), user("one")])).await;
    tapes.reset(&tape, false).await.unwrap();
    write(tapes, more(&tape, [user("two")])).await;
    assert_eq!(seen(tapes, &tape).await, ["session/start", "handoff", "two"]);
    let now = tapes.read(&tape, &Slice::all()).await.unwrap();
    assert_eq!(ids(&now), [3, 4, 5]);
    assert_eq!(now[0].payload["state"], serde_json::json!({"owner": "human"}));
    assert_eq!(tapes.window(&tape).await.unwrap().anchor.unwrap().name(), Some("session/start"));
}

pub(super) async fn p11_a_past_generation_stays_readable(tapes: &Tapes) {
    let tape = name("t");
    write(tapes, begin(&tape, [user("one"), user("two")])).await;
    tapes.reset(&tape, true).await.unwrap();
    write(tapes, more(&tape, [user("three")])).await;
    tapes.reset(&tape, false).await.unwrap();
    let generation = async |number| said(&tapes.read_generation(&tape, number, &Slice::all()).await.unwrap());
    assert_eq!(generation(1).await, ["one", "two"]);
    assert_eq!(generation(2).await, ["session/start", "handoff", "three"]);
    assert_eq!(generation(3).await, ["session/start", "handoff"]);
    assert!(generation(4).await.is_empty());
    let newest = tapes.read_generation(&tape, 1, &Slice::last()).await.unwrap();
    assert_eq!(said(&newest), ["two"]);
    let record = tapes.record(&tape).await.unwrap().unwrap();
    assert_eq!(record.past.iter().map(|past| past.archived).collect::<Vec<_>>(), [true, false]);
    assert!(tapes.reset(&name("unknown"), false).await.is_err());
}

pub(super) async fn p04_a_window_is_the_anchor_what_it_names_and_what_follows(tapes: &Tapes) {
    let tape = name("t");
    write(tapes, begin(&tape, [user("before any anchor")])).await;
    let window = tapes.window(&tape).await.unwrap();
    assert_eq!((window.anchor, said(&window.following)), (None, vec!["before any anchor".to_owned()]));

    write(tapes, more(&tape, [anchor("first"), user("forgotten")])).await;
    let mut batch = more(&tape, [user("taken in"), user("not named"), user("steered")]);
    batch.append(&tape, anchor("second").naming(vec![in_batch(0), in_batch(2)]));
    batch.append(&tape, user("follows"));
    write(tapes, batch).await;
    let window = tapes.window(&tape).await.unwrap();
    assert_eq!(said(&window.entries().cloned().collect::<Vec<_>>()), ["second", "taken in", "steered", "follows"]);
    assert_eq!(window.anchor.map(|anchor| anchor.id), Some(EntryId(7)));
}

pub(super) async fn p04_a_window_that_grew_is_the_one_that_is_there(tapes: &Tapes) {
    let (tape, messages) = (name("t"), [Kind::Message]);
    let (mut all, mut some) = (GrowingWindow::default(), GrowingWindow::default());
    let mut look = async || {
        let there = tapes.window(&tape).await.unwrap();
        assert_eq!(*all.of(tapes, &tape, &[]).await.unwrap(), there);
        let following = there.following.into_iter().filter(|entry| entry.kind == Kind::Message).collect();
        assert_eq!(*some.of(tapes, &tape, &messages).await.unwrap(), Window { following, ..there });
    };
    look().await;
    write(tapes, begin(&tape, [user("before any anchor")])).await;
    look().await;
    write(tapes, more(&tape, [anchor("first"), call("a"), result("a"), user("follows")])).await;
    look().await;
    look().await;
    let large = "x".repeat(100_000);
    write(tapes, more(&tape, [user(&large), user("after a large one")])).await;
    look().await;
    write(tapes, more(&tape, (0..100).map(|number| user(&format!("one of many: {number}"))))).await;
    look().await;
    let mut batch = more(&tape, [user("taken in")]);
    batch.append(&tape, anchor("second").naming(vec![in_batch(0)]));
    write(tapes, batch).await;
    look().await;
    write(tapes, more(&tape, [user("follows the second")])).await;
    look().await;
    tapes.fork(&tape, &name("fork"), None).await.unwrap();
    write(tapes, more(&name("fork"), [user("said in a fork")])).await;
    look().await;
    tapes.merge(&name("fork")).await.unwrap();
    look().await;
    tapes.reset(&tape, false).await.unwrap();
    look().await;
    write(tapes, more(&tape, [user("anew")])).await;
    look().await;
}

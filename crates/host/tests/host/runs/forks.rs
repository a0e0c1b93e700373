//! Forks that a runner creates with `tape.fork` (P9).

use std::sync::{Arc, Mutex};

use capstan_host::IncomingEvent;
use capstan_protocol::{ApiErrorCode, EntryId, Event};
use capstan_tape::{Entry, EntryKind, TapeSlice};

use super::api_runner::{permissive_conversation, replying_runner_plugin};

/// Texts of the messages among these entries.
fn message_texts(entries: &[Entry]) -> Vec<&str> {
    let messages = entries.iter().filter(|entry| entry.kind == EntryKind::Message);
    messages.map(|entry| entry.payload["content"].as_str().unwrap_or_default()).collect()
}

#[tokio::test]
async fn p09_a_fork_of_a_runner_is_continued_as_a_session_and_merged() {
    let forks = Arc::new(Mutex::new(Vec::new()));
    let created = Arc::clone(&forks);
    let plugin = replying_runner_plugin("noted", move |context, api| {
        let created = Arc::clone(&created);
        async move {
            if context.input.plain_text() == "fork" {
                // Reads, and thereby writes, the message that the run serves.
                api.tape.view().await.unwrap();
                let fork = api.tape.fork(None).await.unwrap();
                created.lock().unwrap().push(fork);
            }
        }
    });
    let conversation = permissive_conversation(plugin).await;
    conversation.send_message("before").await;
    conversation.send_message("fork").await;
    let fork = forks.lock().unwrap().pop().unwrap();
    let parent_before = conversation.entries().await;
    let event = Event { session_id: Some(fork.session_id.clone()), ..Event::message("cli", "local", "aside") };
    assert_eq!(conversation.serve(IncomingEvent::trusted(event)).await.unwrap().error, None);

    let on_fork = conversation.tapes().read(&fork.tape, &TapeSlice::all()).await.unwrap();
    assert_eq!(message_texts(&on_fork), ["before", "noted", "fork", "aside", "noted"]);
    assert_eq!(conversation.entries().await, parent_before, "the parent does not see its fork");

    let merged = conversation.tapes().merge(&fork.tape).await.unwrap();
    assert!(merged > 0);
    let texts = message_texts(&conversation.entries().await).join(" ");
    assert_eq!(texts, "before noted fork noted aside noted");
}

#[tokio::test]
async fn p09_a_fork_begins_at_an_entry_of_the_tape_and_their_number_is_bounded() {
    let results = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&results);
    let plugin = replying_runner_plugin("noted", move |_, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            let code = |error: capstan_protocol::ApiError| error.code;
            let beyond = api.tape.fork(Some(EntryId(1_000_000))).await.map(|fork| fork.position).map_err(code);
            recorded.lock().unwrap().push(beyond);
            for number in 0..=100 {
                let fork = api.tape.fork(Some(EntryId(2))).await.map(|fork| fork.position).map_err(code);
                if number == 0 || number >= 99 {
                    recorded.lock().unwrap().push(fork);
                }
            }
        }
    });
    let conversation = permissive_conversation(plugin).await;
    conversation.send_message("go").await;
    let invalid = Err(ApiErrorCode::InvalidArgument);
    assert_eq!(*results.lock().unwrap(), [invalid, Ok(EntryId(2)), Ok(EntryId(2)), invalid]);
    let tapes = conversation.tapes().list().await.unwrap();
    assert_eq!(tapes.iter().filter(|tape| tape.fork.is_some()).count(), 100);
}

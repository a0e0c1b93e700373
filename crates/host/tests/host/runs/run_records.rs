//! Records that a runner reads through the run API, and the end of its child runs.

use std::sync::{Arc, Mutex};

use capstan_hooks::contracts::{ChildRunCall, EventLogItem, RunApi};
use capstan_hooks::{InboundEvent, RawPayload};
use capstan_protocol::{ApiErrorCode, Event, EventId, JsonObject, PermissionSet, ReadScope, RunId};
use tokio::sync::watch;

use super::api_runner::{action_runner_plugin, permissive_conversation};

/// Payload that is stored as a blob.
fn long_payload() -> Vec<u8> {
    (0..200_000_u32).map(|number| (number % 251) as u8).collect()
}

/// Result of a range of a payload: its whole size and the bytes of the range.
async fn raw_range(api: &RunApi, id: &EventId, offset: u64, limit: u64) -> Result<(u64, Vec<u8>), ApiErrorCode> {
    let part = api.events.raw(id, offset, limit).await;
    part.map(|part| (part.bytes, part.content)).map_err(|error| error.code)
}

#[tokio::test]
async fn g07_the_raw_payload_of_an_event_is_read_in_ranges() {
    let ranges = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&ranges);
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            for (offset, limit) in [(0, 3), (3, 1_000_000), (1_000_000, 5)] {
                let range = raw_range(&api, &context.event.event_id, offset, limit).await;
                recorded.lock().unwrap().push(range);
            }
        }
    });
    let conversation = permissive_conversation(plugin).await;
    let payloads = [Some(b"{\"n\": 1}".to_vec()), Some(long_payload()), None];
    for payload in payloads.clone() {
        let inbound = InboundEvent::new(Event::message("cli", "local", "hi"));
        if let Some(payload) = payload {
            inbound.extensions().insert(RawPayload(payload));
        }
        conversation.serve(inbound).await.unwrap();
    }
    let expected = payloads.into_iter().flat_map(|payload| match payload {
        Some(payload) => {
            let bytes = payload.len() as u64;
            [Ok((bytes, payload[..3].to_vec())), Ok((bytes, payload[3..].to_vec())), Ok((bytes, Vec::new()))]
        }
        None => [const { Err(ApiErrorCode::NotFound) }; 3],
    });
    assert_eq!(*ranges.lock().unwrap(), expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn g07_the_raw_payload_of_another_session_is_not_found() {
    let ranges = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&ranges);
    let permissions = PermissionSet { reach: ReadScope::Conversation, ..PermissionSet::all() };
    let plugin = action_runner_plugin(permissions, move |_, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            let range = raw_range(&api, &"first".into(), 0, 9).await;
            recorded.lock().unwrap().push(range);
        }
    });
    let conversation = permissive_conversation(plugin).await;
    for chat in ["one", "two"] {
        let event_id: EventId = if chat == "one" { "first".into() } else { EventId::generate() };
        let inbound = InboundEvent::new(Event { event_id, ..Event::message("cli", chat, "hi") });
        inbound.extensions().insert(RawPayload(b"secret".to_vec()));
        conversation.serve(inbound).await.unwrap();
    }
    assert_eq!(*ranges.lock().unwrap(), [Ok((6, b"secret".to_vec())), Err(ApiErrorCode::NotFound)]);
}

/// Names of the handoffs in the activity of a run, read two entries at a time.
async fn activity_of(api: &RunApi, run_id: &RunId) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let page = api.runs.events(run_id, cursor.as_deref(), 2).await.unwrap();
        names.extend(page.items.into_iter().filter_map(|item| match item {
            EventLogItem::Activity { entry } if entry.name() == Some("handoff") => {
                entry.payload["data"]["name"].as_str().map(str::to_owned)
            }
            _ => None,
        }));
        cursor = page.next;
        if cursor.is_none() {
            return names;
        }
    }
}

#[tokio::test]
async fn k04_the_activity_of_an_earlier_run_is_read_page_by_page() {
    let (runs, activity) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (known, recorded) = (Arc::clone(&runs), Arc::clone(&activity));
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let (known, recorded) = (Arc::clone(&known), Arc::clone(&recorded));
        async move {
            let earlier: Vec<RunId> = known.lock().unwrap().clone();
            for run_id in &earlier {
                let names = activity_of(&api, run_id).await;
                recorded.lock().unwrap().extend(names);
            }
            for number in 0..3 {
                let name = if earlier.is_empty() { "first" } else { "second" };
                api.tape.handoff(&format!("{name}.{number}"), JsonObject::new()).await.unwrap();
            }
            known.lock().unwrap().push(context.run_id);
        }
    });
    let conversation = permissive_conversation(plugin).await;
    conversation.send_message("one").await;
    conversation.send_message("two").await;
    assert_eq!(*activity.lock().unwrap(), ["first.0", "first.1", "first.2"]);
}

#[tokio::test]
async fn k04_a_run_cancels_its_child_and_no_other_run() {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let (recorded, child_id) = (Arc::clone(&answers), watch::Sender::new(None));
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let (recorded, child_id) = (Arc::clone(&recorded), child_id.clone());
        async move {
            if context.input.plain_text() == "child" {
                child_id.send_replace(Some(context.run_id.clone()));
                std::future::pending::<()>().await;
            }
            let cancel = async {
                let id = child_id.subscribe().wait_for(Option::is_some).await.unwrap().clone().unwrap();
                (api.runs.cancel(&id).await, id)
            };
            let (child, (cancelled, id)) = tokio::join!(api.runs.child(ChildRunCall::new("child")), cancel);
            let again = api.runs.cancel(&id).await;
            let own = api.runs.cancel(&context.run_id).await;
            let status = api.runs.get(&id).await.unwrap().status;
            let codes = [cancelled, again, own].map(|answer| answer.map_err(|error| error.code));
            recorded.lock().unwrap().push((codes, status, child.unwrap().failure.is_some()));
        }
    });
    permissive_conversation(plugin).await.send_message("go").await;
    let expected = [Ok(true), Ok(false), Err(ApiErrorCode::NotFound)];
    assert_eq!(*answers.lock().unwrap(), [(expected, "cancelled".to_owned(), true)]);
}

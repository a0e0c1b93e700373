//! Artifacts of a session: attachments of incoming events, and the quota of those that a run creates.

use std::sync::{Arc, Mutex};

use capstan_hooks::contracts::{Artifact, ChildRunCall, NewArtifact, ResultStream, RunApi, Runner};
use capstan_host::testing::TestHost;
use capstan_protocol::{
    ApiErrorCode, ArtifactId, ContentPart, Descriptor, Event, EventOperation, HistoryOperation, JsonObject,
    PermissionSet, ResultBody, RunContext, RunResult,
};
use capstan_tape::{Batch, Fact, TapeEvent, blob_hash};
use capstan_testing::{ScriptedModel, ScriptedReply};
use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::json;

use super::api_runner::{action_runner_plugin, permissive_binding, permissive_conversation};
use super::support::tool_replies;

fn attachments(values: serde_json::Value) -> Vec<ContentPart> {
    serde_json::from_value(values).unwrap()
}

/// Message with an image, a file, the address of an image and a part that cannot be decoded.
fn message_with_attachments(chat: &str) -> Event {
    let mut event = Event::message("cli", chat, "look");
    event.input.contents = attachments(json!([
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}},
        {"type": "image_url", "image_url": {"url": "https://images.example/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}},
        {"type": "file", "file": {"filename": "../notes.txt", "file_data": "data:text/plain;base64,aGVsbG8="}},
    ]));
    event
}

/// Contents of all artifacts that a list returns, page by page.
async fn listed(api: &RunApi, limit: usize) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = api.artifacts.list(cursor.as_deref(), limit).await.unwrap();
        assert!(page.items.len() <= limit);
        for artifact in page.items {
            let content = api.artifacts.read(&artifact.id, 0, 100).await.unwrap().content;
            found.push((artifact.name, content));
        }
        cursor = page.next;
        if cursor.is_none() {
            return found;
        }
    }
}

/// Runs a conversation with a runner, and returns what it recorded.
async fn record<T: Clone + Send + 'static, F: Future<Output = T> + Send + 'static>(
    permissions: PermissionSet,
    events: Vec<Event>,
    work: impl Fn(RunContext, RunApi) -> F + Send + Sync + 'static,
) -> (Vec<T>, TestHost) {
    let records = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&records);
    let plugin = action_runner_plugin(permissions, move |context, api| {
        let (recorded, work) = (Arc::clone(&recorded), work(context, api));
        async move {
            let record = work.await;
            recorded.lock().unwrap().push(record);
        }
    });
    let conversation = permissive_conversation(plugin).await;
    for event in events {
        let served = conversation.serve(event).await.unwrap();
        assert_eq!(served.error, None);
    }
    let records = records.lock().unwrap().clone();
    (records, conversation)
}

#[tokio::test]
async fn g14_attachments_of_a_message_are_artifacts_of_its_run() {
    let (records, _host) =
        record(PermissionSet::all(), vec![message_with_attachments("local")], |context, api| async move {
            let [image, notes] = &context.attachments[..] else { panic!("{:?}", context.attachments) };
            assert_eq!((image.name.as_str(), image.media_type.as_str(), image.bytes), ("image.png", "image/png", 3));
            assert_eq!((notes.name.as_str(), notes.media_type.as_str(), notes.bytes), ("notes.txt", "text/plain", 5));
            assert_eq!(api.artifacts.describe(&notes.id).await.unwrap(), *notes);
            let part = api.artifacts.read(&notes.id, 1, 3).await.unwrap();
            assert_eq!((part.offset, part.content.as_slice()), (1, &b"ell"[..]));
            assert!(api.artifacts.read(&notes.id, 9, 3).await.unwrap().content.is_empty());
            api.artifacts.read(&image.id, 0, 100).await.unwrap().content
        })
        .await;
    assert_eq!(records, [vec![0, 1, 2]]);
}

/// Runner that reads text only, and replies with the text of the last attachment of its message.
struct TextRunner;

impl Runner for TextRunner {
    fn descriptor(&self) -> Descriptor {
        Descriptor { permissions: PermissionSet::all(), ..Descriptor::new("builtin:agent", "text") }
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let reply = async move {
            assert!(context.input.contents.iter().all(|part| part.inline_file().is_none()), "in words");
            let id = &context.attachments.last().unwrap().id;
            let part = api.artifacts.read(id, 0, 99).await.unwrap();
            let text = String::from_utf8(part.content).unwrap();
            let message = ResultBody::MessageCompleted { content: text.into(), provider_meta: JsonObject::new() };
            stream::iter([message, ResultBody::RunCompleted { silent: false }].map(RunResult::from))
        };
        reply.flatten_stream().boxed()
    }
}

#[tokio::test]
async fn g14_a_runner_that_reads_text_only_reads_attachments_as_artifacts() {
    let host = TestHost::builder().agent(TextRunner).binding(permissive_binding()).start().await;
    assert_eq!(host.serve(message_with_attachments("local")).await.unwrap().output, "hello");
}

#[tokio::test]
async fn g14_a_later_run_lists_the_attachments_of_its_session() {
    let events = vec![message_with_attachments("local"), Event::message("cli", "local", "again")];
    for limit in [1, 2, 9] {
        let (records, _host) =
            record(PermissionSet::all(), events.clone(), move |_, api| async move { listed(&api, limit).await }).await;
        let expected = vec![("image.png".to_owned(), vec![0, 1, 2]), ("notes.txt".to_owned(), b"hello".to_vec())];
        assert_eq!(records, [expected.clone(), expected]);
    }
}

#[tokio::test]
async fn g14_attachments_of_another_session_are_not_found() {
    let ids = Arc::new(Mutex::new(Vec::<ArtifactId>::new()));
    let events =
        vec![message_with_attachments("one"), message_with_attachments("two"), Event::message("cli", "three", "hi")];
    let (records, _host) = record(PermissionSet::all(), events, move |context, api| {
        let ids = Arc::clone(&ids);
        async move {
            let known = ids.lock().unwrap().clone();
            let own: Vec<ArtifactId> = context.attachments.into_iter().map(|artifact| artifact.id).collect();
            let mut codes = Vec::new();
            for id in known.iter().filter(|id| !own.contains(id)) {
                codes.push(api.artifacts.read(id, 0, 9).await.err().map(|error| error.code));
            }
            for id in ["event-1", "event-1.1", "event-.1", "event-99999999999999999999.1", "event-x.y"] {
                codes.push(api.artifacts.describe(&ArtifactId::new(id)).await.err().map(|error| error.code));
            }
            ids.lock().unwrap().extend(own);
            (codes, listed(&api, 9).await.len())
        }
    })
    .await;
    assert!(
        records.iter().all(|(codes, _)| codes.iter().all(|code| *code == Some(ApiErrorCode::NotFound))),
        "{records:?}"
    );
    assert_eq!(records.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [2, 2, 0]);
}

#[tokio::test]
async fn g05_attachments_of_other_events_need_access_to_history_or_events() {
    let none = PermissionSet { history: [].into(), events: [].into(), ..PermissionSet::all() };
    let history = PermissionSet { history: [HistoryOperation::Page].into(), ..none.clone() };
    let events_get = PermissionSet { events: [EventOperation::Get].into(), ..none.clone() };
    for (permissions, expected) in [(none, 0), (history, 2), (events_get, 2)] {
        let first = Arc::new(Mutex::new(None::<Vec<Artifact>>));
        let events = vec![message_with_attachments("local"), Event::message("cli", "local", "again")];
        let (records, _host) = record(permissions, events, move |context, api| {
            let first = Arc::clone(&first);
            async move {
                let artifacts = first.lock().unwrap().get_or_insert(context.attachments).clone();
                let mut readable = 0;
                for artifact in &artifacts {
                    readable += usize::from(api.artifacts.read(&artifact.id, 0, 9).await.is_ok());
                }
                (readable, listed(&api, 9).await.len())
            }
        })
        .await;
        assert_eq!(records, [(2, 2), (expected, expected)], "its own attachments, and those of an earlier message");
    }
}

#[tokio::test]
async fn g05_a_run_without_artifacts_gets_no_attachments_as_artifacts() {
    let permissions = PermissionSet { artifacts: [].into(), ..PermissionSet::all() };
    let (records, _host) = record(permissions, vec![message_with_attachments("local")], |context, api| async move {
        let code = api.artifacts.list(None, 9).await.unwrap_err().code;
        (context.attachments.len(), code)
    })
    .await;
    assert_eq!(records, [(0, ApiErrorCode::Unauthorized)]);
}

/// Artifact of this size.
fn artifact_of(bytes: usize) -> NewArtifact {
    NewArtifact { name: "a.bin".to_owned(), media_type: "application/octet-stream".to_owned(), content: vec![0; bytes] }
}

#[tokio::test]
async fn g14_artifacts_of_a_run_and_its_children_have_a_quota() {
    let codes = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&codes);
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            let sizes: &[usize] = if context.input.plain_text() == "child" { &[30, 31] } else { &[40, 61, 30] };
            for bytes in sizes {
                let created = api.artifacts.create(artifact_of(*bytes)).await;
                recorded.lock().unwrap().push(created.err().map(|error| error.code));
            }
            if context.input.plain_text() != "child" {
                api.runs.child(ChildRunCall::new("child")).await.unwrap();
            }
        }
    });
    let builder = TestHost::builder().agent_plugin(plugin).binding(permissive_binding());
    let host = builder.options(|options| options.limits.max_artifact_bytes = 100).start().await;
    host.send_message("one").await;
    let refused = Some(ApiErrorCode::PayloadTooLarge);
    assert_eq!(
        *codes.lock().unwrap(),
        [None, refused, None, None, refused],
        "the child shares the quota of its parent"
    );
    codes.lock().unwrap().clear();
    host.send_message("two").await;
    assert_eq!(codes.lock().unwrap()[0], None, "each run of a turn has its own");
}

#[tokio::test]
async fn g14_an_artifact_of_an_earlier_version_is_read() {
    let contents = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&contents);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            for artifact in api.artifacts.list(None, 9).await.unwrap().items {
                let content = api.artifacts.read(&artifact.id, 0, 99).await.unwrap().content;
                recorded.lock().unwrap().push((artifact.content_blob, content));
            }
            api.artifacts.create(artifact_of(1)).await.unwrap();
        }
    });
    let host = permissive_conversation(plugin).await;
    let served = host.send_message("one").await;
    let bytes = b"an earlier content".to_vec();
    let earlier = Artifact {
        id: ArtifactId::new(format!("{}.7", served.run_id.unwrap())),
        name: "earlier.txt".to_owned(),
        media_type: "text/plain".to_owned(),
        bytes: bytes.len() as u64,
        hash: blob_hash(&bytes),
        content_blob: None,
    };
    let mut batch = Batch::new();
    batch.push(Fact::PutBlob { hash: earlier.hash.clone(), bytes: bytes.clone().into() });
    batch.append(&host.tape().await, TapeEvent::ArtifactCreated(earlier).into());
    host.tapes().commit(batch).await.unwrap();
    host.send_message("two").await;
    let contents = contents.lock().unwrap();
    assert!(contents[0].0.is_some() && contents[0].1 == [0]);
    assert_eq!(contents[1], (None, bytes), "the blob of its hash");
}

#[tokio::test]
async fn g14_the_agent_reads_an_attached_file() {
    let model = ScriptedModel::start_with(|request, answered| {
        let handle = request.to_string();
        let handle =
            handle.split_once("is artifact ").and_then(|(_, rest)| rest.split_once(']')).map(|(id, _)| id.to_owned());
        match answered {
            0 => ScriptedReply::tool_calls([("call", "artifact_read", json!({"artifact": handle}))]),
            _ => ScriptedReply::text("done"),
        }
    })
    .await;
    let host = TestHost::builder().scripted_model(&model).start().await;
    assert_eq!(host.serve(message_with_attachments("local")).await.unwrap().output, "done");
    let request = model.requests()[0]["messages"].to_string();
    assert!(request.contains("[attached file notes.txt (text/plain, 5 bytes) is artifact event-"), "{request}");
    assert!(!request.contains("attached file image.png"), "the model sees images: {request}");
    let read = tool_replies(&model.requests()[1]).pop().unwrap();
    assert!(read.ends_with("end of artifact]\nhello"), "{read}");
}

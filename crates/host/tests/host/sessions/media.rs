//! Images, files and artifacts of a runner reach the channel as far as its capabilities go (G14).

use std::sync::Arc;

use capstan_hooks::args::ModelContent;
use capstan_hooks::contracts::{NewArtifact, ResultStream, RunApi, Runner};
use capstan_hooks::points::RenderOutbound;
use capstan_host::testing::TestEnvironment;
use capstan_protocol::{
    ArtifactOperation, Content, ContentPart, Descriptor, Event, EventKey, JsonObject, PermissionSet, ResultBody,
    RunContext, RunResult, RunnerCapabilities,
};
use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::{Value, json};

use crate::sessions::test_channel::TestChannel;

const IMAGE_URL: &str = "data:image/png;base64,AAAA";

/// Runner that creates an artifact and sends it with an image. A message that begins with `refer` names its artifact.
struct MediaRunner;

impl Runner for MediaRunner {
    fn descriptor(&self) -> Descriptor {
        let capabilities = RunnerCapabilities { streaming: true, multimodal_input: true, ..Default::default() };
        Descriptor { permissions: PermissionSet::all(), capabilities, ..Descriptor::new("builtin:agent", "media") }
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let send = async move {
            let table = NewArtifact {
                name: "report.csv".to_owned(),
                media_type: "text/csv".to_owned(),
                content: b"a,b".to_vec(),
            };
            let created = api.artifacts.create(table).await.unwrap();
            let other = context.input.plain_text().strip_prefix("refer ").map(str::to_owned);
            let id = other.unwrap_or_else(|| created.id.to_string());
            let reference = json!({"type": "artifact", "artifact": {"id": id}}).as_object().unwrap().clone();
            let parts = vec![
                ContentPart::from_text("see"),
                ContentPart::from_image_url(IMAGE_URL),
                ContentPart::Other(reference),
            ];
            let message =
                ResultBody::MessageCompleted { content: Content::Parts(parts), provider_meta: JsonObject::new() };
            stream::iter([message, ResultBody::RunCompleted { silent: false }].map(RunResult::from))
        };
        send.flatten_stream().boxed()
    }
}

#[tokio::test]
async fn g14_a_channel_with_media_gets_images_and_the_content_of_artifacts() {
    let phone = Arc::new(TestChannel::new("phone").with_media());
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&phone).agent(MediaRunner).start().await;
    let event = Event::message("phone", "a", "hi");
    host.serve(event.clone()).await.unwrap();
    let expected = Content::Parts(vec![
        ContentPart::from_text("see"),
        ContentPart::from_image_url(IMAGE_URL),
        ContentPart::from_file("report.csv", "data:text/csv;base64,YSxi"),
    ]);
    assert_eq!(phone.sent_messages()[0].message.content, expected);
    let rows = environment.store().outbox_records(&EventKey::from(&event)).collect().await.unwrap();
    let Content::Parts(stored) = &rows[0].message.content else { panic!("{rows:?}") };
    assert_eq!(stored[2].artifact().unwrap().name, "report.csv", "the outbox refers to the blob");
}

#[tokio::test]
async fn g14_a_channel_without_media_gets_a_line_that_names_the_file() {
    let (phone, desk) = (Arc::new(TestChannel::new("phone")), Arc::new(TestChannel::with_waiting_callers("desk")));
    let host = TestEnvironment::in_memory().host().channel(&phone).channel(&desk).agent(MediaRunner).start().await;
    host.serve(Event::message("phone", "a", "hi")).await.unwrap();
    let text = "see\n[image: image/png]\n[file: report.csv (text/csv, 3 bytes)]";
    assert_eq!(phone.sent(), [format!("a: {text}")]);
    let event = Event::message("desk", "a", "hi");
    host.submit_and_wait(&event).await;
    assert_eq!(desk.wait_for_answer(&event.event_id).await.messages[0].content.text(), text);
}

/// Runner that yields these results.
struct YieldingRunner(Vec<ResultBody>);

impl Runner for YieldingRunner {
    fn descriptor(&self) -> Descriptor {
        let artifacts = [ArtifactOperation::Create].into();
        let permissions = PermissionSet { artifacts, ..PermissionSet::none() };
        Descriptor { permissions, ..Descriptor::new("builtin:agent", "yielding") }
    }

    fn run(&self, _: RunContext, _: RunApi) -> ResultStream {
        let results: Vec<RunResult> = self.0.iter().cloned().map(RunResult::from).collect();
        stream::iter(results).boxed()
    }
}

fn artifact_result(name: &str, content: &str) -> ResultBody {
    ResultBody::ArtifactCreated {
        name: name.to_owned(),
        media_type: "text/csv".to_owned(),
        content: content.to_owned(),
    }
}

fn parts_result(parts: &Value) -> ResultBody {
    let content = serde_json::from_value(parts.clone()).unwrap();
    ResultBody::MessageCompleted { content, provider_meta: JsonObject::new() }
}

#[tokio::test]
async fn g14_a_message_names_the_artifacts_that_its_runner_yields() {
    let phone = Arc::new(TestChannel::new("phone").with_media());
    let reference = |name: &str| json!({"type": "artifact", "artifact": {"name": name}});
    let runner = YieldingRunner(vec![
        artifact_result("report.csv", "YSxi"),
        artifact_result("other.csv", "YyxkCg=="),
        artifact_result("report.csv", "ZSxm"),
        parts_result(&json!([reference("report.csv"), reference("absent.csv")])),
        ResultBody::RunCompleted { silent: false },
    ]);
    let host = TestEnvironment::in_memory().host().channel(&phone).agent(runner).start().await;
    host.serve(Event::message("phone", "a", "hi")).await.unwrap();
    let expected = Content::Parts(vec![
        ContentPart::from_file("report.csv", "data:text/csv;base64,ZSxm"),
        ContentPart::from_text("[file absent.csv is not available]"),
    ]);
    assert_eq!(phone.sent_messages()[0].message.content, expected, "the newest artifact of the name");
}

#[tokio::test]
async fn g14_an_artifact_result_above_the_quota_is_dropped() {
    let phone = Arc::new(TestChannel::new("phone").with_media());
    let reference = |name: &str| json!({"type": "artifact", "artifact": {"name": name}});
    let runner = YieldingRunner(vec![
        artifact_result("a.csv", "YSxi"),
        artifact_result("b.csv", "YyxkCg=="),
        parts_result(&json!([reference("a.csv"), reference("b.csv")])),
        ResultBody::RunCompleted { silent: false },
    ]);
    let builder = TestEnvironment::in_memory().host().channel(&phone).agent(runner);
    let host = builder.options(|options| options.limits.max_artifact_bytes = 6).start().await;
    host.serve(Event::message("phone", "a", "hi")).await.unwrap();
    let text = phone.sent_messages()[0].message.content.text_with_file_names();
    assert_eq!(text, "[file: a.csv]\n[file b.csv is not available]");
    let dropped = host.event_data("result.dropped").await;
    assert!(dropped[0]["reason"].as_str().unwrap().contains("at most 6 bytes together"), "{dropped:?}");
}

#[tokio::test]
async fn x06_a_private_address_in_a_reply_is_not_sent() {
    let phone = Arc::new(TestChannel::new("phone").with_media());
    let runner = YieldingRunner(vec![
        parts_result(&json!([
            {"type": "text", "text": "see file:///etc/passwd"},
            {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
            {"type": "video_url", "video_url": {"url": "http://169.254.169.254/latest"}},
            {"type": "image_url", "image_url": {"url": "https://images.example/a.png"}},
        ])),
        ResultBody::RunCompleted { silent: false },
    ]);
    let host = TestEnvironment::in_memory().host().channel(&phone).agent(runner).start().await;
    host.serve(Event::message("phone", "a", "hi")).await.unwrap();
    let refused = || ContentPart::from_text("[attachment is not available]");
    let expected = vec![
        ContentPart::from_text("see file:///etc/passwd"),
        refused(),
        refused(),
        ContentPart::from_image_url("https://images.example/a.png"),
    ];
    assert_eq!(phone.sent_messages()[0].message.content, Content::Parts(expected));
    let dropped = host.event_data("result.dropped").await;
    assert!(dropped[1]["reason"].as_str().unwrap().contains("169.254.169.254"), "{dropped:?}");
    let recorded = json!(host.entries().await.iter().map(|entry| &entry.payload["content"]).collect::<Vec<_>>());
    assert!(!recorded.to_string().contains("169.254"), "a later model call does not send it either: {recorded}");
}

#[tokio::test]
async fn g14_a_runner_sends_an_attachment_on() {
    let phone = Arc::new(TestChannel::new("phone").with_media());
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&phone).agent(MediaRunner).start().await;
    let mut first = Event::message("phone", "a", "hi");
    first.input.contents = vec![ContentPart::from_file("notes.txt", "data:text/plain;base64,aGk=")];
    host.serve(first).await.unwrap();
    let entries = host.entries().await;
    let accepted = entries.iter().find(|entry| entry.name() == Some("event.accepted")).unwrap().id;
    let event = Event::message("phone", "a", format!("refer event-{accepted}.1"));
    host.serve(event.clone()).await.unwrap();
    let Content::Parts(sent) = &phone.sent_messages()[1].message.content else { panic!("parts") };
    assert_eq!(sent[2], ContentPart::from_file("notes.txt", "data:text/plain;base64,aGk="));
    let rows = environment.store().outbox_records(&EventKey::from(&event)).collect().await.unwrap();
    let Content::Parts(stored) = &rows[0].message.content else { panic!("{rows:?}") };
    assert!(stored[2].artifact().unwrap().content_blob.is_some(), "the outbox refers to a copy in the store");
}

#[tokio::test]
async fn g14_an_artifact_of_another_session_is_not_sent() {
    let phone = Arc::new(TestChannel::new("phone").with_media());
    let environment = TestEnvironment::in_memory();
    let host = environment.host().channel(&phone).agent(MediaRunner).start().await;
    let event = Event::message("phone", "a", "hi");
    host.serve(event.clone()).await.unwrap();
    let rows = environment.store().outbox_records(&EventKey::from(&event)).collect().await.unwrap();
    let Content::Parts(stored) = &rows[0].message.content else { panic!("{rows:?}") };
    let id = stored[2].artifact_id().unwrap();
    host.serve(Event::message("phone", "b", format!("refer {id}"))).await.unwrap();
    let sent = phone.sent_messages()[1].message.content.text();
    assert_eq!(sent, format!("see\n[file {id} is not available]"));
}

#[tokio::test]
async fn g14_render_outbound_sees_the_images_and_files() {
    let seen = Arc::new(std::sync::Mutex::new(None));
    let (phone, recorded) = (Arc::new(TestChannel::new("phone")), Arc::clone(&seen));
    let host = TestEnvironment::in_memory().host().channel(&phone).agent(MediaRunner);
    let host = host.register("observer", move |hooks| {
        let recorded = Arc::clone(&recorded);
        hooks.on(RenderOutbound, move |content: ModelContent| {
            *recorded.lock().unwrap() = Some(content.0.has_media());
            async { Ok(None) }
        });
    });
    host.start().await.serve(Event::message("phone", "a", "hi")).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), Some(true));
}

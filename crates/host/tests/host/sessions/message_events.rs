//! Events behind the messages that a runner reads: of the history, and of those that arrive during its run.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::{
    HistoryMessage, MessageEvent, PageRequest, ResultStream, RunApi, Runner, SteeredMessage,
};
use capstan_hooks::points::BuildPrompt;
use capstan_host::testing::TestHostBuilder;
use capstan_policy::default_binding;
use capstan_protocol::{
    ActorRef, Binding, Content, ContentPart, Descriptor, Event, MessageRole, PermissionSet, ResourcePolicy, ResultBody,
    RunContext, RunResult, RunnerCapabilities,
};
use capstan_testing::{ReplyBarrier, ScriptedReply};
use futures::{FutureExt as _, StreamExt as _};

use crate::sessions::scripted_conversation::ScriptedConversation;

/// Messages that a runner has read.
#[derive(Default)]
struct ReadMessages {
    steered: Vec<SteeredMessage>,
    history: Vec<HistoryMessage>,
    /// Messages that a search finds.
    found: Vec<HistoryMessage>,
    /// Contents of the attachments of the steered messages.
    attachments: Vec<Vec<u8>>,
}

/// Runner that waits for the release of a barrier, and then reads its messages: the steered ones, and the history.
struct ReadingRunner {
    barrier: ReplyBarrier,
    read: Arc<Mutex<ReadMessages>>,
}

impl Runner for ReadingRunner {
    fn descriptor(&self) -> Descriptor {
        let capabilities = RunnerCapabilities { multimodal_input: true, ..RunnerCapabilities::default() };
        Descriptor { permissions: PermissionSet::all(), capabilities, ..Descriptor::new("builtin:agent", "reading") }
    }

    fn run(&self, _: RunContext, api: RunApi) -> ResultStream {
        let (barrier, read) = (self.barrier.clone(), Arc::clone(&self.read));
        let work = async move {
            barrier.wait_for_release().await;
            let steered = api.steering.pull().await.unwrap();
            let page = api.history.page(PageRequest { limit: 9, ..PageRequest::default() }).await.unwrap();
            let found = api.history.search(None, "two", 9).await.unwrap();
            let mut attachments = Vec::new();
            for artifact in steered.iter().flat_map(|message| &message.event.attachments) {
                attachments.push(api.artifacts.read(&artifact.id, 0, 9).await.unwrap().content);
            }
            let mut read = read.lock().unwrap();
            read.steered.extend(steered);
            read.attachments.extend(attachments);
            (read.history, read.found) = (page.items, found);
            futures::stream::iter([RunResult::from(ResultBody::RunCompleted { silent: true })])
        };
        work.flatten_stream().boxed()
    }
}

/// Conversation with a runner that reads its messages.
struct ReadingConversation {
    conversation: ScriptedConversation,
    barrier: ReplyBarrier,
    read: Arc<Mutex<ReadMessages>>,
}

impl ReadingConversation {
    async fn new(configure: impl FnOnce(TestHostBuilder) -> TestHostBuilder) -> Self {
        let (barrier, read) = (ReplyBarrier::new(), Arc::default());
        let runner = ReadingRunner { barrier: barrier.clone(), read: Arc::clone(&read) };
        let with_runner = |builder: TestHostBuilder| configure(builder.agent(runner));
        let conversation = ScriptedConversation::with_builder(Vec::new(), with_runner).await;
        Self { conversation, barrier, read }
    }

    /// Sends a message of Ann with a file that arrives during a turn.
    async fn send_file(&self, admission: &str, text: &str) -> Event {
        let actor = Some(ActorRef { id: "7".to_owned(), name: Some("ann".to_owned()), kind: None });
        let mut event = Event { actor, thread_id: Some("t".to_owned()), ..Event::message("desk", "1", text) };
        event.input.contents = vec![attachment()];
        event.metadata.insert("admission".to_owned(), admission.into());
        self.conversation.host.submit_and_wait(&event).await;
        event
    }

    /// Lets the runner read, and waits for the answer to an event.
    async fn finish(self, last: &Event) -> ReadMessages {
        self.barrier.release();
        self.conversation.channel.wait_for_answer(&last.event_id).await;
        self.conversation.finish().await;
        Arc::into_inner(self.read).unwrap().into_inner().unwrap()
    }
}

fn attachment() -> ContentPart {
    ContentPart::from_file("a.bin", "data:application/octet-stream;base64,AAEC")
}

/// Names of the attachments that a message lists as artifacts.
fn attachment_names(event: &MessageEvent) -> Vec<&str> {
    event.attachments.iter().map(|artifact| artifact.name.as_str()).collect()
}

/// Builder whose prompts have an addition of the host, under a binding that withholds them.
fn with_withheld_prompt(builder: TestHostBuilder) -> TestHostBuilder {
    let policy = ResourcePolicy { prompt: Some(false), ..ResourcePolicy::default() };
    let binding = Binding { resource_policy: policy, ..default_binding() };
    builder.binding(binding).register("private", |hooks| {
        hooks.on(BuildPrompt, |message: InboundEvent| async move {
            Ok(Some(Content::Text(format!("Private note.\n{}", message.input.plain_text()))))
        });
    })
}

#[tokio::test]
async fn g08_a_steered_message_has_the_event_that_it_was_built_from() {
    let reading = ReadingConversation::new(|builder| builder).await;
    reading.conversation.send_message("one").await;
    reading.barrier.reached().await;
    let two = reading.send_file("steer", "two").await;
    let read = reading.finish(&two).await;
    let [steered] = &read.steered[..] else { panic!("one message was steered") };
    let event = &steered.event;
    assert_eq!((&event.event_id, &event.actor, event.text.as_str()), (&two.event_id, &two.actor, "two"));
    assert_eq!((event.thread_id.as_deref(), &event.contents[..]), (Some("t"), &[attachment()][..]));
    let Content::Parts(prompt) = &steered.prompt else { panic!("{:?}", steered.prompt) };
    assert_eq!((prompt.len(), prompt[0].as_text(), &prompt[2]), (3, Some("two"), &attachment()));
    assert_eq!((attachment_names(event), &read.attachments[..]), (vec!["a.bin"], &[vec![0, 1, 2]][..]));
}

#[tokio::test]
async fn g08_a_message_of_several_events_has_each_with_its_attachments() {
    let reading = ReadingConversation::new(|builder| builder).await;
    reading.conversation.send_message("one").await;
    reading.barrier.reached().await;
    let (two, three) = (reading.send_file("collect", "two").await, reading.send_file("collect", "three").await);
    reading.barrier.release();
    reading.conversation.channel.wait_for_answer(&three.event_id).await;
    let four = reading.send_file("follow_up", "four").await;
    let read = reading.finish(&four).await;
    let said: Vec<_> = read.history.iter().filter(|message| message.role == MessageRole::User).collect();
    let combined = said.iter().find(|message| message.events.len() == 2).expect("a message of two events");
    let ids: Vec<_> = combined.events.iter().map(|event| &event.event_id).collect();
    assert_eq!(ids, [&two.event_id, &three.event_id]);
    let texts: Vec<_> = combined.events.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(texts, ["two", "three"]);
    assert!(combined.events.iter().all(|event| event.contents == [attachment()] && event.actor == two.actor));
    assert!(combined.events.iter().all(|event| attachment_names(event) == ["a.bin"]));
    let ids: HashSet<_> = combined.events.iter().map(|event| &event.attachments[0].id).collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(read.found, [(*combined).clone()], "a search returns the same events");
}

#[tokio::test]
async fn g05_a_withheld_prompt_is_in_no_message_that_a_runner_reads() {
    let reading = ReadingConversation::new(with_withheld_prompt).await;
    reading.conversation.send_message("one").await;
    reading.barrier.reached().await;
    let two = reading.send_file("steer", "two").await;
    let read = reading.finish(&two).await;
    let steered: Vec<String> = read.steered.iter().map(|message| message.prompt.text()).collect();
    assert_eq!(steered, ["two"]);
    let said: Vec<&str> = read.history.iter().map(|message| message.text.as_str()).collect();
    assert_eq!(said, ["one", "two"]);
    assert_eq!(read.found.iter().map(|message| message.text.as_str()).collect::<Vec<_>>(), ["two"]);
    let messages = || read.history.iter().chain(&read.found);
    assert!(messages().all(|message| !message.content.text().contains("Private note.")));
}

/// Message of a person in a group chat that waits for the turn that is running, and shares the next one.
fn collected_message(name: &str, text: &str) -> Event {
    let actor = Some(ActorRef { id: format!("id-{name}"), name: Some(name.to_owned()), kind: None });
    let mut event = Event { actor, ..Event::message("desk", "1", text) };
    event.metadata.insert("admission".to_owned(), "collect".into());
    event
}

#[tokio::test]
async fn a07_each_sender_of_a_combined_message_has_a_header_and_their_attachments() {
    let barrier = ReplyBarrier::new();
    let replies = vec![ScriptedReply::text("first").with_barrier(&barrier), ScriptedReply::text("second")];
    let conversation = ScriptedConversation::with_builder(replies, TestHostBuilder::with_message_headers).await;
    conversation.send_message("one").await;
    barrier.reached().await;
    let mut photo = collected_message("Ann", "my photo");
    photo.input.contents = vec![ContentPart::from_image_url("https://images.example/a.png")];
    let mut quoting = collected_message("Bob", "why?");
    quoting.metadata.insert("context".to_owned(), serde_json::json!({"quoted": "my photo"}));
    let mut again = collected_message("Bob", "and");
    again.input.contents = vec![attachment()];
    let last = collected_message("Bob", "how?");
    for event in [&photo, &quoting, &again, &last] {
        conversation.host.submit_and_wait(event).await;
    }
    barrier.release();
    conversation.channel.wait_for_answer(&last.event_id).await;
    let request = conversation.request(1);
    let parts = request["messages"].as_array().unwrap().last().unwrap()["content"].as_array().unwrap().clone();
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    let lines: Vec<&str> = texts.iter().flat_map(|text| text.lines()).filter(|line| !line.is_empty()).collect();
    let shown: Vec<&str> = lines.into_iter().filter(|line| !line.starts_with("---Date: ")).collect();
    let expected = [
        "channel: desk, chat: 1, from: Ann (id-Ann)",
        "my photo",
        "channel: desk, chat: 1, from: Bob (id-Bob)",
        "context quoted: \"my photo\"",
        "why?",
        "channel: desk, chat: 1, from: Bob (id-Bob)",
        "and",
        "how?",
    ];
    let (named_file, shown) = shown.split_last().unwrap();
    assert_eq!(shown, expected);
    assert!(
        named_file.starts_with("[attached file a.bin (application/octet-stream, 3 bytes) is artifact "),
        "{texts:?}"
    );
    let kinds: Vec<&str> = parts.iter().map(|part| part["type"].as_str().unwrap()).collect();
    let expected_kinds = ["text", "image_url", "text", "text", "text", "file"];
    assert_eq!(kinds, expected_kinds, "attachments follow the text of their sender");
    conversation.finish().await;
}

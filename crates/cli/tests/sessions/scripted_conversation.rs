//! A conversation with a scripted model, as it is told.

use std::sync::Arc;

use capstan::Host;
use capstan::hooks::Plugin;
use capstan::hooks::contracts::ChannelReply;
use capstan::hooks::points::{AdmissionDecision, AdmitMessage};
use capstan::hooks::{HookRegistrar, InboundEvent};
use capstan::protocol::{AdmissionMode, Event, Outcome, RunId};
use capstan_host::model_call_log::ModelCallReader;
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

use crate::host_fixture::{ClosurePlugin, HostFixture, TestHostBuilder, format_outcome, submit};
use crate::test_channel::TestChannel;

/// Where a message of a talk says how it wants to be admitted.
const ADMISSION_METADATA_KEY: &str = "admission";

/// A conversation with a scripted model.
pub struct ScriptedConversation {
    pub host: Host,
    pub fixture: HostFixture,
    pub channel: Arc<TestChannel>,
    server: ScriptedModel,
}

/// Something that was said.
pub struct SubmittedMessage(Event);

impl ScriptedConversation {
    /// A talk in which the model says this.
    pub async fn new(replies: Vec<ScriptedReply>) -> Self {
        Self::with_plugins(replies, Vec::new()).await
    }

    /// A talk in which the model says this, with plugins.
    pub async fn with_plugins(replies: Vec<ScriptedReply>, plugins: Vec<Box<dyn Plugin>>) -> Self {
        let server = ScriptedModel::start(replies).await;
        let (fixture, desk) = (HostFixture::on_disk(), Arc::new(TestChannel::with_waiting_callers("desk")));
        let building = fixture
            .host_builder()
            .model(&server)
            .channel(&desk)
            .plugin(Box::new(ClosurePlugin("admission", register_admission)));
        let host = plugins.into_iter().fold(building, TestHostBuilder::plugin).start().await;
        Self { host, fixture: fixture, channel: desk, server }
    }

    /// Says something and waits until it is accepted.
    pub async fn send_message(&self, text: &str) -> SubmittedMessage {
        self.submit(Event::message("desk", "1", text)).await
    }

    /// Says something that is to be admitted like this.
    pub async fn send_with_admission(&self, admission: &str, text: &str) -> SubmittedMessage {
        let mut event = Event::message("desk", "1", text);
        event.metadata.insert(ADMISSION_METADATA_KEY.to_owned(), admission.into());
        self.submit(event).await
    }

    async fn submit(&self, event: Event) -> SubmittedMessage {
        submit(&self.host, &event).await;
        SubmittedMessage(event)
    }

    /// What whoever said it was answered.
    pub async fn wait_for_answer(&self, said: &SubmittedMessage) -> ChannelReply {
        let answer = self.channel.wait_for_answer(&said.0.event_id).await;
        assert_eq!(self.fixture.outcome(&said.0).await.as_ref(), Some(&answer.outcome), "what is said is on record");
        answer
    }

    /// What became of it, in a few words.
    pub async fn outcome(&self, said: &SubmittedMessage) -> String {
        format_outcome(&self.wait_for_answer(said).await.outcome)
    }

    /// The run that ended it.
    pub async fn run_id(&self, said: &SubmittedMessage) -> RunId {
        self.wait_for_answer(said).await.run_id.expect("a run ended it")
    }

    /// Asserts that it became part of the run that answered something else.
    pub async fn assert_folded(&self, said: &SubmittedMessage, into: &SubmittedMessage) {
        let run_id = self.run_id(into).await;
        assert_eq!(self.wait_for_answer(said).await.outcome, Outcome::Folded { run_id });
    }

    /// Whether it has not ended.
    pub async fn is_open(&self, said: &SubmittedMessage) -> bool {
        self.fixture.outcome(&said.0).await.is_none()
    }

    /// What the model was sent, each time: the lines of the conversation after the session's start.
    pub fn requests(&self) -> Vec<Vec<String>> {
        self.server.requests().iter().map(conversation_lines).collect()
    }

    /// Ends the talk: nothing is left open, nothing was invalid, and what the model got is on record.
    pub async fn finish(self) {
        self.fixture.assert_settled().await;
        assert_eq!(self.server.violations(), Vec::<String>::new());
        let calls = ModelCallReader { tapes: self.host.tapes() };
        let mut recorded = Vec::new();
        // The newest come first.
        for run in self.fixture.store().run_page(None, 1000).await.unwrap().into_iter().rev() {
            recorded.extend(calls.read_run(&run.run_id).await.unwrap().unwrap());
        }
        let requests = self.server.requests();
        assert_eq!(recorded.len(), requests.len(), "every call is recorded");
        for (call, request) in recorded.iter().zip(&requests) {
            assert_eq!(Value::from(call.messages.clone()), request["messages"]);
        }
        self.host.stop().await.unwrap();
    }
}

/// A message says for itself how it is to be admitted.
fn register_admission(hooks: &mut HookRegistrar) {
    hooks.on(AdmitMessage, |message: InboundEvent| async move {
        Ok(message.metadata.get(ADMISSION_METADATA_KEY).and_then(Value::as_str).map(|asked| match asked {
            "process" => AdmissionDecision::Process,
            "beside" => AdmissionDecision::Concurrent,
            mode => AdmissionDecision::WithMode(AdmissionMode::parse(mode).expect("a mode of admission")),
        }))
    });
}

/// The model calls the tool that waits at the test's gate.
pub fn hold_tool_reply(id: &str) -> ScriptedReply {
    ScriptedReply::tool_calls([(id, "hold", json!({}))])
}

/// A request as a conversation: without the system prompt and what stands for an anchor.
pub fn conversation_lines(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().expect("messages").iter();
    let line = |message: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let content = text(&message["content"]);
        match (text(&message["role"]).as_str(), message["tool_calls"].as_array()) {
            ("system", _) => None,
            ("assistant", Some(calls)) => {
                let names: Vec<String> = calls.iter().map(|call| text(&call["function"]["name"])).collect();
                Some(format!("calls {}", names.join(", ")))
            }
            (_, _) if content.starts_with("[Anchor created: session/start]") => None,
            (role, _) => Some(format!("{role}: {content}")),
        }
    };
    messages.filter_map(line).collect()
}

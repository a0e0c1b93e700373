//! Conversation with a scripted model through a test channel.

use std::sync::Arc;

use capstan_hooks::contracts::ChannelReply;
use capstan_hooks::points::{AdmissionDecision, AdmitMessage};
use capstan_hooks::{HookRegistrar, InboundEvent};
use capstan_host::model_call_log::ModelCallReader;
use capstan_host::testing::{ClosurePlugin, TestEnvironment, TestHost, TestHostBuilder};
use capstan_protocol::{AdmissionMode, Event, Outcome, RunId};
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

use crate::sessions::support::format_outcome;
use crate::sessions::test_channel::TestChannel;

/// Metadata key with the admission that a message asks for.
const ADMISSION_METADATA_KEY: &str = "admission";

/// Conversation with a scripted model, in one session.
pub struct ScriptedConversation {
    pub host: TestHost,
    pub environment: TestEnvironment,
    pub channel: Arc<TestChannel>,
    server: ScriptedModel,
}

/// Accepted message of the conversation.
pub struct SubmittedMessage(Event);

impl ScriptedConversation {
    /// Conversation with these replies of the model.
    pub async fn new(replies: Vec<ScriptedReply>) -> Self {
        Self::with_plugins(replies, Vec::new()).await
    }

    /// Conversation with these replies of the model and these plugins.
    pub async fn with_plugins(replies: Vec<ScriptedReply>, plugins: Vec<ClosurePlugin>) -> Self {
        Self::with_builder(replies, |builder| plugins.into_iter().fold(builder, TestHostBuilder::plugin)).await
    }

    /// Conversation with these replies of the model, on a host as configured.
    pub async fn with_builder(
        replies: Vec<ScriptedReply>,
        configure: impl FnOnce(TestHostBuilder) -> TestHostBuilder,
    ) -> Self {
        let server = ScriptedModel::start(replies).await;
        let (environment, channel) = (TestEnvironment::on_disk(), Arc::new(TestChannel::with_waiting_callers("desk")));
        let builder = environment
            .host()
            .scripted_model(&server)
            .channel(&channel)
            .plugin(ClosurePlugin::new("admission", register_admission));
        let host = configure(builder).start().await;
        Self { host, environment, channel, server }
    }

    /// Sends a message and waits until it is accepted.
    pub async fn send_message(&self, text: &str) -> SubmittedMessage {
        self.submit(Event::message("desk", "1", text)).await
    }

    /// Sends a message that asks for this admission.
    pub async fn send_with_admission(&self, admission: &str, text: &str) -> SubmittedMessage {
        let mut event = Event::message("desk", "1", text);
        event.metadata.insert(ADMISSION_METADATA_KEY.to_owned(), admission.into());
        self.submit(event).await
    }

    async fn submit(&self, event: Event) -> SubmittedMessage {
        self.host.submit_and_wait(&event).await;
        SubmittedMessage(event)
    }

    /// Reply to a message; asserts that the same outcome is recorded.
    pub async fn wait_for_answer(&self, message: &SubmittedMessage) -> ChannelReply {
        let answer = self.channel.wait_for_answer(&message.0.event_id).await;
        assert_eq!(
            self.environment.outcome(&message.0).await.as_ref(),
            Some(&answer.outcome),
            "the reported outcome is recorded"
        );
        answer
    }

    /// Outcome of a message as a short text.
    pub async fn outcome(&self, message: &SubmittedMessage) -> String {
        format_outcome(&self.wait_for_answer(message).await.outcome)
    }

    /// Run that settled a message.
    pub async fn run_id(&self, message: &SubmittedMessage) -> RunId {
        self.wait_for_answer(message).await.run_id.expect("the message was settled by a run")
    }

    /// Asserts that a message was folded into the run of another.
    pub async fn assert_folded(&self, message: &SubmittedMessage, into: &SubmittedMessage) {
        let run_id = self.run_id(into).await;
        assert_eq!(self.wait_for_answer(message).await.outcome, Outcome::Folded { run_id });
    }

    /// True while the message has no outcome.
    pub async fn is_open(&self, message: &SubmittedMessage) -> bool {
        self.environment.outcome(&message.0).await.is_none()
    }

    /// Model requests as lines of the conversation.
    pub fn requests(&self) -> Vec<Vec<String>> {
        self.server.requests().iter().map(conversation_lines).collect()
    }

    /// A model request as the server got it.
    pub fn request(&self, index: usize) -> Value {
        self.server.requests()[index].clone()
    }

    /// Stops the host; asserts that every event is settled, every request was valid, and every request is recorded.
    pub async fn finish(self) {
        self.environment.assert_settled().await;
        assert_eq!(self.server.violations(), Vec::<String>::new());
        let calls = ModelCallReader { tapes: self.host.tapes() };
        let mut recorded = Vec::new();
        // The page lists the newest run first.
        for run in self.environment.store().run_page(None, 1000).await.unwrap().into_iter().rev() {
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

/// Registers a hook that admits each message as its metadata asks.
fn register_admission(hooks: &mut HookRegistrar) {
    hooks.on(AdmitMessage, |message: InboundEvent| async move {
        Ok(message.metadata.get(ADMISSION_METADATA_KEY).and_then(Value::as_str).map(|admission| match admission {
            "process" => AdmissionDecision::Process,
            "beside" => AdmissionDecision::Concurrent,
            mode => AdmissionDecision::WithMode(AdmissionMode::parse(mode).expect("an admission mode")),
        }))
    });
}

/// Reply in which the model calls the tool `hold`.
pub fn hold_tool_reply(id: &str) -> ScriptedReply {
    ScriptedReply::tool_calls([(id, "hold", json!({}))])
}

/// Messages of a request as lines, without the system prompt and the anchor of the session start.
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

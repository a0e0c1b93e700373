//! A conversation with a scripted model, as it is told.

use std::sync::Arc;

use capstan::Host;
use capstan::hooks::Plugin;
use capstan::hooks::contracts::Answer;
use capstan::hooks::points::{Admission, AdmitMessage};
use capstan::hooks::{Inbound, Registrar};
use capstan::protocol::{AdmissionMode, Event, Outcome, RunId};
use capstan_host::runs::calls::ModelCalls;
use capstan_testing::{Reply, ScriptedModel};
use serde_json::{Value, json};

use crate::house::{Building, House, Registers, in_words, submit};
use crate::phone::Phone;

/// Where a message of a talk says how it wants to be admitted.
const ADMISSION: &str = "admission";

/// A conversation with a scripted model.
pub struct Talk {
    pub host: Host,
    pub house: House,
    pub desk: Arc<Phone>,
    server: ScriptedModel,
}

/// Something that was said.
pub struct Said(Event);

impl Talk {
    /// A talk in which the model says this.
    pub async fn with(replies: Vec<Reply>) -> Self {
        Self::and(replies, Vec::new()).await
    }

    /// A talk in which the model says this, with plugins.
    pub async fn and(replies: Vec<Reply>, plugins: Vec<Box<dyn Plugin>>) -> Self {
        let server = ScriptedModel::start(replies).await;
        let (house, desk) = (House::on_disk(), Arc::new(Phone::desk("desk")));
        let building = house.host().model(&server).channel(&desk).plugin(Box::new(Registers("admission", asks)));
        let host = plugins.into_iter().fold(building, Building::plugin).start().await;
        Self { host, house, desk, server }
    }

    /// Says something and waits until it is accepted.
    pub async fn say(&self, text: &str) -> Said {
        self.submit(Event::message("desk", "1", text)).await
    }

    /// Says something that is to be admitted like this.
    pub async fn say_as(&self, admission: &str, text: &str) -> Said {
        let mut event = Event::message("desk", "1", text);
        event.metadata.insert(ADMISSION.to_owned(), admission.into());
        self.submit(event).await
    }

    async fn submit(&self, event: Event) -> Said {
        submit(&self.host, &event).await;
        Said(event)
    }

    /// What whoever said it was answered.
    pub async fn answer(&self, said: &Said) -> Answer {
        let answer = self.desk.answer_to(&said.0.event_id).await;
        assert_eq!(self.house.outcome(&said.0).await.as_ref(), Some(&answer.outcome), "what is said is on record");
        answer
    }

    /// What became of it, in a few words.
    pub async fn outcome(&self, said: &Said) -> String {
        in_words(&self.answer(said).await.outcome)
    }

    /// The run that ended it.
    pub async fn run_of(&self, said: &Said) -> RunId {
        self.answer(said).await.run_id.expect("a run ended it")
    }

    /// Asserts that it became part of the run that answered something else.
    pub async fn assert_folded(&self, said: &Said, into: &Said) {
        let run_id = self.run_of(into).await;
        assert_eq!(self.answer(said).await.outcome, Outcome::Folded { run_id });
    }

    /// Whether it has not ended.
    pub async fn is_open(&self, said: &Said) -> bool {
        self.house.outcome(&said.0).await.is_none()
    }

    /// What the model was sent, each time: the lines of the conversation after the session's start.
    pub fn requests(&self) -> Vec<Vec<String>> {
        self.server.requests().iter().map(lines).collect()
    }

    /// Ends the talk: nothing is left open, nothing was invalid, and what the model got is on record.
    pub async fn ends(self) {
        self.house.assert_tidy().await;
        assert_eq!(self.server.violations(), Vec::<String>::new());
        let calls = ModelCalls { tapes: self.host.tapes() };
        let mut recorded = Vec::new();
        // The newest come first.
        for run in self.house.store().runs(1000).await.unwrap().into_iter().rev() {
            recorded.extend(calls.of_run(&run.run_id).await.unwrap().unwrap());
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
fn asks(hooks: &mut Registrar) {
    hooks.on(AdmitMessage, |message: Inbound| async move {
        Ok(message.metadata.get(ADMISSION).and_then(Value::as_str).map(|asked| match asked {
            "process" => Admission::Process,
            "beside" => Admission::Beside,
            mode => Admission::As(AdmissionMode::parse(mode).expect("a mode of admission")),
        }))
    });
}

/// The model calls the tool that waits at the test's gate.
pub fn holds(id: &str) -> Reply {
    Reply::tool_calls([(id, "hold", json!({}))])
}

/// A request as a conversation: without the system prompt and what stands for an anchor.
pub fn lines(request: &Value) -> Vec<String> {
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

//! A runner that keeps its own context: what it and the model said stands in a notebook of its own, and the host's state
//! has only a pointer to the newest one.
//!
//! It reads neither the tape nor its view. Whoever keeps a context elsewhere (a file, a vector database, a service) does
//! the same: write the new context beside the old one, then move the pointer. The pointer moves in the commit that ends
//! the run, so a run that a crash cuts off finds the old notebook again, and what it had written is written over.

use std::sync::Arc;

use capstan::hooks::contracts::{ModelCall, ResultStream, RunApi, Runner};
use capstan::hooks::points::ProvideRunners;
use capstan::hooks::{BoxError, Plugin, Registrar};
use capstan::protocol::{
    ApiError, ApiErrorCode, Authority, Capabilities, ChatMessage, Descriptor, HostState, Map, ModelUse, ResultBody,
    RunContext, RunResult, StateScope, StorageArea, TapeName, Uses,
};
use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The key of the pointer in the conversation's state.
const POINTER: &str = "notebook";
/// How many messages a notebook has, where the binding does not say.
const KEEP: usize = 40;

/// Talks with a model, from a notebook of its own.
#[derive(Clone, Copy)]
pub struct Notebook;

impl Notebook {
    /// The id that bindings name.
    pub const ID: &str = "plugin:capstan/examples/notebook";
}

impl Plugin for Notebook {
    fn name(&self) -> &'static str {
        "notebook"
    }

    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
        hooks.on_sync(ProvideRunners, || Ok(Some(vec![Arc::new(Self) as Arc<dyn Runner>])));
        Ok(())
    }
}

impl Runner for Notebook {
    fn descriptor(&self) -> Descriptor {
        let schema = json!({
            "type": "object",
            "properties": {
                "system": {"type": "string", "maxLength": 10_000},
                "keep": {"type": "integer", "minimum": 2, "maximum": 1000}
            },
            "additionalProperties": false
        });
        Descriptor {
            description: Some("Talks with a model, and keeps its own context.".into()),
            capabilities: Capabilities {
                self_managed_context: true,
                stateful_session: true,
                host_state: HostState::Required,
                effects_through_host: true,
                ..Capabilities::default()
            },
            permissions: Authority {
                models: Uses { operations: [ModelUse::Invoke].into(), ..Uses::all() },
                state: [StateScope::Conversation].into(),
                storage: [StorageArea::Plugin].into(),
                ..Authority::none()
            },
            config_schema: Some(schema),
            ..Descriptor::new(Self::ID, "Notebook")
        }
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let served = async move {
            serve(&context, &api).await.unwrap_or_else(|error| {
                let (message, code) = (error.message, error.cause);
                vec![ResultBody::RunFailed { message, code }]
            })
        };
        stream::once(served).flat_map(|results| stream::iter(results.into_iter().map(RunResult::from))).boxed()
    }
}

/// Which notebook of a conversation is the newest.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Pointer {
    number: u64,
}

impl Pointer {
    /// The name of the notebook: no other conversation has it, and a run that is taken up again gives the same.
    fn name(self, tape: &TapeName) -> String {
        format!("{tape}.{}", self.number)
    }
}

async fn serve(context: &RunContext, api: &RunApi) -> Result<Vec<ResultBody>, ApiError> {
    let (area, tape) = (StorageArea::Plugin, &context.context.tape);
    let known = api.state.get(StateScope::Conversation, POINTER).await?;
    let known: Option<Pointer> =
        known.map(|pointer| serde_json::from_value(pointer).map_err(|error| unreadable(&error))).transpose()?;
    let mut messages: Vec<ChatMessage> = match known {
        Some(pointer) => serde_json::from_slice(&api.storage.get(area, &pointer.name(tape)).await?)
            .map_err(|error| unreadable(&error))?,
        None => Vec::new(),
    };
    let pointer = known.unwrap_or_default();
    if let Some(number) = pointer.number.checked_sub(1) {
        // The pointer has moved on for good, so nobody reads the one before any more.
        api.storage.delete(area, &Pointer { number }.name(tape)).await?;
    }
    messages.push(ChatMessage::user(context.input.content()));
    let system = context.config.get("system").and_then(Value::as_str).unwrap_or_default().to_owned();
    let call = ModelCall { system, messages: messages.clone(), ..ModelCall::default() };
    let answer = api.models.invoke(call).await?;
    messages.push(ChatMessage::assistant(answer.text.clone()));
    let keep = context.config.get("keep").and_then(Value::as_u64).and_then(|keep| usize::try_from(keep).ok());
    messages.drain(..messages.len().saturating_sub(keep.unwrap_or(KEEP)));

    let next = Pointer { number: pointer.number + 1 };
    api.storage.put(area, &next.name(tape), serde_json::to_vec(&messages).map_err(|error| unreadable(&error))?).await?;
    let state = Map::from_iter([(POINTER.to_owned(), json!(next))]);
    Ok(vec![
        ResultBody::StateUpdated { scope: StateScope::Conversation, state },
        ResultBody::MessageCompleted { content: answer.text.into(), provider_meta: answer.provider_meta },
        ResultBody::RunCompleted { silent: false },
    ])
}

fn unreadable(error: &serde_json::Error) -> ApiError {
    ApiError::new(ApiErrorCode::RuntimeError, format!("the notebook of this conversation cannot be read: {error}"))
}

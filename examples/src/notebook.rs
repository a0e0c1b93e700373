//! Runner that manages its own context: its conversation is stored in a notebook, and the host's state holds only the
//! number of the current page.
//!
//! The runner reads neither the tape nor its view. Any external context (a file, a vector database, a service) works
//! the same way: write the new context next to the old one, then move the pointer. The pointer moves in the commit that
//! ends the run, so a run interrupted by a crash finds the old page again, and its own page is overwritten.
//!
//! Storage is bounded. If another notebook does not fit, the least recently written one is deleted, and its
//! conversation starts over.

use std::sync::Arc;

use capstan::hooks::contracts::{ModelCall, ResultStream, RunApi, Runner, StorageEntry};
use capstan::hooks::points::ProvideRunners;
use capstan::hooks::{BoxError, HookRegistrar, Plugin};
use capstan::protocol::{
    ApiError, ApiErrorCode, ChatMessage, Descriptor, HostStateRequirement, JsonObject, ModelOperation, PermissionSet,
    ResourceAccess, ResultBody, RunContext, RunResult, RunnerCapabilities, StateScope, StorageArea, TapeName,
};
use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Storage area of the notebooks, each named after its conversation's tape.
const NOTEBOOK_AREA: StorageArea = StorageArea::Plugin;
/// Key of the pointer in the conversation's state.
const POINTER_KEY: &str = "notebook";
/// Number of messages in a notebook, unless the binding sets it.
const DEFAULT_KEPT_MESSAGES: usize = 40;

/// Runner that talks with a model from its own notebook.
#[derive(Clone, Copy)]
pub struct NotebookRunner;

impl NotebookRunner {
    /// Runner id for bindings.
    pub const ID: &str = "plugin:capstan/notebook/runner";
}

impl Plugin for NotebookRunner {
    fn name(&self) -> &'static str {
        "notebook"
    }

    fn author(&self) -> &'static str {
        "capstan"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        hooks.on_sync(ProvideRunners, || Ok(Some(vec![Arc::new(Self) as Arc<dyn Runner>])));
        Ok(())
    }
}

impl Runner for NotebookRunner {
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
            description: Some("Talks with a model and manages its own context.".into()),
            capabilities: RunnerCapabilities {
                self_managed_context: true,
                stateful_session: true,
                host_state: HostStateRequirement::Required,
                effects_through_host: true,
                ..RunnerCapabilities::default()
            },
            permissions: PermissionSet {
                models: ResourceAccess { operations: [ModelOperation::Invoke].into(), ..ResourceAccess::all() },
                state: [StateScope::Conversation].into(),
                storage: [NOTEBOOK_AREA].into(),
                ..PermissionSet::none()
            },
            config_schema: Some(schema),
            ..Descriptor::new(Self::ID, "Notebook")
        }
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let results = async move {
            serve(&context, &api).await.unwrap_or_else(|error| {
                let (message, code) = (error.message, error.cause);
                vec![ResultBody::RunFailed { message, code }]
            })
        };
        stream::once(results).flat_map(|results| stream::iter(results.into_iter().map(RunResult::from))).boxed()
    }
}

/// Current page of a conversation's notebook.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct PagePointer {
    number: u64,
}

/// Page of a notebook: the context after a reply.
#[derive(Clone, Serialize, Deserialize)]
struct NotebookPage {
    number: u64,
    messages: Vec<ChatMessage>,
}

async fn serve(context: &RunContext, api: &RunApi) -> Result<Vec<ResultBody>, ApiError> {
    let stored = api.state.get(StateScope::Conversation, POINTER_KEY).await?;
    let stored: Option<PagePointer> =
        stored.map(|pointer| serde_json::from_value(pointer).map_err(|error| unreadable_error(&error))).transpose()?;
    let pointer = stored.unwrap_or_default();
    let previous = match stored {
        Some(pointer) => {
            read_pages(api, &context.context.tape).await?.into_iter().find(|page| page.number == pointer.number)
        }
        None => None,
    };
    let mut messages = previous.as_ref().map(|page| page.messages.clone()).unwrap_or_default();
    messages.push(ChatMessage::user(context.input.content()));
    let system = context.config.get("system").and_then(Value::as_str).unwrap_or_default().to_owned();
    let call = ModelCall { system, messages: messages.clone(), ..ModelCall::default() };
    let reply = api.models.invoke(call).await?;
    messages.push(ChatMessage::assistant(reply.text.clone()));
    let keep = context.config.get("keep").and_then(Value::as_u64).and_then(|keep| usize::try_from(keep).ok());
    messages.drain(..messages.len().saturating_sub(keep.unwrap_or(DEFAULT_KEPT_MESSAGES)));

    let next = NotebookPage { number: pointer.number + 1, messages };
    let state = JsonObject::from_iter([(POINTER_KEY.to_owned(), json!(PagePointer { number: next.number }))]);
    // Keep both pages: the pointer moves only when the run ends.
    write_pages(api, &context.context.tape, previous.into_iter().chain([next]).collect()).await?;
    Ok(vec![
        ResultBody::StateUpdated { scope: StateScope::Conversation, state },
        ResultBody::MessageCompleted { content: reply.text.into(), provider_meta: reply.provider_meta },
        ResultBody::RunCompleted { silent: false },
    ])
}

/// Reads the pages of a conversation's notebook; a deleted notebook has none.
async fn read_pages(api: &RunApi, tape: &TapeName) -> Result<Vec<NotebookPage>, ApiError> {
    match api.storage.get(NOTEBOOK_AREA, tape.as_str()).await {
        Ok(stored) => serde_json::from_slice(&stored.content).map_err(|error| unreadable_error(&error)),
        Err(error) if error.code == ApiErrorCode::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn write_pages(api: &RunApi, tape: &TapeName, pages: Vec<NotebookPage>) -> Result<(), ApiError> {
    let pages = serde_json::to_vec(&pages).map_err(|error| unreadable_error(&error))?;
    loop {
        match api.storage.put(NOTEBOOK_AREA, tape.as_str(), pages.clone()).await {
            Err(error) if error.code == ApiErrorCode::PayloadTooLarge => {
                // Another conversation may delete the same notebook concurrently.
                let oldest = oldest_notebook(api, tape).await?.ok_or(error)?;
                api.storage.delete(NOTEBOOK_AREA, &oldest).await?;
            }
            result => return result.map(drop),
        }
    }
}

/// Returns the least recently written notebook of another conversation.
async fn oldest_notebook(api: &RunApi, except: &TapeName) -> Result<Option<String>, ApiError> {
    let (mut oldest, mut cursor): (Option<StorageEntry>, _) = (None, None);
    loop {
        let list = api.storage.list(NOTEBOOK_AREA, cursor.as_deref(), 200).await?;
        let others = list.items.into_iter().filter(|stored| stored.name != except.as_str());
        oldest = oldest.into_iter().chain(others).min_by_key(|stored| stored.at);
        cursor = list.next;
        if cursor.is_none() {
            return Ok(oldest.map(|stored| stored.name));
        }
    }
}

fn unreadable_error(error: &serde_json::Error) -> ApiError {
    ApiError::new(ApiErrorCode::RuntimeError, format!("the notebook of this conversation cannot be read: {error}"))
}

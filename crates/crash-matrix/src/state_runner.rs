//! Runner without a model that stores state in the host as its message requests.

use std::sync::Arc;

use capstan::Host;
use capstan::hooks::contracts::{NewArtifact, ResultStream, RunApi, Runner};
use capstan::protocol::{
    ApiError, ArtifactOperation, Binding, Descriptor, JsonObject, PermissionSet, ResultBody, RunContext, RunResult,
    RunnerCapabilities, StateScope, StorageArea,
};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

/// Metadata key of an event to be served by the state runner.
pub const STATE_RUNNER_KEY: &str = "state_runner";
const STATE_RUNNER_ID: &str = "plugin:capstan/crash/state";

/// Executes the `[TASK KEY]` tasks of a message:
///
/// | task | action | stored |
/// |---|---|---|
/// | `count` | adds one to a value of the conversation, as a result | with the end of the run |
/// | `set` | sets such a value to the id of the event | at once |
/// | `put` | puts the text of the message into storage | at once |
/// | `make` | creates an artifact of the text | at once |
/// | `yield` | creates an artifact, as a result | with the end of the run |
pub struct StateRunner;

impl StateRunner {
    /// Creates the runner.
    pub fn runner() -> Arc<dyn Runner> {
        Arc::new(Self)
    }

    /// Binds the events that are marked for the runner, unless they are bound already.
    ///
    /// # Panics
    ///
    /// Panics if the binding cannot be saved.
    pub async fn bind(host: &Host) {
        let binding = json!({
            "binding_id": "state", "runner_id": STATE_RUNNER_ID,
            "filters": [{"field": format!("metadata.{STATE_RUNNER_KEY}"), "exists": true}],
            "state_policy": {"enabled": true},
        });
        let binding: Binding = serde_json::from_value(binding).expect("a binding");
        if host.bindings().get(&binding.binding_id).await.is_err() {
            host.bindings().save(&binding, &host.runners()).await.expect("the binding can be saved");
        }
    }
}

impl Runner for StateRunner {
    fn descriptor(&self) -> Descriptor {
        let permissions = PermissionSet {
            state: [StateScope::Conversation].into(),
            storage: [StorageArea::Plugin].into(),
            artifacts: [ArtifactOperation::Create].into(),
            ..PermissionSet::none()
        };
        let capabilities = RunnerCapabilities { effects_through_host: true, ..RunnerCapabilities::default() };
        Descriptor { permissions, capabilities, ..Descriptor::new(STATE_RUNNER_ID, "State runner") }
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let results = async move {
            serve_event(&context, &api)
                .await
                .unwrap_or_else(|error| vec![ResultBody::RunFailed { message: error.to_string(), code: None }])
        };
        stream::once(results).flat_map(|results| stream::iter(results.into_iter().map(RunResult::from))).boxed()
    }
}

async fn serve_event(context: &RunContext, api: &RunApi) -> Result<Vec<ResultBody>, ApiError> {
    let (text, scope) = (context.input.plain_text(), StateScope::Conversation);
    let (media_type, mut results) = ("text/plain".to_owned(), Vec::new());
    for (task, key) in text.split('[').filter_map(|text| text.split_once(']')?.0.split_once(' ')) {
        match task {
            "count" => {
                let previous = api.state.get(scope, key).await?.as_ref().and_then(Value::as_u64).unwrap_or_default();
                let state = JsonObject::from_iter([(key.to_owned(), json!(previous + 1))]);
                results.push(ResultBody::StateUpdated { scope, state });
            }
            "set" => api.state.set(scope, key, json!(context.event.event_id)).await?,
            "put" => drop(api.storage.put(StorageArea::Plugin, key, text.as_bytes().to_vec()).await?),
            "make" => {
                let bytes = text.as_bytes().to_vec();
                let new = NewArtifact { name: key.to_owned(), media_type: media_type.clone(), content: bytes };
                api.artifacts.create(new).await?;
            }
            // Three letters in base64.
            "yield" => results.push(ResultBody::ArtifactCreated {
                name: key.to_owned(),
                media_type: media_type.clone(),
                content: "a2V5".to_owned(),
            }),
            _ => {}
        }
    }
    let reply = format!("Stored: {text}").into();
    results.push(ResultBody::MessageCompleted { content: reply, provider_meta: JsonObject::new() });
    results.push(ResultBody::RunCompleted { silent: false });
    Ok(results)
}

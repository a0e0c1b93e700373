//! A runner that has no model and keeps things in the host, as its message asks.

use std::sync::Arc;

use capstan::Host;
use capstan::hooks::contracts::{NewArtifact, ResultStream, RunApi, Runner};
use capstan::protocol::{
    ApiError, ArtifactUse, Authority, Binding, Capabilities, Descriptor, Map, ResultBody, RunContext, RunResult,
    StateScope, StorageArea,
};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

/// The key of an event's metadata that has it served by the keeper.
pub const KEEPER: &str = "keeper";
const ID: &str = "plugin:capstan/crash/keeper";

/// Keeps what `[TASK KEY]` in a message asks for:
///
/// | task | what it does | when it is kept |
/// |---|---|---|
/// | `count` | adds one to a value of the conversation, as a result | with the end of the run |
/// | `set` | sets such a value to the id of the event | at once |
/// | `put` | puts the text of the message into storage | at once |
/// | `make` | makes an artifact of it | at once |
/// | `yield` | makes one, as a result | with the end of the run |
pub struct Keeper;

impl Keeper {
    /// The runner.
    pub fn runner() -> Arc<dyn Runner> {
        Arc::new(Self)
    }

    /// Binds the events that are marked for it, if they are not yet.
    ///
    /// # Panics
    ///
    /// If the binding cannot be saved.
    pub async fn bind(host: &Host) {
        let binding = json!({
            "binding_id": "keeper", "runner_id": ID,
            "filters": [{"field": format!("metadata.{KEEPER}"), "exists": true}],
            "state_policy": {"enabled": true},
        });
        let binding: Binding = serde_json::from_value(binding).expect("a binding");
        if host.bindings().get(&binding.binding_id).await.is_err() {
            host.bindings().save(&binding, &host.runners()).await.expect("the binding of the keeper can be saved");
        }
    }
}

impl Runner for Keeper {
    fn descriptor(&self) -> Descriptor {
        let permissions = Authority {
            state: [StateScope::Conversation].into(),
            storage: [StorageArea::Plugin].into(),
            artifacts: [ArtifactUse::Create].into(),
            ..Authority::none()
        };
        let capabilities = Capabilities { effects_through_host: true, ..Capabilities::default() };
        Descriptor { permissions, capabilities, ..Descriptor::new(ID, "Keeper") }
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let served = async move {
            serve(&context, &api)
                .await
                .unwrap_or_else(|error| vec![ResultBody::RunFailed { message: error.to_string(), code: None }])
        };
        stream::once(served).flat_map(|results| stream::iter(results.into_iter().map(RunResult::from))).boxed()
    }
}

async fn serve(about: &RunContext, api: &RunApi) -> Result<Vec<ResultBody>, ApiError> {
    let (text, scope) = (about.input.plain_text(), StateScope::Conversation);
    let (media_type, mut results) = ("text/plain".to_owned(), Vec::new());
    for (task, key) in text.split('[').filter_map(|text| text.split_once(']')?.0.split_once(' ')) {
        match task {
            "count" => {
                let before = api.state.get(scope, key).await?.as_ref().and_then(Value::as_u64).unwrap_or_default();
                let state = Map::from_iter([(key.to_owned(), json!(before + 1))]);
                results.push(ResultBody::StateUpdated { scope, state });
            }
            "set" => api.state.set(scope, key, json!(about.event.event_id)).await?,
            "put" => drop(api.storage.put(StorageArea::Plugin, key, text.as_bytes().to_vec()).await?),
            "make" => {
                let content = text.as_bytes().to_vec();
                let new = NewArtifact { name: key.to_owned(), media_type: media_type.clone(), content };
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
    let content = format!("Kept: {text}").into();
    results.push(ResultBody::MessageCompleted { content, provider_meta: Map::new() });
    results.push(ResultBody::RunCompleted { silent: false });
    Ok(results)
}

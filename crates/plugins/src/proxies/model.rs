//! Model provider of a plugin process.

use async_trait::async_trait;
use capstan_hooks::contracts::{ModelError, ModelErrorKind, ModelProvider, ModelStream};
use capstan_protocol::plugin_protocol::{PluginModelError, PluginModelManifest, PluginModelStream, method};
use capstan_protocol::run_api::ModelEvent;
use capstan_protocol::{JsonObject, ModelRequest};
use capstan_rpc::{RpcCallError, RpcError};
use futures::StreamExt as _;

use crate::PluginProcess;
use crate::error::call_message;

/// Model provider of a plugin process.
pub(crate) struct ModelProxy {
    process: PluginProcess,
    name: String,
}

impl ModelProxy {
    pub(crate) fn new(process: PluginProcess, provider: &PluginModelManifest) -> Self {
        Self { process, name: provider.name.clone() }
    }
}

#[async_trait]
impl ModelProvider for ModelProxy {
    fn name(&self) -> &str {
        &self.name
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        let connected = self.process.connect().await;
        let (connection, peer) =
            connected.map_err(|error| ModelError::new(ModelErrorKind::Unreachable, error.to_string()))?;
        let stream_name = connection.register_call("model", None).call_id.clone();
        let credit = self.process.options().model_credit;
        let in_use = || ModelError::new(ModelErrorKind::Broken, "the name of the stream is in use");
        let mut items = peer.open_incoming(&stream_name, credit).ok_or_else(in_use)?;
        let params = PluginModelStream {
            provider: self.name.clone(),
            request: request.clone(),
            stream: stream_name,
            credit,
            deadline_ms: None,
        };
        let events = async_stream::stream! {
            // Dropping the request cancels it at the plugin.
            let answer = peer.request_uncounted::<JsonObject>(method::MODEL_STREAM, &params);
            tokio::pin!(answer);
            let mut answered = None;
            loop {
                let item = tokio::select! {
                    biased;
                    item = items.next_item() => item,
                    result = &mut answer, if answered.is_none() => {
                        answered = Some(result);
                        // All items precede the answer.
                        items.end();
                        continue;
                    }
                };
                match item {
                    Some(Ok(item)) => match serde_json::from_str::<ModelEvent>(item.get()) {
                        Ok(event) => yield Ok(event),
                        // A newer plugin may send events that this host does not know.
                        Err(error) => tracing::debug!(%error, "dropped an event of a model"),
                    },
                    Some(Err(violation)) => {
                        yield Err(ModelError::new(ModelErrorKind::Broken, violation.to_string()));
                        return;
                    }
                    None => break,
                }
            }
            let answered = match answered {
                Some(answered) => answered,
                None => answer.await,
            };
            if let Err(error) = answered {
                yield Err(ModelError::new(error_kind(&error), call_message(&error)));
            }
        };
        Ok(events.boxed())
    }
}

/// Kind of a failed `model.stream`.
fn error_kind(error: &RpcCallError) -> ModelErrorKind {
    let data = match error {
        RpcCallError::Remote(RpcError { data, .. }) => data.clone(),
        RpcCallError::TooLarge => return ModelErrorKind::Rejected,
        _ => None,
    };
    let kind = data.and_then(|data| serde_json::from_value::<PluginModelError>(data).ok());
    match kind.as_ref().map_or("", |error| error.kind.as_str()) {
        "unreachable" => ModelErrorKind::Unreachable,
        "unauthorized" => ModelErrorKind::Unauthorized,
        "unknown_model" => ModelErrorKind::UnknownModel,
        "rate_limited" => ModelErrorKind::RateLimited,
        "context_overflow" => ModelErrorKind::ContextOverflow,
        "rejected" => ModelErrorKind::Rejected,
        _ => ModelErrorKind::Broken,
    }
}

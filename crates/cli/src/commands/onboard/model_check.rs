//! Test of a model before it is saved.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::{ModelError, ModelErrorKind, ModelProvider, collect_output};
use capstan_hooks::points::ProvideModelOptions;
use capstan_protocol::{ChatMessage, ModelOptions, ModelRequest};

use crate::CommandError;
use crate::config::Config;

/// Timeout of the test.
const MODEL_CHECK_TIMEOUT: Duration = Duration::from_mins(1);

/// Sends the configured model one short question.
pub(super) async fn check_model(hooks: &HookRuntime, config: &Config) -> Result<(), CommandError> {
    let failed = |error: ModelError| {
        let failure = CommandError::new(error.kind.code(), error.message);
        let hint = format!("nothing was written; {}", failure.hint);
        failure.with_hint(&hint)
    };
    let providers = model_providers(hooks);
    let provider = providers.iter().find(|provider| provider.name() == config.model.provider());
    let Some(provider) = provider else {
        let message = format!("unknown model provider {}", config.model.provider());
        return Err(failed(ModelError::new(ModelErrorKind::UnknownModel, message)));
    };
    let request = ModelRequest {
        model: config.model.clone(),
        system: String::new(),
        messages: vec![ChatMessage::user("Answer with one word: ready.")],
        tools: Arc::default(),
        options: ModelOptions::default(),
    };
    let reply = async { collect_output(provider.stream(&request).await?).await };
    let timed_out = |_| {
        let message = format!("{} did not answer within {} s", config.model, MODEL_CHECK_TIMEOUT.as_secs());
        ModelError::new(ModelErrorKind::Unreachable, message)
    };
    let reply = tokio::time::timeout(MODEL_CHECK_TIMEOUT, reply).await.map_err(timed_out).flatten();
    reply.map(drop).map_err(failed)
}

/// Model providers of all plugins.
pub(super) fn model_providers(hooks: &HookRuntime) -> Vec<Arc<dyn ModelProvider>> {
    hooks.collect_provided::<ProvideModelOptions, Arc<dyn ModelProvider>>(|provider| provider.name().to_owned())
}

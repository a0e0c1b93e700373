//! Trying a model before it is kept.

use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::{ModelError, ModelErrorKind, ModelProvider, collect_output};
use capstan_hooks::points::ProvideModelOptions;
use capstan_protocol::{ChatMessage, ModelOptions, ModelRequest};

use crate::CommandError;
use crate::config::Config;

/// How long the answer may take.
const MODEL_CHECK_TIMEOUT: Duration = Duration::from_mins(1);

/// Asks the model of a configuration one short question.
pub(super) async fn check_model(hooks: &HookRuntime, config: &Config) -> Result<(), CommandError> {
    let failed = |error: ModelError| {
        let failure = CommandError::new(error.kind.code(), error.message);
        let hint = format!("nothing was written; {}", failure.hint);
        failure.with_hint(&hint)
    };
    let providers = model_providers(hooks);
    let provider = providers.iter().find(|provider| provider.name() == config.model.provider());
    let Some(provider) = provider else {
        let message = format!("there is no provider {}", config.model.provider());
        return Err(failed(ModelError::new(ModelErrorKind::UnknownModel, message)));
    };
    let request = ModelRequest {
        model: config.model.clone(),
        system: String::new(),
        messages: vec![ChatMessage::user("Answer with one word: ready.")],
        tools: Arc::default(),
        options: ModelOptions::default(),
    };
    let asking = async { collect_output(provider.stream(&request).await?).await };
    let late = |_| {
        let message = format!("{} did not answer within {} s", config.model, MODEL_CHECK_TIMEOUT.as_secs());
        ModelError::new(ModelErrorKind::Unreachable, message)
    };
    let answered = tokio::time::timeout(MODEL_CHECK_TIMEOUT, asking).await.map_err(late).flatten();
    answered.map(drop).map_err(failed)
}

/// The providers there are.
pub(super) fn model_providers(hooks: &HookRuntime) -> Vec<Arc<dyn ModelProvider>> {
    hooks.collect_provided::<ProvideModelOptions, Arc<dyn ModelProvider>>(|provider| provider.name().to_owned())
}

//! Method `models.list`.

use std::sync::Arc;

use capstan_hooks::contracts::ModelDirectory;
use capstan_hooks::contracts::methods::ModelsList;
use capstan_protocol::run_api::EmptyCall;
use capstan_protocol::{AllowList, ApiError, ModelId, ModelOperation};

use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use crate::run::Run;
use crate::run::call_limiter::CallPermit;

impl MethodHandler for ModelsList {
    fn permission(_: &Run, _: &EmptyCall) -> RequiredPermission {
        RequiredPermission::AnyModel(ModelOperation::Stream)
    }

    async fn handle(run: &Arc<Run>, _: EmptyCall, _: CallPermit) -> Result<ModelDirectory, ApiError> {
        let (options, granted) = (&run.environment.options, &run.grant().may.models);
        let mut models: Vec<ModelId> = vec![options.model.clone()];
        models.extend(options.fallback_models.iter().cloned());
        if let AllowList::Only(names) = &granted.names {
            models.extend(names.iter().filter_map(|name| name.parse().ok()));
        }
        let mut seen = std::collections::HashSet::new();
        models.retain(|model| granted.allows(ModelOperation::Stream, &model.to_string()) && seen.insert(model.clone()));
        let default = models.first().filter(|model| **model == options.model).cloned();
        let providers = run.environment.model_providers().map(str::to_owned).collect();
        Ok(ModelDirectory { default, models, providers })
    }
}

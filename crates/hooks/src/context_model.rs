//! Model handle of context selectors.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use capstan_protocol::run_api::ModelCall;
use capstan_protocol::{ApiError, ApiErrorCode, ModelOutput};

use crate::contracts::ModelsApi;
use crate::{HookPermission, PluginGrant};

/// Access to the models of the run whose context is selected.
#[derive(Clone)]
pub struct ContextModelAccess {
    models: Option<ModelsApi>,
    call_count: Arc<AtomicUsize>,
}

impl ContextModelAccess {
    /// Access with the authority and within the budget of a run.
    pub fn new(models: ModelsApi) -> Self {
        Self { models: Some(models), call_count: Arc::default() }
    }

    /// Stands for a call without a run: every model call is refused.
    pub fn none() -> Self {
        Self { models: None, call_count: Arc::default() }
    }

    /// Handle of a plugin's selector.
    pub(crate) fn model(&self, grant: &PluginGrant) -> ContextModel {
        ContextModel { access: self.clone(), is_permitted: grant.permissions.allows(&HookPermission::CallModel) }
    }
}

impl fmt::Debug for ContextModelAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContextModelAccess")
    }
}

/// Model handle of a context selector, for summaries.
///
/// A call is a model call of the run: it needs the grant of the run, counts against its budget, passes the interception
/// hooks, and is recorded on the tape. The plugin needs [`HookPermission::CallModel`].
#[derive(Debug, Clone)]
pub struct ContextModel {
    access: ContextModelAccess,
    is_permitted: bool,
}

impl ContextModel {
    /// Maximum number of model calls of one selection.
    pub const MAX_CALLS: usize = 4;

    /// Calls a model and waits for the complete answer.
    pub async fn invoke(&self, call: ModelCall) -> Result<ModelOutput, ApiError> {
        let Some(models) = self.access.models.as_ref().filter(|_| self.is_permitted) else {
            let message = format!("the plugin has no permission {:?}", HookPermission::CallModel.to_string());
            return Err(ApiError::new(ApiErrorCode::Unauthorized, message));
        };
        if self.access.call_count.fetch_add(1, Ordering::Relaxed) >= Self::MAX_CALLS {
            let message = format!("more than {} model calls to select a context", Self::MAX_CALLS);
            return Err(ApiError::new(ApiErrorCode::RateLimited, message));
        }
        models.invoke(call).await
    }
}

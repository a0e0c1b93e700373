//! Messages that came meanwhile, as a run may take them in.

use std::sync::Arc;

use async_trait::async_trait;
use capstan_hooks::contracts::SteeringApi;
use capstan_protocol::{ApiError, Content};

use crate::run::Run;

pub(super) struct Steering(pub(super) Arc<Run>);

#[async_trait]
impl SteeringApi for Steering {
    async fn take(&self) -> Result<Vec<Content>, ApiError> {
        let _ = &self.0;
        Ok(Vec::new())
    }
}

//! Service of a peer: what it does with the requests and notifications of the other side.

use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::{RequestId, RpcError};

/// Answer to a request, in the making.
pub type RequestFuture = BoxFuture<'static, Result<Box<RawValue>, RpcError>>;

/// Request of the other side.
#[derive(Debug)]
pub struct IncomingRequest {
    /// Id of the request.
    pub id: RequestId,
    /// Method to call.
    pub method: String,
    /// Params, an object.
    pub params: Box<RawValue>,
    /// Length of its line.
    pub line_bytes: usize,
}

/// Notification of the other side.
#[derive(Debug)]
pub struct IncomingNotification {
    /// Method to call.
    pub method: String,
    /// Params, an object.
    pub params: Box<RawValue>,
    /// Length of its line.
    pub line_bytes: usize,
}

impl IncomingRequest {
    /// Params as the type of the method.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        serde_json::from_str(self.params.get()).map_err(RpcError::invalid_params)
    }
}

impl IncomingNotification {
    /// Params as the type of the method.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        serde_json::from_str(self.params.get()).map_err(RpcError::invalid_params)
    }
}

/// Serves the other side. Both functions are called by the reading task, in the order of arrival, and must not block.
pub trait RpcService: Send + Sync + 'static {
    /// Begins to serve a request. The future runs in a task of its own, and is dropped if the request is cancelled.
    fn serve(&self, request: IncomingRequest) -> RequestFuture;

    /// Handles a notification. Unknown ones are ignored.
    fn notify(&self, notification: IncomingNotification);

    /// Returns true for a request that may contain further requests, and does not count toward the limit.
    fn may_nest(&self, request: &IncomingRequest) -> bool {
        let _ = request;
        false
    }

    /// Called for a line that is no message, with a description, and for other anomalies.
    fn report(&self, anomaly: &str) {
        let _ = anomaly;
    }
}

//! Serves `run.call`: a call of the run API under the authority of a run, or of a tool call.

use capstan_hooks::contracts::{ApiMethod, ApiReply, ApiRequest, RunApi};
use capstan_protocol::plugin_protocol::{MAX_OPENING_CREDIT, PluginRunCall, PluginStreamItem, method};
use capstan_protocol::{ApiError, JsonObject};
use capstan_rpc::{RpcError, RpcPeer, error_code};
use futures::StreamExt as _;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// Returns true for a method that may lead to further requests in both directions, which must not wait for it.
pub(crate) fn may_nest(method: &str) -> bool {
    let methods = [ApiMethod::ToolsCall, ApiMethod::ToolsCommand, ApiMethod::RunsChild, ApiMethod::PlatformCall];
    methods.iter().any(|known| known.as_str() == method)
}

/// Serves a call. The future ends with the run, and when it is dropped.
pub(crate) async fn serve_run_call(peer: RpcPeer, api: RunApi, call: PluginRunCall) -> Result<Box<RawValue>, RpcError> {
    let (request, method) = parse_request(&call)?;
    let stream = if method.is_streaming() {
        let (Some(name), Some(credit)) = (&call.stream, call.credit) else {
            return Err(RpcError::invalid_params(format!("{method} needs stream and credit")));
        };
        if !(1..=MAX_OPENING_CREDIT).contains(&credit) {
            return Err(RpcError::invalid_params(format!("credit must be 1 to {MAX_OPENING_CREDIT}")));
        }
        let opened = peer.open_outgoing(name, credit);
        Some(opened.ok_or_else(|| RpcError::invalid_params("the name of the stream is in use"))?)
    } else if call.stream.is_some() || call.credit.is_some() {
        return Err(RpcError::invalid_params(format!("{method} has no stream")));
    } else {
        None
    };
    match (api.call(request).await.map_err(|error| api_error(&error))?, stream) {
        (ApiReply::Response(response), None) => raw_result(&response),
        (ApiReply::Stream(mut events), Some(stream)) => {
            while let Some(event) = events.next().await {
                let item = to_value(&event.map_err(|error| api_error(&error))?)?;
                let item = PluginStreamItem { stream: stream.name().to_owned(), item };
                let sent = stream.send(method::STREAM_ITEM, &item).await;
                sent.map_err(|error| RpcError::new(error_code::FAILED, error.to_string()))?;
            }
            raw(&JsonObject::new())
        }
        _ => Err(RpcError::new(error_code::INTERNAL_ERROR, "the reply belongs to another kind of method")),
    }
}

fn parse_request(call: &PluginRunCall) -> Result<(ApiRequest, ApiMethod), RpcError> {
    let method: ApiMethod = call.method.parse().map_err(RpcError::invalid_params)?;
    let message = serde_json::json!({ "method": call.method, "params": call.params });
    let request = serde_json::from_value(message)
        .map_err(|error| RpcError::invalid_params(format!("params of {method}: {error}")))?;
    Ok((request, method))
}

fn raw_result(response: &impl Serialize) -> Result<Box<RawValue>, RpcError> {
    match to_value(response)? {
        Value::Object(mut fields) => raw(&fields.shift_remove("result").unwrap_or_default()),
        _ => raw(&Value::Null),
    }
}

fn to_value(value: &impl Serialize) -> Result<Value, RpcError> {
    serde_json::to_value(value).map_err(|error| RpcError::new(error_code::INTERNAL_ERROR, error.to_string()))
}

/// Result of a request.
pub(crate) fn raw(value: &impl Serialize) -> Result<Box<RawValue>, RpcError> {
    to_raw_value(value).map_err(|error| RpcError::new(error_code::INTERNAL_ERROR, error.to_string()))
}

/// Refusal or failure of the run API.
pub(crate) fn api_error(error: &ApiError) -> RpcError {
    RpcError::new(error_code::FAILED, error.message.clone()).with_data(error)
}

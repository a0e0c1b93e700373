//! One call of the run API: the backend that serves it, and its reply.

use capstan_protocol::run_api::{ApiMethod, ApiRequest, ApiResponse, ModelEvent};
use capstan_protocol::{ApiError, ApiErrorCode, ModelId};
use futures::future::BoxFuture;
use futures::stream::BoxStream;

/// Single entry point for calls of the run API: from a runner in this process, or from the proxy of a runner elsewhere.
pub trait RunApiBackend: Send + Sync + 'static {
    /// Serves a call if the grant of the run allows it. The future does nothing until it is polled.
    fn call(&self, request: ApiRequest) -> BoxFuture<'_, Result<ApiReply, ApiError>>;

    /// Model for calls that name none.
    fn default_model(&self) -> ModelId;
}

/// Output of a model that was called through the host.
pub type ModelResultStream = BoxStream<'static, Result<ModelEvent, ApiError>>;

/// Reply to a call.
#[allow(clippy::large_enum_variant, reason = "a reply is moved once, from the host to the caller")]
pub enum ApiReply {
    /// One response.
    Response(ApiResponse),
    /// Output of a model, event by event. Dropping it ends the call.
    Stream(ModelResultStream),
}

/// Method of the run API, as a type.
pub trait RunApiMethod: Send + Sync + 'static {
    /// The method.
    const METHOD: ApiMethod;
    /// Its request.
    type Request: Send + 'static;
    /// Its response, or its stream.
    type Reply: Send + 'static;

    /// Converts the typed reply to the form that all methods share.
    fn into_reply(reply: Self::Reply) -> ApiReply;

    /// Typed reply; `None` if the reply belongs to another method.
    fn from_reply(reply: ApiReply) -> Option<Self::Reply>;
}

/// Error for a backend that replies to another method than the called one.
pub(super) fn mismatched_reply() -> ApiError {
    ApiError::new(ApiErrorCode::RuntimeError, "the reply belongs to another method")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_protocol::run_api::{ApiRequest, ApiResponse, ModelCall, ModelEvent};
    use capstan_protocol::{ApiError, ApiErrorCode, ModelId};
    use futures::future::BoxFuture;
    use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
    use tokio_util::sync::CancellationToken;

    use super::{ApiReply, RunApiBackend};
    use crate::contracts::RunApi;

    /// Backend that computes every reply with one function.
    struct FixedBackend(fn(ApiRequest) -> ApiReply);

    impl RunApiBackend for FixedBackend {
        fn call(&self, request: ApiRequest) -> BoxFuture<'_, Result<ApiReply, ApiError>> {
            futures::future::ready(Ok((self.0)(request))).boxed()
        }

        fn default_model(&self) -> ModelId {
            "demo:x".parse().unwrap()
        }
    }

    fn api(reply: fn(ApiRequest) -> ApiReply) -> RunApi {
        RunApi::new("run".into(), "session".into(), CancellationToken::new(), Arc::new(FixedBackend(reply)))
    }

    #[tokio::test]
    async fn k11_facade_builds_the_request_and_reads_the_response_of_its_method() {
        let api = api(|request| match request {
            ApiRequest::ToolsRefuseCommand(call) => {
                assert_eq!((call.raw.as_str(), call.reason.as_str()), ("x", "no"));
                ApiReply::Response(ApiResponse::ToolsRefuseCommand(()))
            }
            _ => ApiReply::Response(ApiResponse::PromptSystem("system".to_owned())),
        });
        api.tools.refuse_command("x", "no").await.unwrap();
        assert_eq!(api.prompt.system().await.unwrap(), "system");
        let mismatched = api.tape.view().await.unwrap_err();
        assert_eq!(mismatched.code, ApiErrorCode::RuntimeError);
    }

    #[tokio::test]
    async fn k11_facade_reads_the_items_of_a_stream() {
        let items = |_| {
            let events = [ModelEvent::Text("a".to_owned()), ModelEvent::Stop];
            ApiReply::Stream(stream::iter(events.map(Ok)).boxed())
        };
        let reply = api(items).models.stream(ModelCall::default()).await.unwrap();
        let events: Vec<ModelEvent> = reply.try_collect().await.unwrap();
        assert_eq!(events, [ModelEvent::Text("a".to_owned()), ModelEvent::Stop]);
        assert!(
            api(items).models.invoke(ModelCall::default()).await.is_err(),
            "a stream is no reply to a method with one response"
        );
    }
}

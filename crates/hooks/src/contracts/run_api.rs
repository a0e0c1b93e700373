//! Typed facade of the run API, derived from the list of its methods in `capstan_protocol::run_api_methods!`.

use std::sync::Arc;

#[allow(clippy::wildcard_imports, reason = "the facade names nearly every type of the run API")]
use capstan_protocol::run_api::*;
use capstan_protocol::{
    ActionRequest, ActionSpec, ApiError, Artifact, ArtifactId, ChatMessage, Content, EntryId, EventId, JsonObject,
    ModelId, ModelOutput, RunId, SessionId, StateScope, StorageArea, ToolCall, ToolOutput, ToolSpec,
};
use futures::stream::BoxStream;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::api_call::{ApiReply, RunApiBackend, RunApiMethod, mismatched_reply};

macro_rules! define_facade {
    ($(
        $(#[doc = $group_doc:literal])+
        $group:ident: $Group:ident {
            $(
                $(#[doc = $doc:literal])+
                $name:literal needs $needs:literal,
                $kind:ident $Method:ident($Request:ty) -> $Response:ty,
                fn $call:ident($($argument:ident: $Argument:ty),*) = $build:expr;
            )+
        }
    )+) => {
        /// Host API of one run, with its methods in groups. Cheap to clone.
        ///
        /// Every call is checked against the grant of the run. A call is served while its future is polled and ends when
        /// the future is dropped.
        #[derive(Clone)]
        pub struct RunApi {
            /// Run that uses the API.
            pub run_id: RunId,
            /// Session of the run.
            pub session_id: SessionId,
            $($(#[doc = $group_doc])+ pub $group: $Group,)+
            /// Fires when the run is cancelled or its deadline has passed.
            pub cancel_token: CancellationToken,
        }

        impl RunApi {
            /// Creates the API of a run, served by `backend`.
            pub fn new(
                run_id: RunId,
                session_id: SessionId,
                cancel_token: CancellationToken,
                backend: Arc<dyn RunApiBackend>,
            ) -> Self {
                $(let $group = $Group { backend: Arc::clone(&backend) };)+
                Self { run_id, session_id, $($group,)+ cancel_token }
            }
        }

        $(
            $(#[doc = $group_doc])+
            #[derive(Clone)]
            pub struct $Group {
                backend: Arc<dyn RunApiBackend>,
            }

            impl $Group {
                $(
                    $(#[doc = $doc])+
                    pub async fn $call(
                        &self,
                        $($argument: $Argument),*
                    ) -> Result<reply_type!($kind $Response), ApiError> {
                        let reply = self.backend.call(ApiRequest::$Method($build)).await?;
                        methods::$Method::from_reply(reply).ok_or_else(mismatched_reply)
                    }
                )+
            }
        )+

        /// Methods as types, for code that is generic over a method.
        pub mod methods {
            $($(
                #[doc = concat!("`", $name, "`")]
                pub struct $Method;
            )+)+
        }

        $($(
            impl RunApiMethod for methods::$Method {
                const METHOD: ApiMethod = ApiMethod::$Method;
                type Request = $Request;
                type Reply = reply_type!($kind $Response);

                fn into_reply(reply: Self::Reply) -> ApiReply {
                    into_reply!($kind reply, ApiResponse::$Method)
                }

                fn from_reply(reply: ApiReply) -> Option<Self::Reply> {
                    from_reply!($kind reply, ApiResponse::$Method)
                }
            }
        )+)+
    };
}

macro_rules! reply_type {
    (call $Response:ty) => {
        $Response
    };
    (stream $Item:ty) => {
        BoxStream<'static, Result<$Item, ApiError>>
    };
}

macro_rules! into_reply {
    (call $reply:ident, $Variant:path) => {
        ApiReply::Response($Variant($reply))
    };
    (stream $reply:ident, $Variant:path) => {
        ApiReply::Stream($reply)
    };
}

macro_rules! from_reply {
    (call $reply:ident, $Variant:path) => {
        match $reply {
            ApiReply::Response($Variant(response)) => Some(response),
            _ => None,
        }
    };
    (stream $reply:ident, $Variant:path) => {
        match $reply {
            ApiReply::Stream(events) => Some(events),
            ApiReply::Response(_) => None,
        }
    };
}

capstan_protocol::run_api_methods!(define_facade);

impl ModelsApi {
    /// Model for calls that name none. Needs no call to the host.
    pub fn default_model(&self) -> ModelId {
        self.backend.default_model()
    }
}

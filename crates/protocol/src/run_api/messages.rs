//! Methods, requests and responses of the run API, derived from the list of methods.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[allow(clippy::wildcard_imports, reason = "the list of methods names nearly every type of this module")]
use super::*;
use crate::{ActionRequest, ActionSpec, Artifact, ChatMessage, Content, ModelId, ModelOutput, ToolOutput, ToolSpec};

macro_rules! define_messages {
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
        /// A method of the run API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ApiMethod {
            $($($(#[doc = $doc])+ $Method,)+)+
        }

        impl ApiMethod {
            /// Every method, by group.
            pub const METHODS: &[Self] = &[$($(Self::$Method),+),+];

            /// Wire name: `group.method`.
            pub fn as_str(self) -> &'static str {
                match self { $($(Self::$Method => $name,)+)+ }
            }

            /// Required permission, as text for the documentation.
            pub fn required_grant(self) -> &'static str {
                match self { $($(Self::$Method => $needs,)+)+ }
            }

            /// Description of the method, line by line.
            pub fn description(self) -> &'static [&'static str] {
                match self { $($(Self::$Method => &[$($doc),+],)+)+ }
            }

            /// Type of the request, in Rust syntax.
            pub fn request_type(self) -> &'static str {
                match self { $($(Self::$Method => stringify!($Request),)+)+ }
            }

            /// Type of the response or of an item of the stream, in Rust syntax.
            pub fn response_type(self) -> &'static str {
                match self { $($(Self::$Method => stringify!($Response),)+)+ }
            }

            /// Returns true if the method responds with a stream.
            pub fn is_streaming(self) -> bool {
                match self { $($(Self::$Method => is_streaming!($kind),)+)+ }
            }
        }

        /// A call of the run API: `{"method": "tape.search", "params": {..}}`.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "method", content = "params")]
        pub enum ApiRequest {
            $($(
                $(#[doc = $doc])+
                #[serde(rename = $name)]
                $Method($Request),
            )+)+
        }

        /// Names of the facade's methods, with their groups.
        #[cfg(test)]
        const FACADE_NAMES: &[&str] = &[$($(concat!(stringify!($group), ".", stringify!($call))),+),+];

        impl ApiRequest {
            /// Method that is called.
            pub fn method(&self) -> ApiMethod {
                match self { $($(Self::$Method(_) => ApiMethod::$Method,)+)+ }
            }
        }

        /// Response of the run API, or one item of a streamed response: `{"method": "tape.search", "result": [..]}`.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "method", content = "result")]
        pub enum ApiResponse {
            $($(
                $(#[doc = $doc])+
                #[serde(rename = $name)]
                $Method($Response),
            )+)+
        }

        impl ApiResponse {
            /// Method that was called.
            pub fn method(&self) -> ApiMethod {
                match self { $($(Self::$Method(_) => ApiMethod::$Method,)+)+ }
            }
        }
    };
}

macro_rules! is_streaming {
    (call) => {
        false
    };
    (stream) => {
        true
    };
}

crate::run_api_methods!(define_messages);

impl fmt::Display for ApiMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ApiMethod {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let method = Self::METHODS.iter().find(|method| method.as_str() == name);
        method.copied().ok_or_else(|| UnknownMethod { name: name.to_owned() })
    }
}

/// Error for an unknown method name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the run API has no method {name:?}")]
pub struct UnknownMethod {
    /// The name.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn k11_every_method_is_named_after_its_group_and_facade_method() {
        let names: Vec<&str> = ApiMethod::METHODS.iter().map(|method| method.as_str()).collect();
        assert_eq!(names, FACADE_NAMES);
        for method in ApiMethod::METHODS {
            assert_eq!(method.as_str().parse(), Ok(*method));
        }
        assert!("tape.burn".parse::<ApiMethod>().is_err());
    }

    fn assert_round_trip<T>(value: &T, expected: &Value)
    where
        T: Serialize + serde::de::DeserializeOwned + PartialEq + fmt::Debug,
    {
        assert_eq!(serde_json::to_value(value).unwrap(), *expected);
        assert_eq!(serde_json::from_value::<T>(expected.clone()).unwrap(), *value);
    }

    #[test]
    fn k11_requests_are_tagged_with_their_method_and_round_trip() {
        let search = ApiRequest::TapeSearch(TapeSearchCall { text: "rope".to_owned(), limit: 5 });
        assert_round_trip(&search, &json!({"method": "tape.search", "params": {"text": "rope", "limit": 5}}));
        assert_eq!(search.method(), ApiMethod::TapeSearch);
        assert_round_trip(&ApiRequest::TapeView(EmptyCall {}), &json!({"method": "tape.view", "params": {}}));
        let (area, name) = (crate::StorageArea::Plugin, "a".to_owned());
        let put = ApiRequest::StoragePut(StoragePutCall { area, name, content: b"hello".to_vec() });
        let params = json!({"area": "plugin", "name": "a", "content": "aGVsbG8="});
        assert_round_trip(&put, &json!({"method": "storage.put", "params": params}));
        let timeout = Some(std::time::Duration::from_millis(1500));
        let child = ApiRequest::RunsChild(ChildRunCall { timeout, ..ChildRunCall::new("go") });
        let params = json!({"prompt": "go", "tools": "all", "timeout_ms": 1500});
        assert_round_trip(&child, &json!({"method": "runs.child", "params": params}));
        let unknown = serde_json::from_value::<ApiRequest>(json!({"method": "tape.burn", "params": {}}));
        assert!(unknown.is_err());
    }

    #[test]
    fn k11_responses_and_stream_items_are_tagged_with_their_method_and_round_trip() {
        let delta = ApiResponse::ModelsStream(ModelEvent::Text("a".to_owned()));
        assert_round_trip(&delta, &json!({"method": "models.stream", "result": {"type": "text", "data": "a"}}));
        assert_eq!(delta.method(), ApiMethod::ModelsStream);
        let stop = ApiResponse::ModelsStream(ModelEvent::Stop);
        assert_round_trip(&stop, &json!({"method": "models.stream", "result": {"type": "stop"}}));
        assert_round_trip(&ApiResponse::TapeSay(()), &json!({"method": "tape.say", "result": null}));
        assert_round_trip(&ApiResponse::StateDelete(true), &json!({"method": "state.delete", "result": true}));
        let content = ApiResponse::StorageGet(StoredContent { content: vec![0, 255] });
        assert_round_trip(&content, &json!({"method": "storage.get", "result": {"content": "AP8="}}));
    }
}

//! Model providers, each an implementation of [`ModelProvider`](capstan_hooks::contracts::ModelProvider).
//!
//! - [`DemoProvider`]: offline and deterministic, so that the first run needs neither a key nor a network.
//! - [`Provider`]: a provider reached over HTTP. Sending, retries, timeouts and errors are the same for all of them;
//!   the [`WireProtocol`] supplies the differences. [`wire`] encodes requests and decodes responses as pure functions,
//!   so that a request can be recorded before it is sent.
//!
//! Out of scope: choosing the messages a model reads (the view and the agent do that) and fallback models (the host
//! does that and records each attempt). No error of this crate contains the key or the prompt.

pub mod demo;
mod endpoint;
mod error_redactor;
mod frame_decoder;
mod http_clients;
mod http_exchange;
mod json_weight;
mod key_pool;
mod provider;
mod provider_error;
mod retry;
pub mod wire;

pub use demo::DemoProvider;
pub use http_clients::HttpClients;
pub use provider::{Provider, ProviderOptions};
pub use wire::WireProtocol;

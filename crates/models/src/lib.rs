//! The models Capstan can talk to, each a [`ModelProvider`](capstan_hooks::contracts::ModelProvider).
//!
//! - [`Demo`]: offline and deterministic; makes the first run work with no key and no network.
//! - [`Provider`]: everybody else. One way to send, to try again, to time out and to fail, over the [`Wire`] of each kind of
//!   provider: [`wire`] has what it receives and sends as pure functions, so that a request can be recorded before it
//!   is sent.
//!
//! Not for deciding what a model gets to read (that is the view and the agent), nor for fallback models (that is the
//! host, which records each attempt). No error of this crate holds the key or the prompt.

pub mod demo;
mod endpoint;
mod error_redactor;
mod frame_decoder;
mod http_clients;
mod http_exchange;
mod provider;
mod provider_error;
mod retry;
pub mod wire;

pub use demo::DemoProvider;
pub use http_clients::HttpClients;
pub use provider::{Provider, ProviderOptions};
pub use wire::WireProtocol;

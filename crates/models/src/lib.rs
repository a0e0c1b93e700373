//! The models Capstan can talk to, each a [`ModelProvider`](capstan_hooks::contracts::ModelProvider).
//!
//! - [`Demo`]: offline and deterministic; makes the first run work with no key and no network.
//! - [`OpenAi`]: any endpoint that speaks `OpenAI` chat, configured by [`openai::Settings`].
//! - [`wire`]: what such an endpoint receives, as a pure function, so that it can be recorded before it is sent.
//!
//! Not for deciding what a model gets to read (that is the view and the agent), for retries or for fallback models.
//! No error of this crate holds the key or the prompt.

pub mod demo;
pub mod openai;
pub mod wire;

pub use demo::Demo;
pub use openai::OpenAi;

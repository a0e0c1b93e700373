//! What tests share: [`ScriptedModel`], a server of models on real loopback HTTP that answers from a script, and
//! [`disk`], a disk that fails on demand.
//!
//! The server speaks the protocols of all providers and is strict: a request that breaks the rules of its protocol (the
//! [`grammar`] of `OpenAI` chat, for one) is answered with 400, as a provider would, and kept in
//! [`ScriptedModel::violations`]. [`ScriptedReply`] is one answer of the script; a [`ReplyBarrier`] holds an answer back in mid-stream, so
//! that a test can act at that moment without sleeping.
//!
//! Not for production: functions panic where a test should fail. It knows nothing of Capstan's other crates, so that
//! any of them can use it in its tests.

pub mod disk;
pub mod grammar;
mod partial_request;
pub mod protocol;
mod reply_barrier;
mod scripted_model;
mod scripted_reply;
mod signals;

pub use reply_barrier::ReplyBarrier;
pub use scripted_model::ScriptedModel;
pub use scripted_reply::ScriptedReply;
pub use signals::send_signal;

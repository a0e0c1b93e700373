//! Shared parts of the test suites: a scripted model server, a simulated disk and signals.
//!
//! [`ScriptedModel`] serves the wire protocols of all providers on loopback HTTP and answers from a script of
//! [`ScriptedReply`]s. The server is strict: a request that breaks the rules of its protocol (such as the [`grammar`]
//! of `OpenAI` chat) gets status 400, as from a provider, and is recorded in [`ScriptedModel::violations`]. A
//! [`ReplyBarrier`] holds a reply back in mid-stream, so that a test can act at that moment without sleeping. [`disk`]
//! makes a disk fail on demand and simulates power cuts. [`providers`] lists a model of each provider.
//! [`LogRecorder`] keeps the warnings of a test.
//!
//! Not for production: functions panic where a test should fail. The crate depends on no other crate of Capstan, so
//! that all of them can use it in their tests.

pub mod disk;
pub mod grammar;
mod log_recorder;
mod partial_request;
pub mod protocol;
pub mod providers;
mod reply_barrier;
mod scripted_model;
mod scripted_reply;
mod signals;

pub use log_recorder::LogRecorder;
pub use reply_barrier::ReplyBarrier;
pub use scripted_model::ScriptedModel;
pub use scripted_reply::ScriptedReply;
pub use signals::send_signal;

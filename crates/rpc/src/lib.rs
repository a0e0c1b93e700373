//! Symmetric JSON-RPC 2.0 over a pair of byte streams, one JSON object per line: the transport of the plugin protocol
//! (`docs/plugin-protocol.md`).
//!
//! - [`RpcPeer`] is one side of a connection: it sends requests and notifications, and serves those of the other side
//!   with an [`RpcService`];
//! - [`FrameReader`] splits the input into lines, with limits that hold before a line is parsed;
//! - [`IncomingStream`] and [`OutgoingStream`] carry items under credit.
//!
//! # Invariants
//!
//! - The reading task waits for input and for nothing else: requests are served by tasks of their own, notifications
//!   without waiting, and items go to the queue of their stream, which credit bounds.
//! - Every request is answered once. Every queue is bounded: by bytes, by credit, or by the number of requests.
//! - The end of the connection ends every request, stream and task.

mod credit;
mod error;
mod frame_reader;
mod incoming_stream;
mod message;
mod outgoing_queue;
mod outgoing_stream;
mod peer;
mod request_table;
mod service;
mod stream_queue;

pub use self::credit::CreditAccount;
pub use self::error::{RpcCallError, RpcCloseReason, RpcError, error_code};
pub use self::frame_reader::{FrameReader, InputFrame, nesting_depth};
pub use self::incoming_stream::IncomingStream;
pub use self::message::RequestId;
pub use self::outgoing_stream::OutgoingStream;
pub use self::peer::{RpcCounters, RpcOptions, RpcPeer};
pub use self::service::{IncomingNotification, IncomingRequest, RequestFuture, RpcService};
pub use self::stream_queue::{StreamDelivery, StreamViolation};

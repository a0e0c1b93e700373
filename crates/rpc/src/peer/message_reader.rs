//! Reads the messages of the other side, and gives them to whom they concern.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use capstan_protocol::plugin_protocol::{PluginRequestCancel, PluginStreamCredit, method};
use futures::FutureExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::AsyncRead;
use tokio::time::Instant;

use super::{PeerShared, lock};
use crate::error::error_code;
use crate::message::{InputMessage, parse_message};
use crate::request_table::RequestAdmission;
use crate::{
    FrameReader, IncomingNotification, IncomingRequest, InputFrame, RequestId, RpcCloseReason, RpcError, RpcService,
    nesting_depth,
};

/// Bad lines of each kind of problem that are reported one by one.
const MAX_REPORTED_BAD_LINES: u64 = 10;

/// Counts the lines that are no messages.
struct BadLineLimit {
    burst: u64,
    burst_began: Instant,
}

/// Reads until the connection ends.
pub(super) async fn read_messages<R: AsyncRead + Unpin>(
    shared: Arc<PeerShared>,
    mut reader: FrameReader<R>,
    service: Arc<dyn RpcService>,
) {
    let mut bad_lines = BadLineLimit { burst: 0, burst_began: Instant::now() };
    loop {
        let frame = tokio::select! {
            biased;
            () = shared.close_token.cancelled() => return,
            frame = reader.next_frame() => frame,
        };
        let problem = match frame {
            Err(error) => return shared.close(RpcCloseReason::ReadFailed(error.to_string())),
            Ok(None) => return shared.close(RpcCloseReason::InputEnded),
            Ok(Some(InputFrame::TooLong { bytes })) => {
                Err(format!("it has {bytes} bytes, more than {}", shared.options.limits.max_frame_bytes))
            }
            Ok(Some(InputFrame::Line(line))) => handle_line(&shared, &service, &line),
        };
        shared.counters.lines.fetch_add(1, Ordering::Relaxed);
        if let Err(problem) = problem {
            bad_lines.record(&shared, &service, &problem);
        }
        // Input that is always ready must not starve other tasks.
        tokio::task::consume_budget().await;
    }
}

impl BadLineLimit {
    fn record(&mut self, shared: &PeerShared, service: &Arc<dyn RpcService>, problem: &str) {
        let options = &shared.options;
        let total = shared.counters.bad_lines.fetch_add(1, Ordering::Relaxed) + 1;
        if total <= MAX_REPORTED_BAD_LINES {
            service.report(&format!("dropped a line that is no message: {problem}"));
        }
        if self.burst_began.elapsed() > options.bad_line_period {
            *self = Self { burst: 0, burst_began: Instant::now() };
        }
        self.burst += 1;
        if self.burst > options.max_bad_line_burst || total > options.max_bad_lines {
            shared.close(RpcCloseReason::BadLines(format!("because {problem}")));
        }
    }
}

fn handle_line(shared: &Arc<PeerShared>, service: &Arc<dyn RpcService>, line: &[u8]) -> Result<(), String> {
    let depth = nesting_depth(line);
    let max_depth = shared.options.limits.max_frame_depth;
    if depth > max_depth {
        return Err(format!("it is nested {depth} levels deep, more than {max_depth}"));
    }
    match parse_message(line) {
        Err(invalid) => {
            if let Some(id) = &invalid.id {
                shared.answer(id, &Err(RpcError::new(error_code::INVALID_REQUEST, invalid.reason.clone())));
            }
            Err(invalid.reason)
        }
        Ok(InputMessage::Answer { id, result }) => {
            if !shared.pending.answer(&id, result) {
                shared.counters.stray_answers.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(?id, "dropped an answer without a request");
            }
            Ok(())
        }
        Ok(InputMessage::Notification { method, params }) => {
            handle_notification(shared, service, IncomingNotification { method, params, line_bytes: line.len() });
            Ok(())
        }
        Ok(InputMessage::Request { id, method, params }) => {
            let request = IncomingRequest { id, method, params, line_bytes: line.len() };
            handle_request(shared, service, request)
        }
    }
}

#[derive(Deserialize)]
struct StreamItemParams {
    stream: String,
    item: Box<RawValue>,
}

fn handle_notification(shared: &PeerShared, service: &Arc<dyn RpcService>, notification: IncomingNotification) {
    match notification.method.as_str() {
        method::STREAM_ITEM => {
            if let Ok(StreamItemParams { stream, item }) = notification.parse() {
                shared.deliver(&stream, item, notification.line_bytes);
            }
        }
        method::STREAM_CREDIT => {
            let Ok(PluginStreamCredit { stream, credit }) = notification.parse() else { return };
            match lock(&shared.outgoing).get(stream.as_str()) {
                Some(balance) => balance.add(credit),
                None => drop(shared.counters.stray_items.fetch_add(1, Ordering::Relaxed)),
            }
        }
        method::REQUEST_CANCEL => {
            let id = notification.parse::<PluginRequestCancel>().ok().and_then(|it| RequestId::from_json(&it.id));
            if let Some(id) = id {
                shared.served.cancel(&id);
            }
        }
        _ => service.notify(notification),
    }
}

fn handle_request(
    shared: &Arc<PeerShared>,
    service: &Arc<dyn RpcService>,
    request: IncomingRequest,
) -> Result<(), String> {
    let id = request.id.clone();
    let max_counted = shared.options.limits.max_concurrent_requests;
    let cancel_token = match shared.served.admit(&id, service.may_nest(&request), max_counted) {
        RequestAdmission::Admitted(token) => token,
        RequestAdmission::Duplicate => return Err("its id is in use".to_owned()),
        RequestAdmission::Overloaded => {
            shared.counters.overloads.fetch_add(1, Ordering::Relaxed);
            shared.answer(&id, &Err(RpcError::new(error_code::OVERLOADED, "too many requests at a time")));
            return Ok(());
        }
    };
    // The service is called here, so that requests begin in the order of their arrival.
    let begun = std::panic::catch_unwind(AssertUnwindSafe(|| service.serve(request)));
    let shared = Arc::clone(shared);
    let tasks = shared.tasks.clone();
    tasks.spawn(async move {
        let internal = |_| RpcError::new(error_code::INTERNAL_ERROR, "the request failed inside the other side");
        let serving = async {
            match begun {
                Ok(future) => {
                    AssertUnwindSafe(future).catch_unwind().await.unwrap_or_else(|panic| Err(internal(panic)))
                }
                Err(panic) => Err(internal(panic)),
            }
        };
        let result = tokio::select! {
            biased;
            () = shared.close_token.cancelled() => return shared.served.finish(&id),
            () = cancel_token.cancelled() => Err(RpcError::new(error_code::CANCELLED, "cancelled")),
            result = serving => result,
        };
        // The id is free again before the other side can know it.
        shared.served.finish(&id);
        shared.answer(&id, &result);
    });
    Ok(())
}

//! Request loop: ingests lines in order and without waiting for turns, up to a budget of unanswered lines.

use capstan_protocol::ErrorCode;
use std::future::Future;
use std::io;
use std::sync::Arc;

use capstan_hooks::contracts::Gateway;
use capstan_hooks::{InboundEvent, RawPayload, ReplyOnlyCaller};
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::line_reader::InputLine;
use super::output_line::{LineError, ReadyLine, RefusedLine};
use super::output_queue::OutputQueue;
use super::pending_request::PendingRequest;
use super::request::{InvalidLine, LineRequest};

/// Budget of unanswered lines in KiB.
const MAX_UNANSWERED_KIB: u32 = 64 * 1024;
/// Minimum cost of a line in KiB, which limits the number of unanswered lines to 4096.
const MIN_LINE_COST_KIB: u32 = 16;

/// State of the running channel.
pub(super) struct RequestLoop {
    gateway: Arc<dyn Gateway>,
    output: OutputQueue,
    stopped: CancellationToken,
    unanswered_budget: Arc<Semaphore>,
    /// Lines submitted to the gateway and not accepted yet.
    pending_submissions: JoinSet<()>,
}

impl RequestLoop {
    pub(super) fn new(gateway: Arc<dyn Gateway>, output: OutputQueue, stopped: CancellationToken) -> Self {
        let unanswered_budget = Arc::new(Semaphore::new(MAX_UNANSWERED_KIB as usize));
        Self { gateway, output, stopped, unanswered_budget, pending_submissions: JoinSet::new() }
    }

    /// Ingests lines until the input ends or the channel is stopped, then waits until all accepted lines are answered.
    /// Returns early if the output is no longer read.
    pub(super) async fn run(mut self, mut lines: mpsc::Receiver<io::Result<Vec<InputLine>>>) -> io::Result<()> {
        let ingested = self.ingest_lines(&mut lines).await;
        drop(lines);
        let answered = async {
            while self.pending_submissions.join_next().await.is_some() {}
            // All permits are available once every line is answered. The semaphore is never closed, so this cannot fail.
            let _all = self.unanswered_budget.acquire_many(MAX_UNANSWERED_KIB).await;
        };
        tokio::select! {
            () = answered => {}
            _ = self.output.peer().wait_until_closed() => {}
        }
        ingested
    }

    async fn ingest_lines(&mut self, lines: &mut mpsc::Receiver<io::Result<Vec<InputLine>>>) -> io::Result<()> {
        // A closed output ends the loop below.
        let _output_closed = self.until_closed(self.output.print(&ReadyLine::READY)).await;
        while let Some(Some(batch)) = self.until_closed(lines.recv()).await {
            for line in batch? {
                if self.stopped.is_cancelled() || self.ingest_line(line).await.is_none() {
                    return Ok(());
                }
                while self.pending_submissions.try_join_next().is_some() {}
            }
        }
        Ok(())
    }

    /// Submits a line or prints why it is invalid. Returns `None` if the channel was closed meanwhile.
    async fn ingest_line(&mut self, line: InputLine) -> Option<()> {
        // A refusal needs room in the output queue.
        if !self.output.has_capacity() {
            self.until_closed(self.output.wait_for_capacity()).await?;
        }
        let size = line.bytes.as_ref().map_or(0, Vec::len);
        let request = match LineRequest::parse(line.bytes) {
            Ok(None) => return Some(()),
            Ok(Some(request)) => request,
            Err(InvalidLine { id, reason }) => {
                let refusal = LineRefusal { line: line.number, code: reason.code(), message: reason.to_string() };
                let printed = refusal.print(&self.output, id.as_deref());
                return self.until_closed(printed).await;
            }
        };
        let permit = match Arc::clone(&self.unanswered_budget).try_acquire_many_owned(line_cost_kib(size)) {
            Ok(permit) => permit,
            Err(_) => self.until_closed(self.acquire_budget(size)).await??,
        };
        let event = InboundEvent::new(request.event);
        if let Some(raw) = request.raw {
            event.extensions().insert(RawPayload(raw));
        }
        if !request.stream {
            event.extensions().insert(ReplyOnlyCaller);
        }
        event.extensions().insert(PendingRequest::new(request.id, request.stream, permit));
        let pending = PendingRequest::from_event(&event);
        // The order of these calls is the order of acceptance; the returned futures may complete in any order.
        let accepted = self.gateway.submit(event);
        let (output, number) = (self.output.clone(), line.number);
        self.pending_submissions.spawn(async move {
            if let Err(error) = accepted.await {
                let refusal = LineRefusal { line: number, code: error.code, message: error.message };
                refusal.print(&output, pending.as_deref().and_then(PendingRequest::id)).await;
                if let Some(pending) = pending {
                    pending.release();
                }
            }
        });
        Some(())
    }

    /// Waits for a permit for a line of this size.
    async fn acquire_budget(&self, size: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.unanswered_budget).acquire_many_owned(line_cost_kib(size)).await.ok()
    }

    /// Output of `wait`; `None` once the channel is stopped or its output is no longer read.
    async fn until_closed<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stopped.cancelled() => None,
            _ = self.output.peer().wait_until_closed() => None,
            done = wait => Some(done),
        }
    }
}

/// Cost of a line of this many bytes in KiB.
fn line_cost_kib(size: usize) -> u32 {
    u32::try_from(size / 1024).unwrap_or(MAX_UNANSWERED_KIB).clamp(MIN_LINE_COST_KIB, MAX_UNANSWERED_KIB)
}

/// Refusal of a line.
struct LineRefusal {
    line: u64,
    code: ErrorCode,
    message: String,
}

impl LineRefusal {
    async fn print(&self, output: &OutputQueue, id: Option<&RawValue>) {
        let error = LineError::new(self.code, &self.message);
        // If the output is closed, the refusal is lost with it.
        let _output_closed = output.print(&RefusedLine { id, line: self.line, error }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_UNANSWERED_KIB, MIN_LINE_COST_KIB, line_cost_kib};

    #[test]
    fn c06_line_cost_follows_its_size_and_never_exceeds_the_budget() {
        assert_eq!((line_cost_kib(0), line_cost_kib(100)), (MIN_LINE_COST_KIB, MIN_LINE_COST_KIB));
        assert_eq!(line_cost_kib(20 * 1024 * 1024), 20 * 1024);
        assert_eq!(line_cost_kib(usize::MAX), MAX_UNANSWERED_KIB);
    }
}

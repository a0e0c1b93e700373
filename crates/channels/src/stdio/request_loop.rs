//! Taking lines in: without waiting for turns, in their order, and no more than can be answered.

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

/// What may be unanswered, in KiB of lines.
const MAX_UNANSWERED_KIB: u32 = 64 * 1024;
/// What a line counts for at least, in KiB: so no more than 4096 lines are unanswered.
const MIN_LINE_COST_KIB: u32 = 16;

/// The channel while it listens.
pub(super) struct RequestLoop {
    gateway: Arc<dyn Gateway>,
    output: OutputQueue,
    stopped: CancellationToken,
    unanswered_budget: Arc<Semaphore>,
    /// Lines that are being accepted.
    pending_submissions: JoinSet<()>,
}

impl RequestLoop {
    pub(super) fn new(gateway: Arc<dyn Gateway>, output: OutputQueue, stopped: CancellationToken) -> Self {
        let unanswered = Arc::new(Semaphore::new(MAX_UNANSWERED_KIB as usize));
        Self { gateway, output, stopped, unanswered_budget: unanswered, pending_submissions: JoinSet::new() }
    }

    /// Takes lines in until there are no more or the channel is stopped, then waits until everything that was accepted is
    /// answered. When nobody reads the answers it waits for nothing.
    pub(super) async fn run(mut self, mut lines: mpsc::Receiver<io::Result<Vec<InputLine>>>) -> io::Result<()> {
        let taken = self.ingest_lines(&mut lines).await;
        drop(lines);
        let answered = async {
            while self.pending_submissions.join_next().await.is_some() {}
            // Every share is back when every line is answered. The semaphore is never closed, so this is no error.
            let _all = self.unanswered_budget.acquire_many(MAX_UNANSWERED_KIB).await;
        };
        tokio::select! {
            () = answered => {}
            _ = self.output.reader().wait_gone() => {}
        }
        taken
    }

    async fn ingest_lines(&mut self, lines: &mut mpsc::Receiver<io::Result<Vec<InputLine>>>) -> io::Result<()> {
        // When nobody reads, the wait for the next line tells.
        let _unread = self.until_closed(self.output.print(&ReadyLine::READY)).await;
        while let Some(Some(at_once)) = self.until_closed(lines.recv()).await {
            for line in at_once? {
                if self.stopped.is_cancelled() || self.ingest_line(line).await.is_none() {
                    return Ok(());
                }
                while self.pending_submissions.try_join_next().is_some() {}
            }
        }
        Ok(())
    }

    /// Takes a line in, or says why not. Nothing when the channel ended meanwhile.
    async fn ingest_line(&mut self, line: InputLine) -> Option<()> {
        // There must be room for what it may have to be told.
        if !self.output.has_capacity() {
            self.until_closed(self.output.wait_for_capacity()).await?;
        }
        let size = line.bytes.as_ref().map_or(0, Vec::len);
        let request = match LineRequest::parse(line.bytes) {
            Ok(None) => return Some(()),
            Ok(Some(request)) => request,
            Err(InvalidLine { id, reason }) => {
                let refusal = LineRefusal { line: line.number, code: reason.code(), message: reason.to_string() };
                let told = refusal.print(&self.output, id.as_deref());
                return self.until_closed(told).await;
            }
        };
        let share = match Arc::clone(&self.unanswered_budget).try_acquire_many_owned(line_cost_kib(size)) {
            Ok(share) => share,
            Err(_) => self.until_closed(self.acquire_budget(size)).await??,
        };
        let event = InboundEvent::new(request.event);
        if let Some(raw) = request.raw {
            event.extensions().insert(RawPayload(raw));
        }
        if !request.stream {
            event.extensions().insert(ReplyOnlyCaller);
        }
        event.extensions().insert(PendingRequest::new(request.id, request.stream, share));
        let asked = PendingRequest::from_event(&event);
        // The order of these calls is the order of acceptance; what follows may take its time.
        let accepted = self.gateway.submit(event);
        let (output, number) = (self.output.clone(), line.number);
        self.pending_submissions.spawn(async move {
            if let Err(refusal) = accepted.await {
                let told = LineRefusal { line: number, code: refusal.code, message: refusal.message };
                told.print(&output, asked.as_deref().and_then(PendingRequest::id)).await;
                if let Some(asked) = asked {
                    asked.release();
                }
            }
        });
        Some(())
    }

    /// The share of a line in what may be unanswered, as soon as there is one.
    async fn acquire_budget(&self, size: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.unanswered_budget).acquire_many_owned(line_cost_kib(size)).await.ok()
    }

    /// Nothing when the channel is stopped, or nobody reads what it prints.
    async fn until_closed<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stopped.cancelled() => None,
            _ = self.output.reader().wait_gone() => None,
            done = wait => Some(done),
        }
    }
}

/// What a line of this many bytes counts for, in KiB.
fn line_cost_kib(size: usize) -> u32 {
    u32::try_from(size / 1024).unwrap_or(MAX_UNANSWERED_KIB).clamp(MIN_LINE_COST_KIB, MAX_UNANSWERED_KIB)
}

/// What is told about a line that was not accepted.
struct LineRefusal {
    line: u64,
    code: ErrorCode,
    message: String,
}

impl LineRefusal {
    async fn print(&self, output: &OutputQueue, id: Option<&RawValue>) {
        let error = LineError::new(self.code, &self.message);
        // When nobody reads any more, there is nobody to tell.
        let _unread = output.print(&RefusedLine { id, line: self.line, error }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_UNANSWERED_KIB, MIN_LINE_COST_KIB, line_cost_kib};

    #[test]
    fn c06_a_line_counts_for_what_it_holds_and_even_the_longest_gets_its_turn() {
        assert_eq!((line_cost_kib(0), line_cost_kib(100)), (MIN_LINE_COST_KIB, MIN_LINE_COST_KIB));
        assert_eq!(line_cost_kib(20 * 1024 * 1024), 20 * 1024);
        assert_eq!(line_cost_kib(usize::MAX), MAX_UNANSWERED_KIB);
    }
}

//! Taking lines in: without waiting for turns, in their order, and no more than can be answered.

use std::future::Future;
use std::io;
use std::sync::Arc;

use capstan_hooks::contracts::Gateway;
use capstan_hooks::{HearsOnlyAnswer, Inbound, RawPayload};
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Options;
use super::asked::Asked;
use super::lines::Line;
use super::output::Output;
use super::request::{Request, Unusable};
use super::wire::{Error, Ready, Refused};

/// What may be unanswered, in KiB of lines.
const BUDGET: u32 = 64 * 1024;
/// What a line counts for at least, in KiB: so no more than 4096 lines are unanswered.
const SHARE: u32 = 16;

/// The channel while it listens.
pub(super) struct Listening {
    gateway: Arc<dyn Gateway>,
    output: Output,
    options: Options,
    stopped: CancellationToken,
    unanswered: Arc<Semaphore>,
    /// Lines that are being accepted.
    accepting: JoinSet<()>,
}

impl Listening {
    pub(super) fn new(gateway: Arc<dyn Gateway>, output: Output, options: Options, stopped: CancellationToken) -> Self {
        let unanswered = Arc::new(Semaphore::new(BUDGET as usize));
        Self { gateway, output, options, stopped, unanswered, accepting: JoinSet::new() }
    }

    /// Takes lines in until there are no more or the channel is stopped, then waits until everything that was accepted is
    /// answered. When nobody reads the answers it waits for nothing.
    pub(super) async fn run(mut self, mut lines: mpsc::Receiver<io::Result<Vec<Line>>>) -> io::Result<()> {
        let taken = self.take_all(&mut lines).await;
        drop(lines);
        let answered = async {
            while self.accepting.join_next().await.is_some() {}
            // Every share is back when every line is answered. The semaphore is never closed, so this is no error.
            let _all = self.unanswered.acquire_many(BUDGET).await;
        };
        tokio::select! {
            () = answered => {}
            _ = self.output.reader().gone() => {}
        }
        taken
    }

    async fn take_all(&mut self, lines: &mut mpsc::Receiver<io::Result<Vec<Line>>>) -> io::Result<()> {
        // When nobody reads, the wait for the next line tells.
        let _unread = self.unless_over(self.output.print(&Ready::LINE)).await;
        while let Some(Some(at_once)) = self.unless_over(lines.recv()).await {
            for line in at_once? {
                if self.stopped.is_cancelled() || self.take(line).await.is_none() {
                    return Ok(());
                }
                while self.accepting.try_join_next().is_some() {}
            }
        }
        Ok(())
    }

    /// Takes a line in, or says why not. Nothing when the channel ended meanwhile.
    async fn take(&mut self, line: Line) -> Option<()> {
        // There must be room for what it may have to be told.
        if !self.output.has_room() {
            self.unless_over(self.output.room()).await?;
        }
        let size = line.bytes.as_ref().map_or(0, Vec::len);
        let request = match Request::read(line.bytes) {
            Ok(None) => return Some(()),
            Ok(Some(request)) => request,
            Err(Unusable { id, reason }) => {
                let refusal = Told { line: line.number, code: reason.code(), message: reason.to_string() };
                let told = refusal.tell(&self.output, self.options, id.as_deref());
                return self.unless_over(told).await;
            }
        };
        let share = match Arc::clone(&self.unanswered).try_acquire_many_owned(share(size)) {
            Ok(share) => share,
            Err(_) => self.unless_over(self.share(size)).await??,
        };
        let event = Inbound::new(request.event);
        if let Some(raw) = request.raw {
            event.extensions().insert(RawPayload(raw));
        }
        if !request.stream {
            event.extensions().insert(HearsOnlyAnswer);
        }
        event.extensions().insert(Asked::new(request.id, request.stream, share));
        let asked = Asked::of(&event);
        // The order of these calls is the order of acceptance; what follows may take its time.
        let accepted = self.gateway.submit(event);
        let (output, options, number) = (self.output.clone(), self.options, line.number);
        self.accepting.spawn(async move {
            if let Err(refusal) = accepted.await {
                let told = Told { line: number, code: refusal.code, message: refusal.message };
                told.tell(&output, options, asked.as_deref().and_then(Asked::id)).await;
                if let Some(asked) = asked {
                    asked.answered();
                }
            }
        });
        Some(())
    }

    /// The share of a line in what may be unanswered, as soon as there is one.
    async fn share(&self, size: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.unanswered).acquire_many_owned(share(size)).await.ok()
    }

    /// Nothing when the channel is stopped, or nobody reads what it prints.
    async fn unless_over<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stopped.cancelled() => None,
            _ = self.output.reader().gone() => None,
            done = wait => Some(done),
        }
    }
}

/// What a line of this many bytes counts for, in KiB.
fn share(size: usize) -> u32 {
    u32::try_from(size / 1024).unwrap_or(BUDGET).clamp(SHARE, BUDGET)
}

/// What is told about a line that was not accepted.
struct Told {
    line: u64,
    code: &'static str,
    message: String,
}

impl Told {
    async fn tell(&self, output: &Output, options: Options, id: Option<&RawValue>) {
        let error = Error { code: self.code, message: &self.message, hint: (options.hint)(self.code) };
        // When nobody reads any more, there is nobody to tell.
        let _unread = output.print(&Refused { id, line: self.line, error }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{BUDGET, SHARE, share};

    #[test]
    fn c06_a_line_counts_for_what_it_holds_and_even_the_longest_gets_its_turn() {
        assert_eq!((share(0), share(100)), (SHARE, SHARE));
        assert_eq!(share(20 * 1024 * 1024), 20 * 1024);
        assert_eq!(share(usize::MAX), BUDGET);
    }
}

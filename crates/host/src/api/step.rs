//! The calls of one step: made together where they may be, each result on record when it is there.

use capstan_hooks::contracts::Touches;
use capstan_protocol::{ApiError, StreamEvent, ToolCall, ToolOutput};
use capstan_tape::StoreError;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};

use super::done_unrecorded;
use super::schedule::Schedule;
use super::tools::{Tools, arguments};
use crate::api::spill;
use crate::runs::run::Run;

/// What is waited for in a step.
enum Happened {
    Answered(usize, ToolOutput),
    OnRecord(Vec<usize>, Result<(), StoreError>),
}

/// The calls of a step, which are on record, and what has come of them.
pub(super) struct Step<'a> {
    tools: &'a Tools,
    calls: &'a [ToolCall],
    schedule: Schedule,
    awaited: FuturesUnordered<BoxFuture<'a, Happened>>,
    outputs: Vec<Option<ToolOutput>>,
    /// Results that are in the journal and not on record.
    written: Vec<usize>,
    is_committing: bool,
    /// No call of it does anything: it is on record with what the runner does next.
    only_looks: bool,
    /// How many bytes of what is no text the results may still have.
    room: usize,
}

impl<'a> Step<'a> {
    pub(super) fn new(tools: &'a Tools, calls: &'a [ToolCall]) -> Self {
        Self {
            tools,
            calls,
            only_looks: !tools.have_effects(calls),
            schedule: Schedule::new(calls.iter().map(|call| touches(tools, call))),
            awaited: FuturesUnordered::new(),
            outputs: vec![None; calls.len()],
            written: Vec::new(),
            is_committing: false,
            room: spill::INLINE_BYTES,
        }
    }

    /// Makes the calls, and gives their outputs in the order of the calls.
    ///
    /// Nothing is spawned: when this is dropped the calls end. What they had answered is in the journal by then.
    pub(super) async fn outputs(mut self) -> Result<Vec<ToolOutput>, ApiError> {
        loop {
            self.begin_calls().await;
            let Some(happened) = self.awaited.next().await else { break };
            self.take(happened).await?;
            // What came at the same time is written with it.
            while let Some(Some(happened)) = self.awaited.next().now_or_never() {
                self.take(happened).await?;
            }
            self.commit();
        }
        let written = std::mem::take(&mut self.written);
        self.show(written).await;
        Ok(self.outputs.into_iter().flatten().collect())
    }

    fn run(&self) -> &'a Run {
        &self.tools.0
    }

    async fn begin_calls(&mut self) {
        while let Some(position) = self.schedule.next() {
            let (tools, call) = (self.tools, &self.calls[position]);
            self.run().emit(StreamEvent::ToolCall { call: call.clone() }).await;
            self.awaited.push(async move { Happened::Answered(position, tools.answer(call).await) }.boxed());
        }
    }

    async fn take(&mut self, happened: Happened) -> Result<(), ApiError> {
        match happened {
            Happened::Answered(position, output) => {
                let call = &self.calls[position];
                let did = self.tools.with_effects(&call.function.name);
                let output = spill::within(output, &mut self.room);
                let output = self.run().append_result(call, output, did);
                self.outputs[position] = Some(output);
                if self.only_looks {
                    self.schedule.is_on_record(position);
                    self.show(vec![position]).await;
                } else {
                    self.written.push(position);
                }
            }
            Happened::OnRecord(positions, outcome) => {
                self.is_committing = false;
                outcome.map_err(|error| done_unrecorded(&error, &self.run().journal.unrecorded()))?;
                for position in &positions {
                    self.schedule.is_on_record(*position);
                }
                self.show(positions).await;
            }
        }
        Ok(())
    }

    /// Begins to commit what is written. What comes meanwhile is the next commit.
    fn commit(&mut self) {
        // A handoff is on record together with the last results and with what the runner says next: were it alone, a run
        // after a crash would read nothing of this step and take it anew.
        let waits_for_runner = self.outputs.iter().all(Option::is_some) && self.run().hands_off();
        if self.is_committing || self.written.is_empty() || waits_for_runner {
            return;
        }
        self.is_committing = true;
        let (run, written) = (self.run(), std::mem::take(&mut self.written));
        self.awaited.push(async move { Happened::OnRecord(written, run.flush().await) }.boxed());
    }

    async fn show(&mut self, positions: Vec<usize>) {
        for position in positions {
            let (call, output) = (&self.calls[position], self.outputs[position].clone());
            let Some(output) = output else { continue };
            let (call_id, name) = (call.id.clone(), call.function.name.clone());
            self.run().emit(StreamEvent::ToolResult { call_id, name, output }).await;
        }
    }
}

/// What a call touches. One that cannot be made touches nothing.
fn touches(tools: &Tools, call: &ToolCall) -> Touches {
    let tool = tools.0.services.tool(&call.function.name);
    match (tool, arguments(call)) {
        (Some(tool), Ok(arguments)) => tool.touches(&arguments, &tools.0.services.settings.workspace.path),
        _ => Touches::Nothing,
    }
}

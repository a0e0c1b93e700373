//! The calls of one step: concurrent where possible, each result recorded when it is there.

use capstan_hooks::contracts::ToolEffect;
use capstan_protocol::{ApiError, StreamEvent, ToolCall, ToolOutput};
use capstan_tape::StoreError;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};

use super::call_schedule::CallSchedule;
use super::tools::{ToolsHandler, parse_arguments};
use super::unrecorded_effects_error;
use crate::artifacts;
use crate::run::Run;
use crate::spill;

/// An event that a step waits for.
enum StepEvent {
    Completed(usize, ToolOutput),
    Committed(Vec<usize>, Result<(), StoreError>),
}

/// The recorded calls of a step, and their progress.
pub(super) struct ToolStep<'a> {
    tools: &'a ToolsHandler,
    calls: &'a [ToolCall],
    schedule: CallSchedule,
    pending: FuturesUnordered<BoxFuture<'a, StepEvent>>,
    outputs: Vec<Option<ToolOutput>>,
    /// Results in the journal that are not committed.
    uncommitted: Vec<usize>,
    is_committing: bool,
    /// No call has effects: the step is committed with the next commit of the run.
    is_read_only: bool,
    /// Bytes of parts other than text that the results may still have.
    inline_bytes_left: usize,
}

impl<'a> ToolStep<'a> {
    pub(super) fn new(tools: &'a ToolsHandler, calls: &'a [ToolCall]) -> Self {
        Self {
            tools,
            calls,
            is_read_only: !tools.has_effects(calls),
            schedule: CallSchedule::new(calls.iter().map(|call| call_touches(tools, call))),
            pending: FuturesUnordered::new(),
            outputs: vec![None; calls.len()],
            uncommitted: Vec::new(),
            is_committing: false,
            inline_bytes_left: spill::MAX_STEP_INLINE_BYTES,
        }
    }

    /// Makes the calls, and gives their outputs in the order of the calls.
    ///
    /// Spawns no task: when it is dropped the calls end. Their results so far are in the journal.
    pub(super) async fn execute(mut self) -> Result<Vec<ToolOutput>, ApiError> {
        loop {
            self.start_calls().await;
            let Some(happened) = self.pending.next().await else { break };
            self.handle_event(happened).await?;
            // What came at the same time is written with it.
            while let Some(Some(happened)) = self.pending.next().now_or_never() {
                self.handle_event(happened).await?;
            }
            self.start_commit();
        }
        let written = std::mem::take(&mut self.uncommitted);
        self.emit_results(written).await;
        Ok(self.outputs.into_iter().flatten().collect())
    }

    fn run(&self) -> &'a Run {
        &self.tools.0
    }

    async fn start_calls(&mut self) {
        while let Some(position) = self.schedule.start_next() {
            let (tools, call) = (self.tools, &self.calls[position]);
            self.run().emit(StreamEvent::ToolCall { call: call.clone() }).await;
            self.pending.push(async move { StepEvent::Completed(position, tools.answer_call(call).await) }.boxed());
        }
    }

    async fn handle_event(&mut self, happened: StepEvent) -> Result<(), ApiError> {
        match happened {
            StepEvent::Completed(position, output) => {
                let call = &self.calls[position];
                let did = self.tools.effectful_tool(&call.function.name);
                let output = spill::limit_inline_parts(output, &mut self.inline_bytes_left);
                let output = artifacts::append_tool_result(self.run(), call, output, did);
                self.outputs[position] = Some(output);
                if self.is_read_only {
                    self.schedule.mark_recorded(position);
                    self.emit_results(vec![position]).await;
                } else {
                    self.uncommitted.push(position);
                }
            }
            StepEvent::Committed(positions, outcome) => {
                self.is_committing = false;
                outcome.map_err(|error| unrecorded_effects_error(&error, &self.run().journal.unrecorded_tools()))?;
                for position in &positions {
                    self.schedule.mark_recorded(*position);
                }
                self.emit_results(positions).await;
            }
        }
        Ok(())
    }

    /// Starts a commit of the results so far. Results that come during it are in the next one.
    fn start_commit(&mut self) {
        // A handoff is on record together with the last results and with what the runner says next: were it alone, a run
        // after a crash would read nothing of this step and repeat it.
        let waits_for_runner = self.outputs.iter().all(Option::is_some) && self.run().has_deferred_handoff();
        if self.is_committing || self.uncommitted.is_empty() || waits_for_runner {
            return;
        }
        self.is_committing = true;
        let (run, written) = (self.run(), std::mem::take(&mut self.uncommitted));
        self.pending.push(async move { StepEvent::Committed(written, run.flush().await) }.boxed());
    }

    async fn emit_results(&mut self, positions: Vec<usize>) {
        for position in positions {
            let (call, output) = (&self.calls[position], self.outputs[position].clone());
            let Some(output) = output else { continue };
            let (call_id, name) = (call.id.clone(), call.function.name.clone());
            self.run().emit(StreamEvent::ToolResult { call_id, name, output }).await;
        }
    }
}

/// Effect of a call. One that cannot be made has none.
fn call_touches(tools: &ToolsHandler, call: &ToolCall) -> ToolEffect {
    let tool = tools.0.environment.tools.get(&call.function.name);
    match (tool, parse_arguments(call)) {
        (Some(tool), Ok(arguments)) => tool.effect(&arguments, &tools.0.environment.options.workspace.path),
        _ => ToolEffect::None,
    }
}

//! Calls of one step: concurrent where possible, each result recorded on completion.

use capstan_hooks::contracts::ToolEffect;
use capstan_protocol::{ApiError, StreamEvent, ToolCall, ToolOutput};
use capstan_tape::StoreError;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};

use super::call_schedule::CallSchedule;
use super::tools::{ToolCaller, parse_arguments};
use super::unrecorded_effects_error;
use crate::run::Run;
use crate::{artifacts, spill};

/// An event that a step waits for.
enum StepEvent {
    Completed(usize, ToolOutput),
    Committed(Vec<usize>, Result<(), StoreError>),
}

/// Recorded calls of a step, with their progress.
pub(super) struct ToolStep<'a> {
    tools: &'a ToolCaller,
    calls: &'a [ToolCall],
    schedule: CallSchedule,
    pending: FuturesUnordered<BoxFuture<'a, StepEvent>>,
    outputs: Vec<Option<ToolOutput>>,
    /// Positions of results in the journal that are not committed.
    uncommitted: Vec<usize>,
    is_committing: bool,
    /// No call has effects: the step is committed with the next commit of the run.
    is_read_only: bool,
    /// Bytes that parts other than text may still use in this step.
    remaining_inline_bytes: usize,
}

impl<'a> ToolStep<'a> {
    pub(super) fn new(tools: &'a ToolCaller, calls: &'a [ToolCall]) -> Self {
        Self {
            tools,
            calls,
            is_read_only: !tools.has_effects(calls),
            schedule: CallSchedule::new(calls.iter().map(|call| call_effect(tools, call))),
            pending: FuturesUnordered::new(),
            outputs: vec![None; calls.len()],
            uncommitted: Vec::new(),
            is_committing: false,
            remaining_inline_bytes: spill::MAX_STEP_INLINE_BYTES,
        }
    }

    /// Makes the calls and returns their outputs in the order of the calls.
    ///
    /// Spawns no task: dropping the future ends the calls. Results up to then are in the journal.
    pub(super) async fn execute(mut self) -> Result<Vec<ToolOutput>, ApiError> {
        loop {
            self.start_calls().await;
            let Some(event) = self.pending.next().await else { break };
            self.handle_event(event).await?;
            // Events that are ready at the same time share a commit.
            while let Some(Some(event)) = self.pending.next().now_or_never() {
                self.handle_event(event).await?;
            }
            self.start_commit();
        }
        let positions = std::mem::take(&mut self.uncommitted);
        self.emit_results(positions).await;
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

    async fn handle_event(&mut self, event: StepEvent) -> Result<(), ApiError> {
        match event {
            StepEvent::Completed(position, output) => {
                let call = &self.calls[position];
                let effectful_tool = self.tools.effectful_tool_name(&call.function.name);
                let output = spill::limit_inline_parts(output, &mut self.remaining_inline_bytes);
                let output = artifacts::append_tool_result(self.run(), call, output, effectful_tool);
                self.outputs[position] = Some(output);
                if self.outputs.iter().all(Option::is_some) {
                    // In the commit of the last result, so that no crash separates the two.
                    self.run().write_deferred_merges();
                }
                if self.is_read_only {
                    self.schedule.mark_recorded(position);
                    self.emit_results(vec![position]).await;
                } else {
                    self.uncommitted.push(position);
                }
            }
            StepEvent::Committed(positions, outcome) => {
                self.is_committing = false;
                outcome.map_err(|error| {
                    unrecorded_effects_error(&error, &self.run().journal.tools_with_undurable_effects())
                })?;
                for position in &positions {
                    self.schedule.mark_recorded(*position);
                }
                self.emit_results(positions).await;
            }
        }
        Ok(())
    }

    /// Starts a commit of the results so far. Results that arrive during it are in the next commit.
    fn start_commit(&mut self) {
        // A handoff is committed together with the last results and the runner's next output. If it were committed
        // alone, a run after a crash would read nothing of this step, which precedes the anchor, and would repeat it.
        let waits_for_runner = self.outputs.iter().all(Option::is_some) && self.run().has_deferred_handoff();
        if self.is_committing || self.uncommitted.is_empty() || waits_for_runner {
            return;
        }
        self.is_committing = true;
        let (run, positions) = (self.run(), std::mem::take(&mut self.uncommitted));
        self.pending.push(async move { StepEvent::Committed(positions, run.journal.flush().await) }.boxed());
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

/// Effect of a call. A call that cannot be made has none.
fn call_effect(tools: &ToolCaller, call: &ToolCall) -> ToolEffect {
    let tool = tools.0.environment.tools.get(&call.function.name);
    match (tool, parse_arguments(call)) {
        (Some(tool), Ok(arguments)) => tool.effect(&arguments, &tools.0.environment.options.workspace.path),
        _ => ToolEffect::None,
    }
}

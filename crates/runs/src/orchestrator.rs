//! Orchestrator: runs the model stage of a turn as a run. Child runs are started by `child_run`.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use capstan_hooks::args::{BoundRunner, RunModelArgs};
use capstan_hooks::run_model_stage;
use capstan_policy::{Budget, EventScope, compute_grant};
use capstan_protocol::{
    AdapterContext, Binding, ConversationContext, EventKey, HistoryHandles, RunContext, RunId, RunResources,
    RunTrigger, RuntimeContext, StreamEvent, Timestamp, Usage,
};
use capstan_tape::{EntryDraft, Fact, RunRecord, RunStatus};
use capstan_turn::{ModelStage, StageEventSink, StageInput, StageOutcome, StageReport, TurnError};
use futures::FutureExt as _;
use tokio::sync::mpsc;

use crate::active_runs::ActiveRunGuard;
use crate::active_turn::ActiveTurn;
use crate::environment::RunEnvironment;
use crate::journal::Journal;
use crate::results::{self, next_event, runner_stream};
use crate::run::call_limiter::CallLimiter;
use crate::run::{MAX_QUEUED_STREAM_EVENTS, Run, TerminalResult, open_calls};
use crate::{actions, api, child_run, plugin_runner};

/// Delay after which a run that has written nothing yet is recorded, so that it can be found and cancelled.
const RUN_RECORD_DELAY: Duration = Duration::from_secs(1);

/// Runs the model stage of turns: one run per turn, under the binding of its events.
pub struct Orchestrator {
    /// Environment that its runs share.
    pub environment: Arc<RunEnvironment>,
}

/// Report of the run of a turn.
#[derive(Debug)]
pub struct RunReport {
    /// Id of the run.
    pub run_id: RunId,
    /// Usage of the run, as far as known.
    pub usage: Option<Usage>,
    /// No model hook returned a stream, so the prompt becomes the reply of the turn, which the run has not recorded.
    pub replies_with_prompt: bool,
    /// Registration of the run, held until its end is recorded.
    pub active_guard: ActiveRunGuard,
}

#[async_trait]
impl ModelStage for Orchestrator {
    type Turn = ActiveTurn;
    type Report = RunReport;

    async fn run(&self, input: StageInput, turn: &ActiveTurn, events: &dyn StageEventSink) -> StageReport<RunReport> {
        let Some(binding) = &turn.binding else {
            tracing::info!(event = %input.inbound.event_id, "ignoring the event: no binding matches");
            return StageReport { outcome: Ok(StageOutcome::Silent), run: None };
        };
        let (events_tx, from_api) = mpsc::channel(MAX_QUEUED_STREAM_EVENTS);
        let (run, active_guard) = match self.open_run(&input, binding, turn, events_tx).await {
            Ok(run_and_guard) => run_and_guard,
            Err(error) => return StageReport { outcome: Err(error), run: None },
        };
        // The run of a panic must be closed like any other.
        let driving = AssertUnwindSafe(self.drive_run(&run, &input, from_api, events)).catch_unwind();
        let outcome = tokio::select! {
            // Polled first: otherwise a tool that reacts to the cancellation could let the run complete normally.
            biased;
            () = turn.cancel_token.cancelled() => Err(TurnError::Cancelled),
            end = tokio::time::timeout(self.environment.options.run_timeout, driving) => match end {
                Ok(end) => end.unwrap_or_else(|_| Err(TurnError::crashed("the run"))),
                Err(_) => Err(TurnError::Timeout),
            },
            never = self.record_after_delay(&turn.journal) => match never {},
        };
        run.revoke_api(run_status(&outcome));
        // Open child runs and calls were dropped with the run.
        child_run::end_open_children(&run, run_status(&outcome)).await;
        open_calls::notify_interrupted_calls(&run).await;
        let usage = self.close_run(&run, &outcome);
        let replies_with_prompt = matches!(outcome, Ok(StageOutcome::NoOutput));
        StageReport {
            outcome,
            run: Some(RunReport { run_id: run.id().clone(), usage, replies_with_prompt, active_guard }),
        }
    }
}

impl Orchestrator {
    /// Resolves the runner, computes the grant, builds the context, and queues the run's ledger record in the journal.
    /// Only the record of a run that can bypass the host is flushed here.
    async fn open_run(
        &self,
        input: &StageInput,
        binding: &Arc<Binding>,
        turn: &ActiveTurn,
        events: mpsc::Sender<StreamEvent>,
    ) -> Result<(Arc<Run>, ActiveRunGuard), TurnError> {
        let runner = self.environment.runner(&binding.runner_id).cloned();
        let runner = runner.ok_or_else(|| TurnError::UnknownRunner(binding.runner_id.clone()))?;
        let now = self.environment.options.clock.now();
        let descriptor = &runner.descriptor;
        let bypasses_host = self.environment.can_bypass_host(descriptor);
        let scope = EventScope::new(&input.inbound, turn.origin);
        let remote_tools = self.environment.tools.remote_tools();
        let grant = compute_grant(&descriptor.permissions, binding, scope, remote_tools);
        let context = self.build_context(input, binding, turn, now, RunResources { grant });
        // Registered before it is recorded: recovery must not take it for a run of a dead process.
        let active_guard = self.environment.active_runs.register(context.run_id.clone(), turn.cancel_token.clone());
        turn.journal.push(Fact::OpenRun(Box::new(RunRecord {
            run_id: context.run_id.clone(),
            session: input.session.clone(),
            tape: turn.journal.tape().clone(),
            begins_after: turn.begins_after,
            parent: None,
            event: EventKey::from(&*input.inbound),
            others: turn.events.iter().skip(1).map(|(key, _)| key.clone()).collect(),
            binding: binding.binding_id.clone(),
            runner: binding.runner_id.clone(),
            grant: context.resources.grant.clone(),
            status: RunStatus::Created,
            started_at: now,
            ended_at: None,
            usage: None,
            bypasses_host,
            cancel_requested: false,
        })));
        if bypasses_host {
            // The host does not see its effects, so its start must be durable before the first of them. Any other run
            // is recorded together with its first write.
            turn.journal.start_run(&context.run_id);
            turn.journal.flush().await?;
        }
        let limits = &self.environment.options.limits;
        let run = Run {
            environment: Arc::clone(&self.environment),
            journal: Arc::clone(&turn.journal),
            runner,
            binding: Arc::clone(binding),
            origin: turn.origin,
            context,
            prompt: input.prompt.clone(),
            served_events: turn.events.clone(),
            steering: Arc::clone(&turn.steering),
            state: input.state.clone(),
            cancel_token: turn.cancel_token.clone(),
            events,
            budget: Arc::new(Budget::new(limits.max_steps, limits.max_run_tokens)),
            depth: 0,
            progress: Mutex::default(),
            call_limiter: CallLimiter::new(limits.api, self.environment.options.run_timeout),
        };
        Ok((Arc::new(run), active_guard))
    }

    /// Records a run that has written nothing for a while. Most runs are recorded earlier, together with their first
    /// write. Never returns.
    async fn record_after_delay(&self, journal: &Arc<Journal>) -> Infallible {
        tokio::time::sleep(RUN_RECORD_DELAY).await;
        if let Err(error) = journal.flush().await {
            // Not fatal here: the next write of the run fails too, and reports it.
            tracing::warn!(tape = %journal.tape(), %error, "cannot record the run in the ledger");
        }
        std::future::pending().await
    }

    fn build_context(
        &self,
        input: &StageInput,
        binding: &Binding,
        turn: &ActiveTurn,
        now: Timestamp,
        resources: RunResources,
    ) -> RunContext {
        let event = (*input.inbound).clone();
        let may_read_prompt = resources.grant.may.prompt;
        let options = &self.environment.options;
        let timeout = i64::try_from(options.run_timeout.as_millis()).unwrap_or(i64::MAX);
        RunContext {
            run_id: RunId::generate(),
            trigger: RunTrigger { kind: event.event_type.clone(), binding_id: binding.binding_id.clone() },
            conversation: ConversationContext {
                session_id: input.session.clone(),
                conversation_id: event.conversation_id.clone(),
                thread_id: event.thread_id.clone(),
            },
            actor: event.actor.clone(),
            subject: event.subject.clone(),
            input: event.input.clone(),
            delivery: event.delivery.clone(),
            resources,
            context: HistoryHandles { tape: turn.journal.tape().clone() },
            state: input.state.values(),
            runtime: RuntimeContext {
                workspace: options.workspace.to_text(),
                started_at: now,
                deadline: Some(now.plus_millis(timeout)),
            },
            config: binding.runner_config.clone(),
            adapter: AdapterContext { prompt: may_read_prompt.then(|| input.prompt.0.as_ref().clone()) },
            metadata: event.metadata.clone(),
            event,
        }
    }

    /// Calls the model hooks and forwards the stream they decide on, with exactly one final event. Events of a plugin's
    /// stream are also journaled here; a runner's stream journals its own results.
    async fn drive_run(
        &self,
        run: &Arc<Run>,
        input: &StageInput,
        from_api: mpsc::Receiver<StreamEvent>,
        events: &dyn StageEventSink,
    ) -> Result<StageOutcome, TurnError> {
        let (run_to_start, from_api) = (Arc::clone(run), Mutex::new(Some(from_api)));
        let start = move || {
            let from_api = from_api.lock().unwrap_or_else(PoisonError::into_inner).take()?;
            Some(runner_stream(Arc::clone(&run_to_start), from_api, api::runner_api(&run_to_start)))
        };
        let args = RunModelArgs {
            prompt: input.prompt.clone(),
            session_id: input.session.clone(),
            state: input.state.clone(),
            runner: BoundRunner::new(start),
        };
        let Some(mut decided) = run_model_stage(&self.environment.hooks, &args).await? else {
            run.ingest_message();
            return Ok(StageOutcome::NoOutput);
        };
        let is_plugin_run = !run.progress().runner_started;
        let plugin = decided.plugin.clone();
        let source_label = || if is_plugin_run { format!("the plugin {plugin}") } else { run.runner_label() };
        let record_crash = |error: &TurnError| {
            run.save_partial();
            run.append(EntryDraft::error("run_model", &error.public_message()));
        };
        while let Some(event) = next_event(&mut decided.value, source_label).await.inspect_err(record_crash)? {
            // The stream ends with the final event of the host, whatever the plugins put into it.
            let event = match event {
                StreamEvent::Final { text, ok } if is_plugin_run => plugin_runner::final_text(run, text, ok),
                StreamEvent::Final { .. } => None,
                event => Some(event),
            };
            let Some(event) = event else { continue };
            if is_plugin_run {
                plugin_runner::record_plugin_event(run, &event).await;
            }
            events.emit(&event).await;
            if is_plugin_run && run.progress().terminal.is_some() {
                break;
            }
        }
        if is_plugin_run {
            plugin_runner::finish_plugin_run(run);
        }
        let terminal = run.progress().terminal.clone();
        let has_failed = matches!(terminal, Some(TerminalResult::Failed(_)));
        if !(has_failed && is_plugin_run) {
            events.emit(&StreamEvent::Final { text: run.output(), ok: !has_failed }).await;
        }
        match terminal {
            Some(TerminalResult::Failed(failure)) => Err(TurnError::Run(failure)),
            Some(TerminalResult::Completed { silent: true }) => Ok(StageOutcome::Silent),
            Some(TerminalResult::Completed { silent: false }) | None => Ok(StageOutcome::Output(run.output())),
        }
    }

    /// Writes the end of the run to the journal; it is committed with the turn's outcome. Returns the usage of the run.
    fn close_run(&self, run: &Run, outcome: &Result<StageOutcome, TurnError>) -> Option<Usage> {
        if outcome.is_err() {
            run.save_partial();
        }
        actions::end_open_actions(run);
        results::record_anomalies(run);
        let status = run_status(outcome);
        let usage = run.progress().usage.clone();
        run.journal.push(Fact::EndRun {
            run_id: run.id().clone(),
            status,
            usage: usage.clone(),
            ended_at: self.environment.options.clock.now(),
        });
        usage
    }
}

fn run_status(outcome: &Result<StageOutcome, TurnError>) -> RunStatus {
    match outcome {
        Ok(_) => RunStatus::Completed,
        Err(TurnError::Cancelled) => RunStatus::Cancelled,
        Err(TurnError::Timeout) => RunStatus::Timeout,
        Err(_) => RunStatus::Failed,
    }
}

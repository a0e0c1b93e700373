//! Orchestrator: runs the model stage of a turn as a run. Child runs are started by `child_run`.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use capstan_hooks::args::{BoundRunner, GrantedTools, RunModelArgs};
use capstan_hooks::{InboundEvent, TurnState, run_model_stage};
use capstan_policy::{Budget, EventScope, compute_grant};
use capstan_protocol::{
    AdapterContext, Binding, ConversationContext, Descriptor, Event, EventKey, EventOrigin, Grant, HistoryHandles,
    JsonObject, ResourceAccess, RunContext, RunId, RunResources, RunTrigger, RuntimeContext, StreamEvent, Timestamp,
    Usage,
};
use capstan_tape::{EntryDraft, Fact, RunRecord, RunStatus};
use capstan_turn::{ModelStage, StageEventSink, StageInput, StageOutcome, StageReport, TurnError};
use futures::FutureExt as _;
use tokio::sync::{OnceCell, mpsc};

use crate::active_runs::ActiveRunGuard;
use crate::active_turn::ActiveTurn;
use crate::environment::RunEnvironment;
use crate::journal::Journal;
use crate::results::{self, next_event, runner_stream};
use crate::run::artifact_quota::ArtifactQuota;
use crate::run::call_limiter::CallLimiter;
use crate::run::{MAX_QUEUED_STREAM_EVENTS, Run, TerminalResult, open_calls};
use crate::{actions, api, attachments, cancel_grace, child_run, plugin_runner, state};

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
    /// Error of the comma command that the run executed or refused, if the command failed.
    pub command_error: Option<String>,
    /// No model hook returned a stream, so the prompt becomes the reply of the turn, which the run has not recorded.
    pub replies_with_prompt: bool,
    /// Registration of the run, held until its end is recorded.
    pub active_guard: ActiveRunGuard,
}

#[async_trait]
impl ModelStage for Orchestrator {
    type Turn = ActiveTurn;
    type Report = RunReport;

    /// Without a runner there is no run, and no tools.
    fn granted_tools(&self, inbound: &InboundEvent, turn: &ActiveTurn) -> GrantedTools {
        let binding = turn.binding.as_ref();
        let runner = binding.and_then(|binding| Some((binding, self.environment.runner(&binding.runner_id)?)));
        let grant = runner.map(|(binding, runner)| self.run_grant(&runner.descriptor, binding, inbound, turn.origin));
        grant.map_or_else(ResourceAccess::none, |grant| grant.may.tools).into()
    }

    async fn run(&self, input: StageInput, turn: &ActiveTurn, events: &dyn StageEventSink) -> StageReport<RunReport> {
        let Some(binding) = &turn.binding else {
            tracing::info!(event = %input.inbound.event_id, "ignoring the event: no binding matches");
            return StageReport { outcome: Ok(StageOutcome::Silent), run: None };
        };
        if !self.serves_event(binding, &input) {
            let runner = &binding.runner_id;
            tracing::info!(event = %input.inbound.event_id, %runner, "ignoring the event: the runner serves messages only");
            return StageReport { outcome: Ok(StageOutcome::Silent), run: None };
        }
        let (events_tx, from_api) = mpsc::channel(MAX_QUEUED_STREAM_EVENTS);
        let (run, active_guard) = match self.open_run(&input, binding, turn, events_tx).await {
            Ok(run_and_guard) => run_and_guard,
            Err(error) => return StageReport { outcome: Err(error), run: None },
        };
        let outcome = {
            // The run of a panic must be closed like any other.
            let driving = AssertUnwindSafe(self.drive_run(&run, &input, from_api, events)).catch_unwind();
            let mut driving = pin!(with_blocked_time(driving, run.timeout));
            tokio::select! {
                // Polled first: otherwise a tool that reacts to the cancellation could let the run complete normally.
                biased;
                () = turn.cancel_token.cancelled() => {
                    cancel_grace::wait_for_last_results(&run, driving).await;
                    Err(TurnError::Cancelled)
                }
                end = tokio::time::timeout(run.timeout, &mut driving) => match end {
                    // No timer can end a runner that blocks its thread, but its late result does not count.
                    Ok((_, Some(blocked))) => {
                        let (run_id, runner) = (run.id(), &run.runner.descriptor.id);
                        tracing::warn!(%run_id, %runner, ?blocked, "the runner blocked its thread past the deadline of its run");
                        Err(TurnError::Timeout)
                    }
                    // A runner that stops at the cancellation ends its stream without a terminal result.
                    Ok((Ok(Err(TurnError::Run(_))), None)) if turn.cancel_token.is_cancelled() => {
                        Err(TurnError::Cancelled)
                    }
                    Ok((end, None)) => end.unwrap_or_else(|_| Err(TurnError::crashed("the run"))),
                    Err(_) => Err(TurnError::Timeout),
                },
                never = self.record_after_delay(&turn.journal) => match never {},
            }
        };
        run.revoke_api(run_status(&outcome));
        // Open child runs and calls were dropped with the run.
        child_run::end_open_children(&run, run_status(&outcome)).await;
        open_calls::notify_interrupted_calls(&run).await;
        let usage = self.close_run(&run, &outcome);
        let replies_with_prompt = matches!(outcome, Ok(StageOutcome::NoOutput));
        let command_error = run.progress().command_error.take();
        StageReport {
            outcome,
            run: Some(RunReport { run_id: run.id().clone(), usage, command_error, replies_with_prompt, active_guard }),
        }
    }
}

/// Completes with the output of a future and, if the poll that completed it began before the deadline and ended after it,
/// with the duration of that poll.
async fn with_blocked_time<F: Future>(future: F, timeout: Duration) -> (F::Output, Option<Duration>) {
    let started_at = Instant::now();
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(move |context| {
        let polled_at = Instant::now();
        let polled = future.as_mut().poll(context);
        let is_late = polled_at.duration_since(started_at) < timeout && started_at.elapsed() >= timeout;
        polled.map(|output| (output, is_late.then(|| polled_at.elapsed())))
    })
    .await
}

impl Orchestrator {
    /// Returns true if the runner of a binding serves events of this kind. An unknown runner is reported when the run is
    /// opened.
    fn serves_event(&self, binding: &Binding, input: &StageInput) -> bool {
        let runner = self.environment.runner(&binding.runner_id);
        input.inbound.is_message() || runner.is_none_or(|runner| runner.descriptor.capabilities.event_context)
    }

    /// Grant of a run about an event of this origin.
    fn run_grant(&self, runner: &Descriptor, binding: &Binding, event: &Event, origin: EventOrigin) -> Grant {
        let (scope, remote_tools) = (EventScope::new(event, origin), self.environment.tools.remote_tools());
        compute_grant(&runner.permissions, binding, scope, remote_tools)
    }

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
        capstan_policy::bindings::check_runner(binding, &runner.descriptor, &runner.config_validator)
            .map_err(|detail| TurnError::UnfitBinding { binding_id: binding.binding_id.clone(), detail })?;
        let now = self.environment.options.clock.now();
        let descriptor = &runner.descriptor;
        let timeout = self.run_timeout(binding, descriptor);
        let bypasses_host = self.environment.can_bypass_host(descriptor);
        let grant = self.run_grant(descriptor, binding, &input.inbound, turn.origin);
        let limits = &self.environment.options.limits;
        let max_steps = capstan_policy::bindings::step_limit(binding, descriptor);
        let max_steps = max_steps.map_or(u64::from(limits.max_steps), |steps| steps.min(limits.max_steps.into()));
        let mut context = self.build_context(input, binding, turn, RunResources { grant }, now, timeout);
        context.runtime.max_steps = Some(max_steps);
        if !descriptor.capabilities.multimodal_input {
            describe_attachments(&mut context);
        }
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
            deadline: context.runtime.deadline,
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
        let mut run = Run {
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
            hook_turn: input.hook_turn.clone(),
            system_prompt: OnceCell::new(),
            cancel_token: turn.cancel_token.clone(),
            events,
            budget: Arc::new(Budget::new(max_steps, limits.max_run_tokens)),
            model: None,
            depth: 0,
            progress: Mutex::default(),
            call_limiter: CallLimiter::new(limits.api, timeout),
            artifact_quota: ArtifactQuota::new(limits.max_artifact_bytes),
            timeout,
        };
        run.context.state = state::state_snapshot(&run).await?;
        run.context.attachments = attachments::served_attachments(&run, &input.inbound.input).await?;
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

    /// Maximum duration of a run: the smallest of the timeouts of the host, the runner and the binding.
    fn run_timeout(&self, binding: &Binding, runner: &Descriptor) -> Duration {
        let seconds = runner.timeout_seconds.into_iter().chain(binding.timeout_seconds);
        let host = self.environment.options.run_timeout;
        seconds.map(Duration::from_secs).fold(host, Duration::min)
    }

    fn build_context(
        &self,
        input: &StageInput,
        binding: &Binding,
        turn: &ActiveTurn,
        resources: RunResources,
        now: Timestamp,
        timeout: Duration,
    ) -> RunContext {
        let event = (*input.inbound).clone();
        let may_read_prompt = resources.grant.may.prompt;
        let options = &self.environment.options;
        let timeout = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        RunContext {
            run_id: RunId::generate(),
            trigger: RunTrigger {
                kind: event.event_type.clone(),
                binding_id: binding.binding_id.clone(),
                origin: Some(turn.origin),
                accepted_at: input.inbound.accepted_at(),
            },
            conversation: ConversationContext {
                session_id: input.session.clone(),
                conversation_id: event.conversation_id.clone(),
                kind: event.conversation_kind,
                thread_id: event.thread_id.clone(),
            },
            actor: event.actor.clone(),
            subject: event.subject.clone(),
            input: event.input.clone(),
            attachments: Vec::new(),
            delivery: event.delivery.clone(),
            resources,
            context: HistoryHandles { tape: turn.journal.tape().clone() },
            state: JsonObject::new(),
            turn_state: if may_read_prompt { visible_turn_state(&input.state) } else { JsonObject::new() },
            runtime: RuntimeContext {
                workspace: options.workspace.to_text(),
                started_at: now,
                deadline: Some(now.plus_millis(timeout)),
                max_steps: None,
                version: Some(env!("CARGO_PKG_VERSION").to_owned()),
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
            // The results of a cancelled run are recorded and sent to no channel.
            if !run.progress().is_in_grace {
                match &event {
                    StreamEvent::Text { delta } if !run.streams_deltas() => events.withhold(delta),
                    StreamEvent::Reasoning { .. } if !run.streams_deltas() => {}
                    event => events.emit(event).await,
                }
            }
            if is_plugin_run && run.progress().terminal.is_some() {
                break;
            }
        }
        if is_plugin_run {
            plugin_runner::finish_plugin_run(run);
        }
        let terminal = run.progress().terminal.clone();
        let has_failed = matches!(terminal, Some(TerminalResult::Failed(_)));
        let is_unreported = run.progress().is_in_grace || (has_failed && is_plugin_run);
        if !is_unreported {
            let is_silent = matches!(terminal, Some(TerminalResult::Completed { silent: true }));
            let text = if is_silent { String::new() } else { run.output() };
            if !is_silent && !has_failed && !run.streams_deltas() && !text.is_empty() {
                events.emit(&StreamEvent::text(text.clone())).await;
            }
            if is_silent {
                warn_about_streamed_text(run);
            }
            events.emit(&StreamEvent::Final { text, ok: !has_failed }).await;
        }
        match terminal {
            Some(TerminalResult::Failed(failure)) => Err(TurnError::Run(failure)),
            Some(TerminalResult::Completed { silent: true }) => Ok(StageOutcome::Silent),
            Some(TerminalResult::Completed { silent: false }) | None => {
                Ok(StageOutcome::Output(api::resolve_artifact_parts(run, run.output_content()).await))
            }
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
        run.end_deferred_merges(status);
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

/// Logs that a run ended silent whose text was streamed: a channel may have shown it.
fn warn_about_streamed_text(run: &Run) {
    if run.streams_deltas() && !run.output().is_empty() {
        let (run_id, runner) = (run.id(), &run.runner.descriptor.id);
        tracing::warn!(
            %run_id, %runner,
            "a run ended silent after it streamed a text: a runner that may stay silent must not declare the capability `streaming`"
        );
    }
}

/// Describes the attachments of a context in words, for a runner that reads text only. The tape keeps them.
fn describe_attachments(context: &mut RunContext) {
    context.input = context.input.in_words();
    context.event.input = context.event.input.in_words();
    context.adapter.prompt = context.adapter.prompt.take().map(|prompt| prompt.in_words());
}

/// Values of the `load_state` hooks for a runner, without the path of the workspace.
fn visible_turn_state(state: &TurnState) -> JsonObject {
    let mut values = state.values();
    values.shift_remove(TurnState::WORKSPACE_KEY);
    values
}

fn run_status(outcome: &Result<StageOutcome, TurnError>) -> RunStatus {
    match outcome {
        Ok(_) => RunStatus::Completed,
        Err(TurnError::Cancelled) => RunStatus::Cancelled,
        Err(TurnError::Timeout) => RunStatus::Timeout,
        Err(_) => RunStatus::Failed,
    }
}

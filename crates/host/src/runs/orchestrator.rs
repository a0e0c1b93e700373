//! The only way to run.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use capstan_hooks::args::RunModelArgs;
use capstan_hooks::{EventStream, InboundEvent, TurnState};
use capstan_policy::{Budget, EventScope, compute_grant};
use capstan_protocol::{
    AdapterContext, Binding, ConversationContext, EntryId, ErrorCode, EventKey, HistoryHandles, OutboundMessage,
    RunContext, RunId, RunResources, RunTrigger, RuntimeContext, StreamEvent, Timestamp, Usage,
};
use capstan_tape::{EntryDraft, Fact, RunRecord, RunStatus};
use capstan_turn::{ModelStage, RunError, StageEventSink, StageInput, StageOutcome, TurnError};
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::child_run;
use super::run::{MAX_QUEUED_STREAM_EVENTS, Run, TerminalResult};
use super::steering::Steering;
use crate::api::call_limiter::CallLimiter;
use crate::api::open_calls;
use crate::delivery::{isolated_channel, route};
use crate::engine::ActiveRunGuard;
use crate::results::runner_stream;
use crate::services::Services;
use crate::turns::journal::Journal;

/// A run that has written nothing for so long is put on record by itself, so that it can be found and cancelled.
const RUN_RECORD_DELAY: Duration = Duration::from_secs(1);

/// Runs the model stage of turns: one run for each, under the binding that its events have.
pub(crate) struct Orchestrator {
    pub(crate) services: Arc<Services>,
}

/// What a turn gives the orchestrator and hears back from it; rides in the inbound's extensions.
pub(crate) struct TurnRun {
    pub(crate) journal: Arc<Journal>,
    pub(crate) cancelled: CancellationToken,
    /// What came meanwhile.
    pub(crate) steering: Arc<Steering>,
    /// What its events have for a binding, each by itself.
    pub(crate) binding: Option<Arc<Binding>>,
    /// The newest entry of the tape that tells of one of its events.
    pub(crate) begins_after: EntryId,
    /// Its events, the one it answers first, and where their messages stand if a run that was cut off took them in.
    pub(crate) events: Vec<(EventKey, Option<EntryId>)>,
    pub(crate) report: Mutex<Option<RunReport>>,
    /// The run, from before it is on record.
    pub(crate) active_guard: Mutex<Option<ActiveRunGuard>>,
}

/// What is known about the run of a turn.
#[derive(Debug, Clone)]
pub(crate) struct RunReport {
    pub(crate) run_id: RunId,
    pub(crate) usage: Option<Usage>,
    /// Nobody gave any output, so the turn goes on with the prompt as the reply.
    pub(crate) has_no_output: bool,
}

/// The run a turn is in; rides in the state's extensions, where the built-in `run_model_stream` finds it.
pub(crate) struct ActiveRun {
    run: Arc<Run>,
    from_api: Mutex<Option<mpsc::Receiver<StreamEvent>>>,
}

impl ActiveRun {
    /// Makes a run the one that its turn is in, until the guard is dropped: the run knows the state, so the state must
    /// not keep the run.
    fn install(state: &TurnState, run: Arc<Run>, from_api: mpsc::Receiver<StreamEvent>) -> ActiveRunScope {
        state.extensions().insert(Self { run, from_api: Mutex::new(Some(from_api)) });
        ActiveRunScope(state.clone())
    }

    /// Asks the binding's runner. A run asks it once.
    pub(crate) fn start_runner(&self) -> Option<EventStream> {
        let from_api = self.from_api.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(runner_stream(Arc::clone(&self.run), from_api))
    }
}

/// Takes the active run out of the turn's state when the run is over, whichever way it ended.
struct ActiveRunScope(TurnState);

impl Drop for ActiveRunScope {
    fn drop(&mut self) {
        self.0.extensions().remove::<ActiveRun>();
    }
}

#[async_trait]
impl ModelStage for Orchestrator {
    async fn run(&self, input: StageInput, events: &dyn StageEventSink) -> Result<StageOutcome, TurnError> {
        let turn = input.inbound.extensions().get::<TurnRun>().ok_or(TurnError::Cancelled)?;
        let Some(binding) = turn.binding.clone() else {
            tracing::info!(event = %input.inbound.event_id, "no binding fits, so nothing is done");
            return Ok(StageOutcome::Silent);
        };
        let (run, from_api) = self.open_run(&input, &binding, &turn).await?;
        let _active = ActiveRun::install(&input.state, Arc::clone(&run), from_api);
        let end = tokio::select! {
            // First: a tool that sees the cancellation too must not make the run look as if it had ended by itself.
            biased;
            () = turn.cancelled.cancelled() => Err(TurnError::Cancelled),
            end = tokio::time::timeout(self.services.options.run_timeout, self.drive_run(&run, &input, events)) => {
                end.unwrap_or(Err(TurnError::Timeout))
            }
            never = self.record_after_delay(&turn.journal) => match never {},
        };
        run.revoke_api(run_status(&end));
        // What it had begun and not ended was dropped with it.
        child_run::end_open_children(&run, run_status(&end)).await;
        open_calls::notify_interrupted_calls(&run).await;
        self.close_run(&run, &turn, &end);
        end
    }

    async fn show_event(&self, event: &StreamEvent, inbound: &InboundEvent) {
        if let Some(inbound) = route::streaming_target(inbound) {
            isolated_channel::show_stream_event(&self.services, event, &inbound).await;
        }
    }

    fn route_outbound(&self, outbound: OutboundMessage, inbound: &InboundEvent) -> Option<OutboundMessage> {
        route::route_outbound(outbound, inbound)
    }
}

impl Orchestrator {
    /// Resolves the runner, computes the grant, builds the context, and writes the run into the ledger.
    async fn open_run(
        &self,
        input: &StageInput,
        binding: &Arc<Binding>,
        turn: &TurnRun,
    ) -> Result<(Arc<Run>, mpsc::Receiver<StreamEvent>), TurnError> {
        let runner = self.services.runner(&binding.runner_id).cloned();
        let runner = runner.ok_or_else(|| TurnError::UnknownRunner(binding.runner_id.clone()))?;
        let now = self.services.options.clock.now();
        let descriptor = runner.descriptor();
        let bypasses_host = self.services.can_bypass_host(&descriptor);
        let grant = compute_grant(&descriptor.permissions, binding, EventScope::from(&*input.inbound));
        let context = self.build_context(input, binding, turn, now, RunResources { grant });
        let goes_on = self.services.runs.register(context.run_id.clone(), turn.cancelled.clone());
        *turn.active_guard.lock().unwrap_or_else(PoisonError::into_inner) = Some(goes_on);
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
            // What it does the host does not see, so that it began must be on record before it does anything. Every
            // other run is on record with the first thing it does.
            turn.journal.start_run(&context.run_id);
            turn.journal.flush().await?;
        }
        let (events, from_api) = mpsc::channel(MAX_QUEUED_STREAM_EVENTS);
        let limits = &self.services.options.limits;
        let run = Run {
            services: Arc::clone(&self.services),
            journal: Arc::clone(&turn.journal),
            runner,
            binding: Arc::clone(binding),
            context,
            prompt: input.prompt.clone(),
            served_events: turn.events.clone(),
            steering: Arc::clone(&turn.steering),
            state: input.state.clone(),
            cancelled: turn.cancelled.clone(),
            events,
            budget: Arc::new(Budget::new(limits.max_steps, limits.max_run_tokens)),
            depth: 0,
            progress: Mutex::default(),
            call_limiter: CallLimiter::new(limits.api, self.services.options.run_timeout),
        };
        Ok((Arc::new(run), from_api))
    }

    /// Most runs soon write something, and are on record with it.
    async fn record_after_delay(&self, journal: &Arc<Journal>) -> Infallible {
        tokio::time::sleep(RUN_RECORD_DELAY).await;
        if let Err(error) = journal.flush().await {
            // What the run writes next fails too, and says so.
            tracing::warn!(%error, "a run could not be put on record");
        }
        std::future::pending().await
    }

    fn build_context(
        &self,
        input: &StageInput,
        binding: &Binding,
        turn: &TurnRun,
        now: Timestamp,
        resources: RunResources,
    ) -> RunContext {
        let event = (*input.inbound).clone();
        let settings = &self.services.options;
        let timeout = i64::try_from(settings.run_timeout.as_millis()).unwrap_or(i64::MAX);
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
                workspace: settings.workspace.to_text(),
                started_at: now,
                deadline: Some(now.plus_millis(timeout)),
            },
            config: binding.runner_config.clone(),
            adapter: AdapterContext { prompt: Some(input.prompt.0.as_ref().clone()) },
            metadata: event.metadata.clone(),
            event,
        }
    }

    /// Lets the model hooks decide, and journals what whoever decided does.
    async fn drive_run(
        &self,
        run: &Run,
        input: &StageInput,
        events: &dyn StageEventSink,
    ) -> Result<StageOutcome, TurnError> {
        let args = RunModelArgs {
            prompt: input.prompt.clone(),
            session_id: input.session.clone(),
            state: input.state.clone(),
        };
        let Some(mut decided) = self.services.hooks.run_model_stage(&args).await? else {
            run.ingest_message();
            return Ok(StageOutcome::NoOutput);
        };
        let is_stand_in = !run.progress().runner_started;
        let plugin = decided.plugin.clone();
        let who = || if is_stand_in { format!("the plugin {plugin}") } else { run.runner_label() };
        let crashed = |error: &TurnError| {
            run.save_partial();
            run.append(EntryDraft::error("run_model", &error.public_message()));
        };
        while let Some(event) = next_event(&mut decided.value, who).await.inspect_err(crashed)? {
            if is_stand_in {
                run.record_plugin_event(&event).await;
            }
            events.emit(&event).await;
            if is_stand_in && run.progress().terminal.is_some() {
                break;
            }
        }
        if is_stand_in {
            run.finish_plugin_run();
        }
        let terminal = run.progress().terminal.clone();
        match terminal {
            Some(TerminalResult::Failed(failure)) => Err(TurnError::Run(failure)),
            Some(TerminalResult::Completed { silent: true }) => Ok(StageOutcome::Silent),
            Some(TerminalResult::Completed { silent: false }) | None => Ok(StageOutcome::Output(run.output())),
        }
    }

    /// Writes the end of the run into the journal; it is committed with the turn's outcome.
    fn close_run(&self, run: &Run, turn: &TurnRun, end: &Result<StageOutcome, TurnError>) {
        if end.is_err() {
            run.save_partial();
        }
        run.end_open_actions();
        run.record_anomalies();
        let status = run_status(end);
        let usage = run.progress().usage.clone();
        turn.journal.push(Fact::EndRun {
            run_id: run.id().clone(),
            status,
            usage: usage.clone(),
            ended_at: self.services.options.clock.now(),
        });
        let without_output = matches!(end, Ok(StageOutcome::NoOutput));
        let report = RunReport { run_id: run.id().clone(), usage, has_no_output: without_output };
        *turn.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }
}

fn run_status(end: &Result<StageOutcome, TurnError>) -> RunStatus {
    match end {
        Ok(_) => RunStatus::Completed,
        Err(TurnError::Cancelled) => RunStatus::Cancelled,
        Err(TurnError::Timeout) => RunStatus::Timeout,
        Err(_) => RunStatus::Failed,
    }
}

/// The next event of the stage. A panic in it, a plugin's or a runner's, is this run's failure and nobody else's; nor
/// does a stream that always has an event ready keep anybody else waiting.
pub(crate) async fn next_event(
    stream: &mut EventStream,
    who: impl Fn() -> String,
) -> Result<Option<StreamEvent>, TurnError> {
    tokio::task::consume_budget().await;
    AssertUnwindSafe(stream.next()).catch_unwind().await.map_err(|_| {
        let message = format!("{} crashed", who());
        TurnError::Run(RunError { message, code: Some(ErrorCode::RunFailed.into()) })
    })
}

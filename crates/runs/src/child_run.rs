//! Child runs: the same runner again, on a fork of its run's tape.
//!
//! A fork has no lease of its own. Everything a child writes is committed under the fence of the session's tape, as what
//! its parent writes is: whoever holds the session holds its forks, and a process that lost it can write to neither.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_hooks::contracts::{ChildRunCall, ChildRunOutcome};
use capstan_protocol::{
    AdapterContext, AllowList, ApiError, ApiErrorCode, Content, EventInput, HistoryHandles, JsonObject, RunContext,
    RunId, RunResources, RuntimeContext, StreamEvent, TapeName, ToolCall, ToolOutput, parse_command_line,
};
use capstan_tape::{EntryDraft, Fact, ForkState, RunRecord, RunStatus, Store, StoreError, TapeRepository};
use capstan_turn::TurnError;
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::mpsc;

use crate::actions;
use crate::api_error::store_api_error;
use crate::results;
use crate::results::next_event;
use crate::results::{RunnerCall, runner_stream};
use crate::run::call_limiter::CallLimiter;
use crate::run::{ChildRun, MAX_QUEUED_STREAM_EVENTS, Run, TerminalResult, open_calls};

/// How many runs may stand above another: a run, its child, and that one's child.
const MAX_CHILD_DEPTH: u32 = 2;
/// The anchor that the fork of a child begins with.
const CHILD_ANCHOR: &str = "subagent/start";

/// How much of what a child's tools give is shown, in bytes.
const MAX_SHOWN_OUTPUT_BYTES: usize = 200;

/// Runs a child to its end.
pub(crate) async fn run_child(
    parent: &Arc<Run>,
    call: ChildRunCall,
    call_runner: RunnerCall,
) -> Result<ChildRunOutcome, ApiError> {
    if parent.depth >= MAX_CHILD_DEPTH {
        let message = format!("a run has at most {MAX_CHILD_DEPTH} runs above it: do the work yourself");
        return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
    }
    let limit = remaining_time(parent, call.timeout);
    let (child, from_api) = open_child(parent, call, limit).await?;
    let end = tokio::select! {
        biased;
        () = child.cancelled.cancelled() => Err(TurnError::Cancelled),
        end = tokio::time::timeout(limit, drive_child(parent, &child, from_api, call_runner)) => end.unwrap_or(Err(TurnError::Timeout)),
    };
    let status = match &end {
        Ok(None) => RunStatus::Completed,
        Err(TurnError::Cancelled) => RunStatus::Cancelled,
        Err(TurnError::Timeout) => RunStatus::Timeout,
        Ok(Some(_)) | Err(_) => RunStatus::Failed,
    };
    close_child(parent, &child, status).await?;
    let failure = match end {
        Ok(failure) => failure,
        Err(error) => Some(error.public_message()),
    };
    let usage = child.progress().usage.clone();
    Ok(ChildRunOutcome {
        run_id: child.id().clone(),
        tape: child.journal.tape().clone(),
        text: child.output(),
        usage,
        failure,
    })
}

/// Ends the children that a run has left, as one that was broken off does: they were dropped with it, and what they wrote
/// is kept.
pub(crate) fn end_open_children(parent: &Run, status: RunStatus) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let left = std::mem::take(&mut parent.progress().children);
        // Whoever waited for them no longer does, so they did not complete.
        let status = if status == RunStatus::Completed { RunStatus::Cancelled } else { status };
        for ChildRun { run: child, active_guard: _until_it_has_ended } in left {
            if let Err(error) = close_child(parent, &child, status).await {
                tracing::warn!(run_id = %child.id(), %error, "the end of a child run could not be written");
            }
        }
    })
}

/// Open runs on a tape, and those that they began on forks of it, oldest first.
pub async fn open_runs_with_children(store: &dyn Store, tape: &TapeName) -> Result<Vec<RunRecord>, StoreError> {
    let mut found: Vec<RunRecord> = Vec::new();
    let mut open_runs = store.open_runs();
    while let Some(run) = open_runs.next().await? {
        let began = |parent: &RunId| found.iter().any(|run| run.run_id == *parent);
        if run.tape == *tape || run.parent.as_ref().is_some_and(began) {
            found.push(run);
        }
    }
    Ok(found)
}

/// Whether a run is one of a child whose fork nobody has closed: a dead process left it.
pub async fn has_open_fork(tapes: &TapeRepository, run: &RunRecord) -> Result<bool, StoreError> {
    if run.parent.is_none() {
        return Ok(false);
    }
    let fork = tapes.record(&run.tape).await?.and_then(|record| record.fork);
    Ok(fork.is_some_and(|fork| fork.state == ForkState::Open))
}

fn remaining_time(parent: &Run, asked: Option<Duration>) -> Duration {
    let settings = &parent.environment.options;
    let now = settings.clock.now().as_millis();
    let left = parent.context.runtime.deadline.map(|deadline| deadline.as_millis().saturating_sub(now));
    let left = left.map_or(settings.run_timeout, |left| Duration::from_millis(u64::try_from(left).unwrap_or_default()));
    asked.map_or(left, |asked| asked.min(left))
}

/// Opens a child: its fork, its run and what it is asked are one commit.
async fn open_child(
    parent: &Arc<Run>,
    call: ChildRunCall,
    limit: Duration,
) -> Result<(Arc<Run>, mpsc::Receiver<StreamEvent>), ApiError> {
    let environment = &parent.environment;
    parent.flush().await.map_err(|error| store_api_error(&error))?;
    let record = environment.tapes.record(parent.journal.tape()).await.map_err(|error| store_api_error(&error))?;
    let position = record.map(|record| record.head).unwrap_or_default();
    let run_id = RunId::generate();
    let fork = TapeName::parse(format!("{}__{run_id}", parent.journal.tape()))
        .map_err(|error| ApiError::new(ApiErrorCode::RuntimeError, error.to_string()))?;
    let budget = Arc::new(parent.budget.child(call.max_steps.map(u64::from), call.max_tokens));
    let context = child_context(parent, &call, &run_id, &fork, limit, budget.remaining_steps());
    let journal = Arc::new(parent.journal.for_fork(fork.clone()));
    let (events, from_api) = mpsc::channel(MAX_QUEUED_STREAM_EVENTS);
    let child = Arc::new(Run {
        environment: Arc::clone(environment),
        journal,
        runner: Arc::clone(&parent.runner),
        binding: Arc::clone(&parent.binding),
        prompt: context.adapter.prompt.clone().unwrap_or_default().into(),
        context,
        served_events: Vec::new(),
        steering: Arc::default(),
        state: parent.state.clone(),
        cancelled: parent.cancelled.child_token(),
        events,
        budget,
        depth: parent.depth + 1,
        progress: Mutex::default(),
        call_limiter: CallLimiter::new(environment.options.limits.api, limit),
    });
    child.journal.push(Fact::ForkTape { fork: fork.clone(), parent: parent.journal.tape().clone(), position });
    child.journal.push(Fact::OpenRun(Box::new(RunRecord {
        run_id: run_id.clone(),
        session: child.context.conversation.session_id.clone(),
        tape: fork,
        begins_after: position,
        parent: Some(parent.id().clone()),
        event: (&child.context.event).into(),
        others: Vec::new(),
        binding: child.context.trigger.binding_id.clone(),
        runner: child.runner.descriptor().id,
        grant: child.grant().clone(),
        status: RunStatus::Created,
        started_at: child.context.runtime.started_at,
        ended_at: None,
        usage: None,
        bypasses_host: !child.runner.descriptor().capabilities.effects_through_host,
        cancel_requested: false,
    })));
    let state =
        JsonObject::from_iter([("owner".to_owned(), json!("agent")), ("parent_run".to_owned(), json!(parent.id()))]);
    for entry in EntryDraft::handoff(CHILD_ANCHOR, &state) {
        child.append(entry);
    }
    child.ingest_prompt();
    child.journal.start_run(&run_id);
    let goes_on = environment.active_runs.register(run_id, child.cancelled.clone());
    parent.progress().children.push(ChildRun { run: Arc::clone(&child), active_guard: goes_on });
    if let Err(error) = child.flush().await {
        remove_child(parent, &child);
        return Err(store_api_error(&error));
    }
    Ok((child, from_api))
}

fn child_context(
    parent: &Run,
    call: &ChildRunCall,
    run_id: &RunId,
    fork: &TapeName,
    limit: Duration,
    max_steps: Option<u64>,
) -> RunContext {
    let now = parent.environment.options.clock.now();
    let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
    // A line that begins with a comma is for people: here it is words.
    let prompt = match parse_command_line(&call.prompt.text()) {
        Some(_) => Content::Text(format!("Task: {}", call.prompt.text())),
        None => call.prompt.clone(),
    };
    let mut config = parent.context.config.clone();
    config.insert("max_steps".to_owned(), json!(max_steps));
    let may_have_children = parent.depth + 1 < MAX_CHILD_DEPTH;
    RunContext {
        run_id: run_id.clone(),
        input: EventInput { text: Some(prompt.text()), ..EventInput::default() },
        resources: RunResources {
            grant: capstan_policy::restrict_grant(
                parent.grant(),
                &to_own_names(parent, &call.tools),
                may_have_children,
            ),
        },
        context: HistoryHandles { tape: fork.clone() },
        runtime: RuntimeContext {
            started_at: now,
            deadline: Some(now.plus_millis(limit)),
            ..parent.context.runtime.clone()
        },
        config,
        adapter: AdapterContext { prompt: Some(prompt) },
        ..parent.context.clone()
    }
}

/// Tools by their own names: a model writes those it was given.
fn to_own_names(parent: &Run, tools: &AllowList) -> AllowList {
    let own = |name: &String| match parent.environment.tools.get(name) {
        Some(tool) => tool.spec().name.to_string(),
        None => name.clone(),
    };
    match tools {
        AllowList::All => AllowList::All,
        AllowList::Only(names) => AllowList::only(names.iter().map(own)),
    }
}

/// Lets the runner work, and whoever watches its parent see that it does. Gives why it failed, if it did.
async fn drive_child(
    parent: &Run,
    child: &Arc<Run>,
    from_api: mpsc::Receiver<StreamEvent>,
    call_runner: RunnerCall,
) -> Result<Option<String>, TurnError> {
    let mut events = runner_stream(Arc::clone(child), from_api, call_runner);
    while let Some(event) = next_event(&mut events, || child.runner_label()).await? {
        if let Some(event) = to_parent_event(child.id(), event) {
            parent.emit(event).await;
        }
    }
    let terminal = child.progress().terminal.clone();
    Ok(match terminal {
        Some(TerminalResult::Failed(failure)) => Some(failure.message),
        Some(TerminalResult::Completed { .. }) | None => None,
    })
}

/// What is shown of a child beside what its parent does: its tool calls, the first line of what they give, and what it
/// used. Its words are for its parent, and so is why it failed.
fn to_parent_event(child: &RunId, event: StreamEvent) -> Option<StreamEvent> {
    let id = |call: &str| format!("{child}/{call}");
    let name = |tool: &str| format!("subagent/{tool}");
    match event {
        StreamEvent::ToolCall { call } => {
            let (id, name) = (id(&call.id), name(&call.function.name));
            Some(StreamEvent::ToolCall { call: ToolCall::new(id, name, call.function.arguments) })
        }
        StreamEvent::ToolResult { call_id, name: tool, output } => {
            let text = output.text();
            let line = text.lines().next().unwrap_or_default();
            let shown = &line[..line.floor_char_boundary(MAX_SHOWN_OUTPUT_BYTES)];
            let more = if shown.len() < text.trim_end().len() { " ..." } else { "" };
            let output = ToolOutput { content: Content::Text(format!("{shown}{more}")), is_error: output.is_error };
            Some(StreamEvent::ToolResult { call_id: id(&call_id), name: name(&tool), output })
        }
        StreamEvent::Usage { .. } | StreamEvent::Waiting { .. } => Some(event),
        StreamEvent::Text { .. }
        | StreamEvent::Reasoning { .. }
        | StreamEvent::Error { .. }
        | StreamEvent::Final { .. } => None,
    }
}

/// Writes the end of a child, and gives its parent what it used.
async fn close_child(parent: &Run, child: &Run, status: RunStatus) -> Result<(), ApiError> {
    child.revoke_api(status);
    end_open_children(child, status).await;
    open_calls::notify_interrupted_calls(child).await;
    if status != RunStatus::Completed {
        child.save_partial();
    }
    actions::end_open_actions(child);
    results::record_anomalies(child);
    let usage = child.progress().usage.clone();
    let at = child.environment.options.clock.now();
    child.journal.push(Fact::EndRun { run_id: child.id().clone(), status, usage: usage.clone(), ended_at: at });
    child.journal.push(Fact::CloseFork { fork: child.journal.tape().clone(), is_merged: false });
    child.journal.extend(actions::report_actions_to_parent(child, parent).into_iter().collect());
    let written = child.flush().await;
    if let Some(usage) = &usage {
        parent.add_usage(usage);
    }
    remove_child(parent, child);
    written.map_err(|error| store_api_error(&error))
}

fn remove_child(parent: &Run, child: &Run) {
    parent.progress().children.retain(|open| open.run.id() != child.id());
}

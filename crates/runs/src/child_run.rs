//! Child runs: another run of the same runner, on a fork of its parent's tape.
//!
//! A fork has no lease of its own. All writes of a child are committed under the fence of the session's tape, like
//! those of its parent: the holder of the session holds its forks, and a process that lost the session can write to
//! neither.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_hooks::contracts::{ChildRunCall, ChildRunOutcome, ChildSession, RunApi};
use capstan_protocol::{
    AdapterContext, AllowList, ApiError, ApiErrorCode, Content, EntryId, EventInput, HistoryHandles, JsonObject,
    RunContext, RunId, RunResources, RuntimeContext, StreamEvent, TapeName, ToolCall, ToolOutput, Usage,
    parse_command_line,
};
use capstan_tape::{
    EntryDraft, EntryKind, EntryOrder, Fact, ForkState, RunRecord, RunStatus, Store, StoreError, TapeRepository,
    TapeSlice, merge_drafts,
};
use capstan_turn::TurnError;
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::{OnceCell, mpsc};

use crate::active_runs::ActiveRunGuard;
use crate::api_error::store_api_error;
use crate::results::{self, next_event, runner_stream};
use crate::run::call_limiter::CallLimiter;
use crate::run::{ChildMerge, ChildRun, MAX_QUEUED_STREAM_EVENTS, Run, TerminalResult, open_calls};
use crate::{actions, cancel_grace};

/// Maximum number of ancestors of a run: a run, its child, and the child of that child.
const MAX_CHILD_DEPTH: u32 = 2;
/// Maximum number of child runs that a run may start.
const MAX_CHILD_RUNS: u32 = 100;
/// Name of the anchor at which the fork of a child begins.
const CHILD_ANCHOR: &str = "subagent/start";
/// Length to which the tool output of a child is truncated in the parent's stream, in bytes.
const MAX_SHOWN_OUTPUT_BYTES: usize = 200;

/// Runs a child to its end. The builder of its run API is an argument, because the run API itself starts child runs.
pub(crate) async fn run_child(
    parent: &Arc<Run>,
    call: ChildRunCall,
    build_api: fn(&Arc<Run>) -> RunApi,
) -> Result<ChildRunOutcome, ApiError> {
    if parent.depth >= MAX_CHILD_DEPTH {
        let message = format!("child runs can be nested at most {MAX_CHILD_DEPTH} deep: do the work in this run");
        return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
    }
    if parent.budget.remaining_steps() == Some(0) {
        let message = "no step is left for a child run: its steps are deducted from those of this run";
        return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
    }
    count_child(parent)?;
    let (timeout, merge_back) = (child_timeout(parent, call.timeout), call.merge_back);
    let (child, from_api) = open_child(parent, call, timeout).await?;
    let end = {
        let mut driving = pin!(drive_child(parent, &child, from_api, build_api(&child)));
        tokio::select! {
            biased;
            () = child.cancel_token.cancelled() => {
                cancel_grace::wait_for_last_results(&child, driving).await;
                Err(TurnError::Cancelled)
            }
            end = tokio::time::timeout(timeout, &mut driving) => match end {
                // A runner that stops at the cancellation ends its stream without a terminal result.
                Ok(Err(TurnError::Run(_))) if child.cancel_token.is_cancelled() => Err(TurnError::Cancelled),
                end => end.unwrap_or(Err(TurnError::Timeout)),
            },
        }
    };
    let status = match &end {
        Ok(None) => RunStatus::Completed,
        Err(TurnError::Cancelled) => RunStatus::Cancelled,
        Err(TurnError::Timeout) => RunStatus::Timeout,
        Ok(Some(_)) | Err(_) => RunStatus::Failed,
    };
    let merged = merge_back && status == RunStatus::Completed;
    if merged {
        merge_child(parent, &child).await?;
    } else {
        close_child(parent, &child, status).await?;
    }
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
        merged,
    })
}

/// Counts a child run that is about to start; fails at the limit.
fn count_child(parent: &Run) -> Result<(), ApiError> {
    let mut progress = parent.progress();
    if progress.child_run_count >= MAX_CHILD_RUNS {
        let message = format!("a run has at most {MAX_CHILD_RUNS} child runs: do the rest of the work in this run");
        return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
    }
    progress.child_run_count += 1;
    Ok(())
}

/// Ends the child runs that are still open when their parent ends, for example because it was interrupted. They were
/// dropped with it; their entries are kept.
pub(crate) fn end_open_children(parent: &Run, status: RunStatus) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let children = std::mem::take(&mut parent.progress().children);
        // The parent no longer waits for them, so they did not complete.
        let status = if status == RunStatus::Completed { RunStatus::Cancelled } else { status };
        for ChildRun { run: child, active_guard: _registration } in children {
            if let Err(error) = close_child(parent, &child, status).await {
                tracing::warn!(run_id = %child.id(), %error, "cannot record the end of a child run");
            }
        }
    })
}

/// Open runs on a tape and their child runs on forks of it, oldest first.
pub async fn open_runs_with_children(store: &dyn Store, tape: &TapeName) -> Result<Vec<RunRecord>, StoreError> {
    let mut found: Vec<RunRecord> = Vec::new();
    let mut open_runs = store.open_runs();
    while let Some(run) = open_runs.next().await? {
        let is_found = |parent: &RunId| found.iter().any(|run| run.run_id == *parent);
        if run.tape == *tape || run.parent.as_ref().is_some_and(is_found) {
            found.push(run);
        }
    }
    Ok(found)
}

/// Returns true for a child run whose fork is still open: its process died.
pub async fn has_open_fork(tapes: &TapeRepository, run: &RunRecord) -> Result<bool, StoreError> {
    if run.parent.is_none() {
        return Ok(false);
    }
    let fork = tapes.record(&run.tape).await?.and_then(|record| record.fork);
    Ok(fork.is_some_and(|fork| fork.state == ForkState::Open))
}

/// Timeout of a child: as requested, at most the remaining time of its parent.
fn child_timeout(parent: &Run, requested: Option<Duration>) -> Duration {
    let options = &parent.environment.options;
    let now = options.clock.now().as_millis();
    let remaining = parent.context.runtime.deadline.map(|deadline| deadline.as_millis().saturating_sub(now));
    let remaining = remaining
        .map_or(options.run_timeout, |millis| Duration::from_millis(u64::try_from(millis).unwrap_or_default()));
    requested.map_or(remaining, |requested| requested.min(remaining))
}

/// Opens a child run: its fork, its record and its prompt are one commit.
async fn open_child(
    parent: &Arc<Run>,
    call: ChildRunCall,
    timeout: Duration,
) -> Result<(Arc<Run>, mpsc::Receiver<StreamEvent>), ApiError> {
    let environment = &parent.environment;
    let position = fork_position(parent, call.session).await.map_err(|error| store_api_error(&error))?;
    let run_id = RunId::generate();
    let fork = TapeName::parse(format!("{}__{run_id}", parent.journal.tape()))
        .map_err(|error| ApiError::new(ApiErrorCode::RuntimeError, error.to_string()))?;
    let budget = Arc::new(parent.budget.child(call.max_steps.map(u64::from), call.max_tokens));
    let context = child_context(parent, &call, &run_id, &fork, timeout, budget.remaining_steps());
    let journal = Arc::new(parent.journal.for_fork(fork.clone()));
    let (events, from_api) = mpsc::channel(MAX_QUEUED_STREAM_EVENTS);
    let child = Arc::new(Run {
        environment: Arc::clone(environment),
        journal,
        runner: Arc::clone(&parent.runner),
        binding: Arc::clone(&parent.binding),
        origin: parent.origin,
        prompt: context.adapter.prompt.clone().unwrap_or_default().into(),
        context,
        served_events: Vec::new(),
        steering: Arc::default(),
        state: parent.state.clone(),
        hook_turn: parent.hook_turn.clone(),
        system_prompt: OnceCell::new(),
        cancel_token: parent.cancel_token.child_token(),
        events,
        budget,
        model: call.model.or_else(|| parent.model.clone()),
        depth: parent.depth + 1,
        progress: Mutex::default(),
        call_limiter: CallLimiter::new(environment.options.limits.api, timeout),
        artifact_quota: parent.artifact_quota.clone(),
        timeout,
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
        runner: child.runner.descriptor.id.clone(),
        grant: child.grant().clone(),
        status: RunStatus::Created,
        started_at: child.context.runtime.started_at,
        deadline: child.context.runtime.deadline,
        ended_at: None,
        usage: None,
        bypasses_host: !child.runner.descriptor.capabilities.effects_through_host,
        cancel_requested: false,
    })));
    if call.session == ChildSession::Temp {
        let (owner, parent_run) = (("owner".to_owned(), json!("agent")), ("parent_run".to_owned(), json!(parent.id())));
        for entry in EntryDraft::handoff(CHILD_ANCHOR, &JsonObject::from_iter([owner, parent_run])) {
            child.append(entry);
        }
    }
    child.ingest_prompt();
    child.journal.start_run(&run_id);
    let active_guard = environment.active_runs.register(run_id, child.cancel_token.clone());
    parent.progress().children.push(ChildRun { run: Arc::clone(&child), active_guard });
    if let Err(error) = child.journal.flush().await {
        remove_child(parent, &child);
        return Err(store_api_error(&error));
    }
    Ok((child, from_api))
}

/// Last entry that the fork of a child shares with the tape of its parent: the newest one or, for a child that continues the
/// conversation, the one before the open step, whose calls have no results yet.
async fn fork_position(parent: &Run, session: ChildSession) -> Result<EntryId, StoreError> {
    if session == ChildSession::Inherit {
        parent.ingest_message();
    }
    parent.journal.flush().await?;
    let (tapes, tape) = (&parent.environment.tapes, parent.journal.tape());
    if session == ChildSession::Inherit && parent.is_step_open() {
        let newest_call = TapeSlice {
            kinds: vec![EntryKind::ToolCall],
            order: EntryOrder::NewestFirst,
            limit: Some(1),
            ..TapeSlice::default()
        };
        let step = tapes.read(tape, &newest_call).await?.pop();
        if let Some(step) = step.filter(|step| step.run_id() == Some(parent.id().as_str())) {
            return Ok(EntryId(step.id.0.saturating_sub(1)));
        }
    }
    Ok(tapes.record(tape).await?.map(|record| record.head).unwrap_or_default())
}

fn child_context(
    parent: &Run,
    call: &ChildRunCall,
    run_id: &RunId,
    fork: &TapeName,
    timeout: Duration,
    max_steps: Option<u64>,
) -> RunContext {
    let now = parent.environment.options.clock.now();
    let timeout = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
    // Commands are for users: a prompt that begins with a comma must stay a prompt.
    let prompt = match parse_command_line(&call.prompt.text()) {
        Some(_) => Content::Text(format!("Task: {}", call.prompt.text())),
        None => call.prompt.clone(),
    };
    let can_have_children = parent.depth + 1 < MAX_CHILD_DEPTH;
    RunContext {
        run_id: run_id.clone(),
        input: EventInput { text: Some(prompt.text()), ..EventInput::default() },
        resources: RunResources {
            grant: capstan_policy::restrict_grant(
                parent.grant(),
                &to_own_names(parent, &call.tools),
                can_have_children,
            ),
        },
        context: HistoryHandles { tape: fork.clone() },
        runtime: RuntimeContext {
            started_at: now,
            deadline: Some(now.plus_millis(timeout)),
            max_steps,
            ..parent.context.runtime.clone()
        },
        adapter: AdapterContext { prompt: Some(prompt) },
        ..parent.context.clone()
    }
}

/// Resolves the names that a model was given for tools to the tools' own names.
fn to_own_names(parent: &Run, tools: &AllowList) -> AllowList {
    let own_name = |name: &String| match parent.environment.tools.get(name) {
        Some(tool) => tool.spec().name.to_string(),
        None => name.clone(),
    };
    match tools {
        AllowList::All => AllowList::All,
        AllowList::Only(names) => AllowList::only(names.iter().map(own_name)),
    }
}

/// Drives the child's runner and forwards its progress to the parent's stream. Returns the reason if the run failed.
async fn drive_child(
    parent: &Run,
    child: &Arc<Run>,
    from_api: mpsc::Receiver<StreamEvent>,
    api: RunApi,
) -> Result<Option<String>, TurnError> {
    let mut events = runner_stream(Arc::clone(child), from_api, api);
    while let Some(event) = next_event(&mut events, || child.runner_label()).await? {
        if let Some(event) = to_parent_event(child.id(), event).filter(|_| !child.progress().is_in_grace) {
            parent.emit(event).await;
        }
    }
    let terminal = child.progress().terminal.clone();
    Ok(match terminal {
        Some(TerminalResult::Failed(failure)) => Some(failure.public_message()),
        Some(TerminalResult::Completed { .. }) | None => None,
    })
}

/// Converts an event of a child for its parent's stream: tool calls, the first line of their results, and usage. Text
/// and errors of a child are for its parent alone.
fn to_parent_event(child: &RunId, event: StreamEvent) -> Option<StreamEvent> {
    let qualified_id = |call: &str| format!("{child}/{call}");
    let qualified_name = |tool: &str| format!("subagent/{tool}");
    match event {
        StreamEvent::ToolCall { call } => {
            let (id, name) = (qualified_id(&call.id), qualified_name(&call.function.name));
            Some(StreamEvent::ToolCall { call: ToolCall::new(id, name, call.function.arguments) })
        }
        StreamEvent::ToolResult { call_id, name, output } => {
            let text = output.text();
            let line = text.lines().next().unwrap_or_default();
            let shown = &line[..line.floor_char_boundary(MAX_SHOWN_OUTPUT_BYTES)];
            let ellipsis = if shown.len() < text.trim_end().len() { " ..." } else { "" };
            let output = ToolOutput { content: Content::Text(format!("{shown}{ellipsis}")), is_error: output.is_error };
            Some(StreamEvent::ToolResult { call_id: qualified_id(&call_id), name: qualified_name(&name), output })
        }
        StreamEvent::Usage { .. } | StreamEvent::Waiting { .. } => Some(event),
        StreamEvent::Text { .. }
        | StreamEvent::Reasoning { .. }
        | StreamEvent::Error { .. }
        | StreamEvent::Final { .. } => None,
    }
}

/// Records the end of a completed child run, and adds its entries to the parent's tape when no call of the parent is
/// open.
async fn merge_child(parent: &Run, child: &Run) -> Result<(), ApiError> {
    let usage = finish_child(child, RunStatus::Completed).await;
    child.journal.extend(actions::report_actions_to_parent(child, parent).into_iter().collect());
    child.journal.flush().await.map_err(|error| store_api_error(&error))?;
    let fork = child.journal.tape();
    let own_entries = child.environment.tapes.read_open_fork(fork).await;
    let (point, mut entries) = own_entries.map_err(|error| store_api_error(&error))?;
    // An anchor would move the context window of the parent.
    entries.retain(|entry| entry.kind != EntryKind::Anchor);
    let entries = merge_drafts(&point, &entries, 0);
    if let Some(usage) = &usage {
        parent.add_usage(usage);
    }
    let active_guard = remove_child(parent, child);
    parent.merge_child(ChildMerge { run_id: child.id().clone(), fork: fork.clone(), entries, usage, active_guard });
    if parent.is_step_open() {
        return Ok(());
    }
    parent.journal.flush().await.map_err(|error| store_api_error(&error))
}

/// Records the end of a child run and adds its usage to that of its parent.
async fn close_child(parent: &Run, child: &Run, status: RunStatus) -> Result<(), ApiError> {
    let usage = finish_child(child, status).await;
    let at = child.environment.options.clock.now();
    child.journal.push(Fact::EndRun { run_id: child.id().clone(), status, usage: usage.clone(), ended_at: at });
    child.journal.push(Fact::CloseFork { fork: child.journal.tape().clone(), is_merged: false });
    child.journal.extend(actions::report_actions_to_parent(child, parent).into_iter().collect());
    let committed = child.journal.flush().await;
    if let Some(usage) = &usage {
        parent.add_usage(usage);
    }
    remove_child(parent, child);
    committed.map_err(|error| store_api_error(&error))
}

/// Completes the entries of a child run that ends, and returns its usage.
async fn finish_child(child: &Run, status: RunStatus) -> Option<Usage> {
    child.revoke_api(status);
    end_open_children(child, status).await;
    open_calls::notify_interrupted_calls(child).await;
    if status != RunStatus::Completed {
        child.save_partial();
    }
    actions::end_open_actions(child);
    results::record_anomalies(child);
    child.end_deferred_merges(status);
    child.progress().usage.clone()
}

/// Removes a child from the open children of its parent, and returns its registration.
fn remove_child(parent: &Run, child: &Run) -> Option<ActiveRunGuard> {
    let mut progress = parent.progress();
    let position = progress.children.iter().position(|open| open.run.id() == child.id())?;
    Some(progress.children.remove(position).active_guard)
}

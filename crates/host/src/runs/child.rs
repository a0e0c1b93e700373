//! Child runs: the same runner again, on a fork of its run's tape.
//!
//! A fork has no lease of its own. Everything a child writes is committed under the fence of the session's tape, as what
//! its parent writes is: whoever holds the session holds its forks, and a process that lost it can write to neither.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_hooks::contracts::{ChildCall, ChildEnd};
use capstan_protocol::{
    Access, Adapter, ApiError, ApiErrorCode, Content, ContextAccess, Input, Map, Resources, RunContext, RunId,
    RuntimeContext, StreamEvent, TapeName, ToolCall, ToolOutput, command_line,
};
use capstan_tape::{Draft, Fact, ForkState, RunRecord, RunStatus, StoreError, Tapes};
use capstan_turn::TurnError;
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::mpsc;

use super::orchestrator::next_event;
use super::run::{EVENT_QUEUE, Run, Terminal};
use crate::api::door::Door;
use crate::api::{open_calls, store_failed};
use crate::engine::GoesOn;
use crate::results::runner_stream;
use crate::runs::grant;

/// How many runs may stand above another: a run, its child, and that one's child.
const DEEPEST: u32 = 2;
/// The anchor that the fork of a child begins with.
const ANCHOR: &str = "subagent/start";

/// How much of what a child's tools give is shown, in bytes.
const SHOWN_BYTES: usize = 200;

/// A child that has not ended.
pub(crate) struct Child {
    run: Arc<Run>,
    /// From before it is on record until its end is.
    goes_on: GoesOn,
}

/// Runs a child to its end.
pub(crate) async fn run(parent: &Arc<Run>, call: ChildCall) -> Result<ChildEnd, ApiError> {
    if parent.depth >= DEEPEST {
        let message = format!("a run has at most {DEEPEST} runs above it: do the work yourself");
        return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
    }
    let limit = time_left(parent, call.timeout);
    let (child, from_api) = open(parent, call, limit).await?;
    let end = tokio::select! {
        biased;
        () = child.cancelled.cancelled() => Err(TurnError::Cancelled),
        end = tokio::time::timeout(limit, drive(parent, &child, from_api)) => end.unwrap_or(Err(TurnError::Timeout)),
    };
    let status = match &end {
        Ok(None) => RunStatus::Completed,
        Err(TurnError::Cancelled) => RunStatus::Cancelled,
        Err(TurnError::Timeout) => RunStatus::Timeout,
        Ok(Some(_)) | Err(_) => RunStatus::Failed,
    };
    close(parent, &child, status).await?;
    let failure = match end {
        Ok(failure) => failure,
        Err(error) => Some(error.public()),
    };
    let usage = child.progress().usage.clone();
    Ok(ChildEnd {
        run_id: child.id().clone(),
        tape: child.journal.tape().clone(),
        text: child.output(),
        usage,
        failure,
    })
}

/// Ends the children that a run has left, as one that was broken off does: they were dropped with it, and what they wrote
/// is kept.
pub(crate) fn end_left(parent: &Run, status: RunStatus) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let left = std::mem::take(&mut parent.progress().children);
        // Whoever waited for them no longer does, so they did not complete.
        let status = if status == RunStatus::Completed { RunStatus::Cancelled } else { status };
        for Child { run: child, goes_on: _until_it_has_ended } in left {
            if let Err(error) = close(parent, &child, status).await {
                tracing::warn!(run_id = %child.id(), %error, "the end of a child run could not be written");
            }
        }
    })
}

/// The runs on a tape, and those that they began on forks of it; the oldest come first.
pub(crate) fn with_children(running: Vec<RunRecord>, tape: &TapeName) -> Vec<RunRecord> {
    let mut found: Vec<RunRecord> = Vec::new();
    for run in running {
        let began = |parent: &RunId| found.iter().any(|run| run.run_id == *parent);
        if run.tape == *tape || run.parent.as_ref().is_some_and(began) {
            found.push(run);
        }
    }
    found
}

/// Whether a run is one of a child whose fork nobody has closed: a dead process left it.
pub(crate) async fn has_open_fork(tapes: &Tapes, run: &RunRecord) -> Result<bool, StoreError> {
    if run.parent.is_none() {
        return Ok(false);
    }
    let fork = tapes.record(&run.tape).await?.and_then(|record| record.fork);
    Ok(fork.is_some_and(|fork| fork.state == ForkState::Open))
}

fn time_left(parent: &Run, asked: Option<Duration>) -> Duration {
    let settings = &parent.services.settings;
    let now = settings.clock.now().as_millis();
    let left = parent.context.runtime.deadline.map(|deadline| deadline.as_millis().saturating_sub(now));
    let left = left.map_or(settings.run_timeout, |left| Duration::from_millis(u64::try_from(left).unwrap_or_default()));
    asked.map_or(left, |asked| asked.min(left))
}

/// Opens a child: its fork, its run and what it is asked are one commit.
async fn open(
    parent: &Arc<Run>,
    call: ChildCall,
    limit: Duration,
) -> Result<(Arc<Run>, mpsc::Receiver<StreamEvent>), ApiError> {
    let services = &parent.services;
    parent.flush().await.map_err(|error| store_failed(&error))?;
    let record = services.tapes.record(parent.journal.tape()).await.map_err(|error| store_failed(&error))?;
    let position = record.map(|record| record.head).unwrap_or_default();
    let run_id = RunId::generate();
    let fork = TapeName::parse(format!("{}__{run_id}", parent.journal.tape()))
        .map_err(|error| ApiError::new(ApiErrorCode::RuntimeError, error.to_string()))?;
    let budget = Arc::new(parent.budget.child(call.max_steps.map(u64::from), call.max_tokens));
    let context = context(parent, &call, &run_id, &fork, limit, budget.steps_left());
    let journal = Arc::new(parent.journal.of_fork(fork.clone()));
    let (events, from_api) = mpsc::channel(EVENT_QUEUE);
    let child = Arc::new(Run {
        services: Arc::clone(services),
        journal,
        runner: Arc::clone(&parent.runner),
        binding: Arc::clone(&parent.binding),
        prompt: context.adapter.prompt.clone().unwrap_or_default().into(),
        context,
        serves: Vec::new(),
        steering: Arc::default(),
        state: parent.state.clone(),
        cancelled: parent.cancelled.child_token(),
        events,
        budget,
        depth: parent.depth + 1,
        progress: Mutex::default(),
        door: Door::new(services.settings.limits.api, limit),
    });
    child.journal.push(Fact::Fork { fork: fork.clone(), parent: parent.journal.tape().clone(), position });
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
    let state = Map::from_iter([("owner".to_owned(), json!("agent")), ("parent_run".to_owned(), json!(parent.id()))]);
    for entry in Draft::handoff(ANCHOR, &state) {
        child.append(entry);
    }
    child.take_in_prompt();
    child.journal.start_run(&run_id);
    let goes_on = services.runs.enter(run_id, child.cancelled.clone());
    parent.progress().children.push(Child { run: Arc::clone(&child), goes_on });
    if let Err(error) = child.flush().await {
        forget(parent, &child);
        return Err(store_failed(&error));
    }
    Ok((child, from_api))
}

fn context(
    parent: &Run,
    call: &ChildCall,
    run_id: &RunId,
    fork: &TapeName,
    limit: Duration,
    max_steps: Option<u64>,
) -> RunContext {
    let now = parent.services.settings.clock.now();
    let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
    // A line that begins with a comma is for people: here it is words.
    let prompt = match command_line(&call.prompt.text()) {
        Some(_) => Content::Text(format!("Task: {}", call.prompt.text())),
        None => call.prompt.clone(),
    };
    let mut config = parent.context.config.clone();
    config.insert("max_steps".to_owned(), json!(max_steps));
    let may_have_children = parent.depth + 1 < DEEPEST;
    RunContext {
        run_id: run_id.clone(),
        input: Input { text: Some(prompt.text()), ..Input::default() },
        resources: Resources {
            grant: grant::cut(parent.grant(), &by_own_name(parent, &call.tools), may_have_children),
        },
        context: ContextAccess { tape: fork.clone() },
        runtime: RuntimeContext {
            started_at: now,
            deadline: Some(now.plus_millis(limit)),
            ..parent.context.runtime.clone()
        },
        config,
        adapter: Adapter { prompt: Some(prompt) },
        ..parent.context.clone()
    }
}

/// Tools by their own names: a model writes those it was given.
fn by_own_name(parent: &Run, tools: &Access) -> Access {
    let own = |name: &String| match parent.services.tool(name) {
        Some(tool) => tool.spec().name.to_string(),
        None => name.clone(),
    };
    match tools {
        Access::All => Access::All,
        Access::Only(names) => Access::only(names.iter().map(own)),
    }
}

/// Lets the runner work, and whoever watches its parent see that it does. Gives why it failed, if it did.
async fn drive(
    parent: &Run,
    child: &Arc<Run>,
    from_api: mpsc::Receiver<StreamEvent>,
) -> Result<Option<String>, TurnError> {
    let mut events = runner_stream(Arc::clone(child), from_api);
    while let Some(event) = next_event(&mut events, || child.runner_in_words()).await? {
        if let Some(event) = seen_from_above(child.id(), event) {
            parent.emit(event).await;
        }
    }
    let terminal = child.progress().terminal.clone();
    Ok(match terminal {
        Some(Terminal::Failed(failure)) => Some(failure.message),
        Some(Terminal::Completed { .. }) | None => None,
    })
}

/// What is shown of a child beside what its parent does: its tool calls, the first line of what they give, and what it
/// used. Its words are for its parent, and so is why it failed.
fn seen_from_above(child: &RunId, event: StreamEvent) -> Option<StreamEvent> {
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
            let shown = &line[..line.floor_char_boundary(SHOWN_BYTES)];
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
async fn close(parent: &Run, child: &Run, status: RunStatus) -> Result<(), ApiError> {
    child.shut_door(status);
    end_left(child, status).await;
    open_calls::tell(child).await;
    if status != RunStatus::Completed {
        child.keep_partial();
    }
    child.end_open_actions();
    child.tell_noted();
    let usage = child.progress().usage.clone();
    let at = child.services.settings.clock.now();
    child.journal.push(Fact::EndRun { run_id: child.id().clone(), status, usage: usage.clone(), at });
    child.journal.push(Fact::CloseFork { fork: child.journal.tape().clone(), merged: false });
    child.journal.extend(child.acted_below(parent).into_iter().collect());
    let written = child.flush().await;
    if let Some(usage) = &usage {
        parent.add_usage(usage);
    }
    forget(parent, child);
    written.map_err(|error| store_failed(&error))
}

fn forget(parent: &Run, child: &Run) {
    parent.progress().children.retain(|open| open.run.id() != child.id());
}

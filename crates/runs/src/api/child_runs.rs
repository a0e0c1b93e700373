//! Methods of `runs.*`.

use std::sync::Arc;

use capstan_hooks::contracts::methods::{RunsCancel, RunsChild, RunsEvents, RunsGet, RunsList};
use capstan_hooks::contracts::{ApiMethod, ChildRunCall, ChildRunOutcome, CursorPage, EventLogItem, RunSummary};
use capstan_protocol::run_api::{RunCancelCall, RunEventsCall, RunGetCall, RunListCall};
use capstan_protocol::{ApiError, ApiErrorCode, EntryId, EventOperation, ModelOperation, ReadScope, RunId};
use capstan_tape::{EventLogRow, RunRecord, TapeSlice};
use serde_json::{Value, json};

use super::cursor::PagedList;
use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::session::check_provider;
use super::{paging, store_api_error};
use crate::payload_size::{PayloadSize, content_size, optional_text_size, text_size};
use crate::run::Run;
use crate::run::call_limiter::CallPermit;
use crate::{child_run, nesting};

/// Runs of the ledger that one call reads at most, in pages.
const MAX_LEDGER_READS: usize = 16;
/// Runs of the ledger read at once.
const LEDGER_PAGE_SIZE: usize = 200;

impl MethodHandler for RunsChild {
    fn permission(_: &Run, _: &ChildRunCall) -> RequiredPermission {
        RequiredPermission::Children
    }

    fn payload(_: &Run, call: &ChildRunCall) -> PayloadSize {
        PayloadSize::Content(content_size(&call.prompt))
    }

    async fn handle(run: &Arc<Run>, call: ChildRunCall, _: CallPermit) -> Result<ChildRunOutcome, ApiError> {
        nesting::check_nesting(&call.prompt)?;
        if let Some(model) = &call.model {
            if !run.grant().may.models.allows(ModelOperation::Stream, &model.to_string()) {
                let message = format!("a child run may not use the model {model}: the grant of this run excludes it");
                return Err(ApiError::new(ApiErrorCode::Unauthorized, message));
            }
            check_provider(run, model)?;
        }
        child_run::run_child(run, call, super::runner_api).await
    }
}

impl MethodHandler for RunsGet {
    fn permission(_: &Run, _: &RunGetCall) -> RequiredPermission {
        RequiredPermission::Events(EventOperation::Get, ReadScope::Conversation)
    }

    fn payload(_: &Run, call: &RunGetCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(call.run_id.as_str()))
    }

    async fn handle(run: &Arc<Run>, call: RunGetCall, _: CallPermit) -> Result<RunSummary, ApiError> {
        find_run(run, &call.run_id).await.map(summarize_run)
    }
}

impl MethodHandler for RunsList {
    fn permission(_: &Run, _: &RunListCall) -> RequiredPermission {
        RequiredPermission::Events(EventOperation::Page, ReadScope::Conversation)
    }

    fn payload(_: &Run, call: &RunListCall) -> PayloadSize {
        PayloadSize::Arguments(optional_text_size(call.cursor.as_deref()))
    }

    async fn handle(run: &Arc<Run>, call: RunListCall, _: CallPermit) -> Result<CursorPage<RunSummary>, ApiError> {
        let limit = paging::clamp_limit(call.limit)?;
        run.flush_before_read().await.map_err(|error| store_api_error(&error))?;
        let session = run.context.conversation.session_id.to_string();
        let list = PagedList { method: ApiMethod::RunsList, list_key: &session };
        let mut before = call.cursor.map(|cursor| list.decode_cursor(&cursor).map(RunId::new)).transpose()?;
        let (store, mut items) = (run.environment.tapes.store(), Vec::new());
        for _ in 0..MAX_LEDGER_READS {
            let page = store.run_page(before.as_ref(), LEDGER_PAGE_SIZE).await;
            let page = page.map_err(|error| store_api_error(&error))?;
            if page.is_empty() {
                return Ok(CursorPage { items, next: None });
            }
            for record in page {
                before = Some(record.run_id.clone());
                if is_of_session(run, &record) {
                    items.push(summarize_run(record));
                }
                if items.len() >= limit {
                    break;
                }
            }
            if items.len() >= limit {
                break;
            }
        }
        Ok(CursorPage { items, next: before.map(|before| list.encode_cursor(before.as_str())) })
    }
}

impl MethodHandler for RunsEvents {
    fn permission(_: &Run, _: &RunEventsCall) -> RequiredPermission {
        RequiredPermission::Events(EventOperation::Page, ReadScope::Conversation)
    }

    fn payload(_: &Run, call: &RunEventsCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(call.run_id.as_str()) + optional_text_size(call.cursor.as_deref()))
    }

    async fn handle(run: &Arc<Run>, call: RunEventsCall, _: CallPermit) -> Result<CursorPage<EventLogItem>, ApiError> {
        let limit = paging::clamp_limit(call.limit)?;
        let record = find_run(run, &call.run_id).await?;
        let list = PagedList { method: ApiMethod::RunsEvents, list_key: record.run_id.as_str() };
        let last_read = call.cursor.map(|cursor| list.decode_cursor(&cursor)).transpose()?;
        let after = last_read.and_then(|last_read| last_read.parse().ok()).map_or(record.begins_after, EntryId);
        let slice = TapeSlice { limit: Some(limit), ..TapeSlice::after(after) };
        let tapes = &run.environment.tapes;
        let entries = tapes.read(&record.tape, &slice).await.map_err(|error| store_api_error(&error))?;
        let Some(last_entry) = entries.last().map(|entry| entry.id) else {
            return Ok(CursorPage { items: Vec::new(), next: None });
        };
        let slice = TapeSlice { up_to: Some(last_entry), ..TapeSlice::after(after) };
        let log = tapes.event_log(&record.tape, &slice).await.map_err(|error| store_api_error(&error))?;
        let is_of_run = |item: &EventLogRow| match item {
            EventLogRow::Activity(entry) => entry.run_id() == Some(record.run_id.as_str()),
            EventLogRow::Inbound { .. } | EventLogRow::Outcome { .. } | EventLogRow::Delivery(_) => false,
        };
        let items = log.into_iter().filter(is_of_run).map(EventLogItem::from).collect();
        let next = (entries.len() == limit).then(|| list.encode_cursor(&last_entry.to_string()));
        Ok(CursorPage { items, next })
    }
}

impl MethodHandler for RunsCancel {
    fn permission(_: &Run, _: &RunCancelCall) -> RequiredPermission {
        RequiredPermission::Children
    }

    fn payload(_: &Run, call: &RunCancelCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(call.run_id.as_str()))
    }

    async fn handle(run: &Arc<Run>, call: RunCancelCall, _: CallPermit) -> Result<bool, ApiError> {
        let record = find_run(run, &call.run_id).await?;
        let mut ancestor = record.parent.clone();
        while let Some(parent) = &ancestor {
            if parent == run.id() {
                return Ok(run.environment.active_runs.cancel(&record.run_id));
            }
            ancestor = find_run(run, parent).await?.parent;
        }
        let message = format!("run {} is not a child of this run", call.run_id);
        Err(ApiError::new(ApiErrorCode::NotFound, message))
    }
}

/// A run of the session, as recorded in the ledger.
async fn find_run(run: &Run, run_id: &RunId) -> Result<RunRecord, ApiError> {
    run.flush_before_read().await.map_err(|error| store_api_error(&error))?;
    let record = run.environment.tapes.store().run(run_id).await.map_err(|error| store_api_error(&error))?;
    record.filter(|record| is_of_session(run, record)).ok_or_else(|| {
        let message = format!("there is no run {run_id} in this session");
        ApiError::new(ApiErrorCode::NotFound, message)
    })
}

fn is_of_session(run: &Run, record: &RunRecord) -> bool {
    record.session == run.context.conversation.session_id
}

fn summarize_run(record: RunRecord) -> RunSummary {
    let status = match json!(record.status) {
        Value::String(status) => status,
        status => status.to_string(),
    };
    RunSummary {
        run_id: record.run_id,
        parent: record.parent,
        event: record.event,
        runner: record.runner,
        binding: record.binding,
        status,
        started_at: record.started_at,
        ended_at: record.ended_at,
        usage: record.usage,
    }
}

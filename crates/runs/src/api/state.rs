//! Methods of `state.*`: values by key.

use std::sync::Arc;

use capstan_hooks::contracts::methods::{StateDelete, StateGet, StateList, StateSet};
use capstan_hooks::contracts::{ApiMethod, CursorPage, StateEntry};
use capstan_protocol::run_api::{StateKeyCall, StateListCall, StateSetCall};
use capstan_protocol::{ApiError, JsonObject, StateScope};
use capstan_tape::KeyValueRecord;
use serde_json::Value;

use super::cursor::PagedList;
use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::{paging, store_api_error};
use crate::payload_size::{PayloadSize, json_size, optional_text_size, text_size};
use crate::run::Run;
use crate::run::call_limiter::CallPermit;
use crate::state;

impl MethodHandler for StateGet {
    fn permission(_: &Run, call: &StateKeyCall) -> RequiredPermission {
        RequiredPermission::State(call.scope)
    }

    fn payload(_: &Run, call: &StateKeyCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.key))
    }

    async fn handle(run: &Arc<Run>, call: StateKeyCall, _: CallPermit) -> Result<Option<Value>, ApiError> {
        read_value(run, &call).await
    }
}

impl MethodHandler for StateSet {
    fn permission(_: &Run, call: &StateSetCall) -> RequiredPermission {
        RequiredPermission::State(call.scope)
    }

    fn payload(_: &Run, call: &StateSetCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.key) + json_size(&call.value))
    }

    async fn handle(run: &Arc<Run>, call: StateSetCall, _: CallPermit) -> Result<(), ApiError> {
        state::set_state(run, call.scope, &JsonObject::from_iter([(call.key, call.value)])).await
    }
}

impl MethodHandler for StateList {
    fn permission(_: &Run, call: &StateListCall) -> RequiredPermission {
        RequiredPermission::State(call.scope)
    }

    fn payload(_: &Run, call: &StateListCall) -> PayloadSize {
        PayloadSize::Arguments(optional_text_size(call.cursor.as_deref()) + text_size(&call.prefix))
    }

    async fn handle(run: &Arc<Run>, call: StateListCall, _: CallPermit) -> Result<CursorPage<StateEntry>, ApiError> {
        let namespace = readable_namespace(run, call.scope).await?;
        let list = PagedList { method: ApiMethod::StateList, list_key: &namespace };
        let page = match call.prefix.as_str() {
            "" => paging::list_entries(run, &list, call.cursor.as_deref(), call.limit).await?,
            prefix => paging::list_with_prefix(run, &list, call.cursor.as_deref(), call.limit, prefix).await?,
        };
        let to_entry = |record: KeyValueRecord| StateEntry { key: record.key, value: record.value, at: record.at };
        Ok(CursorPage { items: page.items.into_iter().map(to_entry).collect(), next: page.next })
    }
}

impl MethodHandler for StateDelete {
    fn permission(_: &Run, call: &StateKeyCall) -> RequiredPermission {
        RequiredPermission::State(call.scope)
    }

    fn payload(_: &Run, call: &StateKeyCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.key))
    }

    async fn handle(run: &Arc<Run>, call: StateKeyCall, _: CallPermit) -> Result<bool, ApiError> {
        let was_set = read_value(run, &call).await?.is_some();
        if was_set {
            state::set_state(run, call.scope, &JsonObject::from_iter([(call.key, Value::Null)])).await?;
        }
        Ok(was_set)
    }
}

async fn read_value(run: &Run, call: &StateKeyCall) -> Result<Option<Value>, ApiError> {
    let namespace = readable_namespace(run, call.scope).await?;
    let record = run.environment.tapes.store().key_value(&namespace, &call.key).await;
    Ok(record.map_err(|error| store_api_error(&error))?.map(|record| record.value))
}

/// Namespace of a scope, with the run's own pending changes committed. Other pending writes stay pending.
async fn readable_namespace(run: &Run, scope: StateScope) -> Result<String, ApiError> {
    let namespace = state::granted_namespace(run, scope)?;
    if run.journal.has_pending_change(&namespace) {
        run.journal.flush().await.map_err(|error| store_api_error(&error))?;
    }
    Ok(namespace)
}

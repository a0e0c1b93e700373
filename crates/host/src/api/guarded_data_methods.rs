//! What each method of what is kept, looked up and reached outside is called, what it needs, and how large what it was
//! given is.

use async_trait::async_trait;
use capstan_hooks::contracts::{
    ApiMethod as M, CursorPage, EventRecord, EventsApi, HistoryApi, HistoryMessage, KnowledgeApi, KnowledgeBase,
    PageRequest, PlatformApi, RetrieveCall, RetrievedPage, StateApi, StateEntry, StorageApi, StorageEntry,
};
use capstan_protocol::{
    ActionRequest, ApiError, EventId, EventOperation, HistoryOperation, KnowledgeOperation, ReadScope, SessionId,
    StateScope, StorageArea,
};
use capstan_tape::EventLogRecord;
use serde_json::Value;

use super::guard::{CallRequest, GuardedApi};
use super::payload_size::{json_size, text_size};
use super::required_permission::RequiredPermission;

#[async_trait]
impl<G: StateApi> StateApi for GuardedApi<G> {
    async fn get(&self, scope: StateScope, key: &str) -> Result<Option<Value>, ApiError> {
        let ask = CallRequest::new(M::StateGet, RequiredPermission::State(scope)).with_payload(text_size(key));
        self.call_guarded(ask, self.inner.get(scope, key)).await
    }

    async fn set(&self, scope: StateScope, key: &str, value: Value) -> Result<(), ApiError> {
        let ask = CallRequest::new(M::StateSet, RequiredPermission::State(scope))
            .with_payload(text_size(key) + json_size(&value));
        self.call_guarded(ask, self.inner.set(scope, key, value)).await
    }

    async fn list(
        &self,
        scope: StateScope,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<CursorPage<StateEntry>, ApiError> {
        let ask = CallRequest::new(M::StateList, RequiredPermission::State(scope)).with_payload(cursor_size(cursor));
        self.call_guarded(ask, self.inner.list(scope, cursor, limit)).await
    }

    async fn delete(&self, scope: StateScope, key: &str) -> Result<bool, ApiError> {
        let ask = CallRequest::new(M::StateDelete, RequiredPermission::State(scope)).with_payload(text_size(key));
        self.call_guarded(ask, self.inner.delete(scope, key)).await
    }
}

#[async_trait]
impl<G: StorageApi> StorageApi for GuardedApi<G> {
    async fn put(&self, area: StorageArea, name: &str, content: Vec<u8>) -> Result<StorageEntry, ApiError> {
        let bytes = text_size(name) + content.len() as u64;
        let ask = CallRequest::new(M::StoragePut, RequiredPermission::Storage(area)).with_payload(bytes);
        self.call_guarded(ask, self.inner.put(area, name, content)).await
    }

    async fn get(&self, area: StorageArea, name: &str) -> Result<Vec<u8>, ApiError> {
        let ask = CallRequest::new(M::StorageGet, RequiredPermission::Storage(area)).with_payload(text_size(name));
        self.call_guarded(ask, self.inner.get(area, name)).await
    }

    async fn list(
        &self,
        area: StorageArea,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<CursorPage<StorageEntry>, ApiError> {
        let ask = CallRequest::new(M::StorageList, RequiredPermission::Storage(area)).with_payload(cursor_size(cursor));
        self.call_guarded(ask, self.inner.list(area, cursor, limit)).await
    }

    async fn delete(&self, area: StorageArea, name: &str) -> Result<bool, ApiError> {
        let ask = CallRequest::new(M::StorageDelete, RequiredPermission::Storage(area)).with_payload(text_size(name));
        self.call_guarded(ask, self.inner.delete(area, name)).await
    }
}

impl<G> GuardedApi<G> {
    /// How far asking about a session reaches.
    fn required_reach(&self, session: Option<&SessionId>) -> ReadScope {
        match session {
            Some(session) if *session != self.run.context.conversation.session_id => ReadScope::Workspace,
            _ => ReadScope::Conversation,
        }
    }
}

#[async_trait]
impl<G: HistoryApi> HistoryApi for GuardedApi<G> {
    async fn page(&self, call: PageRequest) -> Result<CursorPage<HistoryMessage>, ApiError> {
        let needs = RequiredPermission::History(HistoryOperation::Page, self.required_reach(call.session.as_ref()));
        self.call_guarded(
            CallRequest::new(M::HistoryPage, needs).with_payload(page_call_size(&call)),
            self.inner.page(call),
        )
        .await
    }

    async fn search(
        &self,
        session: Option<SessionId>,
        text: &str,
        limit: usize,
    ) -> Result<Vec<HistoryMessage>, ApiError> {
        let needs = RequiredPermission::History(HistoryOperation::Search, self.required_reach(session.as_ref()));
        let ask = CallRequest::new(M::HistorySearch, needs).with_payload(text_size(text));
        self.call_guarded(ask, self.inner.search(session, text, limit)).await
    }
}

#[async_trait]
impl<G: EventsApi> EventsApi for GuardedApi<G> {
    async fn get(&self, id: &EventId) -> Result<EventRecord, ApiError> {
        let ask =
            CallRequest::new(M::EventsGet, RequiredPermission::Events(EventOperation::Get, ReadScope::Conversation));
        self.call_guarded(ask.with_payload(text_size(id.as_str())), self.inner.get(id)).await
    }

    async fn page(&self, call: PageRequest) -> Result<CursorPage<EventLogRecord>, ApiError> {
        let needs = RequiredPermission::Events(EventOperation::Page, self.required_reach(call.session.as_ref()));
        self.call_guarded(
            CallRequest::new(M::EventsPage, needs).with_payload(page_call_size(&call)),
            self.inner.page(call),
        )
        .await
    }
}

#[async_trait]
impl<G: KnowledgeApi> KnowledgeApi for GuardedApi<G> {
    async fn list(&self) -> Result<Vec<KnowledgeBase>, ApiError> {
        self.call_guarded(
            CallRequest::new(M::KnowledgeList, RequiredPermission::AnyKnowledge(KnowledgeOperation::List)),
            self.inner.list(),
        )
        .await
    }

    async fn retrieve(&self, call: RetrieveCall) -> Result<RetrievedPage, ApiError> {
        let bytes = text_size(&call.base) + text_size(&call.question) + cursor_size(call.cursor.as_deref());
        let needs = RequiredPermission::Knowledge(KnowledgeOperation::Retrieve, call.base.clone());
        self.call_guarded(CallRequest::new(M::KnowledgeRetrieve, needs).with_payload(bytes), self.inner.retrieve(call))
            .await
    }
}

#[async_trait]
impl<G: PlatformApi> PlatformApi for GuardedApi<G> {
    async fn call(&self, request: ActionRequest) -> Result<Value, ApiError> {
        let bytes = text_size(&request.action) + json_size(&request.arguments);
        let needs = RequiredPermission::Platform(request.action.clone(), self.run.action_denial(&request.action));
        let ask = CallRequest::new(M::PlatformCall, needs).with_payload(bytes);
        self.call_guarded(ask, self.inner.call(request)).await
    }
}

fn cursor_size(cursor: Option<&str>) -> u64 {
    cursor.map_or(0, text_size)
}

fn page_call_size(call: &PageRequest) -> u64 {
    cursor_size(call.cursor.as_deref()) + call.session.as_ref().map_or(0, |session| text_size(session.as_str()))
}

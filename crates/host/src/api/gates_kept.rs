//! What each method of what is kept, looked up and reached outside is called, what it needs, and how large what it was
//! given is.

use async_trait::async_trait;
use capstan_hooks::contracts::{
    ApiMethod as M, EventRecord, EventsApi, HistoryApi, KeptValue, KnowledgeApi, KnowledgeBase, Page, PageCall,
    PlatformApi, RetrieveCall, RetrievedPage, Said, StateApi, StorageApi, Stored,
};
use capstan_protocol::{
    ActionRequest, ApiError, EventId, EventUse, HistoryUse, KnowledgeUse, Reach, SessionId, StateScope, StorageArea,
};
use capstan_tape::Logged;
use serde_json::Value;

use super::guarded::{Ask, Guarded};
use super::needs::Needs;
use super::size::{of_json, of_text};

#[async_trait]
impl<G: StateApi> StateApi for Guarded<G> {
    async fn get(&self, scope: StateScope, key: &str) -> Result<Option<Value>, ApiError> {
        let ask = Ask::new(M::StateGet, Needs::State(scope)).carrying(of_text(key));
        self.pass(ask, self.group.get(scope, key)).await
    }

    async fn set(&self, scope: StateScope, key: &str, value: Value) -> Result<(), ApiError> {
        let ask = Ask::new(M::StateSet, Needs::State(scope)).carrying(of_text(key) + of_json(&value));
        self.pass(ask, self.group.set(scope, key, value)).await
    }

    async fn list(&self, scope: StateScope, cursor: Option<&str>, limit: usize) -> Result<Page<KeptValue>, ApiError> {
        let ask = Ask::new(M::StateList, Needs::State(scope)).carrying(of_cursor(cursor));
        self.pass(ask, self.group.list(scope, cursor, limit)).await
    }

    async fn delete(&self, scope: StateScope, key: &str) -> Result<bool, ApiError> {
        let ask = Ask::new(M::StateDelete, Needs::State(scope)).carrying(of_text(key));
        self.pass(ask, self.group.delete(scope, key)).await
    }
}

#[async_trait]
impl<G: StorageApi> StorageApi for Guarded<G> {
    async fn put(&self, area: StorageArea, name: &str, content: Vec<u8>) -> Result<Stored, ApiError> {
        let bytes = of_text(name) + content.len() as u64;
        let ask = Ask::new(M::StoragePut, Needs::Storage(area)).carrying(bytes);
        self.pass(ask, self.group.put(area, name, content)).await
    }

    async fn get(&self, area: StorageArea, name: &str) -> Result<Vec<u8>, ApiError> {
        let ask = Ask::new(M::StorageGet, Needs::Storage(area)).carrying(of_text(name));
        self.pass(ask, self.group.get(area, name)).await
    }

    async fn list(&self, area: StorageArea, cursor: Option<&str>, limit: usize) -> Result<Page<Stored>, ApiError> {
        let ask = Ask::new(M::StorageList, Needs::Storage(area)).carrying(of_cursor(cursor));
        self.pass(ask, self.group.list(area, cursor, limit)).await
    }

    async fn delete(&self, area: StorageArea, name: &str) -> Result<bool, ApiError> {
        let ask = Ask::new(M::StorageDelete, Needs::Storage(area)).carrying(of_text(name));
        self.pass(ask, self.group.delete(area, name)).await
    }
}

impl<G> Guarded<G> {
    /// How far asking about a session reaches.
    fn reach(&self, session: Option<&SessionId>) -> Reach {
        match session {
            Some(session) if *session != self.run.context.conversation.session_id => Reach::Workspace,
            _ => Reach::Conversation,
        }
    }
}

#[async_trait]
impl<G: HistoryApi> HistoryApi for Guarded<G> {
    async fn page(&self, call: PageCall) -> Result<Page<Said>, ApiError> {
        let needs = Needs::History(HistoryUse::Page, self.reach(call.session.as_ref()));
        self.pass(Ask::new(M::HistoryPage, needs).carrying(of_page_call(&call)), self.group.page(call)).await
    }

    async fn search(&self, session: Option<SessionId>, text: &str, limit: usize) -> Result<Vec<Said>, ApiError> {
        let needs = Needs::History(HistoryUse::Search, self.reach(session.as_ref()));
        let ask = Ask::new(M::HistorySearch, needs).carrying(of_text(text));
        self.pass(ask, self.group.search(session, text, limit)).await
    }
}

#[async_trait]
impl<G: EventsApi> EventsApi for Guarded<G> {
    async fn get(&self, id: &EventId) -> Result<EventRecord, ApiError> {
        let ask = Ask::new(M::EventsGet, Needs::Events(EventUse::Get, Reach::Conversation));
        self.pass(ask.carrying(of_text(id.as_str())), self.group.get(id)).await
    }

    async fn page(&self, call: PageCall) -> Result<Page<Logged>, ApiError> {
        let needs = Needs::Events(EventUse::Page, self.reach(call.session.as_ref()));
        self.pass(Ask::new(M::EventsPage, needs).carrying(of_page_call(&call)), self.group.page(call)).await
    }
}

#[async_trait]
impl<G: KnowledgeApi> KnowledgeApi for Guarded<G> {
    async fn list(&self) -> Result<Vec<KnowledgeBase>, ApiError> {
        self.pass(Ask::new(M::KnowledgeList, Needs::AnyKnowledge(KnowledgeUse::List)), self.group.list()).await
    }

    async fn retrieve(&self, call: RetrieveCall) -> Result<RetrievedPage, ApiError> {
        let bytes = of_text(&call.base) + of_text(&call.question) + of_cursor(call.cursor.as_deref());
        let needs = Needs::Knowledge(KnowledgeUse::Retrieve, call.base.clone());
        self.pass(Ask::new(M::KnowledgeRetrieve, needs).carrying(bytes), self.group.retrieve(call)).await
    }
}

#[async_trait]
impl<G: PlatformApi> PlatformApi for Guarded<G> {
    async fn call(&self, request: ActionRequest) -> Result<Value, ApiError> {
        let bytes = of_text(&request.action) + of_json(&request.arguments);
        let needs = Needs::Platform(request.action.clone(), self.run.withholds_action(&request.action));
        let ask = Ask::new(M::PlatformCall, needs).carrying(bytes);
        self.pass(ask, self.group.call(request)).await
    }
}

fn of_cursor(cursor: Option<&str>) -> u64 {
    cursor.map_or(0, of_text)
}

fn of_page_call(call: &PageCall) -> u64 {
    of_cursor(call.cursor.as_deref()) + call.session.as_ref().map_or(0, |session| of_text(session.as_str()))
}

//! Permission that a call needs of the grant.

use capstan_protocol::{
    ApiError, ArtifactOperation, EventOperation, HistoryOperation, KnowledgeOperation, ModelOperation, PermissionSet,
    ReadScope, StateScope, StorageArea, TapeAccess, ToolOperation,
};
use serde_json::json;

use super::unauthorized_error;
use crate::action_registry::ActionDenial;

/// Permission that a call needs of the grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequiredPermission {
    /// None: the answer is limited to what the grant covers.
    Nothing,
    /// An operation on this model.
    Model(ModelOperation, String),
    /// An operation on any model.
    AnyModel(ModelOperation),
    /// An operation on this tool.
    Tool(ToolOperation, String),
    /// An operation on any tool. Each call is checked when it is made, and its refusal told to the model in words.
    AnyTool(ToolOperation),
    /// An operation on this knowledge base.
    Knowledge(KnowledgeOperation, String),
    /// An operation on any knowledge base.
    AnyKnowledge(KnowledgeOperation),
    /// The history of its own session, or of any.
    History(HistoryOperation, ReadScope),
    /// The events of its own session, or of any.
    Events(EventOperation, ReadScope),
    /// Artifacts.
    Artifacts(ArtifactOperation),
    /// State.
    State(StateScope),
    /// Storage.
    Storage(StorageArea),
    /// An action on the platform, and the reason of its denial, if it is denied.
    Platform(String, Option<ActionDenial>),
    /// The tape.
    Tape(TapeAccess),
    /// The host's prompts.
    Prompt,
    /// Child runs.
    Children,
    /// Messages that arrive during the run.
    Steering,
}

impl RequiredPermission {
    /// Refuses a permission that the set does not cover.
    pub(super) fn check(&self, may: &PermissionSet) -> Result<(), ApiError> {
        let (is_covered, what) = match self {
            Self::Nothing => return Ok(()),
            Self::Model(what, name) => (may.models.allows(*what, name), format!("{} of model {name}", json!(what))),
            Self::AnyModel(what) => (may.models.allows_any(*what), format!("{} of models", json!(what))),
            Self::Tool(what, name) => (may.tools.allows(*what, name), format!("tool {name}")),
            Self::AnyTool(what) => (may.tools.allows_any(*what), format!("{} of tools", json!(what))),
            Self::Knowledge(what, base) => (may.knowledge_bases.allows(*what, base), format!("knowledge base {base}")),
            Self::AnyKnowledge(what) => (may.knowledge_bases.allows_any(*what), "knowledge bases".to_owned()),
            Self::History(what, reach) => (
                may.history.contains(what) && may.reach >= *reach,
                format!("{} of the history of {}", json!(what), reach_label(*reach)),
            ),
            Self::Events(what, reach) => (
                may.events.contains(what) && may.reach >= *reach,
                format!("{} of the events of {}", json!(what), reach_label(*reach)),
            ),
            Self::Artifacts(what) => (may.artifacts.contains(what), format!("{} of artifacts", json!(what))),
            Self::State(scope) => (may.state.contains(scope), format!("state of scope {}", json!(scope))),
            Self::Storage(area) => (may.storage.contains(area), format!("storage of {}", json!(area))),
            Self::Platform(action, denial) => {
                let why = denial.as_ref().map(|denial| format!(": {denial}")).unwrap_or_default();
                (may.platform_api.allows(action), format!("the action {action}{why}"))
            }
            Self::Tape(access) => (may.tape >= *access, "the tape".to_owned()),
            Self::Prompt => (may.prompt, "the host's prompts".to_owned()),
            Self::Children => (may.children, "child runs".to_owned()),
            Self::Steering => (may.steering, "messages that come meanwhile".to_owned()),
        };
        if is_covered { Ok(()) } else { Err(unauthorized_error(&what)) }
    }
}

fn reach_label(reach: ReadScope) -> &'static str {
    match reach {
        ReadScope::Conversation => "this conversation",
        ReadScope::Workspace => "another conversation",
    }
}

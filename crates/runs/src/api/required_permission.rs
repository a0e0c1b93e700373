//! Permission that a call requires in the grant.

use capstan_protocol::{
    ApiError, ArtifactOperation, EventOperation, HistoryOperation, KnowledgeOperation, ModelOperation, PermissionSet,
    ReadScope, StateScope, StorageArea, TapeAccess, ToolOperation,
};
use serde_json::json;

use super::unauthorized_error;
use crate::action_registry::ActionDenial;

/// Permission that a call requires in the grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequiredPermission {
    /// No permission: the response is limited to what the grant covers.
    Nothing,
    /// An operation on this model.
    Model(ModelOperation, String),
    /// An operation on any model.
    AnyModel(ModelOperation),
    /// An operation on this tool.
    Tool(ToolOperation, String),
    /// An operation on any tool. Each call of the step is checked separately, and a refusal is an output for the model.
    AnyTool(ToolOperation),
    /// An operation on this knowledge base.
    Knowledge(KnowledgeOperation, String),
    /// An operation on any knowledge base.
    AnyKnowledge(KnowledgeOperation),
    /// The history of the run's own session, or of any.
    History(HistoryOperation, ReadScope),
    /// The events of the run's own session, or of any.
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
    pub(super) fn check(&self, granted: &PermissionSet) -> Result<(), ApiError> {
        let (is_covered, what) = match self {
            Self::Nothing => return Ok(()),
            Self::Model(operation, name) => {
                (granted.models.allows(*operation, name), format!("{} of model {name}", json!(operation)))
            }
            Self::AnyModel(operation) => {
                (granted.models.allows_any(*operation), format!("{} of models", json!(operation)))
            }
            Self::Tool(operation, name) => (granted.tools.allows(*operation, name), format!("tool {name}")),
            Self::AnyTool(operation) => {
                (granted.tools.allows_any(*operation), format!("{} of tools", json!(operation)))
            }
            Self::Knowledge(operation, base) => {
                (granted.knowledge_bases.allows(*operation, base), format!("knowledge base {base}"))
            }
            Self::AnyKnowledge(operation) => {
                (granted.knowledge_bases.allows_any(*operation), "knowledge bases".to_owned())
            }
            Self::History(operation, reach) => (
                granted.history.contains(operation) && granted.reach >= *reach,
                format!("{} of the history of {}", json!(operation), reach_label(*reach)),
            ),
            Self::Events(operation, reach) => (
                granted.events.contains(operation) && granted.reach >= *reach,
                format!("{} of the events of {}", json!(operation), reach_label(*reach)),
            ),
            Self::Artifacts(operation) => {
                (granted.artifacts.contains(operation), format!("{} of artifacts", json!(operation)))
            }
            Self::State(scope) => (granted.state.contains(scope), format!("state of scope {}", json!(scope))),
            Self::Storage(area) => (granted.storage.contains(area), format!("storage of {}", json!(area))),
            Self::Platform(action, denial) => {
                let reason = denial.as_ref().map(|denial| format!(": {denial}")).unwrap_or_default();
                (granted.platform_api.allows(action), format!("the action {action}{reason}"))
            }
            Self::Tape(access) => (granted.tape >= *access, "the tape".to_owned()),
            Self::Prompt => (granted.prompt, "the host's prompts".to_owned()),
            Self::Children => (granted.children, "child runs".to_owned()),
            Self::Steering => (granted.steering, "messages that arrive during the run".to_owned()),
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

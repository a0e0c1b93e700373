//! Permissions: the resources that a run can use, and the operations on them.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{AllowList, OperationSet, ResourceOperation, TapeAccess};

/// Declares the operations on a kind of resource.
macro_rules! operations {
    ($(#[$docs:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$docs])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$doc])* $variant),+
        }

        impl ResourceOperation for $name {
            const VARIANTS: &'static [Self] = &[$(Self::$variant),+];

            fn bit_index(self) -> u8 {
                self as u8
            }
        }
    };
}

operations! {
    /// Operation on a model.
    ModelOperation {
        /// Call the model and wait for the complete answer.
        Invoke,
        /// Call the model and stream the answer.
        Stream,
        /// Rank texts by relevance.
        Rerank,
        /// Count tokens.
        CountTokens,
    }
}

operations! {
    /// Operation on a tool.
    ToolOperation {
        /// Read the description and schema of the tool.
        Detail,
        /// Call the tool.
        Call,
    }
}

operations! {
    /// Operation on a knowledge base.
    KnowledgeOperation {
        /// List the knowledge base.
        List,
        /// Query the knowledge base.
        Retrieve,
    }
}

operations! {
    /// Operation on the history of a conversation.
    HistoryOperation {
        /// Read page by page.
        Page,
        /// Search for a text.
        Search,
    }
}

operations! {
    /// Operation on the event log.
    EventOperation {
        /// Read one event.
        Get,
        /// Read page by page.
        Page,
    }
}

operations! {
    /// Operation on artifacts.
    ArtifactOperation {
        /// Read the description of an artifact.
        Metadata,
        /// Read the content of an artifact.
        Read,
        /// Create an artifact.
        Create,
    }
}

operations! {
    /// Scope of a runner's stored state. Runners do not share state.
    StateScope {
        /// The conversation.
        Conversation,
        /// The actor of the event.
        Actor,
        /// The subject of the event.
        Subject,
        /// The binding.
        Binding,
        /// The runner itself, across all bindings.
        Runner,
        /// The workspace.
        Workspace,
    }
}

operations! {
    /// Area in which a runner stores content by name.
    StorageArea {
        /// The plugin of the runner.
        Plugin,
        /// The workspace, shared by all runners.
        Workspace,
        /// The binding.
        Binding,
    }
}

/// Range of history and events that a run may read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadScope {
    /// The current conversation.
    #[default]
    Conversation,
    /// All conversations of the workspace.
    Workspace,
}

/// Allowed resources of a kind, and the allowed operations on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "ResourceAccessForm<O>", bound(deserialize = "O: ResourceOperation + Deserialize<'de>"))]
#[schemars(rename = "{O}Access")]
pub struct ResourceAccess<O: ResourceOperation> {
    /// Allowed resources.
    pub names: AllowList,
    /// Allowed operations.
    pub operations: OperationSet<O>,
}

/// Accepted forms of [`ResourceAccess`]: `["invoke"]` means all names; `"all"` and `{"only": [..]}` mean all
/// operations.
#[derive(Deserialize, JsonSchema)]
#[serde(
    untagged,
    bound(deserialize = "O: ResourceOperation + Deserialize<'de>"),
    expecting = "expected a list of operations, \"all\", { only = [NAMES] } or { names = .., operations = [..] }"
)]
#[schemars(rename = "{O}AccessForm")]
enum ResourceAccessForm<O: ResourceOperation> {
    Operations(OperationSet<O>),
    Names(AllowList),
    Whole(ResourceAccessFields<O>),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, bound(deserialize = "O: ResourceOperation + Deserialize<'de>"))]
#[schemars(rename = "{O}AccessFields")]
struct ResourceAccessFields<O: ResourceOperation> {
    names: Option<AllowList>,
    operations: Option<OperationSet<O>>,
}

impl<O: ResourceOperation> From<ResourceAccessForm<O>> for ResourceAccess<O> {
    fn from(form: ResourceAccessForm<O>) -> Self {
        match form {
            ResourceAccessForm::Operations(operations) => Self { names: AllowList::All, operations },
            ResourceAccessForm::Names(names) => Self { names, operations: OperationSet::all() },
            ResourceAccessForm::Whole(ResourceAccessFields { names, operations }) => Self {
                names: names.unwrap_or(AllowList::All),
                operations: operations.unwrap_or_else(OperationSet::all),
            },
        }
    }
}

impl<O: ResourceOperation> ResourceAccess<O> {
    /// All operations on all resources.
    pub fn all() -> Self {
        Self { names: AllowList::All, operations: OperationSet::all() }
    }

    /// No operation on any resource.
    pub fn none() -> Self {
        Self { names: AllowList::none(), operations: OperationSet::none() }
    }

    /// All operations on the named resources.
    pub fn only<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self { names: AllowList::only(names), operations: OperationSet::all() }
    }

    /// Returns true if the operation on the named resource is allowed.
    pub fn allows(&self, operation: O, name: &str) -> bool {
        self.operations.contains(&operation) && self.names.allows(name)
    }

    /// Returns true if the operation is allowed on at least one resource.
    pub fn allows_any(&self, operation: O) -> bool {
        self.operations.contains(&operation) && self.names != AllowList::none()
    }

    /// Permissions that both allow.
    pub fn intersect(&self, other: &Self) -> Self {
        Self { names: self.names.intersect(&other.names), operations: self.operations & other.operations }
    }
}

/// Set of permissions: those that a runner requests, those that a binding allows, or those that a run has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PermissionSet {
    /// Models, by `provider:name`.
    pub models: ResourceAccess<ModelOperation>,
    /// Tools, by name.
    pub tools: ResourceAccess<ToolOperation>,
    /// Knowledge bases, by id.
    pub knowledge_bases: ResourceAccess<KnowledgeOperation>,
    /// Conversation history.
    pub history: OperationSet<HistoryOperation>,
    /// Event log.
    pub events: OperationSet<EventOperation>,
    /// Range of history and events.
    pub reach: ReadScope,
    /// Artifacts of the session.
    #[serde(deserialize_with = "list_or_bool")]
    pub artifacts: OperationSet<ArtifactOperation>,
    /// State stored by the host.
    pub state: OperationSet<StateScope>,
    /// Content stored by the host.
    pub storage: OperationSet<StorageArea>,
    /// Platform actions, by name.
    pub platform_api: AllowList,
    /// Tape of the session.
    pub tape: TapeAccess,
    /// System prompt and continuation prompt of the host, and the prompt built from the event.
    pub prompt: bool,
    /// Child runs.
    pub children: bool,
    /// Messages that arrive during the run.
    pub steering: bool,
}

impl Default for PermissionSet {
    fn default() -> Self {
        Self::none()
    }
}

impl PermissionSet {
    /// Empty set.
    pub fn none() -> Self {
        Self {
            models: ResourceAccess::none(),
            tools: ResourceAccess::none(),
            knowledge_bases: ResourceAccess::none(),
            history: OperationSet::none(),
            events: OperationSet::none(),
            reach: ReadScope::Conversation,
            artifacts: OperationSet::none(),
            state: OperationSet::none(),
            storage: OperationSet::none(),
            platform_api: AllowList::none(),
            tape: TapeAccess::None,
            prompt: false,
            children: false,
            steering: false,
        }
    }

    /// Set of all permissions.
    pub fn all() -> Self {
        Self {
            models: ResourceAccess::all(),
            tools: ResourceAccess::all(),
            knowledge_bases: ResourceAccess::all(),
            history: OperationSet::all(),
            events: OperationSet::all(),
            reach: ReadScope::Workspace,
            artifacts: OperationSet::all(),
            state: OperationSet::all(),
            storage: OperationSet::all(),
            platform_api: AllowList::All,
            tape: TapeAccess::Write,
            prompt: true,
            children: true,
            steering: true,
        }
    }

    /// Permissions that both allow.
    pub fn intersect(&self, other: &Self) -> Self {
        Self {
            models: self.models.intersect(&other.models),
            tools: self.tools.intersect(&other.tools),
            knowledge_bases: self.knowledge_bases.intersect(&other.knowledge_bases),
            history: self.history & other.history,
            events: self.events & other.events,
            reach: self.reach.min(other.reach),
            artifacts: self.artifacts & other.artifacts,
            state: self.state & other.state,
            storage: self.storage & other.storage,
            platform_api: self.platform_api.intersect(&other.platform_api),
            tape: self.tape.min(other.tape),
            prompt: self.prompt && other.prompt,
            children: self.children && other.children,
            steering: self.steering && other.steering,
        }
    }
}

/// Reads a list of operations. Older records have `true` for all operations and `false` for none.
fn list_or_bool<'de, D, O>(deserializer: D) -> Result<OperationSet<O>, D::Error>
where
    D: Deserializer<'de>,
    O: ResourceOperation + Deserialize<'de>,
{
    #[derive(Deserialize)]
    #[serde(
        untagged,
        bound(deserialize = "O: ResourceOperation + Deserialize<'de>"),
        expecting = "expected a list of operations, true or false"
    )]
    enum OperationSetForm<O: ResourceOperation> {
        All(bool),
        List(OperationSet<O>),
    }
    Ok(match OperationSetForm::deserialize(deserializer)? {
        OperationSetForm::All(true) => OperationSet::all(),
        OperationSetForm::All(false) => OperationSet::none(),
        OperationSetForm::List(operations) => operations,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ModelOperation, PermissionSet, ResourceAccess, ToolOperation};
    use crate::AllowList;

    #[test]
    fn k03_resource_access_is_read_from_operations_names_or_both() {
        let read = |value| serde_json::from_value::<ResourceAccess<ModelOperation>>(value).unwrap();
        let operations = [ModelOperation::Invoke, ModelOperation::Stream].into_iter().collect();
        assert_eq!(read(json!(["invoke", "stream"])), ResourceAccess { names: AllowList::All, operations });
        assert_eq!(read(json!("all")), ResourceAccess::all());
        assert_eq!(read(json!({"only": ["a:b"]})), ResourceAccess::only(["a:b"]));
        assert_eq!(read(json!({"names": {"only": ["a:b"]}})), ResourceAccess::only(["a:b"]));
        assert!(!read(json!([])).allows(ModelOperation::Invoke, "a:b"));
        for invalid in [json!(["dance"]), json!({"oparations": []}), json!(true), json!({"names": "some"})] {
            assert!(serde_json::from_value::<ResourceAccess<ModelOperation>>(invalid).is_err());
        }
    }

    #[test]
    fn k03_permission_set_round_trips_and_absent_fields_allow_nothing() {
        for permissions in [PermissionSet::none(), PermissionSet::all()] {
            let json = serde_json::to_value(&permissions).unwrap();
            assert_eq!(serde_json::from_value::<PermissionSet>(json).unwrap(), permissions);
        }
        assert_eq!(serde_json::from_value::<PermissionSet>(json!({})).unwrap(), PermissionSet::none());
        let old =
            json!({"models": "all", "tools": {"only": ["bash"]}, "tape": "read", "prompt": true, "artifacts": true});
        let old: PermissionSet = serde_json::from_value(old).unwrap();
        assert!(old.tools.allows(ToolOperation::Call, "bash") && old.artifacts.len() == 3);
    }
}

//! What there is to be allowed: every resource a run can reach, and what can be done with it.

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
    /// What can be done with a model.
    ModelOperation {
        /// Ask it and wait for the whole answer.
        Invoke,
        /// Ask it and read the answer as it comes.
        Stream,
        /// Have it order texts by how well they fit.
        Rerank,
        /// Count tokens.
        CountTokens,
    }
}

operations! {
    /// What can be done with a tool.
    ToolOperation {
        /// Read its description and schema.
        Detail,
        /// Call it.
        Call,
    }
}

operations! {
    /// What can be done with a knowledge base.
    KnowledgeOperation {
        /// See that it is there.
        List,
        /// Ask it.
        Retrieve,
    }
}

operations! {
    /// What can be done with the history of a conversation.
    HistoryOperation {
        /// Read it page by page.
        Page,
        /// Search it.
        Search,
    }
}

operations! {
    /// What can be done with the log of events.
    EventOperation {
        /// Read one event.
        Get,
        /// Read it page by page.
        Page,
    }
}

operations! {
    /// What can be done with artifacts.
    ArtifactOperation {
        /// Read what is known about one.
        Metadata,
        /// Read its content.
        Read,
        /// Make one.
        Create,
    }
}

operations! {
    /// For whom a runner keeps state. Each runner has its own.
    StateScope {
        /// The conversation.
        Conversation,
        /// Whoever did what the event tells.
        Actor,
        /// What it was done to.
        Subject,
        /// The binding.
        Binding,
        /// The runner itself, whatever binding it serves.
        Runner,
        /// The workspace.
        Workspace,
    }
}

operations! {
    /// Where a runner keeps contents under names.
    StorageArea {
        /// The plugin it belongs to.
        Plugin,
        /// The workspace, which all runners share.
        Workspace,
        /// The binding.
        Binding,
    }
}

/// How far reading history and events goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadScope {
    /// The current conversation.
    #[default]
    Conversation,
    /// Every conversation of the workspace.
    Workspace,
}

/// Some resources of a kind, and what can be done with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "ResourceAccessForm<O>", bound(deserialize = "O: ResourceOperation + Deserialize<'de>"))]
#[schemars(rename = "{O}Access")]
pub struct ResourceAccess<O: ResourceOperation> {
    /// Which of them.
    pub names: AllowList,
    /// What can be done with those.
    pub operations: OperationSet<O>,
}

/// The forms in which [`Uses`] may be written: `["invoke"]` means all names, `"all"` and `{"only": [..]}` all operations.
#[derive(Deserialize, JsonSchema)]
#[serde(
    untagged,
    bound(deserialize = "O: ResourceOperation + Deserialize<'de>"),
    expecting = "this is none of: a list of operations; \"all\"; { only = [NAMES] }; { names = .., operations = [..] }"
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
    /// Everything with all of them.
    pub fn all() -> Self {
        Self { names: AllowList::All, operations: OperationSet::all() }
    }

    /// Nothing with any of them.
    pub fn none() -> Self {
        Self { names: AllowList::none(), operations: OperationSet::none() }
    }

    /// Everything with these and no others.
    pub fn only<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self { names: AllowList::only(names), operations: OperationSet::all() }
    }

    /// Whether this can be done with this one.
    pub fn allows(&self, operation: O, name: &str) -> bool {
        self.operations.contains(&operation) && self.names.allows(name)
    }

    /// Whether this can be done with any of them.
    pub fn allows_any(&self, operation: O) -> bool {
        self.operations.contains(&operation) && self.names != AllowList::none()
    }

    /// What both allow.
    pub fn intersect(&self, other: &Self) -> Self {
        Self { names: self.names.intersect(&other.names), operations: self.operations & other.operations }
    }
}

/// Everything that can be allowed. A runner asks for some of it, a binding allows some of it, a run has some of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PermissionSet {
    /// Models, by `provider:name`.
    pub models: ResourceAccess<ModelOperation>,
    /// Tools, by name.
    pub tools: ResourceAccess<ToolOperation>,
    /// Knowledge bases, by id.
    pub knowledge_bases: ResourceAccess<KnowledgeOperation>,
    /// The history of conversations.
    pub history: OperationSet<HistoryOperation>,
    /// The log of events.
    pub events: OperationSet<EventOperation>,
    /// How far history and events reach.
    pub reach: ReadScope,
    /// The artifacts of the session.
    #[serde(deserialize_with = "all_or_these")]
    pub artifacts: OperationSet<ArtifactOperation>,
    /// State kept by the host.
    pub state: OperationSet<StateScope>,
    /// Contents kept by the host.
    pub storage: OperationSet<StorageArea>,
    /// Actions on the platform, by name.
    pub platform_api: AllowList,
    /// The session's tape.
    pub tape: TapeAccess,
    /// The host's system prompt and continuation prompt.
    pub prompt: bool,
    /// Child runs.
    pub children: bool,
    /// Messages that come while the run goes on.
    pub steering: bool,
}

impl Default for PermissionSet {
    fn default() -> Self {
        Self::none()
    }
}

impl PermissionSet {
    /// Nothing at all.
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

    /// Everything there is.
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

    /// What both allow.
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

/// Operations as a list; a plain `true` or `false`, as older records have it, is all or none.
fn all_or_these<'de, D, O>(deserializer: D) -> Result<OperationSet<O>, D::Error>
where
    D: Deserializer<'de>,
    O: ResourceOperation + Deserialize<'de>,
{
    #[derive(Deserialize)]
    #[serde(
        untagged,
        bound(deserialize = "O: ResourceOperation + Deserialize<'de>"),
        expecting = "this is neither a list of operations nor true or false"
    )]
    enum OperationSetForm<O: ResourceOperation> {
        All(bool),
        These(OperationSet<O>),
    }
    Ok(match OperationSetForm::deserialize(deserializer)? {
        OperationSetForm::All(true) => OperationSet::all(),
        OperationSetForm::All(false) => OperationSet::none(),
        OperationSetForm::These(operations) => operations,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ModelOperation, PermissionSet, ResourceAccess, ToolOperation};
    use crate::AllowList;

    #[test]
    fn k03_uses_are_written_as_operations_as_names_or_as_both() {
        let read = |value| serde_json::from_value::<ResourceAccess<ModelOperation>>(value).unwrap();
        let operations = [ModelOperation::Invoke, ModelOperation::Stream].into_iter().collect();
        assert_eq!(read(json!(["invoke", "stream"])), ResourceAccess { names: AllowList::All, operations });
        assert_eq!(read(json!("all")), ResourceAccess::all());
        assert_eq!(read(json!({"only": ["a:b"]})), ResourceAccess::only(["a:b"]));
        assert_eq!(read(json!({"names": {"only": ["a:b"]}})), ResourceAccess::only(["a:b"]));
        assert!(!read(json!([])).allows(ModelOperation::Invoke, "a:b"));
        for wrong in [json!(["dance"]), json!({"oparations": []}), json!(true), json!({"names": "some"})] {
            assert!(serde_json::from_value::<ResourceAccess<ModelOperation>>(wrong).is_err());
        }
    }

    #[test]
    fn k03_what_is_written_reads_back_and_what_is_not_said_is_not_asked_for() {
        for authority in [PermissionSet::none(), PermissionSet::all()] {
            let written = serde_json::to_value(&authority).unwrap();
            assert_eq!(serde_json::from_value::<PermissionSet>(written).unwrap(), authority);
        }
        assert_eq!(serde_json::from_value::<PermissionSet>(json!({})).unwrap(), PermissionSet::none());
        let old =
            json!({"models": "all", "tools": {"only": ["bash"]}, "tape": "read", "prompt": true, "artifacts": true});
        let old: PermissionSet = serde_json::from_value(old).unwrap();
        assert!(old.tools.allows(ToolOperation::Call, "bash") && old.artifacts.len() == 3);
    }
}

//! What there is to be allowed: every resource a run can reach, and what can be done with it.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{Access, Operation, Operations, TapeAccess};

/// Declares the operations on a kind of resource.
macro_rules! operations {
    ($(#[$docs:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$docs])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$doc])* $variant),+
        }

        impl Operation for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn place(self) -> u8 {
                self as u8
            }
        }
    };
}

operations! {
    /// What can be done with a model.
    ModelUse {
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
    ToolUse {
        /// Read its description and schema.
        Detail,
        /// Call it.
        Call,
    }
}

operations! {
    /// What can be done with a knowledge base.
    KnowledgeUse {
        /// See that it is there.
        List,
        /// Ask it.
        Retrieve,
    }
}

operations! {
    /// What can be done with the history of a conversation.
    HistoryUse {
        /// Read it page by page.
        Page,
        /// Search it.
        Search,
    }
}

operations! {
    /// What can be done with the log of events.
    EventUse {
        /// Read one event.
        Get,
        /// Read it page by page.
        Page,
    }
}

operations! {
    /// What can be done with artifacts.
    ArtifactUse {
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
pub enum Reach {
    /// The current conversation.
    #[default]
    Conversation,
    /// Every conversation of the workspace.
    Workspace,
}

/// Some resources of a kind, and what can be done with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "UsesForm<O>", bound(deserialize = "O: Operation + Deserialize<'de>"))]
pub struct Uses<O: Operation> {
    /// Which of them.
    pub names: Access,
    /// What can be done with those.
    pub operations: Operations<O>,
}

/// The forms in which [`Uses`] may be written: `["invoke"]` means all names, `"all"` and `{"only": [..]}` all operations.
#[derive(Deserialize, JsonSchema)]
#[serde(
    untagged,
    bound(deserialize = "O: Operation + Deserialize<'de>"),
    expecting = "this is none of: a list of operations; \"all\"; { only = [NAMES] }; { names = .., operations = [..] }"
)]
enum UsesForm<O: Operation> {
    Operations(Operations<O>),
    Names(Access),
    Whole(Whole<O>),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, bound(deserialize = "O: Operation + Deserialize<'de>"))]
struct Whole<O: Operation> {
    names: Option<Access>,
    operations: Option<Operations<O>>,
}

impl<O: Operation> From<UsesForm<O>> for Uses<O> {
    fn from(form: UsesForm<O>) -> Self {
        match form {
            UsesForm::Operations(operations) => Self { names: Access::All, operations },
            UsesForm::Names(names) => Self { names, operations: Operations::all() },
            UsesForm::Whole(Whole { names, operations }) => {
                Self { names: names.unwrap_or(Access::All), operations: operations.unwrap_or_else(Operations::all) }
            }
        }
    }
}

impl<O: Operation> Uses<O> {
    /// Everything with all of them.
    pub fn all() -> Self {
        Self { names: Access::All, operations: Operations::all() }
    }

    /// Nothing with any of them.
    pub fn none() -> Self {
        Self { names: Access::none(), operations: Operations::none() }
    }

    /// Everything with these and no others.
    pub fn only<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self { names: Access::only(names), operations: Operations::all() }
    }

    /// Whether this can be done with this one.
    pub fn allows(&self, operation: O, name: &str) -> bool {
        self.operations.contains(&operation) && self.names.allows(name)
    }

    /// Whether this can be done with any of them.
    pub fn allows_any(&self, operation: O) -> bool {
        self.operations.contains(&operation) && self.names != Access::none()
    }

    /// What both allow.
    pub fn intersect(&self, other: &Self) -> Self {
        Self { names: self.names.intersect(&other.names), operations: self.operations & other.operations }
    }
}

/// Everything that can be allowed. A runner asks for some of it, a binding allows some of it, a run has some of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Authority {
    /// Models, by `provider:name`.
    pub models: Uses<ModelUse>,
    /// Tools, by name.
    pub tools: Uses<ToolUse>,
    /// Knowledge bases, by id.
    pub knowledge_bases: Uses<KnowledgeUse>,
    /// The history of conversations.
    pub history: Operations<HistoryUse>,
    /// The log of events.
    pub events: Operations<EventUse>,
    /// How far history and events reach.
    pub reach: Reach,
    /// The artifacts of the session.
    #[serde(deserialize_with = "all_or_these")]
    pub artifacts: Operations<ArtifactUse>,
    /// State kept by the host.
    pub state: Operations<StateScope>,
    /// Contents kept by the host.
    pub storage: Operations<StorageArea>,
    /// Actions on the platform, by name.
    pub platform_api: Access,
    /// The session's tape.
    pub tape: TapeAccess,
    /// The host's system prompt and continuation prompt.
    pub prompt: bool,
    /// Child runs.
    pub children: bool,
    /// Messages that come while the run goes on.
    pub steering: bool,
}

impl Default for Authority {
    fn default() -> Self {
        Self::none()
    }
}

impl Authority {
    /// Nothing at all.
    pub fn none() -> Self {
        Self {
            models: Uses::none(),
            tools: Uses::none(),
            knowledge_bases: Uses::none(),
            history: Operations::none(),
            events: Operations::none(),
            reach: Reach::Conversation,
            artifacts: Operations::none(),
            state: Operations::none(),
            storage: Operations::none(),
            platform_api: Access::none(),
            tape: TapeAccess::None,
            prompt: false,
            children: false,
            steering: false,
        }
    }

    /// Everything there is.
    pub fn all() -> Self {
        Self {
            models: Uses::all(),
            tools: Uses::all(),
            knowledge_bases: Uses::all(),
            history: Operations::all(),
            events: Operations::all(),
            reach: Reach::Workspace,
            artifacts: Operations::all(),
            state: Operations::all(),
            storage: Operations::all(),
            platform_api: Access::All,
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
fn all_or_these<'de, D, O>(deserializer: D) -> Result<Operations<O>, D::Error>
where
    D: Deserializer<'de>,
    O: Operation + Deserialize<'de>,
{
    #[derive(Deserialize)]
    #[serde(
        untagged,
        bound(deserialize = "O: Operation + Deserialize<'de>"),
        expecting = "this is neither a list of operations nor true or false"
    )]
    enum Form<O: Operation> {
        All(bool),
        These(Operations<O>),
    }
    Ok(match Form::deserialize(deserializer)? {
        Form::All(true) => Operations::all(),
        Form::All(false) => Operations::none(),
        Form::These(operations) => operations,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Authority, ModelUse, ToolUse, Uses};
    use crate::Access;

    #[test]
    fn k03_uses_are_written_as_operations_as_names_or_as_both() {
        let read = |value| serde_json::from_value::<Uses<ModelUse>>(value).unwrap();
        let operations = [ModelUse::Invoke, ModelUse::Stream].into_iter().collect();
        assert_eq!(read(json!(["invoke", "stream"])), Uses { names: Access::All, operations });
        assert_eq!(read(json!("all")), Uses::all());
        assert_eq!(read(json!({"only": ["a:b"]})), Uses::only(["a:b"]));
        assert_eq!(read(json!({"names": {"only": ["a:b"]}})), Uses::only(["a:b"]));
        assert!(!read(json!([])).allows(ModelUse::Invoke, "a:b"));
        for wrong in [json!(["dance"]), json!({"oparations": []}), json!(true), json!({"names": "some"})] {
            assert!(serde_json::from_value::<Uses<ModelUse>>(wrong).is_err());
        }
    }

    #[test]
    fn k03_what_is_written_reads_back_and_what_is_not_said_is_not_asked_for() {
        for authority in [Authority::none(), Authority::all()] {
            let written = serde_json::to_value(&authority).unwrap();
            assert_eq!(serde_json::from_value::<Authority>(written).unwrap(), authority);
        }
        assert_eq!(serde_json::from_value::<Authority>(json!({})).unwrap(), Authority::none());
        let old =
            json!({"models": "all", "tools": {"only": ["bash"]}, "tape": "read", "prompt": true, "artifacts": true});
        let old: Authority = serde_json::from_value(old).unwrap();
        assert!(old.tools.allows(ToolUse::Call, "bash") && old.artifacts.len() == 3);
    }
}

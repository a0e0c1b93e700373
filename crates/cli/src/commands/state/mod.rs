//! `capstan state`.

mod clear;
mod list;

use std::sync::Arc;

use capstan_hooks::PluginIdentity;
use capstan_host::state_admin::{NamespaceUsers, RunnerNamespace, StateAdmin, namespace_limits};
use capstan_policy::{BindingError, BindingStore};
use capstan_protocol::{
    Binding, BindingId, Clock, Descriptor, ErrorCode, RunnerId, SessionId, StateScope, TapeName, WorkspaceId,
};
use capstan_tape::{StoreError, TapeAddress, tape_name};
use clap::Subcommand;
use serde_json::{Value, json};

use self::clear::ClearRequest;
use super::document::InputDocument;
use super::tape::source::HomeTapes;
use super::{CommandContext, print, runners};
use crate::CommandError;

/// Number of recent runs searched for bindings that came with a LangBot query.
const MAX_RECENT_RUNS: usize = 1_000;

/// Scopes of state and areas of storage.
const LISTED_SCOPES: [&str; 7] = ["conversation", "actor", "subject", "binding", "runner", "workspace", "plugin"];
/// Hint about a namespace that cannot be parsed.
const NAMESPACE_HINT: &str =
    "give an id of `capstan state list`, or [\"RUNNER\",\"SCOPE\",OWNER]; docs/state.md lists the owners";

#[derive(Subcommand)]
pub(crate) enum StateCommand {
    /// List namespaces of stored state with their owner, size and limits
    List {
        /// List only namespaces of this runner
        #[arg(long, value_name = "ID")]
        runner: Option<String>,
        /// List only this scope or storage area
        #[arg(long, value_name = "NAME", value_parser = LISTED_SCOPES)]
        scope: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the values of a namespace, or of one key
    Show {
        /// Id of the namespace, or a unique prefix
        #[arg(value_name = "NAMESPACE")]
        space: String,
        /// Key to show
        key: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Set the value of a key
    Set {
        /// Id of the namespace, or runner, scope and owner of an empty one, as in
        /// `["plugin:a/b/c", "conversation", "SESSION"]`
        #[arg(value_name = "NAMESPACE")]
        space: String,
        /// Key to set
        key: String,
        /// Value in JSON, or - for standard input
        value: String,
    },
    /// Remove a key
    Remove {
        /// Id of the namespace
        #[arg(value_name = "NAMESPACE")]
        space: String,
        /// Key to remove
        key: String,
    },
    /// Clear a namespace, or those selected by --unused and --older-than; dry run without --yes
    Clear {
        /// Id of the namespace
        #[arg(
            value_name = "NAMESPACE",
            required_unless_present_any = ["unused", "older_than"],
            conflicts_with_all = ["unused", "older_than"]
        )]
        space: Option<String>,
        /// Clear namespaces whose binding was removed, or whose runner no binding names
        #[arg(long)]
        unused: bool,
        /// Clear namespaces without changes for this many days; with --unused, both must apply
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
        older_than: Option<u32>,
        /// Confirm the removal
        #[arg(long)]
        yes: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) async fn run(context: CommandContext<'_>, command: StateCommand) -> Result<(), CommandError> {
    let home = if let StateCommand::Set { .. } = command {
        HomeTapes::creating_home(&context)
    } else {
        HomeTapes::new(&context)
    };
    let executed = execute(&home, command).await;
    home.close().await?;
    executed
}

/// The stored state, and the bindings and runners that use it.
struct StateCommandContext<'a> {
    home: &'a HomeTapes<'a>,
    namespaces: StateAdmin,
    workspace: WorkspaceId,
    bindings: Arc<Vec<Binding>>,
    runners: Vec<Descriptor>,
    plugins: Vec<PluginIdentity>,
    /// Binding and runner of recent runs.
    recent_runs: Vec<(BindingId, RunnerId)>,
}

async fn execute(home: &HomeTapes<'_>, command: StateCommand) -> Result<(), CommandError> {
    let workspace = home.workspace_id().await?;
    let system = TapeAddress { workspace: workspace.clone(), session: capstan_host::SYSTEM_SESSION.into() };
    let tapes = home.tapes()?.clone();
    let binding_store = BindingStore::new(tapes.clone(), Clock::system(), system.clone());
    if let (StateCommand::Clear { unused: true, .. }, Some(unreadable)) =
        (&command, binding_store.unreadable().await?.first())
    {
        // The namespaces that an unreadable binding uses are unknown.
        return Err(BindingError::from(unreadable).into());
    }
    let bindings = binding_store.all().await?;
    let runs = tapes.store().run_page(None, MAX_RECENT_RUNS).await?;
    let hooks = home.context.build_hooks();
    let context = StateCommandContext {
        home,
        namespaces: StateAdmin::new(tapes, Clock::system(), system),
        workspace,
        bindings,
        runners: runners::provided_runners(&hooks),
        plugins: hooks.registry().identities().to_vec(),
        recent_runs: runs.into_iter().map(|run| (run.binding, run.runner)).collect(),
    };
    match command {
        StateCommand::List { runner, scope, json } => {
            context.list(&list::NamespaceFilter { runner, scope }, json).await
        }
        StateCommand::Show { space, key, json } => context.show(&space, key.as_deref(), json).await,
        StateCommand::Set { space, key, value } => context.set(&space, &key, &value).await,
        StateCommand::Remove { space, key } => {
            let summary = context.namespaces.find(&space).await?;
            context.namespaces.remove(&summary.namespace, &key).await?;
            print(&format!("removed {key:?} from {}", summary.namespace.id()))
        }
        StateCommand::Clear { space, unused, older_than, yes, json } => {
            context.clear(&ClearRequest { namespace: space, unused, older_than, is_confirmed: yes }, json).await
        }
    }
}

impl StateCommandContext<'_> {
    fn namespace_users(&self) -> NamespaceUsers<'_> {
        NamespaceUsers {
            bindings: &self.bindings,
            runners: &self.runners,
            plugins: &self.plugins,
            recent_runs: &self.recent_runs,
        }
    }

    async fn set(&self, namespace: &str, key: &str, value: &str) -> Result<(), CommandError> {
        let namespace = if namespace.trim_start().starts_with('[') {
            self.parse_namespace(namespace).await?
        } else {
            self.namespaces.find(namespace).await?.namespace
        };
        let limits = namespace_limits(&namespace, &self.bindings).unwrap_or_default();
        self.namespaces.set(&namespace, key, parse_value(value)?, limits).await?;
        print(&format!("set {key:?} in {}", namespace.id()))
    }

    /// Parses runner, scope and owner of a namespace. The owner of a conversation may be its session.
    async fn parse_namespace(&self, text: &str) -> Result<RunnerNamespace, CommandError> {
        let invalid = |detail: &str| {
            let message = format!("{text} is not a namespace: {detail}");
            CommandError::new(ErrorCode::StateInvalid, message).with_hint(NAMESPACE_HINT)
        };
        let (runner, scope, owner): (RunnerId, StateScope, Value) =
            serde_json::from_str(text).map_err(|error| invalid(&error.to_string()))?;
        if !self.runners.iter().any(|known| known.id == runner) {
            return Err(BindingError::unknown_runner(&runner, &self.runners).into());
        }
        let is_text = owner.as_str().is_some_and(|owner| !owner.is_empty());
        let is_id = |part: &Value| part.as_str().is_some_and(|id| !id.is_empty());
        let parts = owner.as_array().map(Vec::as_slice).unwrap_or_default();
        let is_valid = match scope {
            StateScope::Conversation | StateScope::Binding => is_text,
            StateScope::Workspace => owner == json!(self.workspace),
            StateScope::Runner => owner.is_null(),
            StateScope::Actor => matches!(parts, [source, _, id] if is_id(source) && is_id(id)),
            StateScope::Subject => {
                matches!(parts, [source, _, kind, id] if is_id(source) && is_id(kind) && is_id(id))
            }
        };
        if !is_valid {
            return Err(invalid("the owner does not match the scope; docs/state.md lists the owners"));
        }
        let owner = match (scope, owner.as_str()) {
            (StateScope::Conversation, Some(name)) => json!(self.conversation_tape(name).await?),
            _ => owner,
        };
        Ok(RunnerNamespace::State { runner, scope, owner })
    }

    /// The tape with this name, or of the session with this name.
    async fn conversation_tape(&self, name: &str) -> Result<TapeName, CommandError> {
        if let Ok(tape) = TapeName::parse(name)
            && self.home.tapes()?.record(&tape).await?.is_some()
        {
            return Ok(tape);
        }
        let address = TapeAddress { workspace: self.workspace.clone(), session: SessionId::new(name) };
        match self.home.tapes()?.session_tape(&address).await {
            // A session without a tape has no state either.
            Err(StoreError::TapeNotFound { .. }) => Ok(tape_name(&address)),
            tape => Ok(tape?),
        }
    }
}

/// Parses a JSON value given as an argument, or read from standard input for `-`.
fn parse_value(value: &str) -> Result<Value, CommandError> {
    let document =
        if value == "-" { InputDocument::read(value)? } else { InputDocument::from_text("the value", value) };
    document.parse_json(ErrorCode::StateInvalid)
}

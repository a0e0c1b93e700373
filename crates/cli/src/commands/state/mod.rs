//! `capstan state`.

mod clear;
mod list;

use std::sync::Arc;

use capstan_host::state_admin::{NamespaceUsers, RunnerNamespace, StateAdmin, StateAdminError, namespace_limits};
use capstan_policy::{BindingError, BindingStore};
use capstan_protocol::{
    Binding, BindingId, Clock, Descriptor, ErrorCode, RunnerId, SessionId, StateScope, TapeName, WorkspaceId,
};
use capstan_tape::{TapeAddress, tape_name};
use clap::Subcommand;
use serde_json::{Value, json};

use self::clear::ClearRequest;
use super::document::InputDocument;
use super::tape::source::HomeTapes;
use super::{print, runners};
use crate::CommandError;
use crate::command_line::CommandContext;

/// How many runs back it is looked who was asked by a query.
const MAX_RECENT_RUNS: usize = 1_000;

#[derive(Subcommand)]
pub(crate) enum StateCommand {
    /// Lists the spaces that something is kept in: whose they are, and how much of what is allowed they have.
    List {
        /// Only of this runner.
        #[arg(long, value_name = "ID")]
        runner: Option<String>,
        /// Only of this scope, or area of storage: conversation, actor, subject, binding, runner, workspace, plugin.
        #[arg(long, value_name = "NAME")]
        scope: Option<String>,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows what is kept in a space, or under one key of it.
    Show {
        /// Its id, or the beginning of it.
        space: String,
        /// One key.
        key: Option<String>,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Keeps a value under a key.
    Set {
        /// The id of a space; or of one that has nothing yet, its runner, scope and owner, as in
        /// `["plugin:a/b/c", "conversation", "SESSION"]`.
        space: String,
        /// The key.
        key: String,
        /// The value, in JSON; - reads it from the standard input.
        value: String,
    },
    /// Removes a key.
    Remove {
        /// The id of the space.
        space: String,
        /// The key.
        key: String,
    },
    /// Removes everything that is kept in a space, or in all that nobody uses. Without --yes it only says what would go.
    Clear {
        /// The id of a space.
        #[arg(required_unless_present_any = ["unused", "older_than"], conflicts_with_all = ["unused", "older_than"])]
        space: Option<String>,
        /// Those whose binding is gone, or whose runner no binding names.
        #[arg(long)]
        unused: bool,
        /// Those in which nothing has changed for so many days. With --unused, both must hold.
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
        older_than: Option<u32>,
        /// Removes it.
        #[arg(long)]
        yes: bool,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) async fn run(context: CommandContext<'_>, command: StateCommand) -> Result<(), CommandError> {
    let scope = if let StateCommand::Set { .. } = command {
        HomeTapes::creating_home(&context)
    } else {
        HomeTapes::new(&context)
    };
    let done = execute(&scope, command).await;
    scope.close().await?;
    done
}

/// What a command looks at.
struct StateCommandContext<'a> {
    scope: &'a HomeTapes<'a>,
    namespaces: StateAdmin,
    workspace: WorkspaceId,
    bindings: Arc<Vec<Binding>>,
    runners: Vec<Descriptor>,
    /// Under which binding which runner ran lately.
    recent_runs: Vec<(BindingId, RunnerId)>,
}

async fn execute(scope: &HomeTapes<'_>, command: StateCommand) -> Result<(), CommandError> {
    let workspace = scope.workspace_id().await?;
    let system = TapeAddress { workspace: workspace.clone(), session: capstan_host::SYSTEM_SESSION.into() };
    let tapes = scope.tapes()?.clone();
    let kept = BindingStore::new(tapes.clone(), Clock::system(), system.clone());
    if let (StateCommand::Clear { unused: true, .. }, Some(unreadable)) = (&command, kept.unreadable().await?.first()) {
        // What it uses cannot be told.
        return Err(BindingError::from(unreadable).into());
    }
    let bindings = kept.all().await?;
    let lately = tapes.store().runs(MAX_RECENT_RUNS).await?.into_iter().map(|run| (run.binding, run.runner)).collect();
    let spaces = StateAdmin::new(tapes, Clock::system(), system);
    let looked = StateCommandContext {
        scope,
        namespaces: spaces,
        workspace,
        bindings,
        runners: runners::known_runners(scope.context),
        recent_runs: lately,
    };
    match command {
        StateCommand::List { runner, scope, json } => looked.list(&list::NamespaceFilter { runner, scope }, json).await,
        StateCommand::Show { space, key, json } => looked.show(&space, key.as_deref(), json).await,
        StateCommand::Set { space, key, value } => looked.set(&space, &key, &value).await,
        StateCommand::Remove { space, key } => {
            let held = looked.namespaces.find(&space).await?;
            looked.namespaces.remove(&held.namespace, &key).await?;
            print(&format!("{key:?} is removed from {}", held.namespace.id()))
        }
        StateCommand::Clear { space, unused, older_than, yes, json } => {
            looked.clear(&ClearRequest { namespace: space, unused, older_than, is_confirmed: yes }, json).await
        }
    }
}

impl StateCommandContext<'_> {
    fn namespace_users(&self) -> NamespaceUsers<'_> {
        NamespaceUsers { bindings: &self.bindings, runners: &self.runners, recent_runs: &self.recent_runs }
    }

    async fn set(&self, wanted: &str, key: &str, value: &str) -> Result<(), CommandError> {
        let space = if wanted.trim_start().starts_with('[') {
            self.parse_namespace(wanted).await?
        } else {
            self.namespaces.find(wanted).await?.namespace
        };
        let limits = namespace_limits(&space, &self.bindings).unwrap_or_default();
        self.namespaces.set(&space, key, parse_value(value)?, limits).await?;
        print(&format!("{key:?} is kept in {}", space.id()))
    }

    /// The space of a runner, a scope and an owner. A conversation may be named by its session.
    async fn parse_namespace(&self, wanted: &str) -> Result<RunnerNamespace, CommandError> {
        let invalid = |detail: &str| {
            let detail = format!("{wanted} is no space: {detail}");
            CommandError::from(StateAdminError::Invalid { detail })
        };
        let (runner, scope, owner): (RunnerId, StateScope, Value) =
            serde_json::from_str(wanted).map_err(|error| invalid(&error.to_string()))?;
        if !self.runners.iter().any(|known| known.id == runner) {
            return Err(BindingError::unknown_runner(&runner, &self.runners).into());
        }
        let is_text = owner.as_str().is_some_and(|owner| !owner.is_empty());
        let is_id = |part: &Value| part.as_str().is_some_and(|id| !id.is_empty());
        let parts = owner.as_array().map(Vec::as_slice).unwrap_or_default();
        let is_owner = match scope {
            StateScope::Conversation | StateScope::Binding => is_text,
            StateScope::Workspace => owner == json!(self.workspace),
            StateScope::Runner => owner.is_null(),
            StateScope::Actor => matches!(parts, [source, _, id] if is_id(source) && is_id(id)),
            StateScope::Subject => {
                matches!(parts, [source, _, kind, id] if is_id(source) && is_id(kind) && is_id(id))
            }
        };
        if !is_owner {
            return Err(invalid("its owner is not one of that scope; docs/state.md lists them"));
        }
        let owner = match (scope, owner.as_str()) {
            (StateScope::Conversation, Some(named)) => json!(self.conversation_tape(named).await?),
            _ => owner,
        };
        Ok(RunnerNamespace::State { runner, scope, owner })
    }

    /// The tape of this name, or of this session.
    async fn conversation_tape(&self, named: &str) -> Result<TapeName, CommandError> {
        if let Ok(tape) = TapeName::parse(named)
            && self.scope.tapes()?.record(&tape).await?.is_some()
        {
            return Ok(tape);
        }
        Ok(tape_name(&TapeAddress { workspace: self.workspace.clone(), session: SessionId::new(named) }))
    }
}

/// A value as it is given.
fn parse_value(value: &str) -> Result<Value, CommandError> {
    let document =
        if value == "-" { InputDocument::read(value)? } else { InputDocument::from_text("the value", value) };
    document.parse_json(ErrorCode::StateInvalid)
}

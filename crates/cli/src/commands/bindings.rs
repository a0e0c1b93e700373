//! `capstan bindings`.

use capstan_host::{EventResolver, HostError, ResolvedEvent};
use capstan_policy::BindingStore;
use capstan_policy::bindings::{BindingChoice, UnreadableBinding, find_misfit};
use capstan_protocol::{Binding, BindingId, Clock, Descriptor, ErrorCode, Event, EventFilter, EventOrigin, SessionId};
use capstan_tape::TapeAddress;
use clap::Subcommand;
use serde::Serialize;
use serde_json::{Value, json};

use super::document::InputDocument;
use super::events::read_sent_event;
use super::tape::source::HomeTapes;
use super::{CommandContext, print, print_json, print_lines, replace_control_chars, runners};
use crate::{CommandError, builder};

#[derive(Subcommand)]
pub(crate) enum BindingsCommand {
    /// List the bindings
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a binding
    Show {
        /// Id of the binding
        binding: String,
    },
    /// Save a binding from a file, replacing any binding with the same id
    Set {
        /// TOML or JSON file with the binding; - for standard input
        file: String,
    },
    /// Enable a binding
    Enable {
        /// Id of the binding
        binding: String,
    },
    /// Disable a binding without removing it
    Disable {
        /// Id of the binding
        binding: String,
    },
    /// Remove a binding
    Remove {
        /// Id of the binding
        binding: String,
    },
    /// Show which binding an event would get and why the others do not apply, without processing the event
    ///
    /// The event is resolved as by `events send`.
    DryRun {
        /// JSON file with the event, as for `events send`; - for standard input
        file: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) async fn run(context: CommandContext<'_>, command: BindingsCommand) -> Result<(), CommandError> {
    let is_read_only =
        matches!(command, BindingsCommand::List { .. } | BindingsCommand::Show { .. } | BindingsCommand::DryRun { .. });
    let home = if is_read_only { HomeTapes::new(&context) } else { HomeTapes::creating_home(&context) };
    let executed = execute(&home, command).await;
    home.close().await?;
    executed
}

async fn execute(home: &HomeTapes<'_>, command: BindingsCommand) -> Result<(), CommandError> {
    let workspace = home.workspace_id().await?;
    let system = TapeAddress { workspace: workspace.clone(), session: capstan_host::SYSTEM_SESSION.into() };
    let hooks = home.context.build_hooks();
    let channels = builder::provided_channels(&hooks);
    let bindings = BindingStore::new(home.tapes()?.clone(), Clock::system(), system)
        .with_channels(channels.clone())
        .with_model_providers(capstan_host::model_provider_names(&hooks))
        .with_tools(capstan_host::tool_names(&hooks));
    let runners = runners::known_runners(home.context);
    match command {
        BindingsCommand::List { json } => list(&bindings, json).await,
        BindingsCommand::Show { binding } => print_json(&bindings.get(&BindingId::new(binding)).await?),
        BindingsCommand::Set { file } => {
            let binding: Binding = InputDocument::read(&file)?.parse_toml_or_json(ErrorCode::BindingInvalid)?;
            bindings.save(&binding, &runners).await?;
            for part in bindings.ineffective_parts(&binding) {
                stderr_line!("note: {part}");
            }
            let state = if binding.enabled { "enabled" } else { "disabled" };
            print(&format!("saved binding {} ({state})", binding.binding_id))
        }
        BindingsCommand::Enable { binding } => {
            bindings.set_enabled(&BindingId::new(&binding), true, &runners).await?;
            print(&format!("enabled binding {binding}"))
        }
        BindingsCommand::Disable { binding } => {
            bindings.set_enabled(&BindingId::new(&binding), false, &runners).await?;
            print(&format!("disabled binding {binding}"))
        }
        BindingsCommand::Remove { binding } => {
            bindings.remove(&BindingId::new(&binding)).await?;
            print(&format!("removed binding {binding}"))
        }
        BindingsCommand::DryRun { file, json } => {
            let max_message_bytes = home.context.config.max_message_bytes;
            let resolver = EventResolver { hooks, channels, workspace_id: workspace, max_message_bytes };
            let report = DryRunReport::new(&resolver, &bindings, &runners, read_sent_event(&file)?).await?;
            if json { print_json(&report) } else { print_lines(report.to_lines()) }
        }
    }
}

/// Binding that an event would get, and the properties of the event that the host determines.
#[derive(Serialize)]
struct DryRunReport {
    #[serde(flatten)]
    choice: BindingChoice,
    session_id: SessionId,
    origin: EventOrigin,
}

impl DryRunReport {
    /// Resolves an event like the intake of a host, and explains the choice of its binding.
    async fn new(
        resolver: &EventResolver,
        bindings: &BindingStore,
        runners: &[Descriptor],
        event: Event,
    ) -> Result<Self, CommandError> {
        let ResolvedEvent { inbound, session, failure } = resolver.resolve(&event.into()).await?;
        if let Some(failure) = failure {
            return Err(HostError::from(failure).into());
        }
        let mut choice = bindings.dry_run(&inbound).await?;
        if let Some(binding_id) = &choice.binding_id {
            let binding = bindings.get(binding_id).await?;
            if let Some(misfit) = find_misfit(&binding, runners) {
                choice.reason.extend(["; its runs fail, because the binding does not fit any more: ", &misfit]);
            }
            let runner_id = binding.runner_id;
            let runner = runners.iter().find(|runner| runner.id == runner_id);
            if !inbound.is_message() && runner.is_some_and(|runner| !runner.capabilities.event_context) {
                choice.reason.extend([
                    "; its runner ",
                    runner_id.as_str(),
                    " serves messages only (no event_context), so the event gets no run",
                ]);
            }
        }
        Ok(Self { choice, session_id: session, origin: inbound.origin() })
    }

    fn to_lines(&self) -> Vec<String> {
        let mut lines = format_choice(&self.choice);
        lines.push(replace_control_chars(&format!("session {}, origin {}", self.session_id, self.origin)));
        lines
    }
}

async fn list(bindings: &BindingStore, as_json: bool) -> Result<(), CommandError> {
    let (all, unreadable) = (bindings.all().await?, bindings.unreadable().await?);
    if as_json {
        let to_json =
            |binding: &UnreadableBinding| json!({ "binding_id": binding.binding_id, "unreadable": binding.reason });
        let all: Vec<Value> = all.iter().map(|binding| json!(binding)).chain(unreadable.iter().map(to_json)).collect();
        return print_json(&all);
    }
    let to_line = |binding: &UnreadableBinding| {
        replace_control_chars(&format!("{}  cannot be read: {}", binding.binding_id, binding.reason))
    };
    print_lines(all.iter().map(format_binding).chain(unreadable.iter().map(to_line)))
}

fn format_binding(binding: &Binding) -> String {
    let state = if binding.enabled { "on " } else { "off" };
    let types = if binding.event_types.is_empty() { "*".to_owned() } else { binding.event_types.join(",") };
    let mut line = format!("{}  {state}  {}  {types}  {}", binding.binding_id, binding.runner_id, json!(binding.scope));
    if !binding.filters.is_empty() {
        let filters: Vec<String> = binding.filters.iter().map(format_filter).collect();
        line.extend(["  if ", &filters.join(" and ")]);
    }
    if !binding.runner_config.is_empty() {
        line.extend(["  config ", &json!(binding.runner_config).to_string()]);
    }
    line.extend(binding.timeout_seconds.map(|seconds| format!("  timeout {seconds}s")));
    replace_control_chars(&line)
}

fn format_filter(filter: &EventFilter) -> String {
    let field = &filter.field;
    let one_of = (!filter.one_of.is_empty()).then(|| format!("{field} is one of {}", json!(filter.one_of)));
    let contains = filter.contains.as_ref().map(|text| format!("{field} contains {text:?}"));
    let exists = filter.exists.map(|exists| format!("{field} {}", if exists { "exists" } else { "does not exist" }));
    let conditions: Vec<String> = [one_of, contains, exists].into_iter().flatten().collect();
    conditions.join(" and ")
}

fn format_choice(choice: &BindingChoice) -> Vec<String> {
    let chosen = choice.binding_id.as_ref().map_or("none", BindingId::as_str);
    let mut lines = vec![format!("{chosen}: {}", choice.reason)];
    lines.extend(choice.rejected.iter().map(|one| format!("  not {}: {}", one.binding_id, one.reason)));
    lines.iter().map(|line| replace_control_chars(line)).collect()
}

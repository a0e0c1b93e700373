//! `capstan bindings`.

use capstan_policy::BindingStore;
use capstan_policy::bindings::{BindingChoice, UnreadableBinding};
use capstan_protocol::{Binding, BindingId, Clock, ErrorCode, Event, EventFilter};
use capstan_tape::TapeAddress;
use clap::Subcommand;
use serde_json::{Value, json};

use super::document::InputDocument;
use super::tape::source::HomeTapes;
use super::{print, print_json, print_lines, replace_control_chars, runners};
use crate::command_line::CommandContext;
use crate::{CommandError, builder};

#[derive(Subcommand)]
pub(crate) enum BindingsCommand {
    /// Lists the bindings.
    List {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows a binding.
    Show {
        /// Its id.
        binding: String,
    },
    /// Saves a binding, in place of the one of the same id.
    Set {
        /// A file with it, in TOML or JSON; - reads it from the standard input.
        file: String,
    },
    /// Puts a binding in force.
    Enable {
        /// Its id.
        binding: String,
    },
    /// Puts a binding out of force, and keeps it.
    Disable {
        /// Its id.
        binding: String,
    },
    /// Removes a binding.
    Remove {
        /// Its id.
        binding: String,
    },
    /// Says which binding an event would get, and why each other one would not. Nothing is done about the event.
    DryRun {
        /// A file with the envelope of the event, in JSON; - reads it from the standard input.
        file: String,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) async fn run(context: CommandContext<'_>, command: BindingsCommand) -> Result<(), CommandError> {
    let reads =
        matches!(command, BindingsCommand::List { .. } | BindingsCommand::Show { .. } | BindingsCommand::DryRun { .. });
    let scope = if reads { HomeTapes::new(&context) } else { HomeTapes::creating_home(&context) };
    let done = execute(&scope, command).await;
    scope.close().await?;
    done
}

async fn execute(scope: &HomeTapes<'_>, command: BindingsCommand) -> Result<(), CommandError> {
    let workspace = scope.workspace_id().await?;
    let system = TapeAddress { workspace: workspace.clone(), session: capstan_host::SYSTEM_SESSION.into() };
    let bindings = BindingStore::new(scope.tapes()?.clone(), Clock::system(), system)
        .with_channels(builder::provided_channels(&scope.context.build_hooks()));
    let runners = runners::known_runners(scope.context);
    match command {
        BindingsCommand::List { json } => list(&bindings, json).await,
        BindingsCommand::Show { binding } => print_json(&bindings.get(&BindingId::new(binding)).await?),
        BindingsCommand::Set { file } => {
            let binding: Binding = InputDocument::read(&file)?.parse_toml_or_json(ErrorCode::BindingInvalid)?;
            bindings.save(&binding, &runners).await?;
            print(&format!("binding {} is saved{}", binding.binding_id, enabled_suffix(&binding)))
        }
        BindingsCommand::Enable { binding } => {
            bindings.set_enabled(&BindingId::new(&binding), true, &runners).await?;
            print(&format!("binding {binding} is in force"))
        }
        BindingsCommand::Disable { binding } => {
            bindings.set_enabled(&BindingId::new(&binding), false, &runners).await?;
            print(&format!("binding {binding} is out of force"))
        }
        BindingsCommand::Remove { binding } => {
            bindings.remove(&BindingId::new(&binding)).await?;
            print(&format!("binding {binding} is removed"))
        }
        BindingsCommand::DryRun { file, json } => {
            let event = InputDocument::read(&file)?.parse_envelope()?;
            let event = Event { workspace_id: event.workspace_id.or(Some(workspace)), ..event };
            let choice = bindings.dry_run(&event).await?;
            if json { print_json(&choice) } else { print_lines(format_choice(&choice)) }
        }
    }
}

async fn list(bindings: &BindingStore, as_json: bool) -> Result<(), CommandError> {
    let (all, unreadable) = (bindings.all().await?, bindings.unreadable().await?);
    if as_json {
        let told =
            |binding: &UnreadableBinding| json!({ "binding_id": binding.binding_id, "unreadable": binding.reason });
        let all: Vec<Value> = all.iter().map(|binding| json!(binding)).chain(unreadable.iter().map(told)).collect();
        return print_json(&all);
    }
    let told = |binding: &UnreadableBinding| {
        replace_control_chars(&format!("{}  cannot be read: {}", binding.binding_id, binding.reason))
    };
    print_lines(all.iter().map(format_binding).chain(unreadable.iter().map(told)))
}

fn enabled_suffix(binding: &Binding) -> &'static str {
    if binding.enabled { " and in force" } else { ", out of force" }
}

fn format_binding(binding: &Binding) -> String {
    let state = if binding.enabled { "on " } else { "off" };
    let types = if binding.event_types.is_empty() { "*".to_owned() } else { binding.event_types.join(",") };
    let mut words =
        format!("{}  {state}  {}  {types}  {}", binding.binding_id, binding.runner_id, json!(binding.scope));
    if !binding.filters.is_empty() {
        let filters: Vec<String> = binding.filters.iter().map(format_filter).collect();
        words.extend(["  if ", &filters.join(" and ")]);
    }
    replace_control_chars(&words)
}

/// A filter as it is read.
fn format_filter(filter: &EventFilter) -> String {
    let field = &filter.field;
    let one_of = (!filter.one_of.is_empty()).then(|| format!("{field} is one of {}", json!(filter.one_of)));
    let contains = filter.contains.as_ref().map(|text| format!("{field} contains {text:?}"));
    let exists = filter.exists.map(|exists| format!("{field} is {}", if exists { "there" } else { "not there" }));
    let conditions: Vec<String> = [one_of, contains, exists].into_iter().flatten().collect();
    conditions.join(" and ")
}

fn format_choice(choice: &BindingChoice) -> Vec<String> {
    let winner = choice.binding_id.as_ref().map_or("none", BindingId::as_str);
    let mut lines = vec![format!("{winner}: {}", choice.reason)];
    lines.extend(choice.losers.iter().map(|loser| format!("  not {}: {}", loser.binding_id, loser.reason)));
    lines.iter().map(|line| replace_control_chars(line)).collect()
}

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan_channels::{CliChannel, CliPrinter};
use capstan_hooks::args::BuildPromptArgs;
use capstan_hooks::contracts::CliCommand;
use capstan_hooks::points::{BuildPrompt, RegisterCliCommands};
use capstan_hooks::{BoxError, HookDeadlines, HookRegistrar, HookRuntime, HookTurn, InboundEvent, Plugin, TurnState};
use capstan_protocol::{Event, ResourceAccess};
use clap::Command;
use serde_json::{Value, json};

use crate::Capstan;
use crate::command_catalog::CommandCatalog;
use crate::config::{Config, ConfigSources};

/// Plugin that counts its registrations and adds commands.
struct CountingPlugin {
    registrations: Arc<AtomicUsize>,
    commands: &'static [&'static str],
}

impl Plugin for CountingPlugin {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn config_schema(&self) -> Option<Value> {
        Some(json!({"type": "object", "properties": {"city": {"type": "string"}}}))
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        self.registrations.fetch_add(1, Ordering::SeqCst);
        let commands = self.commands;
        hooks.on_sync(RegisterCliCommands, move || {
            let command = |name: &&'static str| CliCommand::new(Command::new(*name), |_| async { Ok(()) });
            Ok(Some(commands.iter().map(command).collect()))
        });
        Ok(())
    }
}

fn load_config(capstan: &Capstan, home: &Path, settings: &[(&str, &str)]) -> Config {
    let environment = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let sources = ConfigSources { home: home.join("home"), workspace: home.to_owned(), environment };
    capstan.load_config(sources).unwrap()
}

fn build_hooks(capstan: &Arc<Capstan>, config: &Config) -> HookRuntime {
    capstan.build_hooks(config, &CliChannel::new(CliPrinter::silent()))
}

#[test]
fn h11_a_plugin_registers_once_unless_its_settings_change() {
    let (folder, registrations) = (tempfile::tempdir().unwrap(), Arc::default());
    let plugin = CountingPlugin { registrations: Arc::clone(&registrations), commands: &[] };
    let capstan = Arc::new(Capstan::builder().plugin(plugin).build());
    let config = load_config(&capstan, folder.path(), &[]);
    build_hooks(&capstan, &config);
    build_hooks(&capstan, &load_config(&capstan, folder.path(), &[("CAPSTAN_MAX_STEPS", "7")]));
    assert_eq!(registrations.load(Ordering::SeqCst), 1);
    build_hooks(&capstan, &load_config(&capstan, folder.path(), &[("CAPSTAN_PLUGINS__COUNTING__CITY", "Rome")]));
    assert_eq!(registrations.load(Ordering::SeqCst), 2);
}

/// Plugin whose prompt never comes.
struct SilentPrompt;

impl Plugin for SilentPrompt {
    fn name(&self) -> &'static str {
        "silent"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        hooks.on(BuildPrompt, || async { std::future::pending().await });
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn h07_a_distribution_sets_the_deadlines_of_its_hooks() {
    let folder = tempfile::tempdir().unwrap();
    for turn in [Duration::from_secs(1), Duration::from_mins(5)] {
        let deadlines = HookDeadlines { turn, ..HookDeadlines::default() };
        let capstan = Arc::new(Capstan::builder().plugin(SilentPrompt).deadlines(deadlines).build());
        let hooks = build_hooks(&capstan, &load_config(&capstan, folder.path(), &[]));
        let inbound = InboundEvent::new(Event::message("cli", "local", "hello"));
        let (session_id, state, hook_turn) = ("s".into(), TurnState::new(), HookTurn::none());
        let args = BuildPromptArgs {
            message: inbound,
            session_id,
            state,
            tools: ResourceAccess::none().into(),
            turn: hook_turn,
        };
        let start = tokio::time::Instant::now();
        assert!(hooks.call_first::<BuildPrompt>(&args).await.is_err());
        assert_eq!(start.elapsed().as_secs(), turn.as_secs(), "on the paused clock");
    }
}

#[test]
fn h08_a_command_of_a_plugin_replaces_a_built_in_one_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = CountingPlugin { registrations: Arc::default(), commands: &["greet", "run"] };
    let capstan = Arc::new(Capstan::builder().plugin(plugin).build());
    let hooks = build_hooks(&capstan, &load_config(&capstan, folder.path(), &[]));
    let catalog = CommandCatalog::from_hooks(&hooks);
    let owner = |name: &str| catalog.get(name).map(|provided| provided.plugin.to_string());
    assert_eq!(owner("greet").as_deref(), Some("counting"));
    assert_eq!(owner("run").as_deref(), Some("counting"));
    assert_eq!(owner("chat").as_deref(), Some("builtin"));
    let unavailable: Vec<String> = catalog.unavailable().iter().map(ToString::to_string).collect();
    assert_eq!(
        unavailable,
        ["the command \"run\" of the plugin builtin is not available: the plugin counting replaces it"]
    );
    let report = crate::commands::doctor::plugin_report(&hooks);
    assert!(report.contains("commands not available: 1") && report.contains("replaces it"), "{report}");
}

//! `capstan plugin`: plugins that run as processes of their own.

mod create;
mod description;

use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use capstan_plugins::{
    PluginError, PluginFolder, PluginHome, PluginOptions, PluginStatus, ProcessPlugin, read_manifest,
};
use capstan_protocol::plugin_protocol::{PLUGIN_MANIFEST_FILE, PluginManifest};
use capstan_protocol::{ErrorCode, escape_line};
use clap::Subcommand;
use serde_json::{Value, json};

use self::create::create_plugin;
use self::description::describe_manifest;
use super::{CommandContext, print, print_json, print_lines};
use crate::{CommandError, home};

#[derive(Subcommand)]
pub(crate) enum PluginCommand {
    /// Create a plugin in a new folder, with a runner and a test
    New {
        /// Name of the plugin and of its folder
        name: String,
        /// Author, the first part of the plugin's id
        #[arg(long, default_value = "local")]
        author: String,
    },
    /// Install and enable a plugin from a folder, or replace an installed one
    ///
    /// Shows what the plugin asks for. Asks for confirmation if standard input and standard error are terminals.
    Install {
        /// Folder of the plugin
        path: PathBuf,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// List the installed plugins
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a plugin contributes and asks for, without starting it
    Show {
        /// Name of an installed plugin, or folder of any plugin
        plugin: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Enable a plugin, from the next start of a host on
    Enable {
        /// Name of the plugin
        name: String,
    },
    /// Disable a plugin, from the next start of a host on
    Disable {
        /// Name of the plugin
        name: String,
    },
    /// Remove a plugin. Its data is kept
    Remove {
        /// Name of the plugin
        name: String,
        /// Remove its data too
        #[arg(long)]
        data: bool,
    },
    /// Start each enabled plugin, check it against its manifest, and stop it
    ///
    /// Exits with 0 if all of them work, and with 1 otherwise.
    Doctor {
        /// Check only this plugin, also if it is disabled
        name: Option<String>,
    },
}

pub(crate) async fn run(context: &CommandContext<'_>, command: PluginCommand) -> Result<(), CommandError> {
    let plugins = PluginHome::new(&context.config.home);
    match command {
        PluginCommand::New { name, author } => {
            let folder = create_plugin(&context.workspace, &author, &name)?;
            print(&format!("created {}", escape_line(&folder.display().to_string())))?;
            stderr_line!("hint: install it with `capstan plugin install {name}`");
            Ok(())
        }
        PluginCommand::Install { path, yes } => install(context, &plugins, &context.workspace.join(path), yes),
        PluginCommand::List { json } => list(&plugins.plugins(), json),
        PluginCommand::Show { plugin, json } => show(context, &plugins, &plugin, json),
        PluginCommand::Enable { name } => set_enabled(&plugins, &name, true),
        PluginCommand::Disable { name } => set_enabled(&plugins, &name, false),
        PluginCommand::Remove { name, data } => {
            plugins.remove(&name, data)?;
            print(&format!("removed {name}"))
        }
        PluginCommand::Doctor { name } => check_plugins(context, &plugins, name).await,
    }
}

fn install(context: &CommandContext<'_>, plugins: &PluginHome, path: &Path, yes: bool) -> Result<(), CommandError> {
    let manifest = read_manifest(path)?;
    let folder = manifest.name();
    let is_replaced = plugins.plugin(folder).is_ok();
    print_lines(describe_manifest(&manifest))?;
    let can_ask = !yes && io::stdin().is_terminal() && io::stderr().is_terminal();
    if can_ask && !confirm(&manifest, is_replaced)? {
        return print("not installed");
    }
    home::create_home(&context.config.home).map_err(|error| CommandError::home_error(&context.config.home, &error))?;
    let installed = plugins.install(path)?;
    let verb = if is_replaced { "replaced" } else { "installed" };
    let state = if installed.record.enabled { "enabled" } else { "disabled" };
    print(&format!("{verb} {} {} ({state})", manifest.id, manifest.version))
}

fn confirm(manifest: &PluginManifest, is_replaced: bool) -> Result<bool, CommandError> {
    let verb = if is_replaced { "Replace" } else { "Install" };
    stderr_prompt!("{verb} {} and let it run on this machine? [y/N] ", manifest.id);
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| CommandError::new(ErrorCode::Usage, format!("cannot read the answer: {error}")))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn state_of(plugin: &PluginFolder) -> &'static str {
    match (&plugin.manifest, plugin.record.enabled) {
        (Err(_), _) => "failed",
        (Ok(_), true) => "enabled",
        (Ok(_), false) => "disabled",
    }
}

fn list(plugins: &[PluginFolder], as_json: bool) -> Result<(), CommandError> {
    if as_json {
        let entry = |plugin: &PluginFolder| {
            let mut entry = json!({"name": plugin.name, "state": state_of(plugin), "enabled": plugin.record.enabled});
            match &plugin.manifest {
                Ok(manifest) => (entry["id"], entry["version"]) = (json!(manifest.id), json!(manifest.version)),
                Err(error) => entry["error"] = json!({"code": error.code(), "message": error.to_string()}),
            }
            entry
        };
        return print_json(&Value::Array(plugins.iter().map(entry).collect()));
    }
    if plugins.is_empty() {
        stderr_line!("no plugins are installed; create one with `capstan plugin new NAME`");
    }
    print_lines(plugins.iter().map(|plugin| match &plugin.manifest {
        Ok(manifest) => {
            let line =
                format!("{:20} {:10} {:8} {}", plugin.name, manifest.version, state_of(plugin), manifest.description);
            line.trim_end().to_owned()
        }
        Err(error) => format!("{:20} {:10} {:8} {error}", plugin.name, "-", state_of(plugin)),
    }))
}

/// Manifest of an installed plugin, or of one in any folder.
fn find_manifest(
    context: &CommandContext<'_>,
    plugins: &PluginHome,
    plugin: &str,
) -> Result<PluginManifest, PluginError> {
    let path = context.workspace.join(plugin);
    match plugins.plugin(plugin) {
        Ok(installed) => installed.manifest,
        Err(_) if plugin.contains('/') || path.join(PLUGIN_MANIFEST_FILE).exists() => read_manifest(&path),
        Err(unknown) => Err(unknown),
    }
}

fn show(context: &CommandContext<'_>, plugins: &PluginHome, plugin: &str, as_json: bool) -> Result<(), CommandError> {
    let manifest = find_manifest(context, plugins, plugin)?;
    if as_json {
        let value = serde_json::to_value(&manifest);
        return print_json(&value.map_err(|error| CommandError::new(ErrorCode::PluginInvalid, error.to_string()))?);
    }
    print_lines(describe_manifest(&manifest))
}

fn set_enabled(plugins: &PluginHome, name: &str, enabled: bool) -> Result<(), CommandError> {
    let is_changed = plugins.set_enabled(name, enabled)?;
    let (state, already) = (if enabled { "enabled" } else { "disabled" }, if is_changed { "" } else { " already" });
    print(&format!("{name} is{already} {state}"))
}

async fn check_plugins(
    context: &CommandContext<'_>,
    plugins: &PluginHome,
    name: Option<String>,
) -> Result<(), CommandError> {
    let chosen = match name {
        Some(name) => vec![plugins.plugin(&name)?],
        None => plugins.plugins().into_iter().filter(|plugin| plugin.record.enabled).collect(),
    };
    let mut failed = Vec::new();
    for plugin in chosen {
        let name = plugin.name.clone();
        match check_plugin(context, plugin).await {
            Ok(()) => print(&format!("{name:20} ok"))?,
            Err((reason, stderr)) => {
                print(&format!("{name:20} failed: {reason}"))?;
                print_lines(stderr.into_iter().map(|line| format!("{:20} stderr: {line}", "")))?;
                failed.push(name);
            }
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(CommandError::new(ErrorCode::PluginFailed, format!("failed: {}", failed.join(", ")))
        .with_hint("correct the plugin, or keep it from being started with `capstan plugin disable NAME`"))
}

/// Starts and stops a plugin. The error has the reason and the last lines of stderr.
async fn check_plugin(context: &CommandContext<'_>, folder: PluginFolder) -> Result<(), (String, Vec<String>)> {
    let failure = |reason: String| (reason, Vec::new());
    let manifest = folder.manifest.map_err(|error| failure(error.to_string()))?;
    let settings = context.config.plugin_config(manifest.name(), manifest.config_schema.as_ref()).map_err(failure)?;
    let options = PluginOptions { home: Some(context.config.home.clone()), ..PluginOptions::default() };
    let plugin = ProcessPlugin::new(manifest, folder.path, folder.data_dir, options);
    let process = plugin.process(settings.settings);
    let started = process.start().await;
    let stderr = process.last_stderr_lines();
    match process.status() {
        PluginStatus::Ready { .. } => {
            process.stop().await;
            Ok(())
        }
        PluginStatus::Failed { reason, .. } => Err((reason, stderr)),
        PluginStatus::Stopped => Err((started.err().map_or_else(String::new, |error| error.to_string()), stderr)),
    }
}

//! Catalog of the commands: built-in ones and those of plugins, one for each name.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::CliCommand;
use capstan_hooks::points::RegisterCliCommands;
use capstan_protocol::PluginName;
use clap::Command;
use serde::Serialize;

/// Name of the command that prints help, which clap provides.
const HELP_COMMAND: &str = "help";
/// Reason why the second command of a plugin with the same name cannot be used.
const SAME_NAME_REASON: &str = "the plugin registers the name twice";
/// Short and long form of the global option `--workspace`.
const WORKSPACE_SHORT: char = 'w';
const WORKSPACE_LONG: &str = "workspace";

/// Command with the plugin that provides it.
pub(crate) struct ProvidedCommand {
    pub(crate) plugin: PluginName,
    pub(crate) is_builtin: bool,
    pub(crate) command: CliCommand,
}

/// Command or alias that a plugin registered and that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct UnavailableCommand {
    /// Name or alias of the command.
    pub(crate) command: String,
    /// Plugin that registered it.
    pub(crate) plugin: PluginName,
    pub(crate) reason: String,
}

impl fmt::Display for UnavailableCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the command {:?} of the plugin {} is not available: {}", self.command, self.plugin, self.reason)
    }
}

/// Commands by name. Of several with the same name, that of the plugin registered last is used.
#[derive(Default)]
pub(crate) struct CommandCatalog {
    commands: Vec<ProvidedCommand>,
    unavailable: Vec<UnavailableCommand>,
}

impl CommandCatalog {
    /// Collects the commands that plugins register, including the built-in one.
    pub(crate) fn from_hooks(hooks: &HookRuntime) -> Self {
        let provided = hooks.collect_all_provided::<RegisterCliCommands, CliCommand>();
        let is_builtin =
            |plugin: &PluginName| hooks.registry().identity(plugin).is_some_and(|identity| identity.is_builtin);
        let provided = provided.into_iter().map(|(plugin, command)| {
            let is_builtin = is_builtin(&plugin);
            ProvidedCommand { plugin, is_builtin, command }
        });
        Self::resolve(provided.collect())
    }

    /// Resolves the names of commands in call order. The commands keep the order of registration, and one that replaces
    /// another takes its position.
    pub(crate) fn resolve(provided: Vec<ProvidedCommand>) -> Self {
        let positions = registration_positions(&provided);
        let (mut owners, mut catalog) = (BTreeMap::<String, PluginName>::new(), Self::default());
        for ProvidedCommand { plugin, is_builtin, command } in provided {
            let name = command.name().to_owned();
            let problem = if is_builtin { None } else { find_definition_problem(command.definition()) };
            let replaced = |owners: &BTreeMap<String, PluginName>, name: &str| {
                let owner = owners.get(name)?;
                let is_own = *owner == plugin;
                Some(if is_own { SAME_NAME_REASON.to_owned() } else { format!("the plugin {owner} replaces it") })
            };
            if let Some(reason) = problem.or_else(|| replaced(&owners, &name)) {
                catalog.unavailable.push(UnavailableCommand { command: name, plugin, reason });
                continue;
            }
            let aliases: Vec<String> = command.definition().get_all_aliases().map(str::to_owned).collect();
            let mut taken = Vec::new();
            for alias in aliases {
                match replaced(&owners, &alias) {
                    Some(reason) => {
                        taken.push(alias.clone());
                        let plugin = plugin.clone();
                        catalog.unavailable.push(UnavailableCommand { command: alias, plugin, reason });
                    }
                    None => {
                        owners.insert(alias, plugin.clone());
                    }
                }
            }
            owners.insert(name, plugin.clone());
            let command = command.map_definition(|definition| without_aliases(definition, &taken));
            catalog.commands.push(ProvidedCommand { plugin, is_builtin, command });
        }
        catalog.commands.sort_by_key(|provided| positions.get(provided.command.name()).copied());
        catalog
    }

    /// Adds the commands to the command line.
    pub(crate) fn add_to(&self, command_line: Command) -> Command {
        command_line.subcommands(self.commands.iter().map(|provided| provided.command.definition().clone()))
    }

    /// The command with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&ProvidedCommand> {
        self.commands.iter().find(|provided| provided.command.name() == name)
    }

    /// Commands and aliases that cannot be used.
    pub(crate) fn unavailable(&self) -> &[UnavailableCommand] {
        &self.unavailable
    }
}

/// Position of each name in the order of registration. `provided` is in call order, the plugin registered last first.
fn registration_positions(provided: &[ProvidedCommand]) -> BTreeMap<String, usize> {
    let mut positions = BTreeMap::new();
    for commands in provided.chunk_by(|one, other| one.plugin == other.plugin).rev() {
        for provided in commands {
            let position = positions.len();
            positions.entry(provided.command.name().to_owned()).or_insert(position);
        }
    }
    positions
}

/// Reason why a definition cannot be part of the command line.
fn find_definition_problem(definition: &Command) -> Option<String> {
    let name = definition.get_name();
    if name.is_empty() || name.starts_with('-') || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Some("the name must be one word that does not begin with a hyphen".to_owned());
    }
    if name == HELP_COMMAND || definition.get_all_aliases().any(|alias| alias == HELP_COMMAND) {
        return Some("`help` is the command that prints help".to_owned());
    }
    if defines_workspace_flag(definition) {
        return Some("`--workspace` and `-w` are options of every command".to_owned());
    }
    // Debug builds of clap panic on an inconsistent definition.
    let build = || definition.clone().build();
    catch_unwind(AssertUnwindSafe(build)).err().map(|_| "its definition is not consistent".to_owned())
}

/// Returns true if the definition, or one of its subcommands, has an argument like the global option `--workspace`.
fn defines_workspace_flag(definition: &Command) -> bool {
    let is_workspace = |argument: &clap::Arg| {
        argument.get_id() == WORKSPACE_LONG
            || argument.get_long_and_visible_aliases().is_some_and(|names| names.contains(&WORKSPACE_LONG))
            || argument.get_short_and_visible_aliases().is_some_and(|names| names.contains(&WORKSPACE_SHORT))
    };
    definition.get_arguments().any(is_workspace) || definition.get_subcommands().any(defines_workspace_flag)
}

/// Removes aliases of a command that belong to another one.
fn without_aliases(definition: Command, taken: &[String]) -> Command {
    if taken.is_empty() {
        return definition;
    }
    let is_free = |alias: &&str| !taken.iter().any(|taken| taken == alias);
    let visible: Vec<String> = definition.get_visible_aliases().filter(is_free).map(str::to_owned).collect();
    let all: Vec<String> = definition.get_all_aliases().filter(is_free).map(str::to_owned).collect();
    let hidden = all.into_iter().filter(|alias| !visible.contains(alias)).collect::<Vec<_>>();
    definition.alias(None).visible_alias(None).aliases(hidden).visible_aliases(visible)
}

#[cfg(test)]
mod tests {
    use capstan_hooks::contracts::CliCommand;
    use clap::{Arg, Command};

    use super::{CommandCatalog, ProvidedCommand};

    fn provided(plugin: &str, definition: Command) -> ProvidedCommand {
        let command = CliCommand::new(definition, |_| async { Ok(()) });
        ProvidedCommand { plugin: plugin.into(), is_builtin: plugin == "builtin", command }
    }

    fn names(catalog: &CommandCatalog) -> Vec<(&str, &str)> {
        catalog.commands.iter().map(|provided| (provided.command.name(), provided.plugin.as_str())).collect()
    }

    fn reasons(catalog: &CommandCatalog) -> Vec<String> {
        catalog.unavailable().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn h03_h08_the_plugin_registered_last_replaces_a_command_in_its_position() {
        // In call order: the plugin registered last comes first.
        let catalog = CommandCatalog::resolve(vec![
            provided("late", Command::new("run")),
            provided("late", Command::new("last")),
            provided("early", Command::new("greet")),
            provided("builtin", Command::new("run")),
            provided("builtin", Command::new("chat")),
        ]);
        assert_eq!(names(&catalog), [("run", "late"), ("chat", "builtin"), ("greet", "early"), ("last", "late")]);
        let reason = "the command \"run\" of the plugin builtin is not available: the plugin late replaces it";
        assert_eq!(reasons(&catalog), [reason]);
    }

    #[test]
    fn h08_a_command_named_like_an_alias_replaces_only_the_alias() {
        let catalog = CommandCatalog::resolve(vec![
            provided("other", Command::new("gateway")),
            provided("builtin", Command::new("serve").aliases(["gateway", "listen"])),
        ]);
        assert_eq!(names(&catalog), [("serve", "builtin"), ("gateway", "other")]);
        assert_eq!(reasons(&catalog).len(), 1);
        let line = catalog.add_to(Command::new("capstan"));
        line.clone().debug_assert();
        let chosen = |word: &str| line.clone().get_matches_from(["capstan", word]).subcommand_name().map(str::to_owned);
        assert_eq!((chosen("gateway").as_deref(), chosen("listen").as_deref()), (Some("gateway"), Some("serve")));
    }

    #[test]
    fn h08_commands_that_the_command_line_cannot_contain_are_reported() {
        let catalog = CommandCatalog::resolve(vec![
            provided("one", Command::new("help")),
            provided("one", Command::new("two words")),
            provided("one", Command::new("window").arg(Arg::new("width").short('w'))),
            provided("one", Command::new("good")),
            provided("one", Command::new("good")),
        ]);
        assert_eq!(names(&catalog), [("good", "one")]);
        let unavailable: Vec<&str> = catalog.unavailable().iter().map(|one| one.command.as_str()).collect();
        assert_eq!(unavailable, ["help", "two words", "window", "good"]);
        assert!(reasons(&catalog)[3].ends_with("the plugin registers the name twice"));
    }
}

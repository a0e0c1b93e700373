//! The built-in plugin: the default implementations that other plugins may replace.

use std::path::PathBuf;
use std::sync::Arc;

use capstan_agent::paths::PathBounds;
use capstan_agent::tools;
use capstan_channels::{CliChannel, StdioChannel, stdio};
use capstan_hooks::contracts::{Channel, KnowledgeBase, KnowledgeSource, ModelProvider};
use capstan_hooks::points::{
    ProvideChannels, ProvideKnowledge, ProvideModelOptions, ProvideTapeStore, RegisterCliCommands,
};
use capstan_hooks::{BoxError, HookRegistrar, Plugin};
use capstan_host::TrustedChannel;
use capstan_knowledge::{FolderKnowledge, FolderLimits};
use capstan_models::{DemoProvider, HttpClients, Provider};
use capstan_protocol::PluginName;
use capstan_store::JsonlTapeStore;
use capstan_tape::TapeStore;

use crate::command_catalog::{CommandCatalog, ProvidedCommand};
use crate::config::{Config, KnowledgeConfig, ProviderConfig, TapeStoreKind};
use crate::{Capstan, command_line, home, open_files};

/// The built-in plugin, registered before all others through the same interface.
pub(crate) struct BuiltinPlugin {
    loop_options: capstan_agent::LoopOptions,
    agent_options: capstan_agent::AgentOptions,
    /// Configured model providers; the offline provider is always added.
    providers: Vec<ProviderConfig>,
    /// Directory of the JSONL tape store, if tapes are stored as files.
    jsonl_tapes_dir: Option<PathBuf>,
    terminal: Arc<dyn Channel>,
    stdio: StdioChannel,
    knowledge: Vec<Arc<dyn KnowledgeSource>>,
    /// Distribution that the commands run with.
    capstan: Arc<Capstan>,
}

/// Growth of a message's text by JSON escaping: at most six bytes for one (`\u0000`).
const MAX_ESCAPE_FACTOR: usize = 6;
/// Bytes of a line that are not the text of its message.
const LINE_OVERHEAD_BYTES: usize = 64 * 1024;

impl BuiltinPlugin {
    /// Name of the plugin. It is registered first, so no other plugin can have it.
    const PLUGIN_NAME: &str = "builtin";

    /// Channels of the operator.
    pub(crate) fn trusted_channels() -> [TrustedChannel; 2] {
        [CliChannel::CHANNEL_NAME, StdioChannel::CHANNEL_NAME]
            .map(|channel| TrustedChannel { plugin: Self::PLUGIN_NAME.into(), channel: channel.into() })
    }

    /// Commands of this plugin only, for a distribution whose plugins cannot register.
    pub(crate) fn command_catalog(capstan: &Arc<Capstan>) -> CommandCatalog {
        let provided = command_line::builtin_commands(capstan).into_iter();
        let plugin = PluginName::new(Self::PLUGIN_NAME);
        let provide = |command| ProvidedCommand { plugin: plugin.clone(), is_builtin: true, command };
        CommandCatalog::resolve(provided.map(provide).collect())
    }

    pub(crate) fn new(config: &Config, terminal: Arc<dyn Channel>, capstan: Arc<Capstan>) -> Self {
        Self {
            capstan,
            loop_options: capstan_agent::LoopOptions {
                max_steps: config.max_steps,
                default_model: Some(config.model.clone()),
            },
            agent_options: agent_options(config),
            providers: config.providers.clone(),
            jsonl_tapes_dir: match config.tape_store {
                TapeStoreKind::Sqlite => None,
                TapeStoreKind::Jsonl => Some(home::tapes_dir(&config.home)),
            },
            terminal,
            stdio: StdioChannel::new(
                stdio::StdioStreams::standard(),
                stdio::Options {
                    max_line_bytes: config
                        .max_message_bytes
                        .saturating_mul(MAX_ESCAPE_FACTOR)
                        .saturating_add(LINE_OVERHEAD_BYTES),
                },
            ),
            knowledge: config.knowledge.iter().map(|base| knowledge_folder(base, config)).collect(),
        }
    }
}

/// A knowledge base over a folder. Files of the home are excluded.
fn knowledge_folder(knowledge: &KnowledgeConfig, config: &Config) -> Arc<dyn KnowledgeSource> {
    let base = KnowledgeBase { id: knowledge.name.clone(), description: knowledge.description.clone() };
    Arc::new(FolderKnowledge::new(base, knowledge.path.clone(), vec![config.home.clone()], FolderLimits::default()))
}

/// Agent options derived from a configuration. Tools have no access to the home, which holds API keys and user settings.
fn agent_options(config: &Config) -> capstan_agent::AgentOptions {
    let denied = vec![config.home.clone()];
    capstan_agent::AgentOptions {
        tools: tools::ToolOptions {
            files: PathBounds { extra_roots: config.tools.allow_paths.clone(), denied },
            environment: config.tools.bash_environment.clone(),
            command_file_limit: open_files::command_file_limit(),
            web: config.tools.web.clone(),
        },
        skills: config.tools.skills.clone(),
        message_context: config.tools.message_context,
    }
}

impl Plugin for BuiltinPlugin {
    fn name(&self) -> &'static str {
        Self::PLUGIN_NAME
    }

    fn author(&self) -> &'static str {
        "capstan"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        capstan_host::builtin::register(hooks);
        capstan_agent::register(hooks, self.loop_options.clone(), self.agent_options.clone());
        let channels: Vec<Arc<dyn Channel>> = vec![Arc::clone(&self.terminal), Arc::new(self.stdio.clone())];
        let knowledge = self.knowledge.clone();
        let (providers, jsonl) = (self.providers.clone(), self.jsonl_tapes_dir.clone());
        let capstan = Arc::clone(&self.capstan);
        hooks
            .on_sync(RegisterCliCommands, move || Ok(Some(command_line::builtin_commands(&capstan))))
            .on_sync(ProvideChannels, move || Ok(Some(channels.clone())))
            .on_sync(ProvideKnowledge, move || Ok(Some(knowledge.clone())))
            .on_sync(ProvideModelOptions, move || Ok(Some(model_providers(&providers))))
            .on_sync(ProvideTapeStore, move || {
                let Some(folder) = &jsonl else { return Ok(None) };
                Ok(Some(Arc::new(JsonlTapeStore::open(folder)?) as Arc<dyn TapeStore>))
            });
        Ok(())
    }
}

/// The offline provider and every configured one, sharing one pool of connections.
fn model_providers(providers: &[ProviderConfig]) -> Vec<Arc<dyn ModelProvider>> {
    // A turn keeps its connection while its command runs, so there are no more idle connections than turns.
    let http = Arc::new(HttpClients::with_max_idle_connections(open_files::default_active_turns()));
    let provider = |provider: &ProviderConfig| -> Arc<dyn ModelProvider> {
        Arc::new(Provider::new(&provider.name, provider.wire, provider.settings.clone(), Arc::clone(&http)))
    };
    let offline: Arc<dyn ModelProvider> = Arc::new(DemoProvider);
    std::iter::once(offline).chain(providers.iter().map(provider)).collect()
}

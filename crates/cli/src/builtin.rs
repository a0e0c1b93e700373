//! The built-in plugin: what Capstan does when nobody replaces it.

use std::path::PathBuf;
use std::sync::Arc;

use capstan_agent::paths::PathBounds;
use capstan_agent::tools;
use capstan_channels::{StdioChannel, stdio};
use capstan_hooks::contracts::{Channel, KnowledgeBase, KnowledgeSource, ModelProvider};
use capstan_hooks::points::{ProvideChannels, ProvideKnowledge, ProvideModelOptions, ProvideTapeStore};
use capstan_hooks::{BoxError, HookRegistrar, Plugin};
use capstan_knowledge::{FolderKnowledge, FolderLimits};
use capstan_models::{DemoProvider, HttpClients, Provider};
use capstan_store::JsonlTapeStore;
use capstan_tape::TapeStore;

use crate::builder;
use crate::config::{Config, KnowledgeConfig, ProviderConfig, TapeStoreKind};

/// The built-in plugin. It registers first, and exactly as any other does.
pub(crate) struct BuiltinPlugin {
    loop_options: capstan_agent::LoopOptions,
    agent_options: capstan_agent::AgentOptions,
    /// The providers of models, beside the offline one.
    providers: Vec<ProviderConfig>,
    /// Where tapes are kept as files, if they are.
    jsonl_tapes_dir: Option<PathBuf>,
    terminal: Arc<dyn Channel>,
    stdio: StdioChannel,
    knowledge: Vec<Arc<dyn KnowledgeSource>>,
}

/// What the text of a message may grow to when it is escaped: six bytes for one.
const MAX_ESCAPE_FACTOR: usize = 6;
/// What a line may have beside the text of its message.
const LINE_OVERHEAD_BYTES: usize = 64 * 1024;

impl BuiltinPlugin {
    pub(crate) fn new(config: &Config, terminal: Arc<dyn Channel>) -> Self {
        Self {
            loop_options: capstan_agent::LoopOptions { max_steps: config.max_steps },
            agent_options: agent_options(config),
            providers: config.providers.clone(),
            jsonl_tapes_dir: match config.tape_store {
                TapeStoreKind::Sqlite => None,
                TapeStoreKind::Jsonl => Some(builder::tapes_dir_in(&config.home)),
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

/// A folder as a knowledge base. The home stays closed here too.
fn knowledge_folder(set: &KnowledgeConfig, config: &Config) -> Arc<dyn KnowledgeSource> {
    let base = KnowledgeBase { id: set.name.clone(), description: set.description.clone() };
    Arc::new(FolderKnowledge::new(base, set.path.clone(), vec![config.home.clone()], FolderLimits::default()))
}

/// What the agent is set to. The home holds the key and the user's own settings: no tool works on its files.
fn agent_options(config: &Config) -> capstan_agent::AgentOptions {
    let closed = vec![config.home.clone()];
    capstan_agent::AgentOptions {
        tools: tools::ToolOptions {
            files: PathBounds { extra_roots: config.tools.allow_paths.clone(), denied: closed },
            environment: config.tools.bash_environment.clone(),
            web: config.tools.web.clone(),
        },
        skills: config.tools.skills.clone(),
        message_context: config.tools.message_context,
    }
}

impl Plugin for BuiltinPlugin {
    fn name(&self) -> &'static str {
        "builtin"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        capstan_host::builtin::register(hooks);
        capstan_agent::register(hooks, self.loop_options, self.agent_options.clone());
        let channels: Vec<Arc<dyn Channel>> = vec![Arc::clone(&self.terminal), Arc::new(self.stdio.clone())];
        let knowledge = self.knowledge.clone();
        let (providers, jsonl) = (self.providers.clone(), self.jsonl_tapes_dir.clone());
        hooks
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

/// The offline model, and every provider that is set, with one set of connections for all.
fn model_providers(providers: &[ProviderConfig]) -> Vec<Arc<dyn ModelProvider>> {
    let http = Arc::new(HttpClients::new());
    let provider = |set: &ProviderConfig| -> Arc<dyn ModelProvider> {
        Arc::new(Provider::new(&set.name, set.wire, set.settings.clone(), Arc::clone(&http)))
    };
    let offline: Arc<dyn ModelProvider> = Arc::new(DemoProvider);
    std::iter::once(offline).chain(providers.iter().map(provider)).collect()
}

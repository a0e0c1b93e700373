//! The built-in plugin: what Capstan does when nobody replaces it.

use std::path::PathBuf;
use std::sync::Arc;

use capstan_agent::tools::{self, Bounds};
use capstan_channels::{Stdio, stdio};
use capstan_hooks::contracts::{Channel, KnowledgeBase, KnowledgeSource, ModelProvider};
use capstan_hooks::points::{ProvideChannels, ProvideKnowledge, ProvideModelOptions, ProvideTapeStore};
use capstan_hooks::{BoxError, Plugin, Registrar};
use capstan_host::{Folder, FolderLimits};
use capstan_models::{Demo, Http, Provider};
use capstan_store::JsonlTapes;
use capstan_tape::TapeStore;

use crate::builder;
use crate::config::{Config, KnowledgeConfig, ProviderConfig, TapeStoreKind};
use crate::failure;

/// The built-in plugin. It registers first, and exactly as any other does.
pub(crate) struct Builtin {
    agent: capstan_agent::Options,
    settings: capstan_agent::Settings,
    /// The providers of models, beside the offline one.
    providers: Vec<ProviderConfig>,
    /// Where tapes are kept as files, if they are.
    jsonl: Option<PathBuf>,
    terminal: Arc<dyn Channel>,
    stdio: Stdio,
    knowledge: Vec<Arc<dyn KnowledgeSource>>,
}

/// What the text of a message may grow to when it is escaped: six bytes for one.
const ESCAPED: usize = 6;
/// What a line may have beside the text of its message.
const BESIDE_TEXT: usize = 64 * 1024;

impl Builtin {
    pub(crate) fn new(config: &Config, terminal: Arc<dyn Channel>) -> Self {
        Self {
            agent: capstan_agent::Options { max_steps: config.max_steps },
            settings: agent(config),
            providers: config.providers.clone(),
            jsonl: match config.tape_store {
                TapeStoreKind::Sqlite => None,
                TapeStoreKind::Jsonl => Some(builder::tapes_of(&config.home)),
            },
            terminal,
            stdio: Stdio::new(
                stdio::Streams::standard(),
                stdio::Options {
                    max_line_bytes: config.max_message_bytes.saturating_mul(ESCAPED).saturating_add(BESIDE_TEXT),
                    hint: failure::hint,
                },
            ),
            knowledge: config.knowledge.iter().map(|base| folder(base, config)).collect(),
        }
    }
}

/// A folder as a knowledge base. The home stays closed here too.
fn folder(set: &KnowledgeConfig, config: &Config) -> Arc<dyn KnowledgeSource> {
    let base = KnowledgeBase { id: set.name.clone(), description: set.description.clone() };
    Arc::new(Folder::new(base, set.path.clone(), vec![config.home.clone()], FolderLimits::default()))
}

/// What the agent is set to. The home holds the key and the user's own settings: no tool works on its files.
fn agent(config: &Config) -> capstan_agent::Settings {
    let closed = vec![config.home.clone()];
    capstan_agent::Settings {
        tools: tools::Settings {
            files: Bounds { allowed: config.tools.allow_paths.clone(), closed },
            environment: config.tools.bash_environment.clone(),
            web: config.tools.web.clone(),
        },
        skills: config.tools.skills.clone(),
        message_context: config.tools.message_context,
    }
}

impl Plugin for Builtin {
    fn name(&self) -> &'static str {
        "builtin"
    }

    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
        capstan_host::builtin::register(hooks);
        capstan_agent::register(hooks, self.agent, self.settings.clone());
        let channels: Vec<Arc<dyn Channel>> = vec![Arc::clone(&self.terminal), Arc::new(self.stdio.clone())];
        let knowledge = self.knowledge.clone();
        let (providers, jsonl) = (self.providers.clone(), self.jsonl.clone());
        hooks
            .on_sync(ProvideChannels, move || Ok(Some(channels.clone())))
            .on_sync(ProvideKnowledge, move || Ok(Some(knowledge.clone())))
            .on_sync(ProvideModelOptions, move || Ok(Some(models(&providers))))
            .on_sync(ProvideTapeStore, move || {
                let Some(folder) = &jsonl else { return Ok(None) };
                Ok(Some(Arc::new(JsonlTapes::open(folder)?) as Arc<dyn TapeStore>))
            });
        Ok(())
    }
}

/// The offline model, and every provider that is set, with one set of connections for all.
fn models(providers: &[ProviderConfig]) -> Vec<Arc<dyn ModelProvider>> {
    let http = Arc::new(Http::new());
    let provider = |set: &ProviderConfig| -> Arc<dyn ModelProvider> {
        Arc::new(Provider::new(&set.name, set.wire, set.settings.clone(), Arc::clone(&http)))
    };
    let offline: Arc<dyn ModelProvider> = Arc::new(Demo);
    std::iter::once(offline).chain(providers.iter().map(provider)).collect()
}

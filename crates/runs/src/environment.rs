//! Environment of runs: everything that all runs of a host share.

use std::sync::Arc;

use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::{Channel, KnowledgeBase, KnowledgeSource, ModelProvider, Tool};
use capstan_hooks::points::{ProvideKnowledge, ProvideModelOptions, ProvideTools};
use capstan_policy::BindingStore;
use capstan_protocol::{Descriptor, RunnerId, WorkspaceId};
use capstan_tape::TapeRepository;
use tokio::sync::Semaphore;

use crate::action_registry::ActionRegistry;
use crate::active_runs::ActiveRuns;
use crate::model_call_log::CallContentCache;
use crate::options::RunOptions;
use crate::runner_registry::{RegisteredRunner, RunnerRegistry};
use crate::tool_catalog::ToolCatalog;

/// Everything that all runs of a host share.
pub struct RunEnvironment {
    pub(crate) hooks: HookRuntime,
    pub(crate) options: RunOptions,
    pub(crate) workspace_id: WorkspaceId,
    pub(crate) tapes: TapeRepository,
    pub(crate) bindings: Arc<BindingStore>,
    pub(crate) active_runs: ActiveRuns,
    pub(crate) actions: ActionRegistry,
    pub(crate) tools: Arc<ToolCatalog>,
    /// Content that successive model calls have in common, as the last call recorded it.
    pub(crate) call_content_cache: CallContentCache,
    /// Slots for building system prompts.
    pub(crate) prompt_slots: Arc<Semaphore>,
    /// True if a plugin may replace the model stage.
    has_model_stage_override: bool,
    runners: RunnerRegistry,
    models: Vec<Arc<dyn ModelProvider>>,
    knowledge: Vec<(KnowledgeBase, Arc<dyn KnowledgeSource>)>,
}

/// Maximum number of system prompts that a host builds at the same time. Each takes a thread, and the memory of a thread
/// stays in use for a while.
const MAX_PROMPT_BUILDS: usize = 4;

/// Parts of a host that its runs depend on.
pub struct RunDependencies<'a> {
    /// Hooks, which also provide runners, models, tools and knowledge.
    pub hooks: HookRuntime,
    /// Tapes of the host.
    pub tapes: TapeRepository,
    /// Identity of the workspace.
    pub workspace_id: WorkspaceId,
    /// Bindings of the host.
    pub bindings: Arc<BindingStore>,
    /// Channels that perform platform actions.
    pub channels: &'a [Arc<dyn Channel>],
}

/// Names of the model providers that these hooks provide.
pub fn model_provider_names(hooks: &HookRuntime) -> Vec<String> {
    let providers =
        hooks.collect_provided::<ProvideModelOptions, Arc<dyn ModelProvider>>(|provider| provider.name().to_owned());
    providers.iter().map(|provider| provider.name().to_owned()).collect()
}

/// Own names of the tools that the start-up hooks provide, those that need knowledge included.
pub fn tool_names(hooks: &HookRuntime) -> Vec<String> {
    let tools = hooks.collect_provided::<ProvideTools, Arc<dyn Tool>>(|tool| tool.spec().name.to_string());
    tools.iter().map(|tool| tool.spec().name.to_string()).collect()
}

impl RunEnvironment {
    /// Environment of the runners, models, tools and knowledge bases that the start-up hooks provide.
    pub fn from_hooks(dependencies: RunDependencies<'_>, options: RunOptions) -> Self {
        let RunDependencies { hooks, tapes, workspace_id, bindings, channels } = dependencies;
        let knowledge =
            hooks.collect_provided::<ProvideKnowledge, Arc<dyn KnowledgeSource>>(|source| source.knowledge_base().id);
        Self {
            tools: Arc::new(ToolCatalog::from_hooks(&hooks, !knowledge.is_empty())),
            actions: ActionRegistry::from_channels(channels),
            call_content_cache: CallContentCache::default(),
            prompt_slots: Arc::new(Semaphore::new(MAX_PROMPT_BUILDS)),
            runners: RunnerRegistry::from_hooks(&hooks),
            models: hooks.collect_provided::<ProvideModelOptions, _>(|provider| provider.name().to_owned()),
            knowledge: knowledge.into_iter().map(|source| (source.knowledge_base(), source)).collect(),
            has_model_stage_override: hooks.has_model_stage_override(),
            active_runs: ActiveRuns::default(),
            hooks,
            options,
            workspace_id,
            tapes,
            bindings,
        }
    }

    /// Runs of this process.
    pub fn active_runs(&self) -> &ActiveRuns {
        &self.active_runs
    }

    /// Tools that models are offered.
    pub fn tools(&self) -> &Arc<ToolCatalog> {
        &self.tools
    }

    /// Runners that bindings can name.
    pub fn runners(&self) -> &RunnerRegistry {
        &self.runners
    }

    /// Runner by id.
    pub(crate) fn runner(&self, id: &RunnerId) -> Option<&Arc<RegisteredRunner>> {
        self.runners.runner(id)
    }

    /// Returns true if a run of this runner may have effects that the host does not see: those of the runner itself, or
    /// of a plugin that takes its place.
    pub(crate) fn can_bypass_host(&self, runner: &Descriptor) -> bool {
        !runner.capabilities.effects_through_host || self.has_model_stage_override
    }

    /// All knowledge bases.
    pub(crate) fn knowledge(&self) -> &[(KnowledgeBase, Arc<dyn KnowledgeSource>)] {
        &self.knowledge
    }

    /// Ids of the knowledge bases.
    pub fn knowledge_base_ids(&self) -> impl Iterator<Item = &str> {
        self.knowledge.iter().map(|(base, _)| base.id.as_str())
    }

    /// Names of the model providers.
    pub(crate) fn model_providers(&self) -> impl Iterator<Item = &str> {
        self.models.iter().map(|provider| provider.name())
    }

    /// Model provider by name.
    pub(crate) fn model_provider(&self, name: &str) -> Option<&Arc<dyn ModelProvider>> {
        self.models.iter().find(|provider| provider.name() == name)
    }
}

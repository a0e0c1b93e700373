//! What the parts of a running host share.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::{Channel, KnowledgeBase, KnowledgeSource, ModelProvider, Runner, Tool};
use capstan_hooks::points::{
    BuildTapeContext, ProvideChannels, ProvideKnowledge, ProvideModelOptions, ProvideRunners, ProvideTapeStore,
};
use capstan_policy::{BindingError, BindingStore};
use capstan_protocol::{Binding, Descriptor, Event, PluginName, RunnerId, TapeName, ToolSpec, WorkspaceId};
use capstan_tape::{Batch, DefaultView, Fact, Store, TapeAddress, TapeRepository, View};
use capstan_turn::{RunError, TurnError};

use crate::actions::ActionRegistry;
use crate::delivery::channel_directory::ChannelDirectory;
use crate::engine::ActiveRuns;
use crate::runs::model_call_log;
use crate::runs::tool_catalog;
use crate::{HostError, HostOptions};

/// The session whose tape tells of what belongs to no session.
pub const SYSTEM_SESSION: &str = "system";
/// How many tapes are remembered to have an anchor. Of others that is looked up.
const MAX_REMEMBERED_TAPES: usize = 100_000;

/// What the parts of a running host share: the hooks, and everything the start-up hooks provided.
pub(crate) struct Services {
    pub(crate) hooks: HookRuntime,
    pub(crate) options: HostOptions,
    pub(crate) workspace_id: WorkspaceId,
    pub(crate) tapes: TapeRepository,
    pub(crate) view: Arc<dyn View>,
    pub(crate) bindings: BindingStore,
    /// Some plugin may stand in for the binding's runner.
    pub(crate) has_model_stage_override: bool,
    /// Tapes that are known to have an anchor, which they keep.
    begun: Mutex<HashSet<TapeName>>,
    /// The runs that go on.
    pub(crate) runs: ActiveRuns,
    pub(crate) channels: ChannelDirectory,
    /// What they can do on their platforms.
    pub(crate) actions: ActionRegistry,
    tools: Vec<Arc<dyn Tool>>,
    /// The plugin of each, in the same order.
    tool_plugins: Vec<PluginName>,
    /// What they are, in the same order.
    tool_specs: Arc<[ToolSpec]>,
    /// Where each stands, by its own name and by the one a model was given.
    tools_by_name: HashMap<String, usize>,
    /// What model calls have in common, as it was kept with the last one.
    pub(crate) call_content_cache: model_call_log::CallContentCache,
    runners: Vec<Arc<dyn Runner>>,
    models: Vec<Arc<dyn ModelProvider>>,
    knowledge: Vec<(KnowledgeBase, Arc<dyn KnowledgeSource>)>,
}

impl Services {
    /// Asks the start-up hooks for what the host runs on.
    pub(crate) async fn start(
        hooks: HookRuntime,
        store: Arc<dyn Store>,
        settings: HostOptions,
    ) -> Result<Self, HostError> {
        let workspace_id = resolve_workspace_id(store.as_ref(), &settings.workspace.to_text()).await?;
        let system = TapeAddress { workspace: workspace_id.clone(), session: SYSTEM_SESSION.into() };
        let channels: Vec<Arc<dyn Channel>> =
            hooks.collect_provided::<ProvideChannels, _>(|channel: &Arc<dyn Channel>| channel.name().to_string());
        let tapes = open_tapes(&hooks, store)?;
        let bindings = BindingStore::new(tapes.clone(), settings.clock.clone(), system)
            .with_channels(channels.iter().map(|channel| channel.name()).collect());
        let view = hooks.call_first_sync::<BuildTapeContext>(&())?.map(|decided| decided.value);
        let knowledge =
            hooks.collect_provided::<ProvideKnowledge, Arc<dyn KnowledgeSource>>(|source| source.knowledge_base().id);
        let mut offered = tool_catalog::collect_tools(&hooks);
        offered.retain(|(_, tool)| !tool.needs_knowledge() || !knowledge.is_empty());
        let (tool_plugins, tools): (Vec<_>, Vec<_>) = offered.into_iter().unzip();
        Ok(Self {
            actions: ActionRegistry::from_channels(&channels),
            channels: ChannelDirectory::new(channels),
            tools_by_name: tool_catalog::index_by_name(&tools),
            tool_specs: tools.iter().map(|tool| tool.spec()).collect(),
            tools,
            tool_plugins,
            call_content_cache: model_call_log::CallContentCache::default(),
            runners: hooks.collect_provided::<ProvideRunners, _>(|runner| runner.descriptor().id.to_string()),
            models: hooks.collect_provided::<ProvideModelOptions, _>(|provider| provider.name().to_owned()),
            knowledge: knowledge.into_iter().map(|source| (source.knowledge_base(), source)).collect(),
            view: view.unwrap_or_else(|| Arc::new(DefaultView)),
            bindings,
            has_model_stage_override: hooks.has_model_stage_override(),
            begun: Mutex::default(),
            runs: ActiveRuns::default(),
            hooks,
            options: settings,
            workspace_id,
            tapes,
        })
    }

    /// Whether a tape is known to have an anchor.
    pub(crate) fn is_anchored(&self, tape: &TapeName) -> bool {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).contains(tape)
    }

    /// A tape has an anchor.
    pub(crate) fn mark_anchored(&self, tape: &TapeName) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if begun.len() >= MAX_REMEMBERED_TAPES {
            begun.clear();
        }
        begun.insert(tape.clone());
    }

    /// Whether a run of this runner may do what the host does not see: the runner itself, or a plugin that stands in for it.
    pub(crate) fn can_bypass_host(&self, runner: &Descriptor) -> bool {
        !runner.capabilities.effects_through_host || self.has_model_stage_override
    }

    /// What every tool is.
    pub(crate) fn tool_specs(&self) -> &Arc<[ToolSpec]> {
        &self.tool_specs
    }

    /// A tool by its own name or by the name a model was given.
    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(*self.tools_by_name.get(name)?)
    }

    /// The names of the tools of these plugins, or which of those has none. The older kind of name has an author.
    pub(crate) fn tool_names_of_plugins(&self, plugins: &[String]) -> Result<Vec<String>, String> {
        let mut names = Vec::new();
        for wanted in plugins {
            let short = wanted.rsplit_once('/').map(|(_, name)| name);
            let is_it = |plugin: &PluginName| plugin.as_str() == wanted || Some(plugin.as_str()) == short;
            let tools = self.tools.iter().zip(&self.tool_plugins).filter(|(_, plugin)| is_it(plugin));
            let before = names.len();
            names.extend(tools.map(|(tool, _)| tool.spec().name.to_string()));
            if names.len() == before {
                let known: BTreeSet<&str> = self.tool_plugins.iter().map(PluginName::as_str).collect();
                let known: Vec<&str> = known.into_iter().collect();
                return Err(format!("no plugin {wanted} has tools here; known: {}", known.join(", ")));
            }
        }
        Ok(names)
    }

    /// Resolves the binding of an event: its own if it came with one, else the one that fits closest.
    pub(crate) async fn resolve_binding(
        &self,
        event: &Event,
        own: Option<&Arc<Binding>>,
    ) -> Result<Option<Arc<Binding>>, TurnError> {
        match own {
            Some(own) => Ok(Some(Arc::clone(own))),
            None => Ok(self.bindings.resolve(event).await.map_err(|error| binding_turn_error(&error))?.map(Arc::new)),
        }
    }

    /// What every runner says of itself.
    pub(crate) fn runners(&self) -> Vec<Descriptor> {
        self.runners.iter().map(|runner| runner.descriptor()).collect()
    }

    /// A runner by its id.
    pub(crate) fn runner(&self, id: &RunnerId) -> Option<&Arc<dyn Runner>> {
        self.runners.iter().find(|runner| runner.descriptor().id == *id)
    }

    /// Every knowledge base.
    pub(crate) fn knowledge(&self) -> &[(KnowledgeBase, Arc<dyn KnowledgeSource>)] {
        &self.knowledge
    }

    /// The names of the providers of models.
    pub(crate) fn model_providers(&self) -> impl Iterator<Item = &str> {
        self.models.iter().map(|provider| provider.name())
    }

    /// A provider of models by its name.
    pub(crate) fn model_provider(&self, name: &str) -> Option<&Arc<dyn ModelProvider>> {
        self.models.iter().find(|provider| provider.name() == name)
    }
}

/// The tapes of a running scope: in the store, or where a plugin or the configuration wants them kept. Whoever asks
/// closes them at the end of the scope.
pub fn open_tapes(hooks: &HookRuntime, store: Arc<dyn Store>) -> Result<TapeRepository, HostError> {
    Ok(match hooks.call_first_sync::<ProvideTapeStore>(&())? {
        None => TapeRepository::new(store),
        Some(provided) => TapeRepository::with_external_store(store, provided.value),
    })
}

/// The identity of a workspace: its path when it was first seen.
async fn resolve_workspace_id(store: &dyn Store, path: &str) -> Result<WorkspaceId, HostError> {
    if let Some(identity) = store.workspace(path).await? {
        return Ok(identity);
    }
    let identity = WorkspaceId::new(path);
    let mut batch = Batch::new();
    batch.push(Fact::RegisterWorkspace { path: path.to_owned(), identity });
    store.commit(batch).await?;
    // Another process may have been first; what is stored is what counts.
    Ok(store.workspace(path).await?.unwrap_or_else(|| WorkspaceId::new(path)))
}

/// Failure of a turn whose event has no usable binding. The sender does not see how bindings are written.
fn binding_turn_error(error: &BindingError) -> TurnError {
    let message = match error {
        BindingError::Store(error) => return error.clone().into(),
        BindingError::Unreadable { binding_id, .. } => {
            format!("the binding {binding_id} cannot be read, so nothing is done about this")
        }
        error => error.to_string(),
    };
    TurnError::Run(RunError { message, code: Some(error.code().into()) })
}

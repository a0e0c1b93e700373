//! Stored bindings.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_protocol::{AllowList, Binding, BindingId, ChannelName, Clock, Descriptor, Event};
use capstan_tape::{
    Batch, BatchPrecondition, BindingChange, EntryDraft, Fact, KeyValueRecord, NewTape, StoreError, TapeAddress,
    TapeEvent, TapeRepository, tape_name,
};
use serde::Deserialize as _;
use serde_json::json;

use super::binding_validation::{
    BindingError, check_conflicts, check_models, check_output_channel, check_tools, validate_binding,
};
use super::runner_config::is_tool;
use super::{BindingChoice, RejectedBinding, UnreadableBinding, default_binding, explain_choice, resolve_binding};

/// Key-value namespace of the bindings.
const BINDINGS_NAMESPACE: &str = "bindings";
/// Retries of a change that conflicts with one of another process.
const BINDING_CONFLICT_RETRIES: usize = 16;

/// Bindings of a host in its store. Every process that has the store open sees a change with the next event.
pub struct BindingStore {
    tapes: TapeRepository,
    clock: Clock,
    /// Tape that records changes.
    system_tape: TapeAddress,
    /// Known output channels, if any are given.
    channels: Option<Vec<ChannelName>>,
    /// Known model providers, if any are given.
    model_providers: Option<Vec<String>>,
    tools: Option<Vec<String>>,
    snapshot: Mutex<Option<BindingSnapshot>>,
}

/// Bindings of one revision.
#[derive(Clone)]
struct BindingSnapshot {
    revision: u64,
    bindings: Arc<Vec<Binding>>,
    unreadable: Arc<Vec<UnreadableBinding>>,
}

impl BindingSnapshot {
    /// Fails if the binding is stored and cannot be parsed.
    fn check_readable(&self, id: &BindingId) -> Result<(), BindingError> {
        let found = self.unreadable.iter().find(|unreadable| unreadable.binding_id == *id);
        found.map_or(Ok(()), |unreadable| Err(unreadable.into()))
    }

    /// Unreadable binding that could match an event.
    fn unreadable_match(&self, event: &Event) -> Option<&UnreadableBinding> {
        self.unreadable.iter().find(|unreadable| unreadable.can_match(event))
    }
}

impl BindingStore {
    /// Bindings in the store of `tapes`. Changes are recorded on the tape `system`.
    pub fn new(tapes: TapeRepository, clock: Clock, system: TapeAddress) -> Self {
        let snapshot = Mutex::default();
        Self { tapes, clock, system_tape: system, channels: None, model_providers: None, tools: None, snapshot }
    }

    /// Restricts output channels of saved bindings to `channels`.
    pub fn with_channels(self, channels: Vec<ChannelName>) -> Self {
        Self { channels: Some(channels), ..self }
    }

    /// Restricts models in the configuration of saved bindings to those of `providers`.
    pub fn with_model_providers(self, providers: Vec<String>) -> Self {
        Self { model_providers: Some(providers), ..self }
    }

    /// Restricts tools in the configuration of saved bindings to `tools`, by their own names.
    pub fn with_tools(self, tools: Vec<String>) -> Self {
        Self { tools: Some(tools), ..self }
    }

    /// All readable bindings, ordered by id.
    pub async fn all(&self) -> Result<Arc<Vec<Binding>>, StoreError> {
        Ok(self.snapshot().await?.bindings)
    }

    /// All unreadable bindings. Events that one of them could match are refused.
    pub async fn unreadable(&self) -> Result<Arc<Vec<UnreadableBinding>>, StoreError> {
        Ok(self.snapshot().await?.unreadable)
    }

    /// Binding with this id.
    pub async fn get(&self, id: &BindingId) -> Result<Binding, BindingError> {
        let read = self.snapshot().await?;
        read.check_readable(id)?;
        let found = read.bindings.iter().find(|binding| binding.binding_id == *id);
        found.cloned().ok_or_else(|| BindingError::Unknown { binding_id: id.clone() })
    }

    /// Resolves the binding of an event: its own if it came with one, else the most specific match. Fails if an unreadable
    /// binding could match it.
    pub async fn resolve(
        &self,
        event: &Event,
        own_binding: Option<&Arc<Binding>>,
    ) -> Result<Option<Arc<Binding>>, BindingError> {
        if let Some(binding) = own_binding {
            return Ok(Some(Arc::clone(binding)));
        }
        let read = self.snapshot().await?;
        match read.unreadable_match(event) {
            Some(unreadable) => Err(unreadable.into()),
            None => Ok(resolve_binding(&read.bindings, event).cloned().map(Arc::new)),
        }
    }

    /// Explains the binding that an event would get.
    pub async fn dry_run(&self, event: &Event) -> Result<BindingChoice, StoreError> {
        let read = self.snapshot().await?;
        let choice = explain_choice(&read.bindings, event);
        let Some(unreadable) = read.unreadable_match(event) else { return Ok(choice) };
        let reason = format!(
            "the binding {} cannot be read and could fit this event, so it is refused: {}",
            unreadable.binding_id, unreadable.reason
        );
        let fits = choice.binding_id.map(|binding_id| RejectedBinding { binding_id, reason: choice.reason });
        Ok(BindingChoice { binding_id: None, reason, rejected: fits.into_iter().chain(choice.rejected).collect() })
    }

    /// Saves a binding, replacing the one with its id. Refused when it is invalid, does not fit its runner, or conflicts with
    /// another binding.
    pub async fn save(&self, binding: &Binding, runners: &[Descriptor]) -> Result<(), BindingError> {
        self.check_binding(binding, runners)?;
        self.commit_change(TapeEvent::BindingSaved, &binding.binding_id, |before| {
            check_conflicts(binding, &before.bindings)?;
            Ok(Some(binding.clone()))
        })
        .await
    }

    /// Enables or disables a binding. Enabling validates it again.
    pub async fn set_enabled(&self, id: &BindingId, enabled: bool, runners: &[Descriptor]) -> Result<(), BindingError> {
        let event = if enabled { TapeEvent::BindingEnabled } else { TapeEvent::BindingDisabled };
        self.commit_change(event, id, |before| {
            before.check_readable(id)?;
            let binding = before.bindings.iter().find(|binding| binding.binding_id == *id);
            let binding = binding.ok_or_else(|| BindingError::Unknown { binding_id: id.clone() })?;
            let binding = Binding { enabled, ..binding.clone() };
            if enabled {
                self.check_binding(&binding, runners)?;
                check_conflicts(&binding, &before.bindings)?;
            }
            Ok(Some(binding))
        })
        .await
    }

    /// Parts of a valid binding that have no effect here: a workspace that this host does not serve, and tools of its
    /// policy that are not there. Another host of the same home may have them.
    pub fn ineffective_parts(&self, binding: &Binding) -> Vec<String> {
        let mut parts = Vec::new();
        if let Some(workspace) = &binding.scope.workspace_id
            && *workspace != self.system_tape.workspace
        {
            parts.push(format!(
                "it applies to the workspace {workspace} only; the workspace here is {}",
                self.system_tape.workspace
            ));
        }
        let policy = binding.resource_policy.tools.as_ref().map(|tools| &tools.names);
        if let (Some(AllowList::Only(names)), Some(tools)) = (policy, &self.tools) {
            let unknown = names.iter().filter(|name| !is_tool(tools, name));
            parts.extend(unknown.map(|name| format!("its resource_policy names the tool {name}, which is not there")));
        }
        parts
    }

    /// Checks a binding by itself, against its runner, and against the model providers and tools.
    pub fn check_runner_fit(&self, binding: &Binding, runners: &[Descriptor]) -> Result<(), BindingError> {
        validate_binding(binding, runners)?;
        self.tools.as_deref().map_or(Ok(()), |tools| check_tools(binding, runners, tools))?;
        self.model_providers.as_deref().map_or(Ok(()), |providers| check_models(binding, runners, providers))
    }

    fn check_binding(&self, binding: &Binding, runners: &[Descriptor]) -> Result<(), BindingError> {
        self.check_runner_fit(binding, runners)?;
        self.channels.as_deref().map_or(Ok(()), |channels| check_output_channel(binding, channels))
    }

    /// Removes a binding, including an unreadable one.
    pub async fn remove(&self, id: &BindingId) -> Result<(), BindingError> {
        self.commit_change(TapeEvent::BindingRemoved, id, |before| {
            let is_there = before.bindings.iter().any(|binding| binding.binding_id == *id);
            if is_there || before.check_readable(id).is_err() {
                Ok(None)
            } else {
                Err(BindingError::Unknown { binding_id: id.clone() })
            }
        })
        .await
    }

    /// Commits the binding that `change` returns, or removes it if `change` returns `None`; retries on conflicts.
    async fn commit_change(
        &self,
        event: fn(BindingChange) -> TapeEvent,
        id: &BindingId,
        change: impl Fn(&BindingSnapshot) -> Result<Option<Binding>, BindingError>,
    ) -> Result<(), BindingError> {
        for _ in 0..BINDING_CONFLICT_RETRIES {
            let before = self.snapshot().await?;
            let changed = change(&before)?;
            let mut batch = Batch::new();
            batch.preconditions.push(BatchPrecondition::NamespaceRevision {
                namespace: BINDINGS_NAMESPACE.to_owned(),
                revision: before.revision,
            });
            if before.revision == 0 {
                batch.push(self.put_fact(&default_binding()));
            }
            batch.push(match &changed {
                Some(binding) => self.put_fact(binding),
                None => Fact::RemoveKeyValue {
                    namespace: BINDINGS_NAMESPACE.to_owned(),
                    key: id.to_string(),
                    removed_at: self.clock.now(),
                },
            });
            let tape = tape_name(&self.system_tape);
            let session = Some(self.system_tape.session.clone());
            let workspace = Some(self.system_tape.workspace.clone());
            batch.push(Fact::EnsureTape(NewTape { session, workspace, ..NewTape::without_session(tape.clone()) }));
            let told = event(BindingChange { binding_id: id.clone(), binding: changed.map(Box::new) });
            batch.append(&tape, EntryDraft { date: Some(self.clock.now().into()), ..told.into() });
            match self.tapes.commit(batch).await {
                Err(StoreError::NamespaceChanged { .. }) => {}
                done => return done.map(drop).map_err(BindingError::from),
            }
        }
        Err(StoreError::NamespaceChanged { namespace: BINDINGS_NAMESPACE.to_owned() }.into())
    }

    fn put_fact(&self, binding: &Binding) -> Fact {
        let (space, key, at) = (BINDINGS_NAMESPACE.to_owned(), binding.binding_id.to_string(), self.clock.now());
        Fact::PutKeyValue(KeyValueRecord { space, key, value: json!(binding), at, by: None })
    }

    async fn snapshot(&self) -> Result<BindingSnapshot, StoreError> {
        let revision = self.tapes.store().namespace(BINDINGS_NAMESPACE).await?.map_or(0, |space| space.revision);
        let known = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.revision == revision) {
            return Ok(known);
        }
        let (bindings, unreadable) =
            if revision == 0 { (vec![default_binding()], Vec::new()) } else { self.load_bindings().await? };
        let read = BindingSnapshot { revision, bindings: Arc::new(bindings), unreadable: Arc::new(unreadable) };
        // A later change has another revision, so that the snapshot is replaced then.
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(read.clone());
        Ok(read)
    }

    async fn load_bindings(&self) -> Result<(Vec<Binding>, Vec<UnreadableBinding>), StoreError> {
        let (mut bindings, mut unreadable) = (Vec::new(), Vec::new());
        let mut records = self.tapes.store().key_values(BINDINGS_NAMESPACE);
        while let Some(KeyValueRecord { key, value, .. }) = records.next().await? {
            match Binding::deserialize(&value) {
                Ok(binding) => bindings.push(binding),
                Err(error) => {
                    tracing::error!(binding = key, %error, "a binding cannot be read: what it could fit is refused");
                    unreadable.push(UnreadableBinding::new(key.into(), &value, error.to_string()));
                }
            }
        }
        Ok((bindings, unreadable))
    }
}

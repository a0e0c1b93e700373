//! The bindings as they are kept.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_protocol::{Binding, BindingId, ChannelName, Descriptor, Event};
use capstan_tape::{Batch, Draft, Expect, Fact, Kept, NewTape, Store, StoreError, TapeAddress, tape_name};
use serde_json::json;

use super::check::{BindingError, check, check_beside, check_delivery};
use super::{Choice, choose, default_binding, resolve};
use crate::Clock;

/// The space that bindings are kept in.
const SPACE: &str = "bindings";
/// How often a change is tried again that another process came before.
const RACES: usize = 16;

/// The bindings of a host, in its store. Every process that has the store open sees a change with the next event.
pub struct Bindings {
    store: Arc<dyn Store>,
    clock: Clock,
    /// Where changes are told of.
    system: TapeAddress,
    /// Where answers can go, if that is known.
    channels: Option<Vec<ChannelName>>,
    read: Mutex<Option<Read>>,
}

/// Bindings as they were read.
#[derive(Clone)]
struct Read {
    revision: u64,
    bindings: Arc<Vec<Binding>>,
}

impl Bindings {
    /// The bindings in a store. Changes are told of on this tape.
    pub fn new(store: Arc<dyn Store>, clock: Clock, system: TapeAddress) -> Self {
        Self { store, clock, system, channels: None, read: Mutex::default() }
    }

    /// The same with the channels there are: a binding that answers on another one is refused.
    pub fn with_channels(self, channels: Vec<ChannelName>) -> Self {
        Self { channels: Some(channels), ..self }
    }

    /// Every binding, by id.
    pub async fn all(&self) -> Result<Arc<Vec<Binding>>, StoreError> {
        Ok(self.read().await?.bindings)
    }

    /// A binding.
    pub async fn get(&self, id: &BindingId) -> Result<Binding, BindingError> {
        let bindings = self.all().await?;
        let found = bindings.iter().find(|binding| binding.binding_id == *id);
        found.cloned().ok_or_else(|| BindingError::Unknown { binding_id: id.clone() })
    }

    /// The binding that an event gets.
    pub async fn resolve(&self, event: &Event) -> Result<Option<Binding>, StoreError> {
        Ok(resolve(&self.all().await?, event).cloned())
    }

    /// Which binding an event would get, and why.
    pub async fn dry_run(&self, event: &Event) -> Result<Choice, StoreError> {
        Ok(choose(&self.all().await?, event))
    }

    /// Saves a binding, in place of the one of its id. Refused when it makes no sense, when its runner cannot take it, or
    /// when an event could get another one as well.
    pub async fn save(&self, binding: &Binding, runners: &[Descriptor]) -> Result<(), BindingError> {
        self.check(binding, runners)?;
        self.change("binding.saved", &binding.binding_id, |others| {
            check_beside(binding, others)?;
            Ok(Some(binding.clone()))
        })
        .await
    }

    /// Puts a binding in force, or out of force. One that was refused before is refused again.
    pub async fn set_enabled(&self, id: &BindingId, enabled: bool, runners: &[Descriptor]) -> Result<(), BindingError> {
        let name = if enabled { "binding.enabled" } else { "binding.disabled" };
        self.change(name, id, |bindings| {
            let binding = bindings.iter().find(|binding| binding.binding_id == *id);
            let binding = binding.ok_or_else(|| BindingError::Unknown { binding_id: id.clone() })?;
            let binding = Binding { enabled, ..binding.clone() };
            if enabled {
                self.check(&binding, runners)?;
                check_beside(&binding, bindings)?;
            }
            Ok(Some(binding))
        })
        .await
    }

    fn check(&self, binding: &Binding, runners: &[Descriptor]) -> Result<(), BindingError> {
        check(binding, runners)?;
        self.channels.as_deref().map_or(Ok(()), |channels| check_delivery(binding, channels))
    }

    /// Removes a binding.
    pub async fn remove(&self, id: &BindingId) -> Result<(), BindingError> {
        self.change("binding.removed", id, |bindings| {
            let is_there = bindings.iter().any(|binding| binding.binding_id == *id);
            if is_there { Ok(None) } else { Err(BindingError::Unknown { binding_id: id.clone() }) }
        })
        .await
    }

    /// Changes one binding to what `change` makes of those there are, or removes it.
    async fn change(
        &self,
        name: &str,
        id: &BindingId,
        change: impl Fn(&[Binding]) -> Result<Option<Binding>, BindingError>,
    ) -> Result<(), BindingError> {
        for _ in 0..RACES {
            let before = self.read().await?;
            let changed = change(&before.bindings)?;
            let mut batch = Batch::new();
            batch.expect.push(Expect::Space { space: SPACE.to_owned(), revision: before.revision });
            if before.revision == 0 {
                batch.push(self.keep(&default_binding()));
            }
            batch.push(match &changed {
                Some(binding) => self.keep(binding),
                None => Fact::Forget { space: SPACE.to_owned(), key: id.to_string(), at: self.clock.now() },
            });
            let tape = tape_name(&self.system);
            let session = Some(self.system.session.clone());
            let workspace = Some(self.system.workspace.clone());
            batch.push(Fact::EnsureTape(NewTape { session, workspace, ..NewTape::named(tape.clone()) }));
            let told = json!({ "binding_id": id, "binding": changed });
            batch.append(&tape, Draft { date: Some(self.clock.now().into()), ..Draft::event(name, told) });
            match self.store.commit(batch).await {
                Err(StoreError::Changed { .. }) => {}
                done => return done.map(drop).map_err(BindingError::from),
            }
        }
        Err(StoreError::Changed { space: SPACE.to_owned() }.into())
    }

    fn keep(&self, binding: &Binding) -> Fact {
        let (space, key, at) = (SPACE.to_owned(), binding.binding_id.to_string(), self.clock.now());
        Fact::Keep(Kept { space, key, value: json!(binding), at, by: None })
    }

    async fn read(&self) -> Result<Read, StoreError> {
        let revision = self.store.space(SPACE).await?.map_or(0, |space| space.revision);
        let known = self.read.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.revision == revision) {
            return Ok(known);
        }
        let bindings = if revision == 0 { vec![default_binding()] } else { self.kept().await? };
        let read = Read { revision, bindings: Arc::new(bindings) };
        // A change since then has another revision, and what is read for it is read again.
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some(read.clone());
        Ok(read)
    }

    async fn kept(&self) -> Result<Vec<Binding>, StoreError> {
        let kept = self.store.kept_in(SPACE, None, usize::MAX).await?;
        let binding = |kept: Kept| match serde_json::from_value(kept.value) {
            Ok(binding) => Some(binding),
            Err(error) => {
                tracing::error!(binding = kept.key, %error, "a binding cannot be read, and is not in force");
                None
            }
        };
        Ok(kept.into_iter().filter_map(binding).collect())
    }
}

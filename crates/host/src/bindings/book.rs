//! The bindings as they are kept.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_protocol::{Binding, BindingId, ChannelName, Descriptor, Event};
use capstan_tape::{Batch, Draft, Expect, Fact, Kept, NewTape, StoreError, TapeAddress, Tapes, tape_name};
use serde::Deserialize as _;
use serde_json::json;

use super::check::{BindingError, check, check_beside, check_delivery};
use super::{Choice, Loser, Unreadable, choose, default_binding, resolve};
use crate::Clock;

/// The space that bindings are kept in.
const SPACE: &str = "bindings";
/// How often a change is tried again that another process came before.
const RACES: usize = 16;

/// The bindings of a host, in its store. Every process that has the store open sees a change with the next event.
pub struct Bindings {
    tapes: Tapes,
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
    unreadable: Arc<Vec<Unreadable>>,
}

impl Read {
    /// The error where a binding cannot be read.
    fn check_readable(&self, id: &BindingId) -> Result<(), BindingError> {
        let found = self.unreadable.iter().find(|unreadable| unreadable.binding_id == *id);
        found.map_or(Ok(()), |unreadable| Err(unreadable.into()))
    }

    /// A binding that cannot be read and could fit an event.
    fn in_doubt(&self, event: &Event) -> Option<&Unreadable> {
        self.unreadable.iter().find(|unreadable| unreadable.could_fit(event))
    }
}

impl Bindings {
    /// The bindings beneath these tapes. Changes are told of on this one.
    pub fn new(tapes: Tapes, clock: Clock, system: TapeAddress) -> Self {
        Self { tapes, clock, system, channels: None, read: Mutex::default() }
    }

    /// The same with the channels there are: a binding that answers on another one is refused.
    pub fn with_channels(self, channels: Vec<ChannelName>) -> Self {
        Self { channels: Some(channels), ..self }
    }

    /// Every binding that can be read, by id.
    pub async fn all(&self) -> Result<Arc<Vec<Binding>>, StoreError> {
        Ok(self.read().await?.bindings)
    }

    /// Those that cannot be read. Events that one of them could fit are refused.
    pub async fn unreadable(&self) -> Result<Arc<Vec<Unreadable>>, StoreError> {
        Ok(self.read().await?.unreadable)
    }

    /// A binding.
    pub async fn get(&self, id: &BindingId) -> Result<Binding, BindingError> {
        let read = self.read().await?;
        read.check_readable(id)?;
        let found = read.bindings.iter().find(|binding| binding.binding_id == *id);
        found.cloned().ok_or_else(|| BindingError::Unknown { binding_id: id.clone() })
    }

    /// The binding that an event gets. Fails where one that cannot be read could be it.
    pub async fn resolve(&self, event: &Event) -> Result<Option<Binding>, BindingError> {
        let read = self.read().await?;
        match read.in_doubt(event) {
            Some(unreadable) => Err(unreadable.into()),
            None => Ok(resolve(&read.bindings, event).cloned()),
        }
    }

    /// Which binding an event would get, and why.
    pub async fn dry_run(&self, event: &Event) -> Result<Choice, StoreError> {
        let read = self.read().await?;
        let choice = choose(&read.bindings, event);
        let Some(unreadable) = read.in_doubt(event) else { return Ok(choice) };
        let reason = format!(
            "the binding {} cannot be read and could fit this event, so it is refused: {}",
            unreadable.binding_id, unreadable.reason
        );
        let fits = choice.binding_id.map(|binding_id| Loser { binding_id, reason: choice.reason });
        Ok(Choice { binding_id: None, reason, losers: fits.into_iter().chain(choice.losers).collect() })
    }

    /// Saves a binding, in place of the one of its id. Refused when it makes no sense, when its runner cannot take it, or
    /// when an event could get another one as well.
    pub async fn save(&self, binding: &Binding, runners: &[Descriptor]) -> Result<(), BindingError> {
        self.check(binding, runners)?;
        self.change("binding.saved", &binding.binding_id, |before| {
            check_beside(binding, &before.bindings)?;
            Ok(Some(binding.clone()))
        })
        .await
    }

    /// Puts a binding in force, or out of force. One that was refused before is refused again.
    pub async fn set_enabled(&self, id: &BindingId, enabled: bool, runners: &[Descriptor]) -> Result<(), BindingError> {
        let name = if enabled { "binding.enabled" } else { "binding.disabled" };
        self.change(name, id, |before| {
            before.check_readable(id)?;
            let binding = before.bindings.iter().find(|binding| binding.binding_id == *id);
            let binding = binding.ok_or_else(|| BindingError::Unknown { binding_id: id.clone() })?;
            let binding = Binding { enabled, ..binding.clone() };
            if enabled {
                self.check(&binding, runners)?;
                check_beside(&binding, &before.bindings)?;
            }
            Ok(Some(binding))
        })
        .await
    }

    fn check(&self, binding: &Binding, runners: &[Descriptor]) -> Result<(), BindingError> {
        check(binding, runners)?;
        self.channels.as_deref().map_or(Ok(()), |channels| check_delivery(binding, channels))
    }

    /// Removes a binding, also one that cannot be read.
    pub async fn remove(&self, id: &BindingId) -> Result<(), BindingError> {
        self.change("binding.removed", id, |before| {
            let is_there = before.bindings.iter().any(|binding| binding.binding_id == *id);
            if is_there || before.check_readable(id).is_err() {
                Ok(None)
            } else {
                Err(BindingError::Unknown { binding_id: id.clone() })
            }
        })
        .await
    }

    /// Changes one binding to what `change` makes of those there are, or removes it.
    async fn change(
        &self,
        name: &str,
        id: &BindingId,
        change: impl Fn(&Read) -> Result<Option<Binding>, BindingError>,
    ) -> Result<(), BindingError> {
        for _ in 0..RACES {
            let before = self.read().await?;
            let changed = change(&before)?;
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
            match self.tapes.commit(batch).await {
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
        let revision = self.tapes.store().space(SPACE).await?.map_or(0, |space| space.revision);
        let known = self.read.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.revision == revision) {
            return Ok(known);
        }
        let (bindings, unreadable) =
            if revision == 0 { (vec![default_binding()], Vec::new()) } else { self.kept().await? };
        let read = Read { revision, bindings: Arc::new(bindings), unreadable: Arc::new(unreadable) };
        // A change since then has another revision, and what is read for it is read again.
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some(read.clone());
        Ok(read)
    }

    async fn kept(&self) -> Result<(Vec<Binding>, Vec<Unreadable>), StoreError> {
        let (mut bindings, mut unreadable) = (Vec::new(), Vec::new());
        for Kept { key, value, .. } in self.tapes.store().kept_in(SPACE, None, usize::MAX).await? {
            match Binding::deserialize(&value) {
                Ok(binding) => bindings.push(binding),
                Err(error) => {
                    tracing::error!(binding = key, %error, "a binding cannot be read: what it could fit is refused");
                    unreadable.push(Unreadable::new(key.into(), &value, error.to_string()));
                }
            }
        }
        Ok((bindings, unreadable))
    }
}

//! Tape events: the entries of kind `event` that Capstan writes and reads itself, each with its typed data.
//!
//! [`TapeEvent`] is the only list of these events. Its declaration below has, for each event, the variant, the type of
//! its data, its name on the tape and its properties; everything else (the names reserved for the host, the selection
//! for the event log, the table in `docs/tapes.md`) is derived from it. To add an event, add a line here and its data
//! type in one of the files of this folder.
//!
//! Names and data are a storage format: they must read tapes that were written years ago. A field may be added if
//! reading tolerates its absence; a name or a field is never renamed.
//!
//! Plugins and imported tapes have events of their own, which are not listed here. [`TapeEvent::from_entry`] returns
//! `None` for them.

mod action_events;
mod data_events;
mod event_acceptance;
mod run_events;
mod runner_faults;

use capstan_protocol::{Artifact, JsonObject};
use serde::Deserialize as _;
use serde_json::{Value, json};

pub use self::action_events::{ActionDenier, ActionEnd, ActionEndRecord, ActionRefusal, ActionStart, ChildActions};
pub use self::data_events::{
    ArtifactRemoval, BindingChange, NamespaceClearing, NamespaceEdit, StateChange, StateKeyChange, StateKeyEdit,
    StateKeyRemoval, StorageChange,
};
pub use self::event_acceptance::{EventAcceptance, StoredBinding};
pub use self::run_events::{
    CommandEnd, CommandStart, CommandStatus, DispatchVote, HandoffNotice, LoopStart, LoopStepEnd, LoopStepStart,
    LoopStepStatus, ModelCallEnd, ModelCallRecord, ModelCallStatus, OutboundDispatch,
};
pub use self::runner_faults::{ApiRefusal, DroppedResult, ResultAnomalies};
use crate::{Entry, EntryDraft, EntryKind};

/// Property of a tape event, in addition to its name and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventProperty {
    /// All views omit the entry.
    Hidden,
    /// The event log shows the entry.
    Logged,
    /// Written by runners, as a note through the run API. All other events are written by the host only.
    RunnerNote,
}

/// Declares [`TapeEvent`] and [`TapeEventKind`] from lines `Variant(Data) = "name", Property, ...;`. The one-line doc
/// comment is also the summary in `docs/tapes.md`.
macro_rules! tape_events {
    ($(#[doc = $summary:literal] $variant:ident($data:ty) = $name:literal $(, $property:ident)*;)+) => {
        /// An event that Capstan writes on a tape, with its data.
        ///
        /// ```
        /// use capstan_protocol::ToolName;
        /// use capstan_tape::{CommandStart, EntryDraft, TapeEvent};
        ///
        /// let start = CommandStart { raw: ",help".to_owned(), name: ToolName::new("help") };
        /// let draft = EntryDraft::from(TapeEvent::CommandStart(start));
        /// assert_eq!(draft.payload.to_string(), r#"{"name":"command.start","data":{"raw":",help","name":"help"}}"#);
        /// ```
        #[derive(Debug, Clone, PartialEq)]
        pub enum TapeEvent {
            $(#[doc = $summary] $variant($data),)+
        }

        /// A [`TapeEvent`] without its data.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum TapeEventKind {
            $(#[doc = $summary] $variant,)+
        }

        impl TapeEvent {
            /// Kind of the event.
            pub const fn kind(&self) -> TapeEventKind {
                match self {
                    $(Self::$variant(_) => TapeEventKind::$variant,)+
                }
            }

            /// Data in the format of the tape.
            pub fn data(&self) -> Value {
                match self {
                    $(Self::$variant(data) => json!(data),)+
                }
            }

            fn parse(kind: TapeEventKind, data: &Value) -> Result<Self, serde_json::Error> {
                match kind {
                    $(TapeEventKind::$variant => <$data>::deserialize(data).map(Self::$variant),)+
                }
            }
        }

        impl TapeEventKind {
            /// Every kind, in the order of declaration.
            pub const ALL_KINDS: &[Self] = &[$(Self::$variant),+];

            /// Name on the tape.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// One sentence of documentation.
            pub fn summary(self) -> &'static str {
                let line = match self {
                    $(Self::$variant => $summary,)+
                };
                line.trim()
            }

            /// Kind of the event with this name; `None` for events of plugins and other systems.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }

            const fn properties(self) -> &'static [EventProperty] {
                match self {
                    $(Self::$variant => &[$(EventProperty::$property),*],)+
                }
            }
        }
    };
}

tape_events! {
    /// An inbound event was accepted, before anything was done with it.
    EventAccepted(EventAcceptance) = "event.accepted", Hidden;
    /// A model is about to be called: content hashes of everything that is sent.
    ModelCall(ModelCallRecord) = "model.call", Hidden;
    /// End of a model call. The name is historical: it is not the end of a run.
    ModelCallEnded(ModelCallEnd) = "run";
    /// A comma command is about to be executed.
    CommandStart(CommandStart) = "command.start", Hidden;
    /// A comma command ended, or was refused.
    Command(CommandEnd) = "command", Logged;
    /// An anchor was written.
    Handoff(HandoffNotice) = "handoff", Logged;
    /// An outbound message was dispatched, and whether each plugin reported it as sent.
    Outbound(OutboundDispatch) = "outbound", Logged;
    /// A platform action was refused.
    ActionRefused(ActionRefusal) = "action.refused", Hidden, Logged;
    /// The channel is about to be asked for a platform action.
    ActionStarted(ActionStart) = "action.started", Hidden, Logged;
    /// A platform action ended.
    ActionEnded(ActionEndRecord) = "action.ended", Hidden, Logged;
    /// A child run that had requested platform actions ended.
    ActionByChild(ChildActions) = "action.by_child", Hidden;
    /// Run-API calls were refused.
    ApiRefused(ApiRefusal) = "api.refused", Hidden;
    /// A result of the runner was dropped.
    ResultDropped(DroppedResult) = "result.dropped", Hidden;
    /// Number of anomalies of each kind in the results of a run that ended.
    ResultsNoted(ResultAnomalies) = "results.noted", Hidden;
    /// An artifact was stored.
    ArtifactCreated(Artifact) = "artifact.created", Hidden;
    /// An operator removed the content of an artifact.
    ArtifactRemoved(ArtifactRemoval) = "artifact.removed";
    /// A runner changed its stored state: keys and sizes, never values.
    StateChanged(StateChange) = "state.changed", Hidden;
    /// A runner changed its stored content.
    StorageChanged(StorageChange) = "storage.changed", Hidden;
    /// A binding was saved.
    BindingSaved(BindingChange) = "binding.saved";
    /// A binding was enabled.
    BindingEnabled(BindingChange) = "binding.enabled";
    /// A binding was disabled.
    BindingDisabled(BindingChange) = "binding.disabled";
    /// A binding was removed.
    BindingRemoved(BindingChange) = "binding.removed";
    /// An operator set a key of a runner's state.
    StateSet(NamespaceEdit<StateKeyEdit>) = "state.set";
    /// An operator removed a key of a runner's state or storage.
    StateRemoved(NamespaceEdit<StateKeyRemoval>) = "state.removed";
    /// An operator removed everything from a namespace of a runner.
    StateCleared(NamespaceEdit<NamespaceClearing>) = "state.cleared";
    /// The built-in agent starts its loop.
    LoopStart(LoopStart) = "loop.start", RunnerNote;
    /// The built-in agent starts a step of its loop.
    LoopStepStart(LoopStepStart) = "loop.step.start", RunnerNote;
    /// A step of the built-in agent's loop ended.
    LoopStep(LoopStepEnd) = "loop.step", RunnerNote;
}

impl TapeEvent {
    /// Name on the tape.
    pub const fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// Reads the event of an entry. `None` for entries of other kinds and for events of plugins and other systems; an
    /// error if the data cannot be read.
    pub fn read(entry: &Entry) -> Result<Option<Self>, serde_json::Error> {
        let Some(kind) = entry.event_kind() else { return Ok(None) };
        Self::parse(kind, entry.data().unwrap_or(&Value::Null)).map(Some)
    }

    /// Reads the event of an entry, if it is listed here and its data can be read.
    pub fn from_entry(entry: &Entry) -> Option<Self> {
        Self::read(entry).ok().flatten()
    }
}

impl From<TapeEvent> for EntryDraft {
    fn from(event: TapeEvent) -> Self {
        let draft = Self::event(event.name(), event.data());
        if event.kind().is_hidden() { draft.hidden() } else { draft }
    }
}

impl TapeEventKind {
    /// First parts of names that are reserved in addition to those of the events.
    const RESERVED_FAMILIES: [&str; 4] = ["delivery", "outbound", "run", "session"];

    fn has(self, property: EventProperty) -> bool {
        self.properties().contains(&property)
    }

    /// Returns true if all views omit the entry.
    pub fn is_hidden(self) -> bool {
        self.has(EventProperty::Hidden)
    }

    /// Returns true if the event log shows the entry as an activity.
    pub fn is_logged(self) -> bool {
        self.has(EventProperty::Logged)
    }

    /// Returns true if only the host writes the event.
    pub fn is_host_only(self) -> bool {
        !self.has(EventProperty::RunnerNote)
    }

    /// Returns true if only the host may write events with this name, because recovery, artifacts and the audit trust
    /// them. The names of the host's own events are reserved, and all names that share their first part (`action` in
    /// `action.started`).
    pub fn is_reserved_name(name: &str) -> bool {
        let is_in_family = |family: &str| name.strip_prefix(family).is_some_and(|rest| rest.starts_with('.'));
        let mut own = Self::ALL_KINDS.iter().filter(|kind| kind.is_host_only()).map(|kind| kind.name());
        let is_reserved =
            |own: &str| own == name || own.split_once('.').is_some_and(|(family, _)| is_in_family(family));
        own.any(is_reserved) || Self::RESERVED_FAMILIES.into_iter().any(is_in_family)
    }
}

impl Entry {
    /// Kind of the tape event, if the entry is one. Its data is not read.
    pub fn event_kind(&self) -> Option<TapeEventKind> {
        kind_of(&self.kind, self.name())
    }
}

impl EntryDraft {
    /// Entries of a handoff: the anchor, and the event that repeats it.
    pub fn handoff(name: &str, state: &JsonObject) -> [Self; 2] {
        let notice = HandoffNotice { name: name.to_owned(), state: state.clone() };
        [Self::anchor(name, state), TapeEvent::Handoff(notice).into()]
    }

    /// Handoff at the start of a tape without an anchor: `session/start`, owned by a human.
    pub fn session_start() -> [Self; 2] {
        let state = JsonObject::from_iter([("owner".to_owned(), json!("human"))]);
        Self::handoff("session/start", &state)
    }

    /// Kind of the tape event, if the entry is one. Its data is not read.
    pub fn event_kind(&self) -> Option<TapeEventKind> {
        kind_of(&self.kind, self.name())
    }
}

fn kind_of(kind: &EntryKind, name: Option<&str>) -> Option<TapeEventKind> {
    name.filter(|_| *kind == EntryKind::Event).and_then(TapeEventKind::from_name)
}

//! What the store and the platform say at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan::protocol::{BlobHash, Event, EventKey, ModelOptions, ModelRequest, TapeName};
use capstan::store::{JsonlTapeStore, SqliteStore};
use capstan::tape::{
    ContextWindow, DefaultView, Entry, InFlightEvent, InboxRecord, OutboxRecord, OutboxStatus, RunRecord, Store,
    StoreError, TapeRepository, TapeSlice, View as _, blob_hash, conversation,
};
use capstan_models::wire;
use capstan_testing::grammar;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::platform::PlatformRecord;
use crate::script::ScriptedMessage;

/// The store of a host, read from outside.
pub struct StoreReader {
    runtime: Runtime,
    store: Arc<dyn Store>,
    /// Where entries are kept as files, if they are.
    tapes_dir: Option<PathBuf>,
}

/// What the store and the platform say at one moment, by the ids of events.
pub struct TrialSnapshot {
    pub tapes: BTreeMap<TapeName, Vec<Entry>>,
    pub in_flight: Vec<InFlightEvent>,
    pub runs: Vec<RunRecord>,
    pub running: Vec<RunRecord>,
    pub events: BTreeMap<String, InboxRecord>,
    pub outbox_rows: BTreeMap<String, Vec<OutboxRecord>>,
    pub settled: Vec<EventKey>,
    /// What is kept for runners: state and storage, by space and key.
    pub stored_values: BTreeMap<(String, String), Value>,
    /// What `verify` found, and where a view is not what a strict provider takes.
    pub damage: Vec<String>,
    /// What had been offered to the host.
    pub offered: BTreeSet<String>,
    /// What the host had acknowledged.
    pub acknowledged: BTreeSet<String>,
    /// How many messages had been sent.
    pub sent: usize,
    /// Which callers had been answered.
    pub answered: BTreeSet<String>,
}

pub fn event_key(said: &ScriptedMessage) -> EventKey {
    EventKey::from(&said.event())
}

impl StoreReader {
    pub fn open(home: &Path, keeps_files: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let store = SqliteStore::open(home.join("capstan.db")).expect("the store of the host");
        Self { runtime, store: Arc::new(store), tapes_dir: keeps_files.then(|| home.join("tapes")) }
    }

    /// Whether an event has ended and nothing of it waits to be sent.
    pub fn has_ended(&self, said: &ScriptedMessage) -> bool {
        let key = event_key(said);
        let read = async {
            let record = self.store.inbox_record(&key).await?;
            let is_settled = record.is_some_and(|record| record.outcome.is_some());
            let waits = |row: &OutboxRecord| matches!(row.status, OutboxStatus::Waiting { .. });
            Ok::<bool, StoreError>(is_settled && !self.store.outbox_records(&key).collect().await?.iter().any(waits))
        };
        self.runtime.block_on(read).expect("the store can be read")
    }

    /// Whether nothing is in flight, nothing waits to be sent and no run goes on.
    pub fn is_drained(&self) -> bool {
        let store = &self.store;
        let read = async {
            let nothing_flies = store.in_flight_events(None).collect().await?.is_empty()
                && store.pending_outbound().collect().await?.is_empty();
            Ok::<bool, StoreError>(nothing_flies && store.open_runs().collect().await?.is_empty())
        };
        self.runtime.block_on(read).expect("the store can be read")
    }

    /// Reads something of the store.
    pub fn read_with<T>(&self, read: impl AsyncFnOnce(&dyn Store) -> Result<T, StoreError>) -> T {
        self.runtime.block_on(read(self.store.as_ref())).expect("the store can be read")
    }

    pub fn snapshot(&self, said: &[ScriptedMessage], platform: &PlatformRecord) -> TrialSnapshot {
        let read = self.runtime.block_on(self.read_snapshot(said, platform));
        read.expect("the store can be read")
    }

    async fn read_snapshot(
        &self,
        said: &[ScriptedMessage],
        platform: &PlatformRecord,
    ) -> Result<TrialSnapshot, StoreError> {
        let store = &self.store;
        let library = match &self.tapes_dir {
            None => TapeRepository::new(Arc::clone(store)),
            Some(folder) => {
                TapeRepository::with_external_store(Arc::clone(store), Arc::new(JsonlTapeStore::open(folder)?))
            }
        };
        let mut tapes = BTreeMap::new();
        let mut damage: Vec<String> = library.verify().await?.into_iter().map(|problem| problem.message).collect();
        for tape in library.list().await? {
            damage.extend(check_view(&library.window(&tape.name).await?));
            let entries = library.read(&tape.name, &TapeSlice::all()).await?;
            tapes.insert(tape.name, entries);
        }
        let (mut events, mut rows) = (BTreeMap::new(), BTreeMap::new());
        for said in said {
            if let Some(record) = store.inbox_record(&event_key(said)).await? {
                events.insert(said.id.clone(), record);
            }
            rows.insert(said.id.clone(), store.outbox_records(&event_key(said)).collect().await?);
        }
        let mut kept = BTreeMap::new();
        for space in store.namespaces("st").collect().await? {
            for value in store.key_values(&space.space).collect().await? {
                kept.insert((value.space, value.key), value.value);
            }
        }
        damage.extend(self.check_contents(&kept, &tapes).await?);
        let id = |event: &Event| event.event_id.to_string();
        Ok(TrialSnapshot {
            tapes,
            in_flight: store.in_flight_events(None).collect().await?,
            runs: store.run_page(None, usize::from(u16::MAX)).await?,
            running: store.open_runs().collect().await?,
            events,
            outbox_rows: rows,
            stored_values: kept,
            settled: store.settled_events().collect().await?.into_iter().map(|settled| settled.key).collect(),
            damage,
            offered: platform.offered.iter().map(|offered| id(&offered.event)).collect(),
            acknowledged: {
                let known = platform.offered.iter().filter(|offered| offered.is_acknowledged);
                known.map(|offered| id(&offered.event)).collect()
            },
            sent: platform.sent.len(),
            answered: platform.answers.iter().map(|answer| answer.event.clone()).collect(),
        })
    }
}

impl StoreReader {
    /// Contents that something refers to, and that are not there or are not what they were.
    async fn check_contents(
        &self,
        kept: &BTreeMap<(String, String), Value>,
        tapes: &BTreeMap<TapeName, Vec<Entry>>,
    ) -> Result<Vec<String>, StoreError> {
        let stored = kept.iter().filter(|((space, _), _)| space.starts_with("storage:")).map(|(_, place)| place);
        let told = tapes.values().flatten().filter(|entry| entry.name() == Some("artifact.created"));
        let mut damage = Vec::new();
        for place in stored.chain(told.map(|entry| &entry.payload["data"])) {
            let hash = |key: &str| place[key].as_str().map(BlobHash::new);
            // That of a name in storage has a blob of its own, with a mark behind it.
            let blob = hash("own").or_else(|| hash("hash")).unwrap_or_else(|| BlobHash::new(""));
            let bytes = place["bytes"].as_u64().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or_default();
            let content = self.store.blob(&blob).await?;
            let content = content.as_ref().and_then(|blob| blob.get(..bytes)).map(blob_hash);
            if content.is_none() || content != hash("hash") {
                damage.push(format!("the content of {place} is not whole"));
            }
        }
        Ok(damage)
    }
}

impl TrialSnapshot {
    /// The row of an event in flight.
    pub fn in_flight_event(&self, id: &str) -> Option<&InFlightEvent> {
        self.in_flight.iter().find(|event| event.key.event_id.as_str() == id)
    }

    /// The run that an event was in, if one was going on.
    pub fn run_serving(&self, id: &str) -> Option<&RunRecord> {
        let taken_by = self.in_flight_event(id).and_then(|event| event.ingestion.as_ref()).map(|taken| &taken.run_id);
        let serves = |run: &&RunRecord| {
            let mut events = std::iter::once(&run.event).chain(&run.others);
            Some(&run.run_id) == taken_by || events.any(|key| key.event_id.as_str() == id)
        };
        self.running.iter().find(serves)
    }

    /// The outcome of an event, by its name.
    pub fn outcome(&self, id: &str) -> Option<&'static str> {
        Some(self.events.get(id)?.outcome.as_ref()?.0.name())
    }
}

/// What a strict provider would say about what a model gets to read.
fn check_view(window: &ContextWindow) -> Vec<String> {
    let messages = conversation::normalize_request(DefaultView.messages(window));
    let request = ModelRequest {
        model: "openai:strict".parse().expect("a model"),
        system: String::new(),
        messages,
        tools: [].into(),
        options: ModelOptions::default(),
    };
    grammar::violations(&wire::openai_body(&request).messages)
}

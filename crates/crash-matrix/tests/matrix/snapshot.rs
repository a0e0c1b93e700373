//! Snapshot of the store and the platform.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan::protocol::{BlobHash, Event, EventKey, ModelOptions, ModelRequest, TapeName};
use capstan::store::{JsonlTapeStore, SqliteStore};
use capstan::tape::{
    ContextWindow, DefaultView, Entry, InFlightEvent, InboxRecord, OutboxRecord, OutboxStatus, RunRecord, Store,
    StoreError, TapeRepository, TapeSlice, blob_hash, conversation,
};
use capstan_models::wire;
use capstan_testing::grammar;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::platform::PlatformRecord;
use crate::script::ScriptedMessage;

/// Store of a host, read from outside.
pub struct StoreReader {
    runtime: Runtime,
    store: Arc<dyn Store>,
    /// Directory of file tapes, if they are used.
    tapes_dir: Option<PathBuf>,
}

/// State of the store and the platform at one moment, by event id.
pub struct TrialSnapshot {
    pub tapes: BTreeMap<TapeName, Vec<Entry>>,
    pub in_flight: Vec<InFlightEvent>,
    pub runs: Vec<RunRecord>,
    pub running: Vec<RunRecord>,
    pub events: BTreeMap<String, InboxRecord>,
    pub outbox_rows: BTreeMap<String, Vec<OutboxRecord>>,
    pub settled: Vec<EventKey>,
    /// Stored values of runners (state and storage), by namespace and key.
    pub stored_values: BTreeMap<(String, String), Value>,
    /// Problems found by `verify`, and views that a strict provider would refuse.
    pub damage: Vec<String>,
    /// Events offered to the host.
    pub offered: BTreeSet<String>,
    /// Events acknowledged by the host.
    pub acknowledged: BTreeSet<String>,
    /// Number of messages sent.
    pub sent: usize,
    /// Callers that got a reply.
    pub answered: BTreeSet<String>,
}

pub fn event_key(message: &ScriptedMessage) -> EventKey {
    EventKey::from(&message.event())
}

impl StoreReader {
    pub fn open(home: &Path, uses_file_tapes: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let store = SqliteStore::open(home.join("capstan.db")).expect("the store of the host");
        Self { runtime, store: Arc::new(store), tapes_dir: uses_file_tapes.then(|| home.join("tapes")) }
    }

    /// Returns true if an event has ended and none of its messages is pending.
    pub fn has_ended(&self, message: &ScriptedMessage) -> bool {
        let key = event_key(message);
        let read = async {
            let record = self.store.inbox_record(&key).await?;
            let is_settled = record.is_some_and(|record| record.outcome.is_some());
            let is_waiting = |row: &OutboxRecord| matches!(row.status, OutboxStatus::Waiting { .. });
            Ok::<bool, StoreError>(
                is_settled && !self.store.outbox_records(&key).collect().await?.iter().any(is_waiting),
            )
        };
        self.runtime.block_on(read).expect("the store can be read")
    }

    /// Returns true if no event is in flight, no message pending and no run open.
    pub fn is_drained(&self) -> bool {
        let store = &self.store;
        let read = async {
            let is_idle = store.in_flight_events(None).collect().await?.is_empty()
                && store.pending_outbound().collect().await?.is_empty();
            Ok::<bool, StoreError>(is_idle && store.open_runs().collect().await?.is_empty())
        };
        self.runtime.block_on(read).expect("the store can be read")
    }

    /// Reads from the store.
    pub fn read_with<T>(&self, read: impl AsyncFnOnce(&dyn Store) -> Result<T, StoreError>) -> T {
        self.runtime.block_on(read(self.store.as_ref())).expect("the store can be read")
    }

    pub fn snapshot(&self, messages: &[ScriptedMessage], platform: &PlatformRecord) -> TrialSnapshot {
        let read = self.runtime.block_on(self.read_snapshot(messages, platform));
        read.expect("the store can be read")
    }

    async fn read_snapshot(
        &self,
        messages: &[ScriptedMessage],
        platform: &PlatformRecord,
    ) -> Result<TrialSnapshot, StoreError> {
        let store = &self.store;
        let repository = match &self.tapes_dir {
            None => TapeRepository::new(Arc::clone(store)),
            Some(folder) => {
                TapeRepository::with_external_store(Arc::clone(store), Arc::new(JsonlTapeStore::open(folder)?))
            }
        };
        let mut tapes = BTreeMap::new();
        let mut damage: Vec<String> = repository.verify().await?.into_iter().map(|problem| problem.message).collect();
        for tape in repository.list().await? {
            damage.extend(check_view(&repository.window(&tape.name).await?));
            let entries = repository.read(&tape.name, &TapeSlice::all()).await?;
            tapes.insert(tape.name, entries);
        }
        let (mut events, mut outbox_rows) = (BTreeMap::new(), BTreeMap::new());
        for message in messages {
            if let Some(record) = store.inbox_record(&event_key(message)).await? {
                events.insert(message.id.clone(), record);
            }
            outbox_rows.insert(message.id.clone(), store.outbox_records(&event_key(message)).collect().await?);
        }
        let mut stored_values = BTreeMap::new();
        for namespace in store.namespaces("st").collect().await? {
            for value in store.key_values(&namespace.space).collect().await? {
                stored_values.insert((value.space, value.key), value.value);
            }
        }
        damage.extend(self.check_contents(&stored_values, &tapes).await?);
        let id = |event: &Event| event.event_id.to_string();
        Ok(TrialSnapshot {
            tapes,
            in_flight: store.in_flight_events(None).collect().await?,
            runs: store.run_page(None, usize::from(u16::MAX)).await?,
            running: store.open_runs().collect().await?,
            events,
            outbox_rows,
            stored_values,
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
    /// Finds referenced content that is missing or damaged.
    async fn check_contents(
        &self,
        stored_values: &BTreeMap<(String, String), Value>,
        tapes: &BTreeMap<TapeName, Vec<Entry>>,
    ) -> Result<Vec<String>, StoreError> {
        let stored = stored_values
            .iter()
            .filter(|((namespace, _), _)| namespace.starts_with("storage:"))
            .map(|(_, reference)| reference);
        let recorded = tapes.values().flatten().filter(|entry| entry.name() == Some("artifact.created"));
        let mut damage = Vec::new();
        for reference in stored.chain(recorded.map(|entry| &entry.payload["data"])) {
            let hash = |key: &str| reference[key].as_str().map(BlobHash::new);
            // A value in storage and an artifact have blobs of their own, with a mark appended.
            let own_blob = ["own", "content_blob"].into_iter().find_map(hash);
            let blob = own_blob.or_else(|| hash("hash")).unwrap_or_else(|| BlobHash::new(""));
            let bytes = reference["bytes"].as_u64().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or_default();
            let content = self.store.blob(&blob).await?;
            let content = content.as_ref().and_then(|blob| blob.get(..bytes)).map(blob_hash);
            if content.is_none() || content != hash("hash") {
                damage.push(format!("the content of {reference} is incomplete"));
            }
        }
        Ok(damage)
    }
}

impl TrialSnapshot {
    /// Returns the row of an event in flight.
    pub fn in_flight_event(&self, id: &str) -> Option<&InFlightEvent> {
        self.in_flight.iter().find(|event| event.key.event_id.as_str() == id)
    }

    /// Returns the open run that served an event.
    pub fn run_serving(&self, id: &str) -> Option<&RunRecord> {
        let ingesting_run =
            self.in_flight_event(id).and_then(|event| event.ingestion.as_ref()).map(|ingestion| &ingestion.run_id);
        let serves = |run: &&RunRecord| {
            let mut events = std::iter::once(&run.event).chain(&run.others);
            Some(&run.run_id) == ingesting_run || events.any(|key| key.event_id.as_str() == id)
        };
        self.running.iter().find(serves)
    }

    /// Returns the name of an event's outcome.
    pub fn outcome(&self, id: &str) -> Option<&'static str> {
        Some(self.events.get(id)?.outcome.as_ref()?.0.name())
    }
}

/// Returns the violations that a strict provider would find in a view.
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

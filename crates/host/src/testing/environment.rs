//! Folder and store that several hosts share.

use std::path::Path;
use std::sync::Arc;

use capstan_protocol::{Event, EventKey, Outcome};
use capstan_store::SqliteStore;
use capstan_tape::{MemoryStore, Store};
use tempfile::TempDir;

use super::TestHostBuilder;

/// Name of the database in the folder of an environment.
const DATABASE_FILE: &str = "capstan.db";

/// Workspace, lock files and store, shared by simultaneous or successive hosts.
pub struct TestEnvironment {
    folder: Arc<TempDir>,
    store: Arc<dyn Store>,
}

impl TestEnvironment {
    /// Environment with a store in memory, for tests on a paused clock.
    pub fn in_memory() -> Self {
        Self::with_store(Arc::new(MemoryStore::new()))
    }

    /// Environment with this store.
    pub fn with_store(store: Arc<dyn Store>) -> Self {
        Self { folder: create_folder(), store }
    }

    /// Environment with a `SQLite` database.
    pub fn on_disk() -> Self {
        let folder = create_folder();
        let store = open_database(folder.path());
        Self { folder, store }
    }

    /// Builder of a host on the store of the environment.
    pub fn host(&self) -> TestHostBuilder {
        TestHostBuilder::new(Arc::clone(&self.folder), Arc::clone(&self.store))
    }

    /// Builder of a host with its own connection to the database, like another process. The environment must be
    /// [on disk](Self::on_disk).
    pub fn host_with_own_connection(&self) -> TestHostBuilder {
        TestHostBuilder::new(Arc::clone(&self.folder), open_database(self.folder.path()))
    }

    /// Store of the environment.
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// Workspace of the hosts.
    pub fn workspace(&self) -> &Path {
        self.folder.path()
    }

    /// Outcome of an accepted event, if it has one.
    pub async fn outcome(&self, event: &Event) -> Option<Outcome> {
        let record = self.store.inbox_record(&EventKey::from(event)).await.expect("the store can be read");
        record.expect("the event was accepted").outcome.map(|(outcome, _)| outcome)
    }

    /// Waits for the outcome of an accepted event.
    pub async fn wait_until_settled(&self, event: &Event) -> Outcome {
        loop {
            if let Some(outcome) = self.outcome(event).await {
                return outcome;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Asserts that no event is in flight, no run is open, and the store is undamaged.
    #[track_caller]
    pub fn assert_settled(&self) -> impl Future<Output = ()> + use<> {
        let store = Arc::clone(&self.store);
        async move {
            let in_flight = store.in_flight_events(None).collect().await.expect("the store can be read");
            assert_eq!(in_flight, [], "every event has an outcome");
            let open_runs = store.open_runs().collect().await.expect("the store can be read");
            assert_eq!(open_runs, [], "every run has ended");
            assert_eq!(store.verify().await.expect("the store can be read"), [], "the store is undamaged");
        }
    }
}

fn create_folder() -> Arc<TempDir> {
    Arc::new(tempfile::tempdir().expect("a folder for the test"))
}

fn open_database(folder: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(folder.join(DATABASE_FILE)).expect("the database opens"))
}

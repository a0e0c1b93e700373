//! P12: two writers of a tape that is replicated to an external tape store.

use std::sync::{Arc, Mutex};

use crate::support::{name, user};
use async_trait::async_trait;
use capstan_protocol::TapeName;
use capstan_tape::{
    Batch, Entry, Fact, MemoryStore, MemoryTapeStore, NewTape, Store, StoreError, TapeRepository, TapeSlice, TapeStore,
};

/// Tape store in which another writer commits one of the pending batches before every read.
struct ContendedTapeStore {
    inner: Arc<MemoryTapeStore>,
    other_writer: TapeRepository,
    pending_batches: Mutex<Vec<Batch>>,
}

#[async_trait]
impl TapeStore for ContendedTapeStore {
    async fn append(&self, tape: &TapeName, entries: &[Entry]) -> Result<(), StoreError> {
        self.inner.append(tape, entries).await
    }

    async fn read(&self, tape: &TapeName, slice: &TapeSlice) -> Result<Vec<Entry>, StoreError> {
        let pending = self.pending_batches.lock().unwrap().pop();
        if let Some(batch) = pending {
            self.other_writer.commit(batch).await?;
        }
        self.inner.read(tape, slice).await
    }

    async fn tapes(&self) -> Result<Vec<TapeName>, StoreError> {
        self.inner.tapes().await
    }
}

fn message_batch(text: &str) -> Batch {
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(name("t"))));
    batch.append(&name("t"), user(text));
    batch
}

#[tokio::test]
async fn p12_entries_that_another_writer_replicates_meanwhile_are_not_damage() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let tapes = Arc::new(MemoryTapeStore::new());
    let other = TapeRepository::with_external_store(Arc::clone(&store), tapes.clone());
    other.commit(message_batch("first")).await.unwrap();
    let pending_batches = Mutex::new(vec![message_batch("third"), message_batch("second")]);
    let own = TapeRepository::with_external_store(
        store,
        Arc::new(ContendedTapeStore { inner: tapes, other_writer: other, pending_batches }),
    );
    own.commit(message_batch("last")).await.unwrap();
    assert_eq!(own.verify().await.unwrap(), []);
    assert_eq!(own.read(&name("t"), &TapeSlice::all()).await.unwrap().len(), 4);
}

//! P12: two who write to a tape that another tape store keeps.

mod support;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use capstan_protocol::TapeName;
use capstan_tape::{Batch, Entry, Fact, MemoryStore, MemoryTapes, NewTape, Slice, Store, StoreError, TapeStore, Tapes};
use support::{name, user};

/// Whenever it is read, somebody else writes to the tape just before, as long as there are things to write.
struct Busy {
    tapes: Arc<MemoryTapes>,
    other: Tapes,
    writes: Mutex<Vec<Batch>>,
}

#[async_trait]
impl TapeStore for Busy {
    async fn append(&self, tape: &TapeName, entries: &[Entry]) -> Result<(), StoreError> {
        self.tapes.append(tape, entries).await
    }

    async fn read(&self, tape: &TapeName, slice: &Slice) -> Result<Vec<Entry>, StoreError> {
        let write = self.writes.lock().unwrap().pop();
        if let Some(batch) = write {
            self.other.commit(batch).await?;
        }
        self.tapes.read(tape, slice).await
    }

    async fn tapes(&self) -> Result<Vec<TapeName>, StoreError> {
        self.tapes.tapes().await
    }
}

fn saying(text: &str) -> Batch {
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::named(name("t"))));
    batch.append(&name("t"), user(text));
    batch
}

#[tokio::test]
async fn p12_what_another_writer_handed_over_in_between_is_no_damage() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let tapes = Arc::new(MemoryTapes::new());
    let other = Tapes::kept_by(Arc::clone(&store), tapes.clone());
    other.commit(saying("first")).await.unwrap();
    let writes = Mutex::new(vec![saying("third"), saying("second")]);
    let own = Tapes::kept_by(store, Arc::new(Busy { tapes, other, writes }));
    own.commit(saying("last")).await.unwrap();
    assert_eq!(own.verify().await.unwrap(), []);
    assert_eq!(own.read(&name("t"), &Slice::all()).await.unwrap().len(), 4);
}

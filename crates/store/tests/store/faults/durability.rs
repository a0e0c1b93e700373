//! Commit durability: `Durable` commits are synced before the reply, `Ordered` ones only keep their order.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_protocol::EntryId;
use capstan_store::{JsonlTapeStore, SqliteOptions, SqliteStore};
use capstan_tape::{
    Batch, BatchPrecondition, CommitDurability, JournalStore as _, Store, StoreError, TapeRepository, TapeSlice,
};
use capstan_testing::disk::{DiskCall, DiskLayer, PowerCut, SimulatedDisk};
use rusqlite::Connection;

use super::process;
use crate::support::{all, messages, name, texts};

const DATABASE_FILE_NAME: &str = "capstan.db";

fn ordered_batch(text: &str) -> Batch {
    Batch { durability: CommitDurability::Ordered, ..durable_batch(text) }
}

fn durable_batch(text: &str) -> Batch {
    messages(&name("t"), &[text])
}

#[tokio::test]
#[ignore = "child process whose disk calls are recorded"]
async fn writer() {
    let store = SqliteStore::open(process::database_path()).unwrap();
    store.commit(durable_batch("start")).await.unwrap();
    process::report("start");
    store.commit(ordered_batch("first")).await.unwrap();
    process::report("wrote first");
    store.commit(durable_batch("second")).await.unwrap();
    process::report("synced second");
    store.commit(ordered_batch("third")).await.unwrap();
    process::report("wrote third");
    // A hundred times the maximum delay of a sync, without a durable commit.
    tokio::time::sleep(Duration::from_secs(1)).await;
    process::report("synced third");
    store.commit(ordered_batch("fourth")).await.unwrap();
    store.commit(ordered_batch("fifth")).await.unwrap();
    // A rejection may depend on earlier commits, so they are synced before it is returned.
    let mut rejected = ordered_batch("never");
    rejected.preconditions.push(BatchPrecondition::TapeHead { tape: name("t"), head: EntryId(1) });
    store.commit(rejected).await.unwrap_err();
    process::report("synced fifth");
    store.commit(ordered_batch("last")).await.unwrap();
}

/// Texts of the tape after a power cut.
async fn surviving_texts(disk: &SimulatedDisk<'_>, cut: PowerCut) -> Vec<String> {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    disk.image_after(cut).write_to(folder.path());
    let database = folder.path().join(DATABASE_FILE_NAME);
    if !database.exists() {
        return Vec::new();
    }
    let store = SqliteStore::open(&database).unwrap();
    assert_eq!(store.verify().await.unwrap(), []);
    texts(&all(&store, &name("t")).await)
}

#[tokio::test]
async fn x01_ordered_commit_is_durable_with_the_next_durable_one_or_soon() {
    const ALL_TEXTS: [&str; 7] = ["start", "first", "second", "third", "fourth", "fifth", "last"];
    let calls = record_calls("durability::writer");
    let (mut disk, mut unsynced_replies) = (SimulatedDisk::new(), 0);
    for (number, call) in calls.iter().enumerate() {
        disk.apply(call);
        let stdout = disk.stdout();
        for cut in [PowerCut::KeepSynced, PowerCut::KeepRandom(number as u64)] {
            let surviving = surviving_texts(&disk, cut).await;
            assert_eq!(
                surviving,
                ALL_TEXTS[..surviving.len()],
                "in order and without a gap after a power cut ({cut:?}) after call {number}"
            );
            for report in ["start", "synced second", "synced third", "synced fifth"] {
                let text = report.trim_start_matches("synced ");
                let is_lost = stdout.contains(&format!("> {report}\n")) && !surviving.iter().any(|other| other == text);
                assert!(!is_lost, "{text} is lost by a power cut ({cut:?}) after call {number}");
            }
            unsynced_replies += usize::from(stdout.contains("wrote first") && surviving.len() < 2);
        }
    }
    assert!(unsynced_replies > 0, "an ordered commit does not wait for the disk");
    assert_eq!(
        surviving_texts(&disk, PowerCut::KeepSynced).await,
        ALL_TEXTS,
        "closing the store makes all commits durable"
    );
}

/// Records the disk calls of a child process.
fn record_calls(test: &str) -> Vec<DiskCall> {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let layer = DiskLayer::for_folder(&folder).with_recording();
    let mut process = process::child_command(test, &folder.join(DATABASE_FILE_NAME));
    layer.preload_into(&mut process);
    assert!(process.output().unwrap().status.success());
    layer.calls()
}

#[tokio::test]
#[ignore = "child process whose database is locked by another connection"]
async fn blocked_writer() {
    let database = process::database_path();
    let options = SqliteOptions { busy_timeout: Duration::from_secs(5), ..SqliteOptions::default() };
    let store = Arc::new(SqliteStore::open_with(&database, options).unwrap());
    store.commit(durable_batch("start")).await.unwrap();
    store.commit(ordered_batch("first")).await.unwrap();
    let other = Connection::open(&database).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let blocked = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.commit(ordered_batch("never")).await }
    });
    // A fifth of the busy timeout, and a hundred times the maximum delay of a sync.
    tokio::time::sleep(Duration::from_secs(1)).await;
    process::report("synced first");
    assert!(matches!(blocked.await.unwrap(), Err(StoreError::Busy { .. })));
}

#[tokio::test]
async fn x01_ordered_commit_is_synced_while_the_next_one_waits_for_a_lock() {
    let calls = record_calls("durability::blocked_writer");
    let mut disk = SimulatedDisk::new();
    for (number, call) in calls.iter().enumerate() {
        disk.apply(call);
        // Right before a sync the output is the longest for the same state of the disk.
        if !matches!(calls.get(number + 1), Some(DiskCall::Sync { .. }) | None) {
            continue;
        }
        let (stdout, surviving) = (disk.stdout(), surviving_texts(&disk, PowerCut::KeepSynced).await);
        assert!(!stdout.contains("> synced first\n") || surviving.len() > 1, "only {surviving:?} after call {number}");
    }
    assert!(disk.stdout().contains("> synced first"));
}

#[tokio::test]
#[ignore = "child process that replicates commits of another writer"]
async fn replicating_writer() {
    let database = process::database_path();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&database).unwrap());
    let files = JsonlTapeStore::open(database.parent().unwrap()).unwrap();
    let tapes = TapeRepository::with_external_store(Arc::clone(&store), Arc::new(files));
    tapes.commit(durable_batch("first")).await.unwrap();
    // Stands for a commit of another writer that is not synced yet.
    store.commit(ordered_batch("second")).await.unwrap();
    tapes.replicate(&name("t")).await.unwrap();
}

#[tokio::test]
async fn p12_external_tape_store_has_no_entry_that_a_power_cut_removes() {
    let calls = record_calls("durability::replicating_writer");
    let (mut disk, mut max_entries) = (SimulatedDisk::new(), 0);
    for (number, call) in calls.iter().enumerate() {
        disk.apply(call);
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        disk.image_after(PowerCut::KeepSynced).write_to(folder.path());
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.path().join(DATABASE_FILE_NAME)).unwrap());
        let tapes = TapeRepository::with_external_store(store, Arc::new(JsonlTapeStore::open(folder.path()).unwrap()));
        assert_eq!(tapes.verify().await.unwrap(), [], "after call {number}");
        max_entries = max_entries.max(tapes.read(&name("t"), &TapeSlice::all()).await.unwrap().len());
    }
    assert_eq!(max_entries, 2);
}

#[tokio::test]
#[ignore = "child process that is killed"]
async fn killed_writer() {
    let store = SqliteStore::open(process::database_path()).unwrap();
    store.commit(durable_batch("before")).await.unwrap();
    std::process::abort();
}

#[tokio::test]
async fn x02_log_of_a_killed_process_is_checkpointed_before_the_first_write() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join(DATABASE_FILE_NAME);
    assert!(!process::child_command("durability::killed_writer", &database).output().unwrap().status.success());
    assert!(std::fs::metadata(folder.path().join("capstan.db-wal")).unwrap().len() > 0);
    let _open = SqliteStore::open(&database).unwrap();
    let without_log = folder.path().join("copy.db");
    std::fs::copy(&database, &without_log).unwrap();
    assert_eq!(texts(&all(&SqliteStore::open(&without_log).unwrap(), &name("t")).await), ["before"]);
}

fn set_sync_failure(fails: bool) {
    let file = std::env::var_os("DISK_LAYER_NO_SYNC_FILE").expect("the disk layer is loaded");
    if fails { std::fs::write(file, "").unwrap() } else { std::fs::remove_file(file).unwrap() }
}

#[tokio::test]
#[ignore = "child process whose disk fails to sync"]
async fn unsynced_writer() {
    let database = process::database_path();
    let store = SqliteStore::open(&database).unwrap();
    store.commit(durable_batch("before")).await.unwrap();
    set_sync_failure(true);
    assert_unsynced_error(&store.commit(durable_batch("unknown")).await.unwrap_err(), &database);
    set_sync_failure(false);
    for durability in [CommitDurability::Durable, CommitDurability::Ordered] {
        let later = Batch { durability, ..durable_batch("later") };
        assert_unsynced_error(&store.commit(later).await.unwrap_err(), &database);
    }
    assert_unsynced_error(&store.wait_for_failure().await, &database);
    assert_eq!(texts(&all(&store, &name("t")).await)[0], "before", "the database can still be read");
    drop(store);
    let store = SqliteStore::open(&database).unwrap();
    store.commit(durable_batch("reopened")).await.unwrap();
    let stored = texts(&all(&store, &name("t")).await);
    assert_eq!((stored.first().unwrap().as_str(), stored.last().unwrap().as_str()), ("before", "reopened"));
    assert!(!stored.contains(&"later".to_owned()), "{stored:?}");
    process::report("done");
}

#[track_caller]
fn assert_unsynced_error(error: &StoreError, database: &Path) {
    let message = error.to_string();
    assert_eq!(error.code(), "store-unsynced");
    assert!(message.starts_with(&format!("{}-wal could not be synced: ", database.display())), "{message}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn x02_no_commit_succeeds_after_a_failed_sync() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let layer = DiskLayer::for_folder(&folder);
    let mut process = process::child_command("durability::unsynced_writer", &folder.join(DATABASE_FILE_NAME));
    layer.preload_into(&mut process);
    let output = process.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("> done"), "{output:?}");
}

//! What a commit promises: that the disk has it, or only that nothing is written before it.

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

use crate::process;
use crate::support::{all, messages, name, texts};

const DATABASE_FILE_NAME: &str = "capstan.db";

fn ordered_batch(text: &str) -> Batch {
    Batch { durability: CommitDurability::Ordered, ..durable_batch(text) }
}

fn durable_batch(text: &str) -> Batch {
    messages(&name("t"), &[text])
}

#[tokio::test]
#[ignore = "the process whose power goes"]
async fn writer() {
    let store = SqliteStore::open(process::database_path()).unwrap();
    store.commit(durable_batch("begun")).await.unwrap();
    process::report("begun");
    store.commit(ordered_batch("first")).await.unwrap();
    process::report("wrote first");
    store.commit(durable_batch("second")).await.unwrap();
    process::report("has second");
    store.commit(ordered_batch("third")).await.unwrap();
    process::report("wrote third");
    // A hundred times as long as the disk may go without it, and nobody asks for it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    process::report("has third");
    store.commit(ordered_batch("fourth")).await.unwrap();
    store.commit(ordered_batch("fifth")).await.unwrap();
    // The same event is refused for what may not be on disk yet, so that is there when it is.
    let mut refused = ordered_batch("never");
    refused.preconditions.push(BatchPrecondition::TapeHead { tape: name("t"), head: EntryId(1) });
    store.commit(refused).await.unwrap_err();
    process::report("has fifth");
    store.commit(ordered_batch("last")).await.unwrap();
}

/// What stands on the tape in what is left of the database.
async fn surviving_texts(platter: &SimulatedDisk<'_>, cut: PowerCut) -> Vec<String> {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    platter.image_after(cut).write_to(folder.path());
    let database = folder.path().join(DATABASE_FILE_NAME);
    if !database.exists() {
        return Vec::new();
    }
    let store = SqliteStore::open(&database).unwrap();
    assert_eq!(store.verify().await.unwrap(), []);
    texts(&all(&store, &name("t")).await)
}

#[tokio::test]
async fn x01_what_is_only_written_in_order_is_on_disk_with_the_next_durable_commit_or_soon() {
    const ALL_TEXTS: [&str; 7] = ["begun", "first", "second", "third", "fourth", "fifth", "last"];
    let calls = record_calls("promises::writer");
    let (mut platter, mut not_waited_for) = (SimulatedDisk::new(), 0);
    for (number, call) in calls.iter().enumerate() {
        platter.apply(call);
        let said = platter.stdout();
        for cut in [PowerCut::KeepSynced, PowerCut::KeepRandom(number as u64)] {
            let there = surviving_texts(&platter, cut).await;
            assert_eq!(
                there,
                ALL_TEXTS[..there.len()],
                "in order and without a gap, when a disk {cut:?} after call {number}"
            );
            for told in ["begun", "has second", "has third", "has fifth"] {
                let text = told.trim_start_matches("has ");
                let is_lost = said.contains(&format!("> {told}\n")) && !there.iter().any(|there| there == text);
                assert!(!is_lost, "{text} is lost when a disk {cut:?} after call {number}");
            }
            not_waited_for += usize::from(said.contains("wrote first") && there.len() < 2);
        }
    }
    assert!(not_waited_for > 0, "nobody waited for the disk");
    assert_eq!(
        surviving_texts(&platter, PowerCut::KeepSynced).await,
        ALL_TEXTS,
        "and a store that is closed has all of it on disk"
    );
}

/// What a process did to its disk.
fn record_calls(what: &str) -> Vec<DiskCall> {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let layer = DiskLayer::for_folder(&folder).with_recording();
    let mut process = process::child_command(what, &folder.join(DATABASE_FILE_NAME));
    layer.preload_into(&mut process);
    assert!(process.output().unwrap().status.success());
    layer.calls()
}

#[tokio::test]
#[ignore = "the process that another one keeps from writing"]
async fn hindered_writer() {
    let database = process::database_path();
    let options = SqliteOptions { busy_timeout: Duration::from_secs(5), ..SqliteOptions::default() };
    let store = Arc::new(SqliteStore::open_with(&database, options).unwrap());
    store.commit(durable_batch("begun")).await.unwrap();
    store.commit(ordered_batch("first")).await.unwrap();
    let other = Connection::open(&database).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waits = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.commit(ordered_batch("never")).await }
    });
    // A fifth of the time that it waits for the other, and a hundred times as long as the disk may go without the first.
    tokio::time::sleep(Duration::from_secs(1)).await;
    process::report("has first");
    assert!(matches!(waits.await.unwrap(), Err(StoreError::Busy { .. })));
}

#[tokio::test]
async fn x01_what_is_only_written_is_on_disk_though_what_comes_next_cannot_be_written() {
    let calls = record_calls("promises::hindered_writer");
    let mut platter = SimulatedDisk::new();
    for (number, call) in calls.iter().enumerate() {
        platter.apply(call);
        // Between two syncs the disk stays as it is, and ever more is said.
        if !matches!(calls.get(number + 1), Some(DiskCall::Sync { .. }) | None) {
            continue;
        }
        let (said, there) = (platter.stdout(), surviving_texts(&platter, PowerCut::KeepSynced).await);
        assert!(!said.contains("> has first\n") || there.len() > 1, "only {there:?} after call {number}");
    }
    assert!(platter.stdout().contains("> has first"));
}

#[tokio::test]
#[ignore = "the process that hands over what another wrote"]
async fn handing_over() {
    let database = process::database_path();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&database).unwrap());
    let files = JsonlTapeStore::open(database.parent().unwrap()).unwrap();
    let tapes = TapeRepository::with_external_store(Arc::clone(&store), Arc::new(files));
    tapes.commit(durable_batch("first")).await.unwrap();
    // Somebody else has written this, and waits for the disk still.
    store.commit(ordered_batch("second")).await.unwrap();
    tapes.replicate(&name("t")).await.unwrap();
}

#[tokio::test]
async fn p12_no_other_tape_store_has_what_a_power_cut_takes_from_the_database() {
    let calls = record_calls("promises::handing_over");
    let (mut platter, mut most) = (SimulatedDisk::new(), 0);
    for (number, call) in calls.iter().enumerate() {
        platter.apply(call);
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        platter.image_after(PowerCut::KeepSynced).write_to(folder.path());
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.path().join(DATABASE_FILE_NAME)).unwrap());
        let tapes = TapeRepository::with_external_store(store, Arc::new(JsonlTapeStore::open(folder.path()).unwrap()));
        assert_eq!(tapes.verify().await.unwrap(), [], "after call {number}");
        most = most.max(tapes.read(&name("t"), &TapeSlice::all()).await.unwrap().len());
    }
    assert_eq!(most, 2);
}

#[tokio::test]
#[ignore = "the process that is killed"]
async fn killed_writer() {
    let store = SqliteStore::open(process::database_path()).unwrap();
    store.commit(durable_batch("before")).await.unwrap();
    std::process::abort();
}

#[tokio::test]
async fn x02_what_a_killed_process_left_in_the_log_is_in_the_database_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join(DATABASE_FILE_NAME);
    assert!(!process::child_command("promises::killed_writer", &database).output().unwrap().status.success());
    assert!(std::fs::metadata(folder.path().join("capstan.db-wal")).unwrap().len() > 0);
    let _open = SqliteStore::open(&database).unwrap();
    let without_log = folder.path().join("copy.db");
    std::fs::copy(&database, &without_log).unwrap();
    assert_eq!(texts(&all(&SqliteStore::open(&without_log).unwrap(), &name("t")).await), ["before"]);
}

fn set_sync_failure(fails: bool) {
    let file = std::env::var_os("DISK_LAYER_NO_SYNC_FILE").expect("a layer was loaded");
    if fails { std::fs::write(file, "").unwrap() } else { std::fs::remove_file(file).unwrap() }
}

#[tokio::test]
#[ignore = "the process whose disk fails to sync"]
async fn unlucky_writer() {
    let database = process::database_path();
    let store = SqliteStore::open(&database).unwrap();
    store.commit(durable_batch("before")).await.unwrap();
    set_sync_failure(true);
    assert_unsynced_error(&store.commit(durable_batch("unknown")).await.unwrap_err(), &database);
    set_sync_failure(false);
    for promise in [CommitDurability::Durable, CommitDurability::Ordered] {
        let later = Batch { durability: promise, ..durable_batch("later") };
        assert_unsynced_error(&store.commit(later).await.unwrap_err(), &database);
    }
    assert_unsynced_error(&store.wait_for_failure().await, &database);
    assert_eq!(texts(&all(&store, &name("t")).await)[0], "before", "it can be read");
    drop(store);
    let store = SqliteStore::open(&database).unwrap();
    store.commit(durable_batch("anew")).await.unwrap();
    let there = texts(&all(&store, &name("t")).await);
    assert_eq!((there.first().unwrap().as_str(), there.last().unwrap().as_str()), ("before", "anew"));
    assert!(!there.contains(&"later".to_owned()), "{there:?}");
    process::report("done");
}

#[track_caller]
fn assert_unsynced_error(error: &StoreError, database: &Path) {
    let said = error.to_string();
    assert_eq!(error.code(), "store-unsynced");
    assert!(said.starts_with(&format!("{}-wal could not be synced: ", database.display())), "{said}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn x02_a_disk_that_failed_to_sync_once_is_not_trusted_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let layer = DiskLayer::for_folder(&folder);
    let mut process = process::child_command("promises::unlucky_writer", &folder.join(DATABASE_FILE_NAME));
    layer.preload_into(&mut process);
    let output = process.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("> done"), "{output:?}");
}

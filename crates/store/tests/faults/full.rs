//! A full disk: whoever is refused is told so, nothing is lost, and the same store goes on when there is room.

use std::path::Path;
use std::sync::Arc;

use capstan_store::SqliteStore;
use capstan_tape::{Fact, JournalStore as _, StoreError, blob_hash};
use capstan_testing::disk::DiskLayer;
use tokio::task::JoinSet;

use crate::process;
use crate::support::{all, ids, messages, name};
use crate::survivors::DatabaseSurvivors;
use crate::workload::{WRITER_TASKS, WorkloadBatch, parse_acknowledged};

/// Asserts that this is the error of a full disk, and that it names the file.
#[track_caller]
fn assert_full(error: &StoreError, database: &Path) {
    let what = database.display().to_string();
    assert_eq!(error.to_string(), format!("{what} cannot be written: the disk is full"));
    assert_eq!(*error, StoreError::DiskFull { what });
}

fn free_disk_space() {
    let file = std::env::var_os("DISK_LAYER_ROOM_FILE").expect("a layer was loaded");
    std::fs::write(file, "").unwrap();
}

/// Opens a database; on a full disk, when there is room.
fn open_with_room(database: &Path) -> Arc<SqliteStore> {
    let opened = SqliteStore::open(database).unwrap_or_else(|error| {
        assert_full(&error, database);
        free_disk_space();
        SqliteStore::open(database).expect("it opens as soon as there is room")
    });
    Arc::new(opened)
}

/// Lets every task commit its next batch at once, and gives the errors of those that were refused.
async fn commit_wave(store: &Arc<SqliteStore>, next: &mut [usize; WRITER_TASKS]) -> Vec<StoreError> {
    let mut commits = JoinSet::new();
    for (task, number) in next.iter().copied().enumerate() {
        let store = Arc::clone(store);
        commits.spawn(async move { (task, WorkloadBatch { task, number }.commit_and_report(&store).await) });
    }
    let mut errors = Vec::new();
    for (task, committed) in commits.join_all().await {
        match committed {
            Ok(()) => next[task] += 1,
            Err(error) => errors.push(error),
        }
    }
    errors
}

#[tokio::test]
#[ignore = "the process whose disk is full"]
async fn writer() {
    let database = process::database_path();
    let store = open_with_room(&database);
    let mut next = [0; WRITER_TASKS];
    for _ in 0..100 {
        let errors = commit_wave(&store, &mut next).await;
        for error in &errors {
            assert_full(error, &database);
        }
        if !errors.is_empty() {
            assert_eq!(store.verify().await.unwrap(), [], "and what was written before can be read");
            println!("\nfull {}", std::fs::metadata(database.with_extension("db-wal")).unwrap().len());
            free_disk_space();
            break;
        }
    }
    for _ in 0..3 {
        assert_eq!(commit_wave(&store, &mut next).await, [], "the same store goes on");
    }
}

/// Lets a process write to a disk with so much room, and says how long the log was when the disk was full.
async fn fill_disk(bytes: u64) -> Option<u64> {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let layer = DiskLayer::for_folder(&folder).with_free_bytes(bytes);
    let mut process = process::child_command("full::writer", &folder.join("capstan.db"));
    layer.preload_into(&mut process);
    let output = process.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "with room for {bytes} bytes: {said}");

    // A refused batch was tried again: had it been written all the same it would be there twice.
    let survivors = DatabaseSurvivors::open_and_check(&folder.join("capstan.db")).await;
    let acknowledged = parse_acknowledged(&said);
    assert_eq!(survivors.batches.len(), acknowledged.len());
    for (written, first) in acknowledged {
        assert!(survivors.contains_batch(written, first), "{written:?} is lost");
    }
    said.lines().find_map(|line| line.strip_prefix("full ")).map(|length| length.parse().unwrap())
}

#[tokio::test]
async fn x02_a_full_disk_refuses_batches_whole_and_the_store_goes_on_when_there_is_room() {
    // From a disk that has no room for the database itself to one that lets its log grow.
    let mut full = 0;
    for bytes in (0..600_000).step_by(75_000) {
        full += usize::from(fill_disk(bytes).await.is_some());
    }
    assert!(full >= 4, "{full}");
}

#[tokio::test]
async fn x02_a_disk_that_is_full_when_the_log_is_copied_into_the_database_loses_nothing() {
    // That is when it has a thousand pages, and then the database grows too.
    for bytes in [4_300_000, 4_600_000] {
        let log = fill_disk(bytes).await;
        assert!(log > Some(1000 * 4096), "{log:?}");
    }
}

#[tokio::test]
#[ignore = "the process whose disk is too small"]
async fn large_writer() {
    let database = process::database_path();
    let store = open_with_room(&database);
    let (small, large) = (name("small"), name("large"));
    let write_both = async || {
        let mut batch = messages(&large, &["with a large blob"]);
        // More than SQLite keeps in memory, so it is written before the commit.
        let bytes = vec![b'x'; 4_000_000];
        batch.push(Fact::PutBlob { hash: blob_hash(&bytes), bytes: bytes.into() });
        tokio::join!(
            store.commit(messages(&small, &["one"])),
            store.commit(batch),
            store.commit(messages(&small, &["two"]))
        )
    };
    let (one, refused, two) = write_both().await;
    assert_full(&refused.unwrap_err(), &database);
    let mut written = 0;
    for beside in [one, two] {
        match beside {
            Ok(_) => written += 1,
            Err(error) => assert_full(&error, &database),
        }
    }
    assert_eq!(ids(&all(&*store, &small).await), (1..=written).collect::<Vec<u64>>());
    assert_eq!(all(&*store, &large).await, []);
    free_disk_space();
    let (one, large_one, two) = write_both().await;
    assert!(one.is_ok() && large_one.is_ok() && two.is_ok());
    assert_eq!(ids(&all(&*store, &small).await), (1..=written + 2).collect::<Vec<u64>>());
    assert_eq!(ids(&all(&*store, &large).await), [1]);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[test]
fn x02_a_batch_that_is_too_large_for_the_disk_says_so_to_all_who_shared_its_commit() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let layer = DiskLayer::for_folder(&folder).with_free_bytes(1_000_000);
    let mut process = process::child_command("full::large_writer", &folder.join("capstan.db"));
    layer.preload_into(&mut process);
    let output = process.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

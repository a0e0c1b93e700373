//! Full disk: commits fail with a clear error, nothing is lost, and the same store works again when space is freed.

use std::path::Path;
use std::sync::Arc;

use capstan_store::SqliteStore;
use capstan_tape::{Fact, JournalStore as _, StoreError, blob_hash};
use capstan_testing::disk::DiskLayer;
use tokio::task::JoinSet;

use super::process;
use super::survivors::DatabaseSurvivors;
use super::workload::{WRITER_TASKS, WorkloadBatch, parse_acknowledged};
use crate::support::{all, ids, messages, name};

/// Asserts that the error reports a full disk and names the file.
#[track_caller]
fn assert_full(error: &StoreError, database: &Path) {
    let what = database.display().to_string();
    assert_eq!(error.to_string(), format!("{what} cannot be written: the disk is full"));
    assert_eq!(*error, StoreError::DiskFull { what });
}

fn free_disk_space() {
    let file = std::env::var_os("DISK_LAYER_ROOM_FILE").expect("the disk layer is loaded");
    std::fs::write(file, "").unwrap();
}

/// Opens a database, after freeing space if the disk is full.
fn open_with_room(database: &Path) -> Arc<SqliteStore> {
    let store = SqliteStore::open(database).unwrap_or_else(|error| {
        assert_full(&error, database);
        free_disk_space();
        SqliteStore::open(database).expect("the database opens when space is freed")
    });
    Arc::new(store)
}

/// Commits the next batch of every task concurrently, and returns the errors.
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
#[ignore = "child process with a full disk"]
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
            assert_eq!(store.verify().await.unwrap(), [], "earlier commits can be read");
            println!("\nfull {}", std::fs::metadata(database.with_extension("db-wal")).unwrap().len());
            free_disk_space();
            break;
        }
    }
    for _ in 0..3 {
        assert_eq!(commit_wave(&store, &mut next).await, [], "the same store works again");
    }
}

/// Runs a writer on a disk with so many free bytes, and returns the length of the log when the disk was full.
async fn fill_disk(bytes: u64) -> Option<u64> {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let layer = DiskLayer::for_folder(&folder).with_free_bytes(bytes);
    let mut process = process::child_command("full::writer", &folder.join("capstan.db"));
    layer.preload_into(&mut process);
    let output = process.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "with {bytes} free bytes: {stdout}");

    // Failed batches were retried: one that was written nevertheless would be found twice.
    let survivors = DatabaseSurvivors::open_and_check(&folder.join("capstan.db")).await;
    let acknowledged = parse_acknowledged(&stdout);
    assert_eq!(survivors.batches.len(), acknowledged.len());
    for (batch, first) in acknowledged {
        assert!(survivors.contains_batch(batch, first), "{batch:?} is lost");
    }
    stdout.lines().find_map(|line| line.strip_prefix("full ")).map(|length| length.parse().unwrap())
}

#[tokio::test]
async fn x02_full_disk_rejects_whole_batches_and_the_store_works_when_space_is_freed() {
    // From a disk without space for the database itself to one on which the log can grow.
    let mut full = 0;
    for bytes in (0..600_000).step_by(75_000) {
        full += usize::from(fill_disk(bytes).await.is_some());
    }
    assert!(full >= 4, "{full}");
}

#[tokio::test]
async fn x02_disk_that_is_full_during_a_checkpoint_loses_nothing() {
    // The checkpoint begins at a thousand pages and makes the database grow too.
    for bytes in [4_300_000, 4_600_000] {
        let log = fill_disk(bytes).await;
        assert!(log > Some(1000 * 4096), "{log:?}");
    }
}

#[tokio::test]
#[ignore = "child process with a disk that is too small"]
async fn large_writer() {
    let database = process::database_path();
    let store = open_with_room(&database);
    let (small, large) = (name("small"), name("large"));
    let write_both = async || {
        let mut batch = messages(&large, &["with a large blob"]);
        // Larger than the page cache of SQLite, so that it is written before the commit.
        let bytes = vec![b'x'; 4_000_000];
        batch.push(Fact::PutBlob { hash: blob_hash(&bytes), bytes: bytes.into() });
        tokio::join!(
            store.commit(messages(&small, &["one"])),
            store.commit(batch),
            store.commit(messages(&small, &["two"]))
        )
    };
    let (one, large_result, two) = write_both().await;
    assert_full(&large_result.unwrap_err(), &database);
    let mut written = 0;
    for small_result in [one, two] {
        match small_result {
            Ok(_) => written += 1,
            Err(error) => assert_full(&error, &database),
        }
    }
    assert_eq!(ids(&all(&*store, &small).await), (1..=written).collect::<Vec<u64>>());
    assert_eq!(all(&*store, &large).await, []);
    free_disk_space();
    let (one, large_result, two) = write_both().await;
    assert!(one.is_ok() && large_result.is_ok() && two.is_ok());
    assert_eq!(ids(&all(&*store, &small).await), (1..=written + 2).collect::<Vec<u64>>());
    assert_eq!(ids(&all(&*store, &large).await), [1]);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[test]
fn x02_batch_too_large_for_the_disk_fails_with_its_group_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let layer = DiskLayer::for_folder(&folder).with_free_bytes(1_000_000);
    let mut process = process::child_command("full::large_writer", &folder.join("capstan.db"));
    layer.preload_into(&mut process);
    let output = process.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[tokio::test]
#[ignore = "child process that migrates a database on a full disk"]
async fn migrating_process() {
    let database = process::database_path();
    let store = SqliteStore::open(&database).unwrap_or_else(|error| {
        assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
        process::report(&format!("full {error}"));
        let version = SqliteStore::read_schema_version(&database);
        assert_eq!(version, Ok(Some(7)), "the database is not migrated without a copy");
        let leftovers = std::fs::read_dir(database.parent().unwrap()).unwrap();
        let names: Vec<_> = leftovers.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        assert!(!names.iter().any(|name| name.contains(".new")), "an incomplete copy is removed: {names:?}");
        free_disk_space();
        SqliteStore::open(&database).expect("the database is migrated when space is freed")
    });
    assert_eq!(store.verify().await.unwrap(), []);
}

#[test]
fn x08_disk_that_is_full_during_the_copy_or_the_migration_leaves_the_old_database() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/schema-7.db");
    let size = std::fs::metadata(&fixture).unwrap().len();
    let (mut in_copy, mut in_migration) = (0, 0);
    // From a disk without space to one with space for the copy and a part of the migration.
    for bytes in (0..2 * size).step_by(30_000) {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let database = folder.join("capstan.db");
        std::fs::copy(&fixture, &database).unwrap();
        let layer = DiskLayer::for_folder(&folder).with_free_bytes(bytes);
        let mut process = process::child_command("full::migrating_process", &database);
        layer.preload_into(&mut process);
        let output = process.output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "with {bytes} free bytes: {stdout}");
        if stdout.contains("the copy to keep before a migration") {
            in_copy += 1;
        } else if stdout.contains("> full") {
            in_migration += 1;
        }
        let copy = folder.join("capstan.db.v7");
        assert_eq!(SqliteStore::read_schema_version(&copy), Ok(Some(7)), "with {bytes} free bytes");
        assert_eq!(SqliteStore::read_schema_version(&database), Ok(Some(SqliteStore::SCHEMA_VERSION)));
    }
    assert!(in_copy >= 3 && in_migration >= 1, "{in_copy} {in_migration}");
}

//! Files that are removed, moved, replaced or overwritten under an open store.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use capstan_store::{HighWaterMark, SqliteOptions, SqliteStore, copy_database};
use capstan_tape::{Batch, CommitDurability, JournalStore as _, StoreError};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::{all, messages, name, texts};

/// State of the log when a test begins.
#[derive(Debug, Clone, Copy)]
enum LogState {
    /// All commits since the backup are in the log.
    Full,
    /// The log is empty, and the last commit follows.
    Truncated,
    /// The log was checkpointed while it was used, and started again.
    Restarted,
}

/// Store with a backup that lacks the last of its commits.
struct ReplacementFixture {
    _folder: TempDir,
    home: PathBuf,
    store: SqliteStore,
}

impl ReplacementFixture {
    async fn new(log: LogState) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let wal_checkpoint_pages = if matches!(log, LogState::Restarted) { 4 } else { 4000 };
        let options = SqliteOptions { wal_checkpoint_pages, ..SqliteOptions::default() };
        let store = SqliteStore::open_with(home.join("capstan.db"), options).unwrap();
        store.commit(batch("backed up")).await.unwrap();
        copy_database(home.join("capstan.db"), home.join("backup.db")).unwrap();
        for number in 0..100 {
            store.commit(batch(&format!("later {number} {}", "x".repeat(1000)))).await.unwrap();
        }
        if matches!(log, LogState::Truncated) {
            Connection::open(home.join("capstan.db"))
                .unwrap()
                .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
                .unwrap();
        }
        store.commit(batch("acknowledged")).await.unwrap();
        Self { _folder: folder, home, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// Asserts that commits fail for good, and returns the error.
    async fn assert_refused(&self) -> StoreError {
        let error = self.store.commit(batch("lost")).await.unwrap_err();
        assert_eq!(error.code(), "store-replaced", "{error}");
        assert!(!error.is_transient());
        for durability in [CommitDurability::Durable, CommitDurability::Ordered] {
            let later = Batch { durability, ..batch("later") };
            assert_eq!(self.store.commit(later).await.unwrap_err(), error);
        }
        assert_eq!(self.store.wait_for_failure().await, error);
        error
    }
}

fn batch(text: &str) -> Batch {
    messages(&name("t"), &[text])
}

/// Texts of the database in a file, after a check of its integrity.
async fn stored_texts(database: &Path) -> Vec<String> {
    let store = SqliteStore::open(database).unwrap();
    assert_eq!(store.verify().await.unwrap(), []);
    texts(&all(&store, &name("t")).await)
}

#[tokio::test]
async fn x07_removed_database_is_noticed_before_a_commit_is_acknowledged() {
    for removed in ["capstan.db", "capstan.db-wal", "capstan.db-shm"] {
        let files = ReplacementFixture::new(LogState::Full).await;
        std::fs::remove_file(files.path(removed)).unwrap();
        let error = files.assert_refused().await.to_string();
        assert!(
            error.contains(&format!("/{removed} is not the file that was opened: it was removed or moved")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn x07_acknowledged_commits_survive_the_removal_of_the_log() {
    let files = ReplacementFixture::new(LogState::Full).await;
    std::fs::remove_file(files.path("capstan.db-wal")).unwrap();
    files.assert_refused().await;
    let ReplacementFixture { _folder, home, store } = files;
    drop(store);
    let stored = stored_texts(&home.join("capstan.db")).await;
    assert_eq!((stored.len(), stored[101].as_str()), (102, "acknowledged"));
}

#[tokio::test]
async fn x07_moved_home_is_noticed_and_stays_whole() {
    let files = ReplacementFixture::new(LogState::Full).await;
    let moved = files.home.with_file_name("moved");
    std::fs::rename(&files.home, &moved).unwrap();
    files.assert_refused().await;
    drop(files.store);
    assert!(stored_texts(&moved.join("capstan.db")).await.contains(&"acknowledged".to_owned()));
}

/// Runs a command of the shell, in another process: a handle that this process closes would release its locks.
fn shell(folder: &Path, script: &str) {
    assert!(Command::new("sh").args(["-c", script]).current_dir(folder).status().unwrap().success(), "{script}");
}

#[tokio::test]
async fn x07_backup_put_in_place_of_the_open_database_is_noticed_and_stays_intact() {
    for log in [LogState::Full, LogState::Truncated, LogState::Restarted] {
        for replacement in [
            "mv backup.db capstan.db",
            "cp backup.db capstan.db",
            "cp backup.db capstan.db; rm capstan.db-wal capstan.db-shm",
        ] {
            let files = ReplacementFixture::new(log).await;
            shell(&files.home, replacement);
            let error = files.assert_refused().await.to_string();
            assert!(replacement.contains("rm ") || error.contains("capstan.db-wal.orphaned-"), "{error}");
            drop(files.store);
            assert_eq!(stored_texts(&files.home.join("capstan.db")).await, ["backed up"], "{log:?} {replacement}");
        }
    }
}

/// Copies every file of the database to a folder, or back over the files in use.
const SAVE_FILES: &str = "mkdir old && cp capstan.db* old/";
const PUT_BACK: &str = "cp old/* .";

#[tokio::test]
async fn x07_older_copy_of_all_files_put_in_place_is_noticed_and_reported() {
    for log in [LogState::Full, LogState::Truncated, LogState::Restarted] {
        for put_back in [PUT_BACK, "rm old/capstan.db-mark; cp old/* ."] {
            let files = ReplacementFixture::new(log).await;
            shell(&files.home, SAVE_FILES);
            files.store.commit(batch("acknowledged later")).await.unwrap();
            shell(&files.home, put_back);
            files.assert_refused().await;
            drop(files.store);
            let stored = stored_texts(&files.home.join("capstan.db")).await;
            assert_eq!(stored.last().map(String::as_str), Some("acknowledged"), "{log:?} {put_back}");
            let mark = HighWaterMark::read(files.home.join("capstan.db")).unwrap().unwrap();
            assert!(mark.setback.is_some(), "{log:?} {put_back}: the next process reports it");
        }
    }
}

#[tokio::test]
async fn x07_copy_that_an_earlier_process_made_is_noticed_when_it_is_put_in_place() {
    for added in [1, 200] {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_path_buf();
        let store = SqliteStore::open(home.join("capstan.db")).unwrap();
        for number in 0..100 {
            store.commit(batch(&format!("{number}"))).await.unwrap();
        }
        shell(&home, SAVE_FILES);
        drop(store);
        let store = SqliteStore::open(home.join("capstan.db")).unwrap();
        for number in 0..added {
            store.commit(batch(&format!("later {number}"))).await.unwrap();
        }
        shell(&home, PUT_BACK);
        ReplacementFixture { _folder: folder, home, store }.assert_refused().await;
    }
}

#[tokio::test]
async fn x07_log_that_is_cut_or_overwritten_in_place_is_noticed_and_not_applied() {
    for log in [LogState::Full, LogState::Restarted] {
        for damage in [
            ": > capstan.db-wal",
            "truncate -s -1 capstan.db-wal",
            "cp old/capstan.db-wal capstan.db-wal",
            "cp capstan.db-wal same; : > capstan.db-wal; head -c -4120 same > capstan.db-wal",
            "dd if=old/capstan.db-wal of=capstan.db-wal conv=notrunc; truncate -s -1 capstan.db-wal",
            "dd if=/dev/zero of=capstan.db-wal bs=4096 count=4 conv=notrunc",
        ] {
            let files = ReplacementFixture::new(log).await;
            shell(&files.home, SAVE_FILES);
            for number in 0..3 {
                files.store.commit(batch(&format!("acknowledged later {number}"))).await.unwrap();
            }
            shell(&files.home, damage);
            let error = files.assert_refused().await.to_string();
            assert!(error.contains("/capstan.db-wal is not the file that was opened"), "{log:?} {damage}: {error}");
            drop(files.store);
            let database = files.home.join("capstan.db");
            if HighWaterMark::lost_entries(&database).unwrap().is_some() {
                // Every commit was in the log, and its beginning is gone.
                assert_eq!(SqliteStore::open(&database).err().unwrap().code(), "store-replaced");
                continue;
            }
            let stored = stored_texts(&database).await;
            assert!(!stored.contains(&"lost".to_owned()), "{log:?} {damage}");
            let mark = HighWaterMark::read(&database).unwrap().unwrap();
            assert!(mark.setback.is_some(), "{log:?} {damage}: the next process reports it");
        }
    }
}

#[tokio::test]
async fn x07_store_that_lost_its_content_is_not_begun_again() {
    for loss in ["rm capstan.db*", "rm capstan.db; : > capstan.db", "rm capstan.db"] {
        let ReplacementFixture { _folder, home, store } = ReplacementFixture::new(LogState::Full).await;
        drop(store);
        shell(&home, &format!("cp capstan.db-mark mark; {loss}; mv mark capstan.db-mark"));
        let database = home.join("capstan.db");
        for _ in 0..2 {
            let error = SqliteStore::open(&database).err().expect("an empty store would serve all events again");
            assert_eq!(error.code(), "store-replaced", "{loss}: {error}");
            assert!(error.to_string().contains("is missing or empty: it had 102 entries"), "{loss}: {error}");
        }
        assert_eq!(HighWaterMark::acknowledge_lost_entries(&database).unwrap(), Some(102));
        SqliteStore::open(&database).unwrap().commit(batch("begun again")).await.unwrap();
        assert_eq!(stored_texts(&database).await, ["begun again"]);
    }
}

#[tokio::test]
async fn x07_log_that_a_reader_finds_cut_ends_the_store() {
    let files = ReplacementFixture::new(LogState::Full).await;
    shell(&files.home, ": > capstan.db-wal");
    let reader = files.store.read(&name("t"), &capstan_tape::TapeSlice::all()).await.unwrap_err();
    assert_eq!(reader.code(), "store-replaced", "{reader}");
    assert_eq!(files.store.wait_for_failure().await, reader);
}

#[tokio::test]
async fn x07_idle_store_does_not_write_its_log_to_a_replaced_database() {
    let files = ReplacementFixture::new(LogState::Full).await;
    let idle = SqliteStore::open(files.path("capstan.db")).unwrap();
    idle.commit(batch("of the idle store")).await.unwrap();
    files.store.commit(batch("of the busy store")).await.unwrap();
    shell(&files.home, "cp backup.db capstan.db");
    files.assert_refused().await;
    let ReplacementFixture { _folder, home, store } = files;
    drop(store);
    drop(idle);
    assert_eq!(stored_texts(&home.join("capstan.db")).await, ["backed up"]);
}

#[tokio::test]
async fn x07_checkpoints_of_several_connections_are_no_change_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capstan.db");
    let options = SqliteOptions { wal_checkpoint_pages: 4, ..SqliteOptions::default() };
    let stores: Vec<_> = (0..3).map(|_| Arc::new(SqliteStore::open_with(&path, options).unwrap())).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for store in &stores {
        let store = Arc::clone(store);
        tasks.spawn(async move {
            for number in 0..60 {
                store.commit(batch(&format!("{number} {}", "x".repeat(5000)))).await.unwrap();
            }
        });
    }
    let foreign = Connection::open(&path).unwrap();
    for mode in ["PASSIVE", "FULL", "RESTART", "TRUNCATE"].iter().cycle().take(40) {
        // A busy checkpoint is a result, not an error.
        foreign.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(())).unwrap();
        tokio::task::yield_now().await;
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
    assert_eq!(all(&*stores[0], &name("t")).await.len(), 180);
}

#[tokio::test]
async fn x08_store_stops_when_a_newer_version_migrates_its_database() {
    let files = ReplacementFixture::new(LogState::Full).await;
    let newer = Connection::open(files.path("capstan.db")).unwrap();
    newer.execute_batch("BEGIN; ALTER TABLE tapes ADD COLUMN news TEXT; PRAGMA user_version = 99; COMMIT").unwrap();
    let error = files.store.commit(batch("old rows in new tables")).await.unwrap_err();
    assert_eq!(error.code(), "store-too-new");
    assert_eq!(files.store.wait_for_failure().await, error);
    assert_eq!(texts(&all(&files.store, &name("t")).await).len(), 102, "nothing more was written");
}

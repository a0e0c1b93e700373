//! Conformance suites for every store of the project.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use capstan_store::{JsonlTapeStore, SqliteStore, conformance};
use capstan_tape::{MemoryStore, MemoryTapeStore, Store, TapeRepository, TapeStore};
use tempfile::TempDir;

/// Directory with a new subdirectory for each store of a suite.
struct TestDirectories {
    directory: TempDir,
    next_number: AtomicUsize,
}

impl TestDirectories {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), next_number: AtomicUsize::new(0) }
    }

    fn create_next(&self) -> PathBuf {
        let path = self.directory.path().join(self.next_number.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::create_dir(&path).unwrap();
        path
    }
}

fn memory_store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

fn memory_tape_store() -> Arc<dyn TapeStore> {
    Arc::new(MemoryTapeStore::new())
}

fn sqlite_store(directory: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(directory.join("capstan.db")).unwrap())
}

fn jsonl_tape_store(directory: &Path) -> Arc<dyn TapeStore> {
    Arc::new(JsonlTapeStore::open(directory.join("tapes")).unwrap())
}

#[tokio::test]
async fn d02_memory_store_conforms() {
    conformance::store_suite(async || memory_store()).await;
}

#[tokio::test]
async fn d02_sqlite_store_conforms() {
    let directories = TestDirectories::new();
    conformance::store_suite(async || sqlite_store(&directories.create_next())).await;
}

#[tokio::test]
async fn d09_memory_tape_store_conforms() {
    conformance::tape_store_suite(async || memory_tape_store()).await;
}

#[tokio::test]
async fn p12_jsonl_tape_store_conforms() {
    let directories = TestDirectories::new();
    conformance::tape_store_suite(async || jsonl_tape_store(&directories.create_next())).await;
}

#[tokio::test]
async fn p09_p10_p11_tapes_in_memory() {
    conformance::tapes_suite(async || TapeRepository::new(memory_store())).await;
}

#[tokio::test]
async fn p09_p10_p11_tapes_in_sqlite() {
    let directories = TestDirectories::new();
    conformance::tapes_suite(async || TapeRepository::new(sqlite_store(&directories.create_next()))).await;
}

#[tokio::test]
async fn p09_p10_p11_tapes_in_memory_with_an_external_store() {
    conformance::tapes_suite(async || TapeRepository::with_external_store(memory_store(), memory_tape_store())).await;
}

#[tokio::test]
async fn p09_p10_p11_tapes_in_sqlite_with_jsonl_files() {
    let directories = TestDirectories::new();
    conformance::tapes_suite(async || {
        let directory = directories.create_next();
        TapeRepository::with_external_store(sqlite_store(&directory), jsonl_tape_store(&directory))
    })
    .await;
}

#[tokio::test]
async fn d09_replication_in_memory() {
    conformance::replication_suite(async || (memory_store(), memory_tape_store())).await;
}

#[tokio::test]
async fn d09_replication_from_sqlite_to_jsonl_files() {
    let directories = TestDirectories::new();
    conformance::replication_suite(async || {
        let directory = directories.create_next();
        (sqlite_store(&directory), jsonl_tape_store(&directory))
    })
    .await;
}

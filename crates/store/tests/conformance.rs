//! Every store of the project against the suites that every store passes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use capstan_store::{JsonlTapeStore, SqliteStore, conformance};
use capstan_tape::{MemoryStore, MemoryTapeStore, Store, TapeRepository, TapeStore};
use tempfile::TempDir;

/// A directory with as many places in it as a suite asks for.
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

fn sqlite_store(place: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(place.join("capstan.db")).unwrap())
}

fn jsonl_tape_store(place: &Path) -> Arc<dyn TapeStore> {
    Arc::new(JsonlTapeStore::open(place.join("tapes")).unwrap())
}

#[tokio::test]
async fn d02_the_memory_store_keeps_every_promise() {
    conformance::store_suite(async || memory_store()).await;
}

#[tokio::test]
async fn d02_the_sqlite_store_keeps_every_promise() {
    let places = TestDirectories::new();
    conformance::store_suite(async || sqlite_store(&places.create_next())).await;
}

#[tokio::test]
async fn d09_memory_tapes_keep_every_promise() {
    conformance::tape_store_suite(async || memory_tape_store()).await;
}

#[tokio::test]
async fn p12_jsonl_files_keep_every_promise() {
    let places = TestDirectories::new();
    conformance::tape_store_suite(async || jsonl_tape_store(&places.create_next())).await;
}

#[tokio::test]
async fn p09_p10_p11_tapes_in_memory() {
    conformance::tapes_suite(async || TapeRepository::new(memory_store())).await;
}

#[tokio::test]
async fn p09_p10_p11_tapes_in_sqlite() {
    let places = TestDirectories::new();
    conformance::tapes_suite(async || TapeRepository::new(sqlite_store(&places.create_next()))).await;
}

#[tokio::test]
async fn p09_p10_p11_tapes_in_memory_kept_elsewhere() {
    conformance::tapes_suite(async || TapeRepository::with_external_store(memory_store(), memory_tape_store())).await;
}

#[tokio::test]
async fn p09_p10_p11_tapes_in_sqlite_kept_in_files() {
    let places = TestDirectories::new();
    conformance::tapes_suite(async || {
        let place = places.create_next();
        TapeRepository::with_external_store(sqlite_store(&place), jsonl_tape_store(&place))
    })
    .await;
}

#[tokio::test]
async fn d09_handover_in_memory() {
    conformance::replication_suite(async || (memory_store(), memory_tape_store())).await;
}

#[tokio::test]
async fn d09_handover_from_sqlite_to_files() {
    let places = TestDirectories::new();
    conformance::replication_suite(async || {
        let place = places.create_next();
        (sqlite_store(&place), jsonl_tape_store(&place))
    })
    .await;
}

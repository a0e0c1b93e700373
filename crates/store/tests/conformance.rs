//! Every store of the project against the suites that every store passes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use capstan_store::{JsonlTapes, SqliteStore, conformance};
use capstan_tape::{MemoryStore, MemoryTapes, Store, TapeStore, Tapes};
use tempfile::TempDir;

/// A directory with as many places in it as a suite asks for.
struct Places {
    directory: TempDir,
    used: AtomicUsize,
}

impl Places {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), used: AtomicUsize::new(0) }
    }

    fn next(&self) -> PathBuf {
        let path = self.directory.path().join(self.used.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::create_dir(&path).unwrap();
        path
    }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

fn memory_tapes() -> Arc<dyn TapeStore> {
    Arc::new(MemoryTapes::new())
}

fn sqlite(place: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(place.join("capstan.db")).unwrap())
}

fn jsonl(place: &Path) -> Arc<dyn TapeStore> {
    Arc::new(JsonlTapes::open(place.join("tapes")).unwrap())
}

#[tokio::test]
async fn d02_the_memory_store_keeps_every_promise() {
    conformance::store_suite(async || memory()).await;
}

#[tokio::test]
async fn d02_the_sqlite_store_keeps_every_promise() {
    let places = Places::new();
    conformance::store_suite(async || sqlite(&places.next())).await;
}

#[tokio::test]
async fn d09_memory_tapes_keep_every_promise() {
    conformance::tape_store_suite(async || memory_tapes()).await;
}

#[tokio::test]
async fn p12_jsonl_files_keep_every_promise() {
    let places = Places::new();
    conformance::tape_store_suite(async || jsonl(&places.next())).await;
}

#[tokio::test]
async fn p09_p10_p11_tapes_in_memory() {
    conformance::tapes_suite(async || Tapes::new(memory())).await;
}

#[tokio::test]
async fn p09_p10_p11_tapes_in_sqlite() {
    let places = Places::new();
    conformance::tapes_suite(async || Tapes::new(sqlite(&places.next()))).await;
}

#[tokio::test]
async fn p09_p10_p11_tapes_in_memory_kept_elsewhere() {
    conformance::tapes_suite(async || Tapes::kept_by(memory(), memory_tapes())).await;
}

#[tokio::test]
async fn p09_p10_p11_tapes_in_sqlite_kept_in_files() {
    let places = Places::new();
    conformance::tapes_suite(async || {
        let place = places.next();
        Tapes::kept_by(sqlite(&place), jsonl(&place))
    })
    .await;
}

#[tokio::test]
async fn d09_handover_in_memory() {
    conformance::handover_suite(async || (memory(), memory_tapes())).await;
}

#[tokio::test]
async fn d09_handover_from_sqlite_to_files() {
    let places = Places::new();
    conformance::handover_suite(async || {
        let place = places.next();
        (sqlite(&place), jsonl(&place))
    })
    .await;
}

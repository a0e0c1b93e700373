//! Power loss while the content of a database is replaced: by a restore, a rollback or a migration. The old content or the
//! new one survives, and the new one from the moment at which it was reported.

use std::path::Path;

use capstan_store::{
    DatabaseSummary, SqliteStore, UnfinishedWork, back_up_database, replace_database, restore_database,
};
use capstan_tape::JournalStore as _;
use capstan_testing::disk::{DiskCall, DiskLayer, PowerCut, SimulatedDisk};
use rusqlite::Connection;

use super::process;
use crate::support::{messages, name};

/// Reports of a child process.
const READY_REPORT: &str = "ready";
const DONE_REPORT: &str = "done";

async fn append(database: &Path, text: &str) {
    let store = SqliteStore::open(database).unwrap();
    store.commit(messages(&name("t"), &[text])).await.unwrap();
}

#[tokio::test]
#[ignore = "child process whose disk calls are recorded"]
async fn restoring_process() {
    let database = process::database_path();
    let backup = database.with_file_name("backup.db");
    append(&database, "old").await;
    back_up_database(&database, &backup).unwrap();
    append(&database, "new").await;
    process::report(READY_REPORT);
    restore_database(&database, &backup, database.with_file_name("kept.db"), UnfinishedWork::GiveUp).unwrap();
    process::report(DONE_REPORT);
}

#[tokio::test]
#[ignore = "child process whose disk calls are recorded"]
async fn migrating_process() {
    let database = process::database_path();
    Connection::open(&database).unwrap().execute_batch(include_str!("../../data/version-1.sql")).unwrap();
    std::fs::File::open(&database).unwrap().sync_all().unwrap();
    std::fs::File::open(database.parent().unwrap()).unwrap().sync_all().unwrap();
    process::report(READY_REPORT);
    drop(SqliteStore::open(&database).unwrap());
    process::report(DONE_REPORT);
}

#[tokio::test]
#[ignore = "child process whose disk calls are recorded"]
async fn returning_process() {
    let database = process::database_path();
    Connection::open(&database).unwrap().execute_batch(include_str!("../../data/version-1.sql")).unwrap();
    drop(SqliteStore::open(&database).unwrap());
    process::report(READY_REPORT);
    replace_database(&database, database.with_file_name("capstan.db.v1"), database.with_file_name("kept.db")).unwrap();
    process::report(DONE_REPORT);
}

/// Content of a database, to tell the old one from the new one.
fn content(database: &Path) -> (u32, u64) {
    let summary = DatabaseSummary::read(database).unwrap();
    (summary.version, summary.entries)
}

/// Cuts the power after every call between the reports of a child process, and returns the number of cuts with the old and
/// with the new content.
async fn check_power_cuts(child: &str) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let layer = DiskLayer::for_folder(&folder).with_recording();
    let mut process = process::child_command(&format!("replaced_content::{child}"), &folder.join("capstan.db"));
    layer.preload_into(&mut process);
    let output = process.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let calls = layer.calls();
    let new_content = content(&folder.join("capstan.db"));

    let (mut disk, mut old_content, mut counts) = (SimulatedDisk::new(), None, (0, 0));
    for (number, call) in calls.iter().enumerate() {
        disk.apply(call);
        let reports = disk.stdout();
        if !reports.contains(READY_REPORT) {
            continue;
        }
        // Most writes are pages of the same copy.
        let is_sampled = !matches!(call, DiskCall::Write { .. }) || number % 16 == 0;
        for cut in [PowerCut::KeepSynced, PowerCut::KeepRandom(number as u64)].into_iter().filter(|_| is_sampled) {
            let image = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
            disk.image_after(cut).write_to(image.path());
            let database = image.path().join("capstan.db");
            let found = content(&database);
            let old_content = *old_content.get_or_insert(found);
            assert!(found == old_content || found == new_content, "{child}, call {number}, {cut:?}: {found:?}");
            assert!(!reports.contains(DONE_REPORT) || found == new_content, "{child}, call {number}, {cut:?}: lost");
            assert_eq!(SqliteStore::open(&database).unwrap().verify().await.unwrap(), [], "{child}, call {number}");
            *(if found == new_content { &mut counts.1 } else { &mut counts.0 }) += 1;
        }
    }
    counts
}

#[tokio::test]
async fn x07_power_cut_during_a_restore_leaves_the_old_or_the_new_content() {
    let (old, new) = check_power_cuts("restoring_process").await;
    assert!(old > 5 && new > 1, "{old} and {new}");
}

#[tokio::test]
async fn x08_power_cut_during_a_migration_leaves_the_old_or_the_new_content() {
    let (old, new) = check_power_cuts("migrating_process").await;
    assert!(old > 5 && new > 1, "{old} and {new}");
}

#[tokio::test]
async fn x08_power_cut_during_a_rollback_leaves_the_old_or_the_new_content() {
    let (old, new) = check_power_cuts("returning_process").await;
    assert!(old > 5 && new > 1, "{old} and {new}");
}

//! Power loss: acknowledged commits survive, whatever the disk did with unsynced writes.
//!
//! A child process runs a workload once, and all of its disk calls are recorded. From these calls the content of the
//! disk is reconstructed for a power cut after each call.

use std::collections::BTreeSet;
use std::path::Path;

use capstan_protocol::EntryId;
use capstan_testing::disk::{DiskCall, DiskLayer, PowerCut, SimulatedDisk};
use tempfile::TempDir;

use super::process;
use super::survivors::DatabaseSurvivors;
use super::workload::{WRITER_TASKS, WorkloadBatch, parse_acknowledged, run_workload};

const DATABASE_FILE_NAME: &str = "capstan.db";
const WAL_FILE_NAME: &str = "capstan.db-wal";
/// Number of batches before the database was closed for the first time.
const BATCHES_BEFORE_CLOSE: usize = 3 * WRITER_TASKS;

#[tokio::test]
#[ignore = "child process whose disk calls are recorded"]
async fn writer() {
    let database = process::database_path();
    // Closing the database in between checkpoints and removes the log.
    run_workload(&database, 0..3).await;
    run_workload(&database, 3..30).await;
}

/// Disk calls of a process that writes to a new database, closes it, opens it again and continues.
fn record_calls() -> Vec<DiskCall> {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let layer = DiskLayer::for_folder(&folder).with_recording();
    let mut process = process::child_command("power::writer", &folder.join(DATABASE_FILE_NAME));
    layer.preload_into(&mut process);
    let output = process.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let calls = layer.calls();
    let bytes = std::fs::read(folder.join(DATABASE_FILE_NAME)).unwrap();
    let image = disk_after(&calls).image_after(PowerCut::KeepAll);
    assert!(image.file(DATABASE_FILE_NAME) == Some(&bytes[..]), "the layer has recorded every byte");
    calls
}

fn disk_after(calls: &[DiskCall]) -> SimulatedDisk<'_> {
    apply_calls(SimulatedDisk::new(), calls)
}

fn apply_calls<'a>(mut disk: SimulatedDisk<'a>, calls: &'a [DiskCall]) -> SimulatedDisk<'a> {
    for call in calls {
        disk.apply(call);
    }
    disk
}

/// Temporary directory in memory, where the system has one.
fn memory_directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Point of a power cut: the disk, the last call before the cut, and the first call that is lost.
struct CutPoint<'a> {
    disk: &'a SimulatedDisk<'a>,
    call_number: usize,
    call: &'a DiskCall,
    next_call: Option<&'a DiskCall>,
}

impl CutPoint<'_> {
    /// Returns true if the call wrote to this file.
    fn is_write_to(&self, file: &str) -> bool {
        matches!(self.call, DiskCall::Write { handle, .. } if self.disk.path(*handle) == Path::new(file))
    }
}

/// Statistics of the tested power cuts.
struct CutStats {
    cuts: usize,
    /// Number of cuts after which unacknowledged batches survived.
    with_unacknowledged: usize,
}

/// Cuts the power after each call in the ways that `cuts` returns, and asserts that no acknowledged batch is lost and
/// no batch survives partly.
async fn check_power_cuts(calls: &[DiskCall], cuts: impl Fn(&CutPoint<'_>) -> Vec<PowerCut>) -> CutStats {
    let mut stats = CutStats { cuts: 0, with_unacknowledged: 0 };
    let mut disk = SimulatedDisk::new();
    for (number, call) in calls.iter().enumerate() {
        disk.apply(call);
        for cut in cuts(&CutPoint { disk: &disk, call_number: number, call, next_call: calls.get(number + 1) }) {
            let directory = memory_directory();
            disk.image_after(cut).write_to(directory.path());
            let survivors = DatabaseSurvivors::open_and_check(&directory.path().join(DATABASE_FILE_NAME)).await;
            let acknowledged = parse_acknowledged(&disk.stdout());
            for (batch, first) in &acknowledged {
                assert!(
                    survivors.contains_batch(*batch, *first),
                    "{batch:?} is lost by a power cut ({cut:?}) after call {number}"
                );
            }
            stats.cuts += 1;
            stats.with_unacknowledged += usize::from(survivors.batches.len() > acknowledged.len());
        }
    }
    stats
}

#[tokio::test]
async fn x01_acknowledged_batches_survive_if_only_synced_writes_do() {
    let calls = record_calls();
    // Right before a sync the number of acknowledged batches is the greatest for the same state of the disk.
    let stats = check_power_cuts(&calls, |point| match point.next_call {
        Some(DiskCall::Sync { .. }) | None => vec![PowerCut::KeepSynced],
        Some(_) => Vec::new(),
    });
    let CutStats { cuts, .. } = stats.await;
    let acknowledged = parse_acknowledged(&disk_after(&calls).stdout()).len();
    assert!(acknowledged > 2 * cuts, "batches share syncs: {acknowledged} batches, {cuts} syncs");
}

#[tokio::test]
async fn x02_database_is_intact_whichever_unsynced_writes_survive() {
    let calls = record_calls();
    let stats = check_power_cuts(&calls, |point| match point.call {
        // Does not change the disk.
        DiskCall::WriteStdout { .. } => Vec::new(),
        // Covered by the test of checkpoints.
        DiskCall::Write { .. } if point.is_write_to(DATABASE_FILE_NAME) => Vec::new(),
        // There are thousands of similar ones.
        DiskCall::Write { .. } if point.is_write_to(WAL_FILE_NAME) && point.call_number % 32 != 0 => Vec::new(),
        _ if point.call_number % 160 == 0 => vec![PowerCut::KeepAll],
        _ => vec![PowerCut::KeepRandom(point.call_number as u64)],
    });
    let CutStats { cuts, with_unacknowledged } = stats.await;
    assert!(with_unacknowledged > 5, "unacknowledged batches survive after {with_unacknowledged} of {cuts} cuts");
}

#[tokio::test]
async fn x02_database_is_intact_after_a_power_cut_during_a_checkpoint() {
    let calls = record_calls();
    let acknowledged = parse_acknowledged(&disk_after(&calls).stdout()).len();
    let (mut disk, mut checkpoints_at, mut log_starts) = (SimulatedDisk::new(), BTreeSet::new(), 0);
    for (number, call) in calls.iter().enumerate() {
        disk.apply(call);
        let point = CutPoint { disk: &disk, call_number: number, call, next_call: calls.get(number + 1) };
        if point.is_write_to(DATABASE_FILE_NAME) {
            checkpoints_at.insert(parse_acknowledged(&disk.stdout()).len());
        }
        log_starts +=
            usize::from(point.is_write_to(WAL_FILE_NAME) && matches!(call, DiskCall::Write { offset: 0, .. }));
    }
    assert!(
        checkpoints_at.range(BATCHES_BEFORE_CLOSE + 1..acknowledged).next().is_some(),
        "there was a checkpoint during the workload: {checkpoints_at:?}"
    );
    assert!(log_starts >= 3, "the log was restarted after the checkpoint: {log_starts} times in total");

    let stats = check_power_cuts(&calls, |point| match point.call {
        DiskCall::Write { .. } if point.is_write_to(DATABASE_FILE_NAME) && point.call_number % 2 == 0 => {
            vec![PowerCut::KeepRandom(point.call_number as u64)]
        }
        _ => Vec::new(),
    });
    assert!(stats.await.cuts > 50);
}

#[tokio::test]
async fn x01_disk_that_ignores_syncs_loses_acknowledged_batches() {
    let calls = record_calls();
    let disk = apply_calls(SimulatedDisk::with_ignored_syncs(), &calls);
    let directory = memory_directory();
    disk.image_after(PowerCut::KeepSynced).write_to(directory.path());
    let survivors = DatabaseSurvivors::open_and_check(&directory.path().join(DATABASE_FILE_NAME)).await;
    let acknowledged = parse_acknowledged(&disk.stdout());
    assert!(!acknowledged.is_empty());
    let surviving: Vec<_> =
        acknowledged.iter().filter(|(batch, first)| survivors.contains_batch(*batch, *first)).collect();
    assert_eq!(surviving, Vec::<&(WorkloadBatch, EntryId)>::new(), "the tests above can fail");
}

//! Power loss: what was acknowledged is there, whatever the disk made of what it was not asked to sync.
//!
//! A process writes once, and every call it made is written down. From that, what a disk holds is made anew for a power
//! cut at one call after the other.

use std::collections::BTreeSet;
use std::path::Path;

use capstan_protocol::EntryId;
use capstan_testing::disk::{DiskCall, DiskLayer, PowerCut, SimulatedDisk};
use tempfile::TempDir;

use crate::process;
use crate::survivors::DatabaseSurvivors;
use crate::workload::{WRITER_TASKS, WorkloadBatch, parse_acknowledged, run_workload};

const DATABASE_FILE_NAME: &str = "capstan.db";
const WAL_FILE_NAME: &str = "capstan.db-wal";
/// How many batches were written before the database was closed for the first time.
const BATCHES_BEFORE_CLOSE: usize = 3 * WRITER_TASKS;

#[tokio::test]
#[ignore = "the process whose power goes"]
async fn writer() {
    let database = process::database_path();
    // Closed in between: then the log is copied into the database, and removed.
    run_workload(&database, 0..3).await;
    run_workload(&database, 3..30).await;
}

/// What the process did: it wrote to a new database, closed it, opened it again and wrote on.
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
    let image = platter_after(&calls).image_after(PowerCut::KeepAll);
    assert!(image.file(DATABASE_FILE_NAME) == Some(&bytes[..]), "the layer has seen every byte");
    calls
}

fn platter_after(calls: &[DiskCall]) -> SimulatedDisk<'_> {
    apply_calls(SimulatedDisk::new(), calls)
}

fn apply_calls<'a>(mut platter: SimulatedDisk<'a>, calls: &'a [DiskCall]) -> SimulatedDisk<'a> {
    for call in calls {
        platter.apply(call);
    }
    platter
}

/// A folder that no disk has to be waited for, where there is one.
fn memory_directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Where a power cut is tried: what was done up to it, the last call of that, and the call that never comes.
struct CutPoint<'a> {
    platter: &'a SimulatedDisk<'a>,
    call_number: usize,
    call: &'a DiskCall,
    next_call: Option<&'a DiskCall>,
}

impl CutPoint<'_> {
    /// Whether the call wrote to this file.
    fn is_write_to(&self, file: &str) -> bool {
        matches!(self.call, DiskCall::Write { handle, .. } if self.platter.path(*handle) == Path::new(file))
    }
}

/// How much was tried.
struct CutStats {
    cuts: usize,
    /// How often more was left than had been acknowledged.
    with_unacknowledged: usize,
}

/// Cuts the power after each call in the ways that `cuts` names for it, and asserts that nothing acknowledged is lost
/// and nothing is there half.
async fn check_power_cuts(calls: &[DiskCall], cuts: impl Fn(&CutPoint<'_>) -> Vec<PowerCut>) -> CutStats {
    let mut tried = CutStats { cuts: 0, with_unacknowledged: 0 };
    let mut platter = SimulatedDisk::new();
    for (number, call) in calls.iter().enumerate() {
        platter.apply(call);
        for cut in cuts(&CutPoint { platter: &platter, call_number: number, call, next_call: calls.get(number + 1) }) {
            let left = memory_directory();
            platter.image_after(cut).write_to(left.path());
            let survivors = DatabaseSurvivors::open_and_check(&left.path().join(DATABASE_FILE_NAME)).await;
            let acknowledged = parse_acknowledged(&platter.stdout());
            for (written, first) in &acknowledged {
                assert!(
                    survivors.contains_batch(*written, *first),
                    "{written:?} is lost when a disk {cut:?} after call {number}"
                );
            }
            tried.cuts += 1;
            tried.with_unacknowledged += usize::from(survivors.batches.len() > acknowledged.len());
        }
    }
    tried
}

#[tokio::test]
async fn x01_what_was_acknowledged_is_there_when_only_what_was_synced_is_left() {
    let calls = record_calls();
    // Between two syncs the disk stays as it is, and ever more is acknowledged.
    let tried = check_power_cuts(&calls, |moment| match moment.next_call {
        Some(DiskCall::Sync { .. }) | None => vec![PowerCut::KeepSynced],
        Some(_) => Vec::new(),
    });
    let CutStats { cuts, .. } = tried.await;
    let told = parse_acknowledged(&platter_after(&calls).stdout()).len();
    assert!(told > 2 * cuts, "batches share syncs, {told} of them {cuts}");
}

#[tokio::test]
async fn x02_a_database_is_whole_whatever_is_left_of_what_was_not_synced() {
    let calls = record_calls();
    let tried = check_power_cuts(&calls, |moment| match moment.call {
        // Said on no disk, and tried elsewhere.
        DiskCall::WriteStdout { .. } => Vec::new(),
        DiskCall::Write { .. } if moment.is_write_to(DATABASE_FILE_NAME) => Vec::new(),
        // There are thousands of these, much alike.
        DiskCall::Write { .. } if moment.is_write_to(WAL_FILE_NAME) && moment.call_number % 32 != 0 => Vec::new(),
        _ if moment.call_number % 160 == 0 => vec![PowerCut::KeepAll],
        _ => vec![PowerCut::KeepRandom(moment.call_number as u64)],
    });
    let CutStats { cuts, with_unacknowledged } = tried.await;
    assert!(
        with_unacknowledged > 5,
        "what nobody was told of yet survives by chance: {with_unacknowledged} times of {cuts}"
    );
}

#[tokio::test]
async fn x02_a_database_is_whole_when_the_power_goes_while_its_log_is_copied_into_it() {
    let calls = record_calls();
    let told = parse_acknowledged(&platter_after(&calls).stdout()).len();
    let (mut platter, mut copied_at, mut logs) = (SimulatedDisk::new(), BTreeSet::new(), 0);
    for (number, call) in calls.iter().enumerate() {
        platter.apply(call);
        let moment = CutPoint { platter: &platter, call_number: number, call, next_call: calls.get(number + 1) };
        if moment.is_write_to(DATABASE_FILE_NAME) {
            copied_at.insert(parse_acknowledged(&platter.stdout()).len());
        }
        logs += usize::from(moment.is_write_to(WAL_FILE_NAME) && matches!(call, DiskCall::Write { offset: 0, .. }));
    }
    assert!(
        copied_at.range(BATCHES_BEFORE_CLOSE + 1..told).next().is_some(),
        "in the middle of writing: {copied_at:?}"
    );
    assert!(logs >= 3, "and the log was begun anew after that: {logs} times in all");

    let tried = check_power_cuts(&calls, |moment| match moment.call {
        DiskCall::Write { .. } if moment.is_write_to(DATABASE_FILE_NAME) && moment.call_number % 2 == 0 => {
            vec![PowerCut::KeepRandom(moment.call_number as u64)]
        }
        _ => Vec::new(),
    });
    assert!(tried.await.cuts > 50);
}

#[tokio::test]
async fn x01_a_disk_that_lies_about_its_syncs_loses_what_was_acknowledged() {
    let calls = record_calls();
    let platter = apply_calls(SimulatedDisk::with_ignored_syncs(), &calls);
    let left = memory_directory();
    platter.image_after(PowerCut::KeepSynced).write_to(left.path());
    let survivors = DatabaseSurvivors::open_and_check(&left.path().join(DATABASE_FILE_NAME)).await;
    let acknowledged = parse_acknowledged(&platter.stdout());
    assert!(!acknowledged.is_empty());
    let kept: Vec<_> =
        acknowledged.iter().filter(|(written, first)| survivors.contains_batch(*written, *first)).collect();
    assert_eq!(kept, Vec::<&(WorkloadBatch, EntryId)>::new(), "so the tests above can fail");
}

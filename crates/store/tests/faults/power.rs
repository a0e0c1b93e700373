//! Power loss: what was acknowledged is there, whatever the disk made of what it was not asked to sync.
//!
//! A process writes once, and every call it made is written down. From that, what a disk holds is made anew for a power
//! cut at one call after the other.

use std::collections::BTreeSet;
use std::path::Path;

use capstan_protocol::EntryId;
use capstan_testing::disk::{Call, Cut, DiskLayer, Platter};
use tempfile::TempDir;

use crate::process;
use crate::survivors::Survivors;
use crate::workload::{TASKS, Written, acknowledged, write};

const DATABASE: &str = "capstan.db";
const LOG: &str = "capstan.db-wal";
/// How many batches were written before the database was closed for the first time.
const CLOSED_AFTER: usize = 3 * TASKS;

#[tokio::test]
#[ignore = "the process whose power goes"]
async fn writer() {
    let database = process::database();
    // Closed in between: then the log is copied into the database, and removed.
    write(&database, 0..3).await;
    write(&database, 3..30).await;
}

/// What the process did: it wrote to a new database, closed it, opened it again and wrote on.
fn recorded() -> Vec<Call> {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let layer = DiskLayer::over(&folder).recording();
    let mut process = process::doing("power::writer", &folder.join(DATABASE));
    layer.load_into(&mut process);
    let output = process.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let calls = layer.calls();
    let bytes = std::fs::read(folder.join(DATABASE)).unwrap();
    let image = after(&calls).cut(Cut::KeepsAll);
    assert!(image.file(DATABASE) == Some(&bytes[..]), "the layer has seen every byte");
    calls
}

fn after(calls: &[Call]) -> Platter<'_> {
    taken(Platter::new(), calls)
}

fn taken<'a>(mut platter: Platter<'a>, calls: &'a [Call]) -> Platter<'a> {
    for call in calls {
        platter.take(call);
    }
    platter
}

/// A folder that no disk has to be waited for, where there is one.
fn in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Where a power cut is tried: what was done up to it, the last call of that, and the call that never comes.
struct Moment<'a> {
    platter: &'a Platter<'a>,
    number: usize,
    call: &'a Call,
    next: Option<&'a Call>,
}

impl Moment<'_> {
    /// Whether the call wrote to this file.
    fn writes(&self, file: &str) -> bool {
        matches!(self.call, Call::Write { handle, .. } if self.platter.path(*handle) == Path::new(file))
    }
}

/// How much was tried.
struct Tried {
    cuts: usize,
    /// How often more was left than had been acknowledged.
    with_more: usize,
}

/// Cuts the power after each call in the ways that `cuts` names for it, and asserts that nothing acknowledged is lost
/// and nothing is there half.
async fn survive(calls: &[Call], cuts: impl Fn(&Moment<'_>) -> Vec<Cut>) -> Tried {
    let mut tried = Tried { cuts: 0, with_more: 0 };
    let mut platter = Platter::new();
    for (number, call) in calls.iter().enumerate() {
        platter.take(call);
        for cut in cuts(&Moment { platter: &platter, number, call, next: calls.get(number + 1) }) {
            let left = in_memory();
            platter.cut(cut).write_to(left.path());
            let survivors = Survivors::of(&left.path().join(DATABASE)).await;
            let acknowledged = acknowledged(&platter.said());
            for (written, first) in &acknowledged {
                assert!(survivors.has(*written, *first), "{written:?} is lost when a disk {cut:?} after call {number}");
            }
            tried.cuts += 1;
            tried.with_more += usize::from(survivors.batches.len() > acknowledged.len());
        }
    }
    tried
}

#[tokio::test]
async fn x01_what_was_acknowledged_is_there_when_only_what_was_synced_is_left() {
    let calls = recorded();
    // Between two syncs the disk stays as it is, and ever more is acknowledged.
    let tried = survive(&calls, |moment| match moment.next {
        Some(Call::Sync { .. }) | None => vec![Cut::KeepsSynced],
        Some(_) => Vec::new(),
    });
    let Tried { cuts, .. } = tried.await;
    let told = acknowledged(&after(&calls).said()).len();
    assert!(told > 2 * cuts, "batches share syncs, {told} of them {cuts}");
}

#[tokio::test]
async fn x02_a_database_is_whole_whatever_is_left_of_what_was_not_synced() {
    let calls = recorded();
    let tried = survive(&calls, |moment| match moment.call {
        // Said on no disk, and tried elsewhere.
        Call::Say { .. } => Vec::new(),
        Call::Write { .. } if moment.writes(DATABASE) => Vec::new(),
        // There are thousands of these, much alike.
        Call::Write { .. } if moment.writes(LOG) && moment.number % 32 != 0 => Vec::new(),
        _ if moment.number % 160 == 0 => vec![Cut::KeepsAll],
        _ => vec![Cut::KeepsSome(moment.number as u64)],
    });
    let Tried { cuts, with_more } = tried.await;
    assert!(with_more > 5, "what nobody was told of yet survives by chance: {with_more} times of {cuts}");
}

#[tokio::test]
async fn x02_a_database_is_whole_when_the_power_goes_while_its_log_is_copied_into_it() {
    let calls = recorded();
    let told = acknowledged(&after(&calls).said()).len();
    let (mut platter, mut copied_at, mut logs) = (Platter::new(), BTreeSet::new(), 0);
    for (number, call) in calls.iter().enumerate() {
        platter.take(call);
        let moment = Moment { platter: &platter, number, call, next: calls.get(number + 1) };
        if moment.writes(DATABASE) {
            copied_at.insert(acknowledged(&platter.said()).len());
        }
        logs += usize::from(moment.writes(LOG) && matches!(call, Call::Write { offset: 0, .. }));
    }
    assert!(copied_at.range(CLOSED_AFTER + 1..told).next().is_some(), "in the middle of writing: {copied_at:?}");
    assert!(logs >= 3, "and the log was begun anew after that: {logs} times in all");

    let tried = survive(&calls, |moment| match moment.call {
        Call::Write { .. } if moment.writes(DATABASE) && moment.number % 2 == 0 => {
            vec![Cut::KeepsSome(moment.number as u64)]
        }
        _ => Vec::new(),
    });
    assert!(tried.await.cuts > 50);
}

#[tokio::test]
async fn x01_a_disk_that_lies_about_its_syncs_loses_what_was_acknowledged() {
    let calls = recorded();
    let platter = taken(Platter::that_lies(), &calls);
    let left = in_memory();
    platter.cut(Cut::KeepsSynced).write_to(left.path());
    let survivors = Survivors::of(&left.path().join(DATABASE)).await;
    let acknowledged = acknowledged(&platter.said());
    assert!(!acknowledged.is_empty());
    let kept: Vec<_> = acknowledged.iter().filter(|(written, first)| survivors.has(*written, *first)).collect();
    assert_eq!(kept, Vec::<&(Written, EntryId)>::new(), "so the tests above can fail");
}

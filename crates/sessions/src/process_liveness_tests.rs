use capstan_protocol::{
    BindingId, CommandAccess, EntryId, EventId, EventKey, Grant, Outcome, PermissionSet, RunId, RunnerId, SessionId,
    StateLimits, TapeName, Timestamp,
};
use capstan_tape::{Batch, EntryDraft, Fact, JournalStore as _, MemoryStore, NewTape, RunRecord, RunStatus};

use std::fs::File;
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;

use super::ProcessLiveness;
use crate::LeaseOwner;

const TEST_NOW_MILLIS: i64 = 1_000_000;

fn test_tape() -> TapeName {
    TapeName::parse("t").unwrap()
}

fn run_record(key: &EventKey) -> RunRecord {
    RunRecord {
        run_id: RunId::new("run-1"),
        session: SessionId::new("s"),
        tape: test_tape(),
        begins_after: EntryId(0),
        parent: None,
        event: key.clone(),
        others: Vec::new(),
        binding: BindingId::new("b"),
        runner: RunnerId::new("r"),
        grant: Grant {
            may: PermissionSet::none(),
            commands: CommandAccess::All,
            shell_commands: false,
            approvals: Vec::new(),
            state_limits: StateLimits::default(),
        },
        status: RunStatus::Running,
        started_at: Timestamp::from_millis(0),
        deadline: None,
        ended_at: None,
        usage: None,
        bypasses_host: true,
        cancel_requested: false,
    }
}

/// A store with an event of this owner in flight, and its open run.
async fn store_with_open_run(owner: &str) -> (MemoryStore, EventKey) {
    let store = MemoryStore::new();
    let key = EventKey { source: "cli".into(), bot_id: String::new(), event_id: EventId::new("e") };
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(test_tape())));
    let entry = batch.append(&test_tape(), EntryDraft::event("event.accepted", serde_json::Value::Null));
    let (session, at, owner) = (SessionId::new("s"), Timestamp::from_millis(0), owner.to_owned());
    batch.push(Fact::AcceptEvent { key: key.clone(), session, tape: test_tape(), entry, accepted_at: at, owner });
    batch.push(Fact::OpenRun(Box::new(run_record(&key))));
    store.commit(batch).await.unwrap();
    (store, key)
}

#[tokio::test]
async fn x02_work_of_a_dead_process_is_orphaned_and_work_of_a_live_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let owner = LeaseOwner::open(folder.path().to_owned()).unwrap();
    let liveness = ProcessLiveness::open(folder.path());
    let now = Timestamp::from_millis(TEST_NOW_MILLIS);
    let (store, key) = store_with_open_run(owner.name()).await;
    assert_eq!(liveness.is_alive(owner.name()), Some(true));
    assert!(liveness.is_run_owned(&store, &run_record(&key), now).await.unwrap());
    assert_eq!(liveness.find_orphaned(&store, now).await.unwrap(), Default::default());

    drop(owner);
    assert!(!liveness.is_run_owned(&store, &run_record(&key), now).await.unwrap());
    let found = liveness.find_orphaned(&store, now).await.unwrap();
    assert_eq!((found.events.len(), found.runs.len()), (1, 1));

    let mut batch = Batch::new();
    batch.push(Fact::SettleEvent { key, outcome: Outcome::Silent, run_id: None });
    store.commit(batch).await.unwrap();
    let later = liveness.find_orphaned(&store, now).await.unwrap().retain_still_orphaned(&found);
    assert_eq!((later.events.len(), later.runs.len()), (0, 1), "only work that is orphaned in both checks");
}

#[test]
fn x04_an_old_unlocked_file_without_its_final_name_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let liveness = ProcessLiveness::open(folder.path());
    let path = |name: &str| folder.path().join(name);
    let files = ["host-new.new", "host-stale.new", "host-locked.new"].map(|name| File::create(path(name)).unwrap());
    let long_ago = SystemTime::now() - Duration::from_mins(5);
    for file in &files[1..] {
        file.set_modified(long_ago).unwrap();
    }
    files[2].try_lock().unwrap();
    assert_eq!(liveness.stale_lock_files().unwrap(), [path("host-stale.new")]);
    assert_eq!(liveness.remove_stale_lock_files().unwrap(), 1);
    assert!(path("host-new.new").exists() && path("host-locked.new").exists());
}

#[test]
fn x04_only_lock_files_of_dead_owners_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let liveness = ProcessLiveness::open(folder.path());
    let _alive = LeaseOwner::open(folder.path().to_owned()).unwrap();
    std::fs::write(folder.path().join("host-dead.lock"), "").unwrap();
    std::fs::write(folder.path().join("other"), "").unwrap();
    assert_eq!(liveness.is_alive("host-dead"), Some(false));
    assert_eq!(liveness.stale_lock_files().unwrap(), [folder.path().join("host-dead.lock")]);
    assert_eq!(liveness.remove_stale_lock_files().unwrap(), 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    assert_eq!(ProcessLiveness::open(folder.path().join("none")).stale_lock_files().unwrap().len(), 0);
    assert_eq!(liveness.is_alive("../host"), None);
}

#[test]
fn x04_owner_without_a_lock_file_is_not_dead_while_it_may_create_the_file_again() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("owners");
    let owner = LeaseOwner::open(folder.clone()).unwrap();
    let liveness = ProcessLiveness::open(&folder);
    // The creation time of the folder has the resolution of the kernel's clock.
    std::thread::sleep(Duration::from_millis(50));
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(liveness.is_alive(owner.name()), None, "without the folder nothing is known");
    let other = LeaseOwner::open(folder.clone()).unwrap();
    assert_eq!(liveness.is_alive(owner.name()), None, "the folder is newer than the owner");
    let later = SystemTime::now() + Duration::from_mins(1);
    assert_eq!(liveness.judge_missing_file(owner.name(), later), Some(false), "it would have created its file by now");
    let other_name = other.name().to_owned();
    drop(other);
    assert_eq!(liveness.is_alive(&other_name), Some(false), "an owner removes its own file");
}

#[tokio::test(start_paused = true)]
async fn x04_owner_creates_its_lock_file_again() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("owners");
    let owner = LeaseOwner::open(folder.clone()).unwrap();
    let stop_token = CancellationToken::new();
    let keeper = tokio::spawn(owner.clone().keep_lock_file(stop_token.clone()));
    std::fs::remove_dir_all(&folder).unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(ProcessLiveness::open(&folder).is_alive(owner.name()), Some(true));
    stop_token.cancel();
    keeper.await.unwrap();
}

//! `capstan store`: backups and migrations.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

use crate::support::{BinaryOutput, CliFixture, TEST_TIMEOUT};
use capstan::store::SqliteStore;
use rusqlite::Connection;
use serde_json::{Value, json};

fn schema_version(database: &Path) -> u32 {
    Connection::open(database).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

/// A new home with a backup restored as its store.
fn restore_backup(backup: &str, config: &str) -> CliFixture {
    let fixture = CliFixture::new().config(config);
    std::fs::copy(backup, fixture.database()).unwrap();
    let tapes = Path::new(backup).with_file_name(format!("{}.tapes", file_name(backup)));
    if tapes.is_dir() {
        std::fs::create_dir(fixture.home().join("tapes")).unwrap();
        for file in std::fs::read_dir(&tapes).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), fixture.home().join("tapes").join(file.file_name())).unwrap();
        }
    }
    fixture
}

fn file_name(path: &str) -> String {
    Path::new(path).file_name().unwrap().to_string_lossy().into_owned()
}

fn files_in(folder: &str) -> BTreeSet<String> {
    let files = std::fs::read_dir(folder).unwrap();
    files.map(|file| file.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn create_backup_dir(fixture: &CliFixture) -> String {
    let folder = fixture.path("backups");
    std::fs::create_dir(&folder).unwrap();
    folder
}

#[test]
fn older_database_is_migrated_once() {
    let fixture = CliFixture::with_schema_v1();
    let newest = SqliteStore::SCHEMA_VERSION;
    let output = fixture.capstan(&["store", "migrate"]);
    let database = fixture.database().display().to_string();
    assert!(output.stderr.contains(&format!("{database}.v1")), "names the copy: {}", output.stderr);
    assert_eq!(output.stdout, format!("migrated {database} from schema 1 to {newest}\n"));
    assert_eq!(schema_version(&fixture.database()), newest);
    let output = fixture.capstan(&["store", "migrate"]).data();
    assert_eq!(output, format!("{database} already has the newest schema {newest}\n"));
    let output = fixture.capstan(&["store", "migrate", "--json"]).json();
    assert_eq!(output, json!({ "database": database, "from": newest, "to": newest }));
    fixture.assert_undamaged();
}

#[test]
fn x08_home_with_the_database_of_every_schema_is_continued() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/fixtures");
    for version in 7..=SqliteStore::SCHEMA_VERSION {
        let fixture = CliFixture::new().config("");
        std::fs::copy(fixtures.join(format!("schema-{version}.db")), fixture.database()).unwrap();
        fixture.make_home_private();
        // The first command warns of the migration.
        let exported = fixture.capstan(&["tape", "export", "fork-of-a"]).stdout;
        assert_eq!(exported.lines().count(), 20, "schema {version}");
        let output = fixture.capstan(&["run", "hello", "--session-id", "a"]).data();
        assert!(output.ends_with("You said: hello\n"), "schema {version}: {output:?}");
        assert_eq!(schema_version(&fixture.database()), SqliteStore::SCHEMA_VERSION);
        assert_eq!(fixture.capstan(&["tape", "export", "fork-of-a"]).data(), exported, "schema {version}");
        assert_eq!(fixture.capstan(&["runs", "list", "--json"]).json().as_array().unwrap().len(), 6);
        fixture.capstan(&["tape", "verify"]).succeeded();
        // The event of another workspace stays in flight.
        fixture.capstan(&["serve", "--channel", "stdio"]).succeeded();
        assert_eq!(fixture.outcomes(), (5, 1), "schema {version}");
        fixture.assert_undamaged();
    }
}

#[test]
fn missing_or_newer_database_is_not_migrated() {
    let fixture = CliFixture::new();
    assert!(fixture.capstan(&["store", "migrate"]).data().contains("does not exist yet"));
    assert!(!fixture.home().exists());
    fixture.capstan(&["run", "hello"]).data();
    Connection::open(fixture.database()).unwrap().pragma_update(None, "user_version", 99).unwrap();
    fixture.capstan(&["store", "migrate"]).refused("store-too-new", 4);
    assert_eq!(schema_version(&fixture.database()), 99);
}

#[test]
fn x08_newer_database_can_still_be_exported_and_backed_up() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let tape = fixture.capstan(&["tape", "list", "--json"]).json()[0]["name"].as_str().unwrap().to_owned();
    let exported = fixture.capstan(&["tape", "export", &tape]).data();
    let connection = Connection::open(fixture.database()).unwrap();
    connection.execute_batch("ALTER TABLE entries ADD COLUMN later TEXT; PRAGMA user_version = 99").unwrap();
    drop(connection);
    assert_eq!(fixture.capstan(&["tape", "export", &tape]).data(), exported);
    let backup = fixture.path("b.db");
    fixture.capstan(&["store", "backup", &backup]).data();
    assert_eq!((schema_version(&fixture.database()), schema_version(Path::new(&backup))), (99, 99));
    fixture.capstan(&["tape", "reset", &tape]).refused("store-too-new", 4);
    fixture.capstan(&["run", "again"]).refused("store-too-new", 4);
}

#[test]
fn x08_rollback_returns_to_the_copy_and_keeps_what_it_replaces() {
    let fixture = CliFixture::with_schema_v1();
    fixture.capstan(&["store", "rollback"]).refused("usage", 2);
    fixture.capstan(&["store", "migrate"]);
    let newest = SqliteStore::SCHEMA_VERSION;
    let viewer = Connection::open(fixture.database()).unwrap();
    viewer.execute_batch("BEGIN; SELECT count(*) FROM tapes").unwrap();
    fixture.capstan(&["store", "rollback"]).refused("store-busy", 4);
    drop(viewer);
    fixture.capstan(&["run", "after the migration"]);
    let plan = fixture.capstan(&["store", "rollback", "--dry-run", "--json"]).json();
    assert_eq!((plan["from"].as_u64(), plan["to"].as_u64()), (Some(newest.into()), Some(1)));
    assert!(plan["lost_entries"].as_u64() > Some(0) && plan["lost_events"] == 1, "{plan}");
    assert_eq!(schema_version(&fixture.database()), newest);

    let done = fixture.capstan(&["store", "rollback", "--json"]).json();
    assert_eq!(schema_version(&fixture.database()), 1);
    assert_eq!(schema_version(Path::new(done["replaced"].as_str().unwrap())), newest);
    fixture.assert_undamaged();
}

#[test]
fn backup_is_one_private_file_that_can_be_restored() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let folder = create_backup_dir(&fixture);
    let backup = format!("{folder}/b.db");
    fixture.capstan(&["store", "backup", &backup]).data();
    assert_eq!(files_in(&folder), BTreeSet::from(["b.db".to_owned()]));
    assert_eq!(std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    let copy = restore_backup(&backup, "");
    assert_eq!(copy.capstan(&["runs", "list", "--json"]).json(), fixture.capstan(&["runs", "list", "--json"]).json());
    copy.capstan(&["run", "and on"]).data();
    copy.assert_undamaged();
}

#[test]
fn backup_removes_files_of_a_killed_one() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let folder = create_backup_dir(&fixture);
    let mut killed = std::process::Command::new("true").spawn().unwrap();
    killed.wait().unwrap();
    let stale = format!("{folder}/.old.db.capstan-{}.new", killed.id());
    let file = std::fs::File::create(&stale).unwrap();
    fixture.capstan(&["store", "backup", &format!("{folder}/one.db")]).data();
    assert!(std::fs::exists(&stale).unwrap(), "another machine may still be writing it");
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_hours(1)).unwrap();
    fixture.capstan(&["store", "backup", &format!("{folder}/two.db")]).data();
    assert_eq!(files_in(&folder), BTreeSet::from(["one.db".to_owned(), "two.db".to_owned()]));
}

#[test]
fn backup_replaces_nothing_without_force() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let folder = create_backup_dir(&fixture);
    let backup = format!("{folder}/b.db");
    std::fs::write(&backup, "precious").unwrap();
    fixture.capstan(&["store", "backup", &backup]).refused("backup-exists", 2);
    fixture.capstan(&["store", "backup", "-"]).refused("usage", 2);
    assert!(!fixture.workspace().join("-").exists());
    assert_eq!(std::fs::read_to_string(&backup).unwrap(), "precious");
    // SQLite would apply a log of the replaced file to the new one.
    std::fs::write(format!("{backup}-wal"), "of another file").unwrap();
    fixture.capstan(&["store", "backup", &backup, "--force"]).data();
    assert_eq!(files_in(&folder), BTreeSet::from(["b.db".to_owned()]));
    restore_backup(&backup, "").assert_undamaged();

    let own = fixture.database().display().to_string();
    let before = std::fs::read(&own).unwrap();
    let link = fixture.path("link.db");
    std::os::unix::fs::symlink(&own, &link).unwrap();
    for own in [&own, &link] {
        fixture.capstan(&["store", "backup", own, "--force"]).refused("usage", 2);
    }
    assert_eq!(std::fs::read(&own).unwrap(), before);
    fixture.capstan(&["store", "backup", &folder, "--force"]).refused("usage", 2);
    fixture.capstan(&["store", "backup", &format!("{folder}/no/such/b.db")]).refused("usage", 2);
    let empty = CliFixture::new();
    empty.capstan(&["store", "backup", &empty.path("b.db")]).refused("store-empty", 2);
    assert!(!empty.home().exists());
}

#[test]
fn forced_backup_replaces_no_pipe_and_no_socket() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let folder = create_backup_dir(&fixture);
    let [pipe, socket, link] = ["pipe", "socket", "link"].map(|name| format!("{folder}/{name}"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _socket = UnixListener::bind(&socket).unwrap();
    std::os::unix::fs::symlink(&pipe, &link).unwrap();
    for path in [&pipe, &socket, &link] {
        fixture.capstan(&["store", "backup", path, "--force"]).refused("usage", 2);
        fixture.capstan(&["store", "backup", path]).refused("usage", 2);
    }
    assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    assert!(std::fs::symlink_metadata(&socket).unwrap().file_type().is_socket());
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(files_in(&folder), ["link", "pipe", "socket"].map(str::to_owned).into());
}

#[test]
fn older_database_is_backed_up_without_migration() {
    let fixture = CliFixture::with_schema_v1();
    let backup = fixture.path("b.db");
    fixture.capstan(&["store", "backup", &backup]).data();
    assert_eq!((schema_version(&fixture.database()), schema_version(Path::new(&backup))), (1, 1));
    restore_backup(&backup, "").assert_undamaged();
}

#[test]
fn damaged_store_is_not_backed_up() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let folder = create_backup_dir(&fixture);
    let backup = format!("{folder}/b.db");
    fixture.capstan(&["store", "backup", &backup]).data();
    let good = std::fs::read(&backup).unwrap();
    let database = Connection::open(fixture.database()).unwrap();
    database.execute_batch("UPDATE blobs SET bytes = X'00'").unwrap();
    fixture.capstan(&["store", "backup", &backup, "--force"]).refused("backup-damaged", 4);
    assert_eq!(std::fs::read(&backup).unwrap(), good, "the last good backup stays");
    assert_eq!(files_in(&folder), BTreeSet::from(["b.db".to_owned()]), "no unfinished files remain");
}

#[test]
fn p12_tapes_stored_as_files_are_backed_up_when_others_are_in_the_database() {
    let fixture = CliFixture::new().config("tape_store = 'jsonl'\n");
    fixture.capstan(&["run", "in a file"]).data();
    let before = fixture.entries();
    let fixture = fixture.config("");
    fixture.capstan(&["run", "--session-id", "other", "in the database"]).data();
    let backup = format!("{}/b.db", create_backup_dir(&fixture));
    let output = fixture.capstan(&["store", "backup", &backup]).data();
    assert!(output.contains("the entries of 1 tapes are in "), "{output}");

    let tapes = fixture.home().join("tapes");
    let aside = tapes.with_file_name("aside");
    std::fs::rename(&tapes, &aside).unwrap();
    for command in [&["store", "backup", "--force", &backup][..], &["store", "restore", &backup, "--yes"]] {
        let refused = fixture.capstan(command).refused("tape-elsewhere", 4);
        assert!(refused.stderr.contains("FILE.tapes"), "{refused:?}");
    }
    std::fs::create_dir(&tapes).unwrap();
    fixture.capstan(&["store", "restore", &backup, "--yes"]).refused("backup-damaged", 4);
    std::fs::remove_dir(&tapes).unwrap();

    std::fs::rename(format!("{backup}.tapes"), &tapes).unwrap();
    fixture.capstan(&["store", "restore", &backup, "--yes"]).succeeded();
    let fixture = fixture.config("tape_store = 'jsonl'\n");
    assert_eq!(fixture.entries(), before);
    fixture.assert_undamaged();
}

#[test]
fn p12_tapes_stored_as_files_are_backed_up_beside_the_database() {
    let config = "tape_store = 'jsonl'\n";
    let fixture = CliFixture::new().config(config);
    fixture.capstan(&["run", "hello"]).data();
    let folder = create_backup_dir(&fixture);
    let backup = format!("{folder}/b.db");
    let output = fixture.capstan(&["store", "backup", &backup]).data();
    assert!(output.contains("b.db.tapes"), "{output}");
    assert_eq!(files_in(&folder), BTreeSet::from(["b.db".to_owned(), "b.db.tapes".to_owned()]));
    let mode = std::fs::metadata(format!("{backup}.tapes")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let before = fixture.entries();
    fixture.capstan(&["run", "later"]).data();
    fixture.capstan(&["store", "backup", &backup]).refused("backup-exists", 2);

    let copy = restore_backup(&backup, config);
    let copied = std::fs::read_dir(copy.home().join("tapes")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(copy.capstan(&["tape", "export", copied.to_str().unwrap()]).values(), before);
    copy.assert_undamaged();
    fixture.capstan(&["store", "backup", &backup, "--force"]).data();
    restore_backup(&backup, config).assert_undamaged();
}

/// Acknowledged runs, with a notification for each.
#[derive(Default)]
struct AcknowledgedRuns {
    runs: Mutex<BTreeSet<String>>,
    changed: Condvar,
}

impl AcknowledgedRuns {
    fn add(&self, run: &str) {
        self.runs.lock().unwrap().insert(run.to_owned());
        self.changed.notify_all();
    }

    /// Waits for more than this many, and returns them.
    fn wait_for_more_than(&self, count: usize) -> BTreeSet<String> {
        let runs = self.runs.lock().unwrap();
        let waited = self.changed.wait_timeout_while(runs, TEST_TIMEOUT, |runs| runs.len() <= count).unwrap();
        assert!(!waited.1.timed_out(), "the writers make progress");
        waited.0.clone()
    }
}

/// Sends messages, one process each, until stopped.
fn send_until_stopped(
    commands: impl Fn() -> std::process::Command,
    acknowledged: &AcknowledgedRuns,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::SeqCst) {
        let output = BinaryOutput::from(commands().output().unwrap()).json();
        acknowledged.add(output["run_id"].as_str().unwrap());
    }
}

/// Makes backups during writes, and checks each.
fn back_up_under_load(config: &str) {
    const WRITER_COUNT: usize = 3;
    const BACKUP_COUNT: usize = 4;
    let fixture = CliFixture::new().config(config);
    std::fs::set_permissions(fixture.home(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let acknowledged = AcknowledgedRuns::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..WRITER_COUNT {
            let (fixture, acknowledged, stop) = (&fixture, &acknowledged, &stop);
            let session = format!("session {writer}");
            scope.spawn(move || {
                let message =
                    || fixture.command(&["run", "--json", "--session-id", &session, "[[tool:bash cmd=\"true\"]]"]);
                send_until_stopped(message, acknowledged, stop);
            });
        }
        let examine = || {
            for number in 0..BACKUP_COUNT {
                let before = acknowledged.wait_for_more_than(number * WRITER_COUNT);
                let backup = fixture.path(&format!("backup-{number}.db"));
                fixture.capstan(&["store", "backup", &backup]).data();
                check_backup(&backup, config, &before);
                assert_conserved(&fixture.capstan(&["doctor", "--json"]).json());
            }
        };
        let examined = std::panic::catch_unwind(std::panic::AssertUnwindSafe(examine));
        stop.store(true, Ordering::SeqCst);
        if let Err(panic) = examined {
            std::panic::resume_unwind(panic);
        }
    });
    assert_conserved(&fixture.capstan(&["doctor", "--json"]).json());
}

fn check_backup(backup: &str, config: &str, before: &BTreeSet<String>) {
    let copy = restore_backup(backup, config);
    copy.assert_undamaged();
    assert_conserved(&copy.capstan(&["doctor", "--json"]).json());
    let runs = copy.capstan(&["runs", "list", "--limit", "100000", "--json"]).json();
    let completed = runs.as_array().unwrap().iter().filter(|run| run["status"] == "completed");
    let completed: BTreeSet<String> = completed.map(|run| run["run_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        before.difference(&completed).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "acknowledged, but not in the backup"
    );
}

#[track_caller]
fn assert_conserved(found: &Value) {
    let conservation = &found["conservation"];
    let number = |name: &str| conservation[name].as_u64().unwrap_or_else(|| panic!("no {name}: {found:#}"));
    assert_eq!((&conservation["missing"], &conservation["surplus"]), (&json!([]), &json!([])), "{found:#}");
    assert_eq!(number("accepted"), number("outcomes") + number("in_flight"));
    assert_ne!(found["status"], "problem", "{found:#}");
}

#[test]
fn x01_backup_under_load_is_consistent_and_has_every_acknowledged_event() {
    back_up_under_load("");
}

#[test]
fn x01_backup_under_load_is_consistent_with_tapes_stored_as_files() {
    back_up_under_load("tape_store = 'jsonl'\n");
}

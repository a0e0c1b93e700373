//! A read-only home, for an unprivileged user.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{BinaryOutput, CliFixture, find_check};
use rusqlite::Connection;
use serde_json::{Value, json};

/// Conventional id of the unprivileged system user, who owns no files.
const UNPRIVILEGED_UID: u32 = 65534;

/// Fixture owned by an unprivileged user: the user who runs the tests, or [`UNPRIVILEGED_UID`] instead of root.
struct UnprivilegedFixture {
    fixture: CliFixture,
    /// Copy of the binary that the unprivileged user can execute, if the tests run as root.
    binary_copy: Option<PathBuf>,
}

impl UnprivilegedFixture {
    /// A fixture with one message on its tape.
    fn new() -> Self {
        let fixture = CliFixture::new().config("");
        let root = fixture.root();
        let is_root = std::fs::metadata(&root).unwrap().uid() == 0;
        let copy = is_root.then(|| {
            let copy = root.join("capstan");
            std::fs::copy(env!("CARGO_BIN_EXE_capstan"), &copy).unwrap();
            for path in [&root, &fixture.workspace(), &fixture.home(), &fixture.home().join("config.toml")] {
                std::os::unix::fs::chown(path, Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID)).unwrap();
            }
            copy
        });
        let fixture = Self { fixture, binary_copy: copy };
        fixture.capstan(&["run", "hello"]).data();
        fixture
    }

    fn capstan(&self, arguments: &[&str]) -> BinaryOutput {
        let mut command = self.fixture.command(arguments);
        if let Some(copy) = &self.binary_copy {
            let mut unprivileged_command = Command::new(copy);
            unprivileged_command.args(arguments).current_dir(self.fixture.workspace()).env_clear();
            unprivileged_command.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            unprivileged_command.uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID);
            command = unprivileged_command;
        }
        BinaryOutput::from(command.output().expect("the binary starts"))
    }

    fn home_file_names(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.fixture.home()).unwrap();
        let mut names: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Output of the commands that only read.
    fn run_read_commands(&self) -> Vec<String> {
        let commands = [&["tape", "list"][..], &["tape", "show", "cli:local"], &["tape", "export", "cli:local"]];
        let mut output: Vec<String> = commands.into_iter().map(|command| self.capstan(command).data()).collect();
        let verified: Value = self.capstan(&["tape", "verify", "--json"]).json();
        output.push(verified["problems"].to_string());
        output
    }

    /// Asserts that writes fail with a reason, and that everything can be read.
    #[track_caller]
    fn assert_read_only(&self, what: &Path, why: &str) {
        let refusal = format!("error[store-read-only]: {} cannot be written: {why}", what.display());
        let before = self.home_file_names();
        for command in [&["run", "more"][..], &["tape", "reset", "cli:local"]] {
            let output = self.capstan(command).refused("store-read-only", 4);
            assert!(output.stderr.starts_with(&refusal), "{output:?}");
        }
        assert_eq!(self.run_read_commands()[3], "[]", "no problems");
        assert_eq!(self.home_file_names(), before, "no other files remain");
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn x02_read_only_database_is_readable_and_rejects_writes() {
    let unprivileged = UnprivilegedFixture::new();
    let (database, output) = (unprivileged.fixture.database(), unprivileged.run_read_commands());
    set_mode(&database, 0o444);
    unprivileged.assert_read_only(&database, "this user may only read it");
    assert_eq!(unprivileged.run_read_commands(), output);
    set_mode(&database, 0o600);
    unprivileged.capstan(&["run", "more"]).data();
    assert!(unprivileged.run_read_commands()[1].contains("more"));
}

#[test]
fn x02_read_only_home_is_readable_and_rejects_writes() {
    let unprivileged = UnprivilegedFixture::new();
    let (home, output) = (unprivileged.fixture.home(), unprivileged.run_read_commands());
    set_mode(&home, 0o555);
    unprivileged.assert_read_only(&home, "Permission denied");
    assert_eq!(unprivileged.run_read_commands(), output);
    set_mode(&home, 0o700);
    unprivileged.capstan(&["run", "more"]).data();
    assert!(unprivileged.run_read_commands()[1].contains("more"));
}

/// The `home` check of `doctor` for an unprivileged user.
fn home_check(unprivileged: &UnprivilegedFixture, exit: i32) -> Value {
    let output = unprivileged.capstan(&["doctor", "--json"]);
    assert_eq!(output.code, Some(exit), "{output:?}");
    let found: Value = serde_json::from_str(&output.stdout).unwrap();
    find_check(&found, "home").clone()
}

#[test]
fn x02_doctor_names_unwritable_files() {
    let unprivileged = UnprivilegedFixture::new();
    set_mode(&unprivileged.fixture.home(), 0o700);
    let owners = unprivileged.fixture.home().join("owners");
    for (path, mode, mended) in [(unprivileged.fixture.database(), 0o444, 0o600), (owners, 0o555, 0o755)] {
        set_mode(&path, mode);
        let home = home_check(&unprivileged, 1);
        assert_eq!(home["status"], "problem", "{home:#}");
        assert!(home["details"][0].as_str().unwrap().starts_with(path.to_str().unwrap()), "{home:#}");
        set_mode(&path, mended);
        assert_eq!(home_check(&unprivileged, 0)["status"], "ok");
    }
}

#[test]
fn x02_unwritable_lock_directory_makes_the_home_read_only() {
    let unprivileged = UnprivilegedFixture::new();
    let owners = unprivileged.fixture.home().join("owners");
    set_mode(&owners, 0o555);
    let output = unprivileged.capstan(&["run", "more"]).refused("store-read-only", 4);
    assert!(
        output.stderr.contains(&format!("{} cannot be written: Permission denied", owners.display())),
        "{output:?}"
    );
    set_mode(&unprivileged.fixture.database(), 0o444);
    unprivileged.assert_read_only(&unprivileged.fixture.database(), "this user may only read it");
    set_mode(&owners, 0o755);
}

#[test]
fn x02_read_only_database_is_not_read_without_its_log() {
    let unprivileged = UnprivilegedFixture::new();
    let (home, database) = (unprivileged.fixture.home(), unprivileged.fixture.database());
    // As after the death of a process, or in a file system backup: the database and its log.
    let copies = [database.clone(), database.with_extension("db-wal")].map(|file| {
        let copy = home.join("copy").join(file.file_name().unwrap());
        (file, copy)
    });
    std::fs::create_dir(home.join("copy")).unwrap();
    let writer = Connection::open(&database).unwrap();
    writer.execute("UPDATE tapes SET session = 'renamed'", []).unwrap();
    for (file, copy) in &copies {
        std::fs::copy(file, copy).unwrap();
    }
    drop(writer);
    for (file, copy) in &copies {
        std::fs::rename(copy, file).unwrap();
        let home_owner = std::fs::metadata(&home).unwrap().uid();
        std::os::unix::fs::chown(file, Some(home_owner), None).unwrap();
        set_mode(file, 0o600);
    }
    set_mode(&home, 0o555);
    let output = unprivileged.capstan(&["tape", "list"]).refused("store-read-only", 4);
    assert!(output.stderr.contains("it was not closed"), "{output:?}");
    set_mode(&home, 0o700);
    let tapes = unprivileged.capstan(&["tape", "list", "--json"]).json();
    assert_eq!(tapes[0]["session"], json!("renamed"), "{tapes}");
}

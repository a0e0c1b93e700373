//! A home that may be read and not written, for a user who is not root.

mod cli_support;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use cli_support::{BinaryOutput, CliFixture, find_check};
use rusqlite::Connection;
use serde_json::{Value, json};

/// Nobody: a user that owns nothing else.
const NOBODY_UID: u32 = 65534;

/// A place of a user whom permissions bind: whoever runs the tests, or nobody where that is root.
struct UnprivilegedFixture {
    fixture: CliFixture,
    /// The binary where nobody can reach it, when the tests run as root.
    binary_copy: Option<PathBuf>,
}

impl UnprivilegedFixture {
    /// A place with one message on its tape.
    fn new() -> Self {
        let place = CliFixture::new().config("");
        let root = place.root();
        let is_root = std::fs::metadata(&root).unwrap().uid() == 0;
        let copy = is_root.then(|| {
            let copy = root.join("capstan");
            std::fs::copy(env!("CARGO_BIN_EXE_capstan"), &copy).unwrap();
            for path in [&root, &place.workspace(), &place.home(), &place.home().join("config.toml")] {
                std::os::unix::fs::chown(path, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
            }
            copy
        });
        let place = Self { fixture: place, binary_copy: copy };
        place.capstan(&["run", "hello"]).data();
        place
    }

    fn capstan(&self, arguments: &[&str]) -> BinaryOutput {
        let mut command = self.fixture.command(arguments);
        if let Some(copy) = &self.binary_copy {
            let mut as_nobody = Command::new(copy);
            as_nobody.args(arguments).current_dir(self.fixture.workspace()).env_clear();
            as_nobody.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            as_nobody.uid(NOBODY_UID).gid(NOBODY_UID);
            command = as_nobody;
        }
        BinaryOutput::from(command.output().expect("the binary starts"))
    }

    fn home_file_names(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.fixture.home()).unwrap();
        let mut names: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// What commands say that only read.
    fn run_read_commands(&self) -> Vec<String> {
        let commands = [&["tape", "list"][..], &["tape", "show", "cli:local"], &["tape", "export", "cli:local"]];
        let mut said: Vec<String> = commands.into_iter().map(|command| self.capstan(command).data()).collect();
        let verified: Value = self.capstan(&["tape", "verify", "--json"]).json();
        said.push(verified["problems"].to_string());
        said
    }

    /// Asserts that nothing can be written, which says why, and that everything can be read.
    #[track_caller]
    fn assert_read_only(&self, what: &Path, why: &str) {
        let refusal = format!("error[store-read-only]: {} cannot be written: {why}", what.display());
        let before = self.home_file_names();
        for command in [&["run", "more"][..], &["tape", "reset", "cli:local"]] {
            let said = self.capstan(command).refused("store-read-only", 4);
            assert!(said.stderr.starts_with(&refusal), "{said:?}");
        }
        assert_eq!(self.run_read_commands()[3], "[]", "no problems");
        assert_eq!(self.home_file_names(), before, "nothing is left beside it");
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn x02_a_read_only_database_can_be_read_and_says_that_it_cannot_be_written() {
    let nobody = UnprivilegedFixture::new();
    let (database, said) = (nobody.fixture.database(), nobody.run_read_commands());
    set_mode(&database, 0o444);
    nobody.assert_read_only(&database, "this user may only read it");
    assert_eq!(nobody.run_read_commands(), said);
    set_mode(&database, 0o600);
    nobody.capstan(&["run", "more"]).data();
    assert!(nobody.run_read_commands()[1].contains("more"));
}

#[test]
fn x02_a_read_only_home_can_be_read_and_says_that_it_cannot_be_written() {
    let nobody = UnprivilegedFixture::new();
    let (home, said) = (nobody.fixture.home(), nobody.run_read_commands());
    set_mode(&home, 0o555);
    nobody.assert_read_only(&home, "Permission denied");
    assert_eq!(nobody.run_read_commands(), said);
    set_mode(&home, 0o700);
    nobody.capstan(&["run", "more"]).data();
    assert!(nobody.run_read_commands()[1].contains("more"));
}

/// What `doctor` says about the home of somebody whom permissions bind.
fn home_check(nobody: &UnprivilegedFixture, exit: i32) -> Value {
    let said = nobody.capstan(&["doctor", "--json"]);
    assert_eq!(said.code, Some(exit), "{said:?}");
    let found: Value = serde_json::from_str(&said.stdout).unwrap();
    find_check(&found, "home").clone()
}

#[test]
fn x02_doctor_tells_what_of_a_home_cannot_be_written() {
    let nobody = UnprivilegedFixture::new();
    set_mode(&nobody.fixture.home(), 0o700);
    let owners = nobody.fixture.home().join("owners");
    for (path, mode, mended) in [(nobody.fixture.database(), 0o444, 0o600), (owners, 0o555, 0o755)] {
        set_mode(&path, mode);
        let home = home_check(&nobody, 1);
        assert_eq!(home["status"], "problem", "{home:#}");
        assert!(home["details"][0].as_str().unwrap().starts_with(path.to_str().unwrap()), "{home:#}");
        set_mode(&path, mended);
        assert_eq!(home_check(&nobody, 0)["status"], "ok");
    }
}

#[test]
fn x02_where_no_process_can_show_that_it_lives_that_is_read_only_too() {
    let nobody = UnprivilegedFixture::new();
    let owners = nobody.fixture.home().join("owners");
    set_mode(&owners, 0o555);
    let said = nobody.capstan(&["run", "more"]).refused("store-read-only", 4);
    assert!(said.stderr.contains(&format!("{} cannot be written: Permission denied", owners.display())), "{said:?}");
    set_mode(&nobody.fixture.database(), 0o444);
    nobody.assert_read_only(&nobody.fixture.database(), "this user may only read it");
    set_mode(&owners, 0o755);
}

#[test]
fn x02_a_read_only_database_that_was_not_closed_is_not_read_without_what_is_in_its_log() {
    let nobody = UnprivilegedFixture::new();
    let (home, database) = (nobody.fixture.home(), nobody.fixture.database());
    // What a process leaves behind that dies, as a backup has it: the file and its log.
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
        set_mode(file, 0o666);
    }
    set_mode(&home, 0o555);
    let said = nobody.capstan(&["tape", "list"]).refused("store-read-only", 4);
    assert!(said.stderr.contains("it was not closed"), "{said:?}");
    set_mode(&home, 0o777);
    let tapes = nobody.capstan(&["tape", "list", "--json"]).json();
    assert_eq!(tapes[0]["session"], json!("renamed"), "{tapes}");
}

//! A home that may be read and not written, for a user who is not root.

mod cli_support;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use cli_support::{Place, Said, check};
use rusqlite::Connection;
use serde_json::{Value, json};

/// Nobody: a user that owns nothing else.
const NOBODY: u32 = 65534;

/// A place of a user whom permissions bind: whoever runs the tests, or nobody where that is root.
struct Unprivileged {
    place: Place,
    /// The binary where nobody can reach it, when the tests run as root.
    copy: Option<PathBuf>,
}

impl Unprivileged {
    /// A place with one message on its tape.
    fn new() -> Self {
        let place = Place::new().config("");
        let root = place.root();
        let is_root = std::fs::metadata(&root).unwrap().uid() == 0;
        let copy = is_root.then(|| {
            let copy = root.join("capstan");
            std::fs::copy(env!("CARGO_BIN_EXE_capstan"), &copy).unwrap();
            for path in [&root, &place.workspace(), &place.home(), &place.home().join("config.toml")] {
                std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
            copy
        });
        let place = Self { place, copy };
        place.capstan(&["run", "hello"]).data();
        place
    }

    fn capstan(&self, arguments: &[&str]) -> Said {
        let mut command = self.place.command(arguments);
        if let Some(copy) = &self.copy {
            let mut as_nobody = Command::new(copy);
            as_nobody.args(arguments).current_dir(self.place.workspace()).env_clear();
            as_nobody.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            as_nobody.uid(NOBODY).gid(NOBODY);
            command = as_nobody;
        }
        Said::from(command.output().expect("the binary starts"))
    }

    fn names_in_home(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.place.home()).unwrap();
        let mut names: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// What commands say that only read.
    fn read(&self) -> Vec<String> {
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
        let before = self.names_in_home();
        for command in [&["run", "more"][..], &["tape", "reset", "cli:local"]] {
            let said = self.capstan(command).refused("store-read-only", 4);
            assert!(said.stderr.starts_with(&refusal), "{said:?}");
        }
        assert_eq!(self.read()[3], "[]", "no problems");
        assert_eq!(self.names_in_home(), before, "nothing is left beside it");
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn x02_a_read_only_database_can_be_read_and_says_that_it_cannot_be_written() {
    let nobody = Unprivileged::new();
    let (database, said) = (nobody.place.database(), nobody.read());
    set_mode(&database, 0o444);
    nobody.assert_read_only(&database, "this user may only read it");
    assert_eq!(nobody.read(), said);
    set_mode(&database, 0o600);
    nobody.capstan(&["run", "more"]).data();
    assert!(nobody.read()[1].contains("more"));
}

#[test]
fn x02_a_read_only_home_can_be_read_and_says_that_it_cannot_be_written() {
    let nobody = Unprivileged::new();
    let (home, said) = (nobody.place.home(), nobody.read());
    set_mode(&home, 0o555);
    nobody.assert_read_only(&home, "Permission denied");
    assert_eq!(nobody.read(), said);
    set_mode(&home, 0o700);
    nobody.capstan(&["run", "more"]).data();
    assert!(nobody.read()[1].contains("more"));
}

/// What `doctor` says about the home of somebody whom permissions bind.
fn examined_home(nobody: &Unprivileged, exit: i32) -> Value {
    let said = nobody.capstan(&["doctor", "--json"]);
    assert_eq!(said.code, Some(exit), "{said:?}");
    let found: Value = serde_json::from_str(&said.stdout).unwrap();
    check(&found, "home").clone()
}

#[test]
fn x02_doctor_tells_what_of_a_home_cannot_be_written() {
    let nobody = Unprivileged::new();
    set_mode(&nobody.place.home(), 0o700);
    let owners = nobody.place.home().join("owners");
    for (path, mode, mended) in [(nobody.place.database(), 0o444, 0o600), (owners, 0o555, 0o755)] {
        set_mode(&path, mode);
        let home = examined_home(&nobody, 1);
        assert_eq!(home["status"], "problem", "{home:#}");
        assert!(home["details"][0].as_str().unwrap().starts_with(path.to_str().unwrap()), "{home:#}");
        set_mode(&path, mended);
        assert_eq!(examined_home(&nobody, 0)["status"], "ok");
    }
}

#[test]
fn x02_where_no_process_can_show_that_it_lives_that_is_read_only_too() {
    let nobody = Unprivileged::new();
    let owners = nobody.place.home().join("owners");
    set_mode(&owners, 0o555);
    let said = nobody.capstan(&["run", "more"]).refused("store-read-only", 4);
    assert!(said.stderr.contains(&format!("{} cannot be written: Permission denied", owners.display())), "{said:?}");
    set_mode(&nobody.place.database(), 0o444);
    nobody.assert_read_only(&nobody.place.database(), "this user may only read it");
    set_mode(&owners, 0o755);
}

#[test]
fn x02_a_read_only_database_that_was_not_closed_is_not_read_without_what_is_in_its_log() {
    let nobody = Unprivileged::new();
    let (home, database) = (nobody.place.home(), nobody.place.database());
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

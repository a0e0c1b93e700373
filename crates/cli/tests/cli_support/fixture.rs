//! A home and a workspace of one's own, and the binary called in them.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use capstan_testing::ScriptedModel;
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

use super::BinaryOutput;

/// The key that every scripted model is given, and that must turn up nowhere.
pub const TEST_API_KEY: &str = "sk-capstan-test-5ecret-0f-the-user";

/// A fresh home and workspace. The environment of the binary is empty but for what is set here.
pub struct CliFixture {
    root: TempDir,
    environment: Vec<(String, String)>,
}

impl CliFixture {
    /// An empty workspace, and a home that is not there yet.
    pub fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder for the test");
        std::fs::create_dir(root.path().join("workspace")).expect("a workspace");
        let settings = vec![("CAPSTAN_MESSAGE_CONTEXT".to_owned(), "false".to_owned())];
        Self { root, environment: settings }
    }

    /// Messages tell where they came from and when, as they do when nobody sets anything. Most tests look at what was
    /// said, and are easier to read without.
    pub fn with_message_context(self) -> Self {
        self.set("CAPSTAN_MESSAGE_CONTEXT", "")
    }

    /// A place whose model is the scripted one, with [`KEY`].
    pub fn with_model(server: &ScriptedModel) -> Self {
        let place = Self::new().set("CAPSTAN_MODEL", "openai:scripted").set("CAPSTAN_API_KEY", TEST_API_KEY);
        place.set("CAPSTAN_API_BASE", &server.base_url())
    }

    /// A place whose database the first version wrote: three events that were answered, and one whose process died.
    pub fn with_schema_v1() -> Self {
        let place = Self::new().config("");
        let database = Connection::open(place.database()).expect("a database");
        let written = include_str!("../../../store/tests/data/version-1.sql");
        database.execute_batch(written).expect("what the first version wrote");
        drop(database);
        std::fs::set_permissions(place.home(), std::fs::Permissions::from_mode(0o700)).expect("a home of one's own");
        place
    }

    /// Sets a variable of the environment.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes the home's `config.toml`.
    pub fn config(self, text: &str) -> Self {
        std::fs::create_dir_all(self.home()).expect("the home");
        std::fs::write(self.home().join("config.toml"), text).expect("the home's config.toml");
        self
    }

    /// `CAPSTAN_HOME`.
    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    /// The database of the home.
    pub fn database(&self) -> PathBuf {
        self.home().join("capstan.db")
    }

    /// The workspace, where the binary is called.
    pub fn workspace(&self) -> PathBuf {
        self.root().join("workspace")
    }

    /// A file or folder beside home and workspace.
    pub fn path(&self, name: &str) -> String {
        self.root().join(name).display().to_string()
    }

    /// Writes a file beside home and workspace, and says where.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file of the test");
        path
    }

    /// Everything is under it, with symbolic links resolved, as the binary resolves them.
    pub fn root(&self) -> PathBuf {
        self.root.path().canonicalize().expect("the folder of the test")
    }

    /// The binary with these arguments, not started.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
        command.args(arguments).current_dir(self.workspace()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.root().join("user")).env("CAPSTAN_HOME", self.home());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Calls the binary and waits for its end.
    pub fn capstan<S: AsRef<OsStr>>(&self, arguments: &[S]) -> BinaryOutput {
        BinaryOutput::from(self.command(arguments).output().expect("the binary starts"))
    }

    /// Calls the binary with this on its standard input.
    pub fn capstan_with_input(&self, arguments: &[&str], input: &[u8]) -> BinaryOutput {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().expect("the binary starts");
        let mut pipe = child.stdin.take().expect("its standard input is a pipe");
        // One that refuses its input early does not read the rest.
        let _unread = pipe.write_all(input);
        drop(pipe);
        BinaryOutput::from(child.wait_with_output().expect("the binary ends"))
    }

    /// The entries of a tape, as `tape export` gives them.
    pub fn tape(&self, name: &str) -> Vec<Value> {
        self.capstan(&["tape", "export", name]).values()
    }

    /// The entries of the tape of the default session.
    pub fn entries(&self) -> Vec<Value> {
        self.tape("cli:local")
    }

    /// How many accepted events have an outcome, and how many have none.
    pub fn outcomes(&self) -> (i64, i64) {
        let database = Connection::open(self.database()).expect("the database of the home");
        let count = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a count");
        let settled = count("SELECT count(*) FROM outcomes");
        (settled, count("SELECT count(*) FROM inbox") - settled)
    }

    /// Asserts that `tape verify` finds nothing.
    #[track_caller]
    pub fn assert_undamaged(&self) {
        let said = self.capstan(&["tape", "verify", "--json"]).json();
        assert_eq!(said["problems"], serde_json::json!([]));
    }

    /// Asserts that no file of the home holds this text.
    #[track_caller]
    pub fn assert_not_in_home(&self, text: &str) {
        fn search(folder: &Path, text: &[u8]) {
            for file in std::fs::read_dir(folder).expect("a folder of the home") {
                let path = file.expect("a file of the home").path();
                if path.is_dir() {
                    search(&path, text);
                } else {
                    let bytes = std::fs::read(&path).expect("a file of the home");
                    let found = bytes.windows(text.len()).any(|window| window == text);
                    assert!(!found, "{} holds what it must not", path.display());
                }
            }
        }
        search(&self.home(), text.as_bytes());
    }
}

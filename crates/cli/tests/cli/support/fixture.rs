//! A temporary home and workspace, and the binary run in them.

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

/// API key sent to every scripted model, which must not appear anywhere else.
pub const TEST_API_KEY: &str = "sk-capstan-test-5ecret-0f-the-user";

/// A temporary home and workspace. The binary gets no environment beyond what is set here.
pub struct CliFixture {
    root: TempDir,
    environment: Vec<(String, String)>,
}

impl CliFixture {
    /// An empty workspace, and a home that does not exist yet.
    pub fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder for the test");
        std::fs::create_dir(root.path().join("workspace")).expect("a workspace");
        let settings = vec![("CAPSTAN_MESSAGE_CONTEXT".to_owned(), "false".to_owned())];
        Self { root, environment: settings }
    }

    /// Enables message context, which is the default of the binary. Most tests are easier to read without it.
    pub fn with_message_context(self) -> Self {
        self.set("CAPSTAN_MESSAGE_CONTEXT", "")
    }

    /// A fixture with the scripted model and [`TEST_API_KEY`].
    pub fn with_model(server: &ScriptedModel) -> Self {
        let fixture = Self::new().set("CAPSTAN_MODEL", "openai:scripted").set("CAPSTAN_API_KEY", TEST_API_KEY);
        fixture.set("CAPSTAN_API_BASE", &server.base_url())
    }

    /// A fixture with a database of schema 1: three answered events, and one whose process died.
    pub fn with_schema_v1() -> Self {
        let fixture = Self::new().config("");
        let database = Connection::open(fixture.database()).expect("a database");
        let written = include_str!("../../../../store/tests/data/version-1.sql");
        database.execute_batch(written).expect("the statements of schema 1");
        drop(database);
        std::fs::set_permissions(fixture.home(), std::fs::Permissions::from_mode(0o700)).expect("a private home");
        fixture
    }

    /// Sets an environment variable.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Trusts the workspace, as `capstan trust` does.
    pub fn trusted(self) -> Self {
        self.capstan(&["trust"]).succeeded();
        self
    }

    /// Writes the home's `config.toml`.
    pub fn config(self, text: &str) -> Self {
        std::fs::create_dir_all(self.home()).expect("the home");
        std::fs::write(self.home().join("config.toml"), text).expect("the home's config.toml");
        self.make_home_private();
        self
    }

    /// Removes all permissions of other users from the home, as the binary creates it.
    pub fn make_home_private(&self) {
        let mut paths = vec![self.home()];
        while let Some(path) = paths.pop() {
            let mode = std::fs::metadata(&path).expect("a path of the home").permissions().mode();
            let private = std::fs::Permissions::from_mode(mode & 0o700);
            std::fs::set_permissions(&path, private).expect("the tests own the home");
            if path.is_dir() {
                paths.extend(std::fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("a name").path()));
            }
        }
    }

    /// `CAPSTAN_HOME`.
    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    /// The database of the home.
    pub fn database(&self) -> PathBuf {
        self.home().join("capstan.db")
    }

    /// The workspace, which is the working directory of the binary.
    pub fn workspace(&self) -> PathBuf {
        self.root().join("workspace")
    }

    /// Path of a file or folder beside home and workspace.
    pub fn path(&self, name: &str) -> String {
        self.root().join(name).display().to_string()
    }

    /// Writes a file beside home and workspace, and returns its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file of the test");
        path
    }

    /// Parent of home and workspace, with symbolic links resolved as the binary resolves them.
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

    /// Runs the binary to its end.
    pub fn capstan<S: AsRef<OsStr>>(&self, arguments: &[S]) -> BinaryOutput {
        BinaryOutput::from(self.command(arguments).output().expect("the binary starts"))
    }

    /// Runs the binary with this standard input.
    pub fn capstan_with_input(&self, arguments: &[&str], input: &[u8]) -> BinaryOutput {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().expect("the binary starts");
        let mut pipe = child.stdin.take().expect("its standard input is a pipe");
        // A command that rejects its input early does not read the rest.
        let _unread = pipe.write_all(input);
        drop(pipe);
        BinaryOutput::from(child.wait_with_output().expect("the binary ends"))
    }

    /// Entries of a tape, from `tape export`.
    pub fn tape(&self, name: &str) -> Vec<Value> {
        self.capstan(&["tape", "export", name]).values()
    }

    /// Entries of the tape of the default session.
    pub fn entries(&self) -> Vec<Value> {
        self.tape("cli:local")
    }

    /// Numbers of accepted events with and without outcome.
    pub fn outcomes(&self) -> (i64, i64) {
        let database = Connection::open(self.database()).expect("the database of the home");
        let count = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a count");
        let settled = count("SELECT count(*) FROM outcomes");
        (settled, count("SELECT count(*) FROM inbox") - settled)
    }

    /// Asserts that `tape verify` finds no problems.
    #[track_caller]
    pub fn assert_undamaged(&self) {
        let output = self.capstan(&["tape", "verify", "--json"]).json();
        assert_eq!(output["problems"], serde_json::json!([]));
    }

    /// Asserts that no file of the home contains this text.
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
                    assert!(!found, "{} contains it", path.display());
                }
            }
        }
        search(&self.home(), text.as_bytes());
    }
}

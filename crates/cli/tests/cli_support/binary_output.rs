//! What the binary said, and how it ended.

use std::process::Output;

use serde_json::Value;

/// What the binary said, and how it ended.
#[derive(Debug)]
pub struct BinaryOutput {
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
}

impl From<Output> for BinaryOutput {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("the binary speaks UTF-8");
        Self { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code() }
    }
}

impl BinaryOutput {
    /// Asserts that it succeeded without a word on the standard error, and gives its standard output.
    #[track_caller]
    pub fn data(self) -> String {
        assert_eq!(self.stderr, "", "nothing to complain about");
        self.succeeded().stdout
    }

    /// Asserts that it succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// The standard output as one JSON value.
    #[track_caller]
    pub fn json(self) -> Value {
        let said = self.succeeded();
        serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {said:?}"))
    }

    /// The standard output as one JSON value per line.
    #[track_caller]
    pub fn values(self) -> Vec<Value> {
        let said = self.succeeded();
        said.stdout.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// The lines of the standard output.
    #[track_caller]
    pub fn lines(self) -> Vec<String> {
        self.data().lines().map(str::to_owned).collect()
    }

    /// Asserts that it was refused: nothing on the standard output, this code, a hint, and this exit code.
    #[track_caller]
    pub fn refused(self, code: &str, exit: i32) -> Self {
        assert_eq!(self.stdout, "", "{self:?}");
        self.failed(code, exit)
    }

    /// Asserts that it failed with this code, a hint, and this exit code.
    #[track_caller]
    pub fn failed(self, code: &str, exit: i32) -> Self {
        let has_error = self.stderr.lines().any(|line| line.starts_with(&format!("error[{code}]: ")));
        let hint = self.stderr.lines().find_map(|line| line.strip_prefix("hint: "));
        assert!(has_error && hint.is_some_and(|hint| !hint.is_empty()), "no error[{code}] with a hint: {self:?}");
        assert_eq!(self.code, Some(exit), "{self:?}");
        self
    }
}

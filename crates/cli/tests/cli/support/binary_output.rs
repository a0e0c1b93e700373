//! Output and exit code of the binary, with assertions.

use std::process::Output;

use serde_json::Value;

/// Output and exit code of the binary.
#[derive(Debug)]
pub struct BinaryOutput {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Exit code; `None` if a signal ended the process.
    pub code: Option<i32>,
}

impl From<Output> for BinaryOutput {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8 output");
        Self { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code() }
    }
}

impl BinaryOutput {
    /// Asserts success with an empty standard error, and returns standard output.
    #[track_caller]
    pub fn data(self) -> String {
        assert_eq!(self.stderr, "", "no errors or warnings");
        self.succeeded().stdout
    }

    /// Asserts success.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Standard output as one JSON value.
    #[track_caller]
    pub fn json(self) -> Value {
        let output = self.succeeded();
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {output:?}"))
    }

    /// Standard output as one JSON value per line.
    #[track_caller]
    pub fn values(self) -> Vec<Value> {
        let output = self.succeeded();
        output.stdout.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Lines of standard output.
    #[track_caller]
    pub fn lines(self) -> Vec<String> {
        self.data().lines().map(str::to_owned).collect()
    }

    /// Asserts a failure with this error code, a hint and this exit code, and an empty standard output.
    #[track_caller]
    pub fn refused(self, code: &str, exit: i32) -> Self {
        assert_eq!(self.stdout, "", "{self:?}");
        self.failed(code, exit)
    }

    /// Asserts a failure with this error code, a hint and this exit code.
    #[track_caller]
    pub fn failed(self, code: &str, exit: i32) -> Self {
        let has_error = self.stderr.lines().any(|line| line.starts_with(&format!("error[{code}]: ")));
        let hint = self.stderr.lines().find_map(|line| line.strip_prefix("hint: "));
        assert!(has_error && hint.is_some_and(|hint| !hint.is_empty()), "no error[{code}] with a hint: {self:?}");
        assert_eq!(self.code, Some(exit), "{self:?}");
        self
    }
}

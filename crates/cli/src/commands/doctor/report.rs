//! The report of `capstan doctor`, as text and as JSON.

use capstan_host::conservation::ConservationReport;
use capstan_protocol::ErrorCode;
use serde::Serialize;
use serde_json::Value;

use super::super::{print_json, print_lines, replace_control_chars};
use crate::CommandError;

/// Status of a check, ordered by severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckStatus {
    Ok,
    /// Worth knowing; no data is at risk.
    Warning,
    /// A failure that needs action.
    Problem,
}

impl CheckStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CheckResult {
    pub(super) check: &'static str,
    pub(super) status: CheckStatus,
    pub(super) message: String,
    /// Individual findings, a line each.
    pub(super) details: Vec<String>,
    pub(super) hint: Option<String>,
    /// Findings as data, in the JSON report only.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(super) data: Value,
}

impl CheckResult {
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        let (message, data) = (message.into(), Value::Null);
        Self { check, status: CheckStatus::Ok, message, details: Vec::new(), hint: None, data }
    }

    pub(super) fn warning(check: &'static str, message: impl Into<String>, hint: &str) -> Self {
        Self { status: CheckStatus::Warning, hint: Some(hint.to_owned()), ..Self::ok(check, message) }
    }

    pub(super) fn problem(check: &'static str, message: impl Into<String>, hint: &str) -> Self {
        Self { status: CheckStatus::Problem, ..Self::warning(check, message, hint) }
    }

    /// A check that could not be run.
    pub(super) fn failed(check: &'static str, failure: &CommandError) -> Self {
        Self::problem(check, failure.message.clone(), &failure.hint)
    }

    pub(super) fn with_details(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }

    pub(super) fn data(mut self, data: Value) -> Self {
        self.data = data;
        self
    }
}

/// Results of all checks.
#[derive(Debug, Serialize)]
pub(super) struct DoctorReport {
    pub(super) status: CheckStatus,
    /// Completed repairs; absent without `--repair`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) repaired: Option<Vec<String>>,
    pub(super) checks: Vec<CheckResult>,
    /// Absent if there is no readable store.
    pub(super) conservation: Option<ConservationReport>,
}

impl DoctorReport {
    pub(super) fn new(repaired: Option<Vec<String>>) -> Self {
        Self { status: CheckStatus::Ok, repaired, checks: Vec::new(), conservation: None }
    }

    pub(super) fn add(&mut self, check: CheckResult) {
        self.status = self.status.max(check.status);
        self.checks.push(check);
    }

    /// Adds repairs that were made before the checks.
    pub(super) fn add_repairs(&mut self, repairs: impl IntoIterator<Item = String>) {
        self.repaired.get_or_insert_default().extend(repairs);
    }

    /// Prints the report, and fails if it contains a problem.
    pub(super) fn print(&self, json: bool) -> Result<(), CommandError> {
        if json {
            print_json(self)?;
        } else {
            print_lines(self.to_lines())?;
        }
        let problems = self.checks.iter().filter(|result| result.status == CheckStatus::Problem);
        let problems: Vec<&str> = problems.map(|result| result.check).collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(CommandError::new(ErrorCode::ProblemsFound, format!("failed checks: {}", problems.join(", "))))
    }

    fn to_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(repaired) = &self.repaired {
            let has_failures = self.checks.iter().any(|result| result.check == "repair");
            let summary = match repaired.as_slice() {
                [] if has_failures => "nothing was repaired",
                [] => "nothing to repair",
                _ => "done:",
            };
            lines.push(format_row("repair", "", summary));
            lines.extend(repaired.iter().map(|repair| format_row("", "", repair)));
        }
        for result in &self.checks {
            lines.push(format_row(result.check, result.status.as_str(), &result.message));
            lines.extend(result.details.iter().map(|detail| format_row("", "", detail)));
            lines.extend(result.hint.iter().map(|hint| format_row("", "", &format!("hint: {hint}"))));
        }
        lines
    }
}

fn format_row(check: &str, status: &str, text: &str) -> String {
    replace_control_chars(format!("{check:13} {status:8} {text}").trim_end())
}

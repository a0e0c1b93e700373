//! What `capstan doctor` found, for people and for programs.

use capstan_host::recovery::conservation::ConservationReport;
use capstan_protocol::ErrorCode;
use serde::Serialize;
use serde_json::Value;

use super::super::{print_json, print_lines, replace_control_chars};
use crate::CommandError;

/// How a check came out. Ordered: a worse one is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckStatus {
    Ok,
    /// Something to know about; nothing is lost.
    Warning,
    /// Something is wrong.
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

/// One check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CheckResult {
    pub(super) check: &'static str,
    pub(super) status: CheckStatus,
    pub(super) message: String,
    /// What exactly was found, a line each.
    pub(super) details: Vec<String>,
    pub(super) hint: Option<String>,
    /// The same for programs, where there is more to say.
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

    /// A check that could not be made.
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

/// Everything that was found.
#[derive(Debug, Serialize)]
pub(super) struct DoctorReport {
    pub(super) status: CheckStatus,
    /// What `--repair` did; absent when it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) repaired: Option<Vec<String>>,
    pub(super) checks: Vec<CheckResult>,
    /// Absent where there is no store, or none that can be read.
    pub(super) conservation: Option<ConservationReport>,
}

impl DoctorReport {
    pub(super) fn new(repaired: Option<Vec<String>>) -> Self {
        Self { status: CheckStatus::Ok, repaired, checks: Vec::new(), conservation: None }
    }

    pub(super) fn add(&mut self, section: CheckResult) {
        self.status = self.status.max(section.status);
        self.checks.push(section);
    }

    /// Prints it, and fails when there is a problem.
    pub(super) fn print(&self, json: bool) -> Result<(), CommandError> {
        if json {
            print_json(self)?;
        } else {
            print_lines(self.to_lines())?;
        }
        let problems = self.checks.iter().filter(|section| section.status == CheckStatus::Problem);
        let problems: Vec<&str> = problems.map(|section| section.check).collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(CommandError::new(ErrorCode::ProblemsFound, format!("not all is well: {}", problems.join(", "))))
    }

    fn to_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(repaired) = &self.repaired {
            let was_left = self.checks.iter().any(|section| section.check == "repair");
            let said = match repaired.as_slice() {
                [] if was_left => "nothing was repaired",
                [] => "nothing to repair",
                _ => "done:",
            };
            lines.push(format_row("repair", "", said));
            lines.extend(repaired.iter().map(|done| format_row("", "", done)));
        }
        for section in &self.checks {
            lines.push(format_row(section.check, section.status.as_str(), &section.message));
            lines.extend(section.details.iter().map(|detail| format_row("", "", detail)));
            lines.extend(section.hint.iter().map(|hint| format_row("", "", &format!("hint: {hint}"))));
        }
        lines
    }
}

fn format_row(check: &str, status: &str, said: &str) -> String {
    replace_control_chars(format!("{check:13} {status:8} {said}").trim_end())
}

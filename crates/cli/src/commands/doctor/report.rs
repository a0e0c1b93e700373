//! What `capstan doctor` found, for people and for programs.

use capstan_host::recovery::conservation::Conservation;
use serde::Serialize;
use serde_json::Value;

use super::super::{plain, print_json, print_lines};
use crate::{Exit, Failure};

/// How a check came out. Ordered: a worse one is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Ok,
    /// Something to know about; nothing is lost.
    Warning,
    /// Something is wrong.
    Problem,
}

impl Status {
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
pub(super) struct Section {
    pub(super) check: &'static str,
    pub(super) status: Status,
    pub(super) message: String,
    /// What exactly was found, a line each.
    pub(super) details: Vec<String>,
    pub(super) hint: Option<String>,
    /// The same for programs, where there is more to say.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(super) data: Value,
}

impl Section {
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        let (message, data) = (message.into(), Value::Null);
        Self { check, status: Status::Ok, message, details: Vec::new(), hint: None, data }
    }

    pub(super) fn warning(check: &'static str, message: impl Into<String>, hint: &str) -> Self {
        Self { status: Status::Warning, hint: Some(hint.to_owned()), ..Self::ok(check, message) }
    }

    pub(super) fn problem(check: &'static str, message: impl Into<String>, hint: &str) -> Self {
        Self { status: Status::Problem, ..Self::warning(check, message, hint) }
    }

    /// A check that could not be made.
    pub(super) fn failed(check: &'static str, failure: &Failure) -> Self {
        Self::problem(check, failure.message.clone(), &failure.hint)
    }

    pub(super) fn with(mut self, details: Vec<String>) -> Self {
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
pub(super) struct Report {
    pub(super) status: Status,
    /// What `--repair` did; absent when it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) repaired: Option<Vec<String>>,
    pub(super) checks: Vec<Section>,
    /// Absent where there is no store, or none that can be read.
    pub(super) conservation: Option<Conservation>,
}

impl Report {
    pub(super) fn new(repaired: Option<Vec<String>>) -> Self {
        Self { status: Status::Ok, repaired, checks: Vec::new(), conservation: None }
    }

    pub(super) fn add(&mut self, section: Section) {
        self.status = self.status.max(section.status);
        self.checks.push(section);
    }

    /// Prints it, and fails when there is a problem.
    pub(super) fn tell(&self, json: bool) -> Result<(), Failure> {
        if json {
            print_json(self)?;
        } else {
            print_lines(self.lines())?;
        }
        let problems = self.checks.iter().filter(|section| section.status == Status::Problem);
        let problems: Vec<&str> = problems.map(|section| section.check).collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(Failure::new("problems-found", format!("not all is well: {}", problems.join(", ")), Exit::Failed))
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(repaired) = &self.repaired {
            let was_left = self.checks.iter().any(|section| section.check == "repair");
            let said = match repaired.as_slice() {
                [] if was_left => "nothing was repaired",
                [] => "nothing to repair",
                _ => "done:",
            };
            lines.push(line("repair", "", said));
            lines.extend(repaired.iter().map(|done| line("", "", done)));
        }
        for section in &self.checks {
            lines.push(line(section.check, section.status.as_str(), &section.message));
            lines.extend(section.details.iter().map(|detail| line("", "", detail)));
            lines.extend(section.hint.iter().map(|hint| line("", "", &format!("hint: {hint}"))));
        }
        lines
    }
}

fn line(check: &str, status: &str, said: &str) -> String {
    plain(format!("{check:13} {status:8} {said}").trim_end())
}

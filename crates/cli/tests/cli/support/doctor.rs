//! Reports of `capstan doctor`, and ways to cause findings.

use rusqlite::Connection;
use serde_json::Value;

use super::CliFixture;

/// Report of `doctor --json`, which must exit with this code.
#[track_caller]
pub fn doctor_report(fixture: &CliFixture, exit: i32) -> Value {
    let output = fixture.capstan(&["doctor", "--json"]);
    assert_eq!(output.code, Some(exit), "{output:?}");
    if exit == 1 {
        return serde_json::from_str(&output.failed("problems-found", 1).stdout).expect("one JSON object");
    }
    assert_eq!(output.stderr, "");
    output.json()
}

/// One check of a report.
#[track_caller]
pub fn find_check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("a list of checks");
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no check {name}: {report:#}"))
}

/// Asserts the status of a check, and that a finding has a hint.
#[track_caller]
pub fn assert_status(report: &Value, name: &str, status: &str) {
    let check = find_check(report, name);
    assert_eq!(check["status"], status, "{check:#}");
    let has_hint = check["hint"].as_str().is_some_and(|hint| !hint.is_empty());
    assert_eq!(has_hint, status != "ok", "a finding has a hint: {check:#}");
}

/// A fixture with this many messages on its tape.
pub fn fixture_with_events(count: usize) -> CliFixture {
    let fixture = CliFixture::new();
    for number in 0..count {
        fixture.capstan(&["run", &format!("message {number}")]).data();
    }
    fixture
}

/// Changes the database directly, without the store.
pub fn execute_sql(fixture: &CliFixture, statements: &str) {
    let database = Connection::open(fixture.database()).unwrap();
    database.pragma_update(None, "foreign_keys", false).unwrap();
    database.execute_batch(statements).unwrap();
}

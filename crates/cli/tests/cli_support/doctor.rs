//! What `capstan doctor` finds, and ways to give it something to find.

use rusqlite::Connection;
use serde_json::Value;

use super::CliFixture;

/// What `doctor --json` found, which must exit with this code.
#[track_caller]
pub fn doctor_report(place: &CliFixture, exit: i32) -> Value {
    let said = place.capstan(&["doctor", "--json"]);
    assert_eq!(said.code, Some(exit), "{said:?}");
    if exit == 1 {
        return serde_json::from_str(&said.failed("problems-found", 1).stdout).expect("one JSON object");
    }
    assert_eq!(said.stderr, "");
    said.json()
}

/// One check of what was found.
#[track_caller]
pub fn find_check<'a>(found: &'a Value, name: &str) -> &'a Value {
    let checks = found["checks"].as_array().expect("a list of checks");
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no check {name}: {found:#}"))
}

/// Asserts how a check came out, and that a finding has a hint.
#[track_caller]
pub fn assert_status(found: &Value, name: &str, status: &str) {
    let check = find_check(found, name);
    assert_eq!(check["status"], status, "{check:#}");
    let has_hint = check["hint"].as_str().is_some_and(|hint| !hint.is_empty());
    assert_eq!(has_hint, status != "ok", "a finding has a hint: {check:#}");
}

/// A place with so many messages on its tape.
pub fn fixture_with_events(count: usize) -> CliFixture {
    let place = CliFixture::new();
    for number in 0..count {
        place.capstan(&["run", &format!("message {number}")]).data();
    }
    place
}

/// Changes the database behind the back of everybody.
pub fn execute_sql(place: &CliFixture, statements: &str) {
    let database = Connection::open(place.database()).unwrap();
    database.pragma_update(None, "foreign_keys", false).unwrap();
    database.execute_batch(statements).unwrap();
}

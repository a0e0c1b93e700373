//! `capstan outbox`: held and undelivered messages.

use crate::support::{assert_status, doctor_report, execute_sql, find_check, fixture_with_events};
use serde_json::{Value, json};

#[test]
fn x10_held_and_undelivered_messages_are_listed_resent_and_dropped() {
    let fixture = fixture_with_events(5);
    execute_sql(&fixture, "UPDATE outbox SET message = json_set(message, '$.channel', 'tele') WHERE id IN (1, 2)");
    execute_sql(
        &fixture,
        r#"UPDATE outbox SET status = '{"status":"held","reason":"it waited too long"}' WHERE id = 1"#,
    );
    execute_sql(&fixture, r#"UPDATE outbox SET status = '{"status":"undelivered","reason":"no chat"}' WHERE id = 2"#);
    let gone =
        r#"UPDATE outbox SET status = '{"status":"undelivered","reason":"the caller has disconnected"}' WHERE id = 3"#;
    execute_sql(&fixture, gone);
    execute_sql(&fixture, r#"UPDATE outbox SET status = '{"status":"undelivered","reason":"it ended"}' WHERE id = 5"#);

    let listed = fixture.capstan(&["outbox", "list", "--json"]).json();
    let summary: Vec<(&Value, &Value)> =
        listed.as_array().unwrap().iter().map(|letter| (&letter["id"], &letter["status"])).collect();
    assert_eq!(
        summary,
        [
            (&json!(1), &json!("held")),
            (&json!(2), &json!("undelivered")),
            (&json!(3), &json!("undelivered")),
            (&json!(5), &json!("undelivered"))
        ]
    );
    assert!(listed[0]["message"].to_string().contains("message "), "it keeps its text: {listed:#}");
    let report = doctor_report(&fixture, 0);
    assert_status(&report, "outbox", "warning");
    let outbox = find_check(&report, "outbox");
    assert_eq!((&outbox["data"]["held"], &outbox["data"]["undelivered"]), (&json!(1), &json!(3)));
    assert!(outbox["hint"].as_str().unwrap().contains("capstan outbox list"), "{outbox:#}");

    fixture.capstan(&["outbox", "resend", "1"]).succeeded();
    fixture.capstan(&["outbox", "drop", "2"]).succeeded();
    fixture.capstan(&["outbox", "resend", "3"]).failed("outbox-unknown", 2);
    let refused = fixture.capstan(&["outbox", "resend", "5"]).failed("outbox-unknown", 2);
    assert!(refused.stderr.contains("`capstan tape show "), "no process listens on the terminal: {refused:?}");
    fixture.capstan(&["outbox", "drop", "5"]).succeeded();
    for id in ["1", "2", "4", "5", "99"] {
        fixture.capstan(&["outbox", "drop", id]).failed("outbox-unknown", 2);
    }
    let listed = fixture.capstan(&["outbox", "list", "--json"]).json();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["id"]), (1, &json!(3)));
    let outbox = find_check(&doctor_report(&fixture, 0), "outbox").clone();
    assert_eq!((&outbox["data"]["waiting"], &outbox["data"]["held"]), (&json!(1), &json!(0)), "{outbox:#}");
}

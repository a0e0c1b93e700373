use capstan_protocol::{ConversationKind, Event, ExitClass};
use serde_json::{Value, json};

use super::LineRequest;
use crate::stdio::line_reader::LineTooLong;

fn parse_line(line: &str) -> LineRequest {
    LineRequest::parse(Ok(line.as_bytes().to_vec())).unwrap().unwrap()
}

/// Code, message and id of an invalid line.
fn parse_error(line: impl AsRef<[u8]>) -> (&'static str, String, Value) {
    let invalid = LineRequest::parse(Ok(line.as_ref().to_vec())).unwrap_err();
    let id = invalid.id.map_or(Value::Null, |id| serde_json::from_str(id.get()).unwrap());
    let code = invalid.reason.code();
    assert_eq!(code.exit_class(), ExitClass::Continue, "the channel goes on");
    (code.id(), invalid.reason.to_string(), id)
}

fn error_code(line: impl AsRef<[u8]>) -> &'static str {
    parse_error(line).0
}

#[test]
fn c06_line_becomes_a_message_of_its_session() {
    let Event { event_id, source, conversation_id, session_id, input, event_time, .. } =
        parse_line(r#"{"id":1,"session":"work","text":"hello"}"#).event;
    assert_eq!((source.as_str(), conversation_id.as_deref()), ("stdio", Some("work")));
    assert_eq!(session_id.unwrap().as_str(), "work");
    assert_eq!((input.plain_text(), event_time), ("hello", None));
    assert_ne!(
        parse_line(r#"{"session":"work","text":"hello"}"#).event.event_id,
        event_id,
        "each event has its own id"
    );
}

#[test]
fn c06_event_id_and_time_are_kept_and_null_counts_as_absent() {
    let request = parse_line(
        r#"{"session":"s","text":"t","event_id":"e-1","event_time":"2026-11-15T21:57:42+01:00","stream":true}"#,
    );
    assert_eq!(request.event.event_id.as_str(), "e-1");
    assert_eq!(request.event.event_time, Some("2026-11-15T20:57:42Z".parse().unwrap()));
    assert!(request.stream);
    let request = parse_line(r#"{"id":null,"session":"s","text":"t","event_id":null,"event_time":null,"stream":null}"#);
    assert!(!request.stream && request.id.is_none() && request.event.event_time.is_none());
    assert!(request.event.event_id.as_str().starts_with("evt-"));
}

#[test]
fn g01_a_line_has_the_time_in_seconds_and_the_kind_of_its_conversation() {
    let event = parse_line(r#"{"session":"s","text":"t","event_time":1763240262,"conversation_kind":"group"}"#).event;
    assert_eq!(event.event_time, Some("2025-11-15T20:57:42Z".parse().unwrap()));
    assert_eq!(event.conversation_kind, Some(ConversationKind::Group));
    let absent = parse_line(r#"{"session":"s","text":"t","conversation_kind":null}"#).event;
    assert_eq!(absent.conversation_kind, None);
}

#[test]
fn c06_id_is_any_json_and_returned_verbatim() {
    for id in ["12345678901234567890123", "1.10", r#"{"b":1,"a":[null]}"#, r#""\u00e9""#, "false"] {
        let request = parse_line(&format!(r#" {{"id":{id} ,"session":"s","text":"t"}} "#));
        assert_eq!(request.id.unwrap().get(), id);
    }
}

#[test]
fn c06_blank_line_is_ignored() {
    for blank in ["", " \t", "\r"] {
        assert!(LineRequest::parse(Ok(blank.as_bytes().to_vec())).unwrap().is_none());
    }
    assert_eq!(parse_line("{\"session\":\"s\",\"text\":\"t\"}\r").event.input.plain_text(), "t");
}

#[test]
fn c06_malformed_line_is_reported_with_its_position() {
    let (code, message, id) = parse_error(r#"{"id":1,"session""#);
    assert_eq!((code, id), ("line-not-json", Value::Null));
    assert!(message.ends_with("at column 17"), "{message}");
    assert_eq!(error_code(r#"{"session":"s","text":"t"} {"#), "line-not-json");
    assert_eq!(error_code("{\"session\":\"s\",\"text\":\"a\0b\"}"), "line-not-json", "a bare NUL");
    for other in ["[1]", "42", "\"text\"", "null"] {
        assert_eq!(error_code(other), "line-not-object", "{other}");
    }
    let (code, message, _) = parse_error(b"{\"session\":\"s\",\"text\":\"caf\xe9\"}");
    assert_eq!((code, message.as_str()), ("line-not-utf8", "the line is not valid UTF-8 at byte 27"));
    let too_long = LineRequest::parse(Err(LineTooLong { limit: 10 })).unwrap_err();
    assert_eq!(too_long.reason.code(), "line-too-long");
}

#[test]
fn c06_wrong_field_is_named_and_the_id_is_returned() {
    let with = |fields: &str| parse_error(format!(r#"{{"id":[7],{fields}}}"#));
    assert_eq!(
        with(r#""session":"s""#),
        ("line-field-missing", r#"the field "text" is missing"#.to_owned(), json!([7]))
    );
    assert_eq!(with(r#""text":"t""#).1, r#"the field "session" is missing"#);
    let (code, message, id) = with(r#""session":"s","text":"t","even_id":"e""#);
    assert_eq!((code, id), ("line-field-unknown", json!([7])));
    assert_eq!(message, r#"unknown field "even_id" (did you mean "event_id"?)"#);
    let twice = with(r#""session":"s","text":"t","text":"u""#);
    assert_eq!(
        (twice.0, twice.1.as_str()),
        ("line-field-invalid", r#"the field "text" is not valid: it is given more than once"#)
    );
    assert_eq!(with(r#""session":"s","text":" \n""#).0, "line-text-empty");
}

#[test]
fn c06_invalid_field_value_is_refused() {
    for fields in [
        r#""session":7,"text":"t""#,
        r#""session":" ","text":"t""#,
        r#""session":"a\u0000b","text":"t""#,
        r#""session":"a\nb","text":"t""#,
        r#""session":"s","text":["t"]"#,
        r#""session":"s","text":"a\u0000b""#,
        r#""session":"s","text":"\ud800""#,
        r#""session":"s","text":"t","stream":"yes""#,
        r#""session":"s","text":"t","event_id":5"#,
        r#""session":"s","text":"t","event_id":"""#,
        r#""session":"s","text":"t","event_time":"yesterday""#,
        r#""session":"s","text":"t","event_time":1763240262000"#,
        r#""session":"s","text":"t","event_time":1763240262.5"#,
        r#""session":"s","text":"t","conversation_kind":"crowd""#,
        r#""session":"s","text":"t","event_time":"2026-11-15T20:57:42""#,
        r#""session":"s","text":"t","event_time":"2026-13-15T20:57:42Z""#,
    ] {
        let (code, _, id) = parse_error(format!(r#"{{"id":1,{fields}}}"#));
        assert_eq!((code, id), ("line-field-invalid", json!(1)), "{fields}");
    }
    let long = "x".repeat(5000);
    assert_eq!(error_code(format!(r#"{{"session":"{long}","text":"t"}}"#)), "line-field-invalid");
    assert_eq!(parse_error(format!(r#"{{"id":"{long}","session":"s","text":"t"}}"#)).2, Value::Null);
    let nested = format!(r#"{{"session":{}1{},"text":"t"}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let (code, message, _) = parse_error(nested);
    assert_eq!(code, "line-field-invalid", "regardless of the nesting depth");
    assert!(message.contains("it must be a string"), "{message}");
}

#[test]
fn c06_time_out_of_range_and_unpaired_surrogate_are_named_as_such() {
    let message = |fields: &str| parse_error(format!(r#"{{"id":1,"session":"s",{fields}}}"#)).1;
    let time = message(r#""text":"t","event_time":"9999-12-31T23:59:59Z""#);
    assert!(time.contains("\"event_time\"") && time.contains("not after 9999-12-30T22:00:00Z"), "{time}");
    assert!(parse_line(r#"{"session":"s","text":"t","event_time":"9999-12-30T22:00:00Z"}"#).event.event_time.is_some());
    for half in [r"\ud800", r"a\udc00b", r"\ud83dx"] {
        let text = message(&format!(r#""text":"{half}""#));
        assert!(text.contains("\"text\"") && text.contains("half of a surrogate pair"), "{half}: {text}");
    }
    assert_eq!(parse_line(r#"{"session":"s","text":"\ud83d\ude00"}"#).event.input.plain_text(), "😀");
    assert!(message(r#""text":7"#).contains("it must be a string"));
    assert_eq!(error_code(r#"{"session":"s","text":"t","\ud800":1}"#), "line-not-json", "in a field name as well");
}

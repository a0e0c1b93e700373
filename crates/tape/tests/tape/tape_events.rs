//! Storage format of tape events: names, data, order of keys and visibility must not change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use capstan_protocol::{EntryId, Timestamp};
use capstan_tape::{Entry, EntryDraft, EventAcceptance, TapeEvent, TapeEventKind};
use serde_json::{Value, json};

/// Payload and meta of events, as written by the tests of version 04dc95b, one of each shape.
const RECORDED: &str = include_str!("../data/recorded_events.jsonl");

/// Payload and meta of shapes that those tests do not write, derived from the code of that version.
const DERIVED: [&str; 9] = [
    r#"[{"name":"event.accepted","data":{"event":{"event_id":"e","event_type":"message.received","source":"wire","input":{"text":"hi"},"delivery":{}},"raw":"{}","binding":{"binding_id":"b","colour":"blue"},"without_turn":"no conversation is known"}},{"context":false}]"#,
    r#"[{"name":"model.call","data":{"call":1,"provider":"p","model":"m","messages":[],"tools":["aa"]}},{"context":false}]"#,
    r#"[{"name":"model.call","data":{"call":1,"provider":"p","model":"m","messages":["aa"],"rest":"bb","messages_key":"input"}},{"context":false}]"#,
    r#"[{"name":"run","data":{"status":"ok","usage":null,"model":"p:m","truncated":true,"key":2}},{}]"#,
    r#"[{"name":"command","data":{"raw":"sleep 9","name":"bash","status":"cancelled","elapsed_ms":7,"output":null}},{}]"#,
    r#"[{"name":"outbound","data":{"kind":"reply","channel":"wire","chat_id":"1","sent":[]}},{}]"#,
    r#"[{"name":"action.ended","data":{"action_id":"r.1","action":"mute","status":"done","output":null}},{"context":false}]"#,
    r#"[{"name":"state.removed","data":{"space":"b5003294b4be","name":"state:[]","keys":1,"change":{"key":"b"}}},{}]"#,
    r#"[{"name":"loop.step","data":{"step":2,"elapsed_ms":3,"status":"empty"}},{}]"#,
];

fn event_entry(payload: Value) -> Entry {
    let draft = EntryDraft { payload, ..EntryDraft::event("", Value::Null) };
    draft.into_entry(EntryId(1), Timestamp::from_millis(0), &[])
}

/// Payload and meta of every pinned event.
fn pinned_events() -> impl Iterator<Item = (Value, Value)> {
    RECORDED.lines().chain(DERIVED).map(|line| serde_json::from_str(line).unwrap())
}

#[test]
fn every_event_round_trips_byte_for_byte() {
    for (payload, meta) in pinned_events() {
        let event = TapeEvent::read(&event_entry(payload.clone())).unwrap().expect("a known name");
        let draft = EntryDraft::from(event);
        assert_eq!(draft.payload.to_string(), payload.to_string());
        // The journal of the run adds the run id and the sequence number.
        assert_eq!(draft.meta.get("context"), meta.get("context"), "{payload}");
        assert!(draft.meta.is_empty() || meta.as_object().unwrap().keys().next().unwrap() == "context");
    }
}

#[test]
fn every_kind_has_a_pinned_event() {
    let pinned: BTreeSet<String> =
        pinned_events().map(|(payload, _)| payload["name"].as_str().unwrap().to_owned()).collect();
    let names: BTreeSet<String> = TapeEventKind::ALL_KINDS.iter().map(|kind| kind.name().to_owned()).collect();
    assert_eq!(pinned, names);
}

#[test]
fn kind_is_found_by_its_name() {
    for kind in TapeEventKind::ALL_KINDS {
        assert_eq!(TapeEventKind::from_name(kind.name()), Some(*kind));
    }
    assert_eq!(TapeEventKind::from_name("loop.finished"), None);
}

#[test]
fn events_of_plugins_and_entries_of_other_kinds_are_not_tape_events() {
    let plugin_event = event_entry(json!({ "name": "weather.seen", "data": { "sky": "blue" } }));
    assert_eq!(TapeEvent::read(&plugin_event).unwrap(), None);
    let anchor = EntryDraft::anchor("handoff", &serde_json::Map::new());
    assert_eq!(anchor.event_kind(), None);
}

#[test]
fn event_with_unreadable_data_is_an_error() {
    let damaged = event_entry(json!({ "name": "event.accepted", "data": { "event": "gone" } }));
    assert_eq!(damaged.event_kind(), Some(TapeEventKind::EventAccepted));
    assert!(TapeEvent::read(&damaged).is_err());
    assert_eq!(TapeEvent::from_entry(&damaged), None);
    assert!(TapeEvent::read(&event_entry(json!({ "name": "event.accepted" }))).is_err());
}

#[test]
fn acceptance_of_an_older_version_is_read() {
    let event = json!({ "event_id": "e", "event_type": "message.received", "source": "wire" });
    let read = |data: Value| {
        EventAcceptance::from_entry(&event_entry(json!({ "name": "event.accepted", "data": data }))).unwrap()
    };
    let plain = read(json!({ "event": event }));
    assert_eq!((plain.raw, plain.binding, plain.without_turn), (None, None, None));
    let without_reason = read(json!({ "event": event, "without_turn": true }));
    assert_eq!(without_reason.without_turn.as_deref(), Some("a hook failed before the turn"));
    let newer_version = read(json!({ "event": event, "binding": { "binding_id": "b", "colour": "blue" } }));
    assert!(newer_version.binding.unwrap().parse().is_err(), "the event is readable, its binding is not");
}

#[test]
fn names_of_the_host_are_reserved() {
    for name in ["command", "handoff", "outbound", "run"] {
        assert!(TapeEventKind::is_reserved_name(name), "{name}");
    }
    let families = [
        "action", "api", "artifact", "binding", "command", "delivery", "event", "model", "outbound", "result",
        "results", "run", "session", "state", "storage",
    ];
    for family in families {
        assert!(TapeEventKind::is_reserved_name(&format!("{family}.anything")), "{family}");
        assert!(!TapeEventKind::is_reserved_name(&format!("{family}s-of-a-plugin")), "{family}");
    }
    for kind in TapeEventKind::ALL_KINDS {
        assert_eq!(TapeEventKind::is_reserved_name(kind.name()), kind.is_host_only(), "{kind:?}");
    }
    for name in ["", "mine", "loop.start", "loop.mine", "handoff.mine", "action", "weather.seen"] {
        assert!(!TapeEventKind::is_reserved_name(name), "{name}");
    }
}

#[test]
fn event_log_shows_the_activities_of_users_and_agents() {
    let logged = TapeEventKind::ALL_KINDS.iter().filter(|kind| kind.is_logged()).map(|kind| kind.name());
    let expected = ["command", "handoff", "outbound", "action.refused", "action.started", "action.ended"];
    assert_eq!(logged.collect::<Vec<_>>(), expected);
}

#[test]
fn documentation_lists_every_event() {
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (payload, _) in pinned_events() {
        let known = keys.entry(payload["name"].as_str().unwrap().to_owned()).or_default();
        known.extend(payload["data"].as_object().unwrap().keys().cloned());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tapes.md");
    let page = std::fs::read_to_string(path).unwrap();
    let table = page.split_once("\n## Events\n").expect("a section on events").1;
    let rows = table.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with('|'));
    let documented: Vec<(String, BTreeSet<String>, String)> = rows
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let keys = cells[1].split(", ").map(|key| key.trim_matches('`').to_owned()).collect();
            (cells[0].trim_matches('`').to_owned(), keys, cells[2].to_owned())
        })
        .collect();
    let declared: Vec<_> = TapeEventKind::ALL_KINDS
        .iter()
        .map(|kind| (kind.name().to_owned(), keys[kind.name()].clone(), kind.summary().to_owned()))
        .collect();
    assert_eq!(documented, declared, "docs/tapes.md, section Events: `name` | `key`, `key` | summary");
}

//! Checks that the checked-in schemas are current and suitable for code generators.

use std::path::PathBuf;

use capstan_protocol::schema;
use serde_json::Value;

fn schema_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("schema")
}

/// `UPDATE_SCHEMAS=1 cargo nextest run -p capstan-protocol` rewrites the schemas.
#[test]
fn checked_in_schemas_are_current() {
    let update = std::env::var_os("UPDATE_SCHEMAS").is_some();
    if update {
        std::fs::create_dir_all(schema_dir()).unwrap();
    }
    let mut stale = Vec::new();
    for document in schema::schema_files() {
        let path = schema_dir().join(document.file);
        let expected = serde_json::to_string_pretty(&document.schema).unwrap() + "\n";
        if update {
            std::fs::write(&path, &expected).unwrap();
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != expected {
            stale.push(document.file);
        }
    }
    assert!(stale.is_empty(), "stale: {stale:?}; run UPDATE_SCHEMAS=1 cargo nextest run -p capstan-protocol");
}

#[test]
fn every_schema_file_belongs_to_a_type() {
    let known: Vec<String> = schema::schema_files().iter().map(|d| d.file.to_owned()).collect();
    for file in std::fs::read_dir(schema_dir()).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name), "{name} belongs to no type");
    }
}

/// Collects all schemas within a document.
fn all_schemas<'a>(schema: &'a Value, found: &mut Vec<&'a Value>) {
    found.push(schema);
    match schema {
        Value::Object(map) => map.values().for_each(|value| all_schemas(value, found)),
        Value::Array(items) => items.iter().for_each(|value| all_schemas(value, found)),
        _ => {}
    }
}

#[test]
fn documents_have_a_title_and_their_references_resolve_to_named_definitions() {
    for document in schema::schema_files() {
        assert!(document.schema["title"].is_string(), "{}", document.file);
        let definitions = document.schema.get("$defs").and_then(Value::as_object).into_iter().flatten();
        for (name, _) in definitions {
            assert!(!name.ends_with(|c: char| c.is_ascii_digit()), "{}: {name} has a number", document.file);
        }
        let mut schemas = Vec::new();
        all_schemas(&document.schema, &mut schemas);
        for reference in schemas.iter().filter_map(|schema| schema.get("$ref")?.as_str()) {
            let target = document.schema.pointer(&reference[1..]);
            assert!(target.is_some(), "{}: {reference} does not resolve", document.file);
        }
    }
}

#[test]
fn tagged_enums_have_a_discriminator_and_a_name_for_each_variant() {
    let files = schema::schema_files();
    let document = |file: &str| &files.iter().find(|document| document.file == file).unwrap().schema;
    let bundle = document("capstan.json");
    let cases = [
        (document("stream_event.json"), "", "type", "tool_result", "StreamEventToolResult"),
        (document("run_result.json"), "", "type", "message.delta", "RunResultMessageDelta"),
        (document("outcome.json"), "", "outcome", "replied", "OutcomeReplied"),
        (bundle, "/$defs/ApiRequest", "method", "tape.search", "ApiRequestTapeSearch"),
        (bundle, "/$defs/ApiResponse", "method", "models.stream", "ApiResponseModelsStream"),
        (bundle, "/$defs/ModelEvent", "type", "text", "ModelEventText"),
        (bundle, "/$defs/EventLogItem", "fact", "inbound", "EventLogItemInbound"),
    ];
    for (document, path, tag, value, name) in cases {
        let schema = document.pointer(path).unwrap();
        assert_eq!(schema["discriminator"]["propertyName"], tag, "{path}");
        assert_eq!(schema["discriminator"]["mapping"][value], format!("#/$defs/{name}"));
        assert_eq!(document["$defs"][name]["properties"][tag]["const"], value);
    }
    let request = &bundle["$defs"]["ApiRequestTapeSearch"]["properties"]["params"];
    assert_eq!(request["$ref"], "#/$defs/TapeSearchCall");
}

use capstan_protocol::{ContentPart, DeliveryPolicy, JsonObject, Timestamp};
use serde_json::{Value, json};

use super::map_query;

fn sample_query() -> Value {
    json!({
        "query_id": 7,
        "adapter": "telegram",
        "bot_uuid": "b1",
        "pipeline_uuid": "p-1",
        "launcher_type": "group",
        "launcher_id": 42,
        "sender_id": "ann",
        "sender_name": "Ann",
        "message_chain": [
            {"type": "Source", "id": 99, "time": 1_700_000_000},
            {"type": "At", "target": "bot"},
            {"type": "Plain", "text": "what is this?"},
            {"type": "Image", "url": "https://example.org/a.png"},
        ],
        "variables": {"lang": "en"},
        "pipeline_config": {
            "ai": {
                "runner": {"runner": "plugin:a/b/c", "expire-time": 0},
                "plugin:a/b/c": {"mood": "kind"},
                "local-agent": {"model": "not chosen"},
            },
            "output": {
                "long-text-processing": {"threshold": 1000, "strategy": "none"},
                "force-delay": {"min": 0, "max": 0},
                "misc": {"at-sender": false, "quote-origin": true, "hide-exception": true},
                "stream": false,
            },
        },
        "extensions_preferences": {"enable_all_plugins": false, "plugins": [{"author": "a", "name": "b"}]},
    })
}

fn rejection_message(path: &str, value: Value) -> String {
    let mut query = sample_query();
    let (parent, key) = path.rsplit_once('/').unwrap();
    query.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(key.to_owned(), value);
    map_query(query).unwrap_err().to_string()
}

#[test]
fn g09_a_query_becomes_an_event() {
    let event = map_query(sample_query()).unwrap().event;
    assert_eq!((event.event_type.as_str(), event.source.as_str()), ("message.received", "telegram"));
    assert_eq!((event.bot_id.as_deref(), event.conversation_id.as_deref()), (Some("b1"), Some("group_42")));
    assert_eq!(event.actor.map(|actor| (actor.id, actor.name)), Some(("ann".to_owned(), Some("Ann".to_owned()))));
    assert_eq!(event.input.text.as_deref(), Some("@bot what is this?"));
    assert_eq!(event.input.contents, [ContentPart::from_image_url("https://example.org/a.png")]);
    assert_eq!(event.event_time.map(Timestamp::as_millis), Some(1_700_000_000_000));
    let metadata = json!({"pipeline_uuid": "p-1", "query_id": "7", "message_id": "99", "variables": {"lang": "en"}});
    assert_eq!(Value::Object(event.metadata), metadata);
}

#[test]
fn g09_a_pipeline_becomes_a_binding_by_three_mappings() {
    let mapped = map_query(sample_query()).unwrap();
    let binding = mapped.binding;
    assert_eq!(binding.binding_id.as_str(), "pipeline:p-1");
    assert_eq!(binding.runner_id.as_str(), "plugin:a/b/c");
    assert_eq!(binding.runner_config, JsonObject::from_iter([("mood".to_owned(), json!("kind"))]));
    assert_eq!(mapped.plugins, Some(vec!["a/b".to_owned()]));
    assert_eq!(binding.delivery_policy, DeliveryPolicy { no_stream: true, ..DeliveryPolicy::default() });
    assert_eq!(mapped.event.delivery.reply_to.as_deref(), Some("99"), "the reply quotes the message");
}

#[test]
fn g09_local_agent_maps_to_the_built_in_agent_without_max_round() {
    let mut query = sample_query();
    query["pipeline_config"]["ai"] = json!({"runner": {"runner": "local-agent"}, "local-agent": {"max-round": 10}});
    query["extensions_preferences"] = json!({});
    let mapped = map_query(query).unwrap();
    assert_eq!((mapped.binding.runner_id.as_str(), mapped.plugins), ("builtin:agent", None));
    assert!(mapped.binding.runner_config.is_empty());
}

#[test]
fn g09_unknown_fields_and_unsupported_features_are_rejected_by_name() {
    let cases = [
        ("/colour", json!(1), "unknown field `colour`"),
        ("/text", json!("with a chain"), "either a text or a message_chain"),
        ("/launcher_type", json!("robot"), "unknown variant `robot`"),
        ("/launcher_id", json!(true), "an id must be a string or a number"),
        ("/adapter", json!(" "), "source is not valid: it is empty"),
        ("/message_chain", json!([{"type": "Voice", "url": "x"}]), "unknown variant `Voice`"),
        ("/message_chain", json!([{"type": "Image"}]), "either a url or a base64"),
        ("/message_chain", json!([{"type": "Image", "base64": "?"}]), "cannot be decoded"),
        ("/pipeline_config/safety", json!({}), "unknown field `safety`"),
        ("/pipeline_config/ai/runner/expire-time", json!(60), "expire-time"),
        ("/pipeline_config/output/misc/at-sender", json!(true), "output.misc.at-sender"),
        ("/pipeline_config/output/force-delay", json!({"min": 1, "max": 2}), "output.force-delay"),
        ("/pipeline_config/output/colour", json!(1), "unknown field `colour`"),
        ("/extensions_preferences/skills", json!([]), "unknown field `skills`"),
        ("/extensions_preferences/plugins", json!([{"name": "b"}]), "missing field `author`"),
    ];
    for (path, value, expected) in cases {
        let message = rejection_message(path, value);
        assert!(message.starts_with("the query is not valid: ") && message.contains(expected), "{path}: {message}");
    }
    let mut query = sample_query();
    query["extensions_preferences"] = json!({"enable_all_mcp_servers": false, "mcp_servers": ["files"]});
    assert!(map_query(query).unwrap_err().to_string().contains("the MCP server files"));
    assert!(map_query(json!([])).is_err() && map_query(json!({})).is_err());
}

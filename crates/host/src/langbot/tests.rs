use capstan_protocol::{ContentPart, ConversationKind, DeliveryPolicy, JsonObject, ResourceAccess, Timestamp};
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
    assert_eq!(event.conversation_kind, Some(ConversationKind::Group));
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
    let mapped = map_query(query.clone()).unwrap();
    assert_eq!((mapped.binding.runner_id.as_str(), mapped.plugins), ("builtin:agent", None));
    assert!(mapped.binding.runner_config.is_empty());
    query["pipeline_config"]["ai"]["local-agent"] = json!({
        "model": {"primary": "openai:x", "fallbacks": ["demo:"]},
        "prompt": [{"role": "system", "content": "Be kind."}, {"role": "system", "content": "Be brief."}],
        "knowledge-bases": ["handbook"],
    });
    let binding = map_query(query.clone()).unwrap().binding;
    let config = json!({"model": "openai:x", "fallbacks": ["demo:"], "prompt": "Be kind.\n\nBe brief."});
    assert_eq!(Value::Object(binding.runner_config), config);
    assert_eq!(binding.resource_policy.knowledge_bases, Some(ResourceAccess::only(["handbook"])));
    // The template of LangBot has empty values.
    query["pipeline_config"]["ai"]["local-agent"] = json!({"model": "", "prompt": [], "knowledge-bases": []});
    assert!(map_query(query).unwrap().binding.runner_config.is_empty());
}

#[test]
fn g09_unknown_fields_and_unsupported_features_are_rejected_by_name() {
    let cases = [
        ("/colour", json!(1), "unknown field `colour`"),
        ("/text", json!("with a chain"), "either a text or a message_chain"),
        ("/launcher_type", json!("robot"), "unknown variant `robot`"),
        ("/launcher_id", json!(true), "an id must be a string or a number"),
        ("/adapter", json!(" "), "source is not valid: it is empty"),
        ("/message_chain", json!([{"text": "no type"}]), "has no type"),
        ("/message_chain", json!([{"type": "Plain"}]), "the component Plain of message_chain is not valid"),
        ("/message_chain", json!([{"type": "Image", "base64": "?"}]), "the base64 of a image cannot be decoded"),
        ("/pipeline_config/guard", json!({}), "unknown field `guard`"),
        ("/pipeline_config/ai/runner", json!({"id": ""}), "ai.runner.id is empty"),
        ("/pipeline_config/ai/runner/expire-time", json!(60), "expire-time"),
        ("/pipeline_config/output/misc", json!({"mood": true}), "unknown field `mood`"),
        ("/pipeline_config/output/misc", json!({"track-function-calls": true}), "track-function-calls"),
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

#[test]
fn g09_output_settings_of_langbot_are_rejected_only_if_a_channel_is_named() {
    let cases = [
        ("misc", json!({"at-sender": true}), "output.misc.at-sender"),
        ("misc", json!({"exception-handling": "hide"}), "output.misc.exception-handling"),
        ("misc", json!({"failure-hint": "Try later"}), "output.misc.failure-hint requests a feature"),
        ("force-delay", json!({"min": 1, "max": 2}), "output.force-delay"),
        ("long-text-processing", json!({"strategy": "image"}), "output.long-text-processing.strategy"),
    ];
    for (key, value, expected) in cases {
        let mut query = sample_query();
        query["pipeline_config"]["output"] = json!({key: value});
        assert!(map_query(query.clone()).is_ok(), "LangBot applies {key}");
        query["pipeline_config"]["output"]["channel"] = json!("telegram");
        let message = map_query(query).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn g09_pipeline_with_every_section_of_langbot_4_11_is_accepted() {
    let mut query = sample_query();
    query["pipeline_config"] = json!({
        "trigger": {
            "group-respond-rules": {"at": true, "prefix": ["ai"], "regexp": [], "random": 0.0},
            "message-aggregation": {"enabled": false, "delay": 1.5},
        },
        "safety": {"content-filter": {"scope": "all"}, "rate-limit": {"limitation": 60, "strategy": "drop"}},
        "ai": {
            "runner": {"id": "plugin:a/b/c", "expire-time": 0},
            "runner_config": {"plugin:a/b/c": {"mood": "kind"}, "plugin:x/y/z": {}},
        },
        "output": {
            "long-text-processing": {"threshold": 1000, "strategy": "none", "font-path": ""},
            "force-delay": {"min": 0, "max": 0},
            "misc": {
                "exception-handling": "show-hint", "failure-hint": "", "rate-limit-hint": "", "at-sender": true,
                "quote-origin": true, "track-function-calls": false, "remove-think": false,
            },
        },
    });
    let binding = map_query(query).unwrap().binding;
    assert_eq!(binding.runner_id.as_str(), "plugin:a/b/c");
    assert_eq!(binding.runner_config, JsonObject::from_iter([("mood".to_owned(), json!("kind"))]));
}

#[test]
fn g09_every_component_of_a_message_reaches_the_runner() {
    let mut query = sample_query();
    query["message_chain"] = json!([
        {"type": "Source", "id": "m-1", "time": 1_700_000_000.5},
        {"type": "Quote", "id": 7, "group_id": 1, "sender_id": "bob", "target_id": null, "origin": [
            {"type": "Source", "id": "m-0", "time": 1},
            {"type": "Plain", "text": "first\nsecond"},
            {"type": "Image", "image_id": "", "url": "https://example.org/q.png", "path": "", "base64": ""},
        ]},
        {"type": "At", "target": 5, "display": ""},
        {"type": "Plain", "text": "look"},
        {"type": "Face", "face_type": "face", "face_id": 3, "face_name": "smile"},
        {"type": "File", "id": "f", "name": "a.txt", "size": 2, "url": "", "base64": "aGk="},
        {"type": "File", "id": "g", "name": "b.pdf", "size": 2, "url": "https://example.org/b.pdf", "base64": ""},
        {"type": "Voice", "voice_id": "", "url": "", "path": "/tmp/v.silk", "base64": "", "length": 3},
        {"type": "Voice", "base64": "data:audio/wav;base64,AA=="},
        {"type": "Forward", "node_list": [
            {"sender_id": 1, "sender_name": "Eve", "message_chain": [{"type": "Plain", "text": "forwarded"}]},
        ]},
        {"type": "Unknown", "text": "poll"},
        {"type": "WeChatLink", "link_title": "t"},
    ]);
    let event = map_query(query).unwrap().event;
    let text = "> bob: first\n> second\n@5 look[smile][file b.pdf https://example.org/b.pdf][voice message]\n\
                > Eve: forwarded\n[unknown content: poll][WeChatLink]";
    assert_eq!(event.input.text.as_deref(), Some(text));
    let parts = serde_json::to_value(&event.input.contents).unwrap();
    let file_data = "data:application/octet-stream;base64,aGk=";
    let expected = json!([
        {"type": "image_url", "image_url": {"url": "https://example.org/q.png"}},
        {"type": "file", "file": {"filename": "a.txt", "file_data": file_data}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]);
    assert_eq!(parts, expected);
    assert_eq!(event.event_time.map(Timestamp::as_millis), Some(1_700_000_000_500));
    assert_eq!(event.metadata["message_id"], json!("m-1"), "the id of the message, not of the quoted one");
}

#[test]
fn g09_quotes_nested_without_end_are_cut() {
    let mut chain = json!([{"type": "Plain", "text": "deep"}]);
    for _ in 0..40 {
        chain = json!([{"type": "Quote", "origin": chain}]);
    }
    let mut query = sample_query();
    query["message_chain"] = chain;
    let text = map_query(query).unwrap().event.input.text.unwrap();
    assert!(text.contains("[further quotes]") && !text.contains("deep"), "{text}");
}

use serde_json::{Value, json};

use super::{ManifestError, PluginManifest};
use crate::plugin_protocol::{PluginToolEffect, RemoteHook};
use crate::{AdmissionMode, CodedError, ErrorCode, ModelOperation, StateScope};

fn minimal() -> Value {
    json!({"id": "ann/greeter", "version": "1.0.0", "protocol": 1, "command": ["python3", "greeter.py"]})
}

/// Minimal manifest with a value at a JSON pointer; `None` removes it.
fn with(pointer: &str, value: Option<Value>) -> Value {
    let mut manifest = minimal();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = manifest.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => parent.insert(key.to_owned(), value),
        None => parent.shift_remove(key),
    };
    manifest
}

fn parse(value: Value) -> Result<PluginManifest, ManifestError> {
    PluginManifest::from_json(value, |name| match name {
        "schemas/good.json" => Ok(json!({"type": "object", "properties": {"city": {"type": "string"}}})),
        "schemas/list.json" => Ok(json!([])),
        _ => Err("there is no such file".to_owned()),
    })
}

#[test]
fn g03_a_complete_manifest_is_read() {
    let mut manifest = minimal();
    let parts = json!({
        "description": "Forecasts", "required": true, "permissions": ["note", "send:ops"],
        "config_schema": {"type": "object"},
        "access": {"hosts": ["api.example.org", "*.example.org:443"], "read": ["/usr/share/zoneinfo"]},
        "runners": [{
            "name": "hello", "label": {"en": "Greeter"}, "capabilities": {"streaming": true},
            "permissions": {"models": ["stream"], "state": ["conversation"]}, "timeout_seconds": 60,
        }],
        "hooks": [
            {"name": "build_prompt", "arguments": ["message", "state"]},
            {"name": "system_prompt", "mode": "static", "text": "Be brief."},
            {"name": "after_tool_call", "arguments": ["outcome"], "fail_closed": true},
        ],
        "tools": [
            {"name": "weather.now", "description": "Weather.", "effect": "reads", "parameters": "schemas/good.json"},
            {"name": "note", "description": "Write.", "effect": "writes", "resource": "file",
             "parameters": {"type": "object", "properties": {"file": {"type": "string"}}}},
            {"name": "ping", "description": "Ping."},
        ],
        "channels": [{"name": "station", "capabilities": {"media": true},
            "intake": {"admission": "collect", "debounce": {"quiet_ms": 500, "max_wait_ms": 3000}}}],
        "knowledge": [{"id": "climate", "description": "Tables"}],
        "models": [{"name": "local"}],
    });
    manifest.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
    let manifest = parse(manifest).unwrap();
    assert_eq!((manifest.author(), manifest.name()), ("ann", "greeter"));
    let runner = &manifest.runners[0];
    assert!(runner.capabilities.streaming && !runner.capabilities.interrupt);
    assert!(runner.permissions.models.allows(ModelOperation::Stream, "demo:x"));
    assert!(!runner.permissions.models.allows(ModelOperation::Invoke, "demo:x"));
    assert!(runner.permissions.state.contains(&StateScope::Conversation));
    assert_eq!(manifest.hooks[1].text.as_deref(), Some("Be brief."));
    assert_eq!(manifest.tools[0].parameters["properties"]["city"]["type"], "string");
    assert_eq!(manifest.tools[1].effect, PluginToolEffect::Writes);
    assert_eq!(manifest.tools[2].effect, PluginToolEffect::Unrestricted);
    assert_eq!(manifest.channels[0].intake.admission, Some(AdmissionMode::Collect));
    assert!(manifest.channels[0].capabilities.media);
}

#[test]
fn g03_every_problem_of_a_manifest_is_reported_with_the_path_of_its_key() {
    let tool = |fields: Value| {
        let mut tool = json!({"name": "a", "description": "b"});
        tool.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Some(json!([tool]))
    };
    let cases: Vec<(Value, &str, &str)> = vec![
        (json!([]), "", "must be a table, not a list"),
        (with("/id", None), "id", "is missing"),
        (with("/id", Some(json!(7))), "id", "must be a text, not a number"),
        (with("/id", Some(json!("greeter"))), "id", "AUTHOR/NAME"),
        (with("/id", Some(json!("ann/../x"))), "id", "not a valid name"),
        (with("/id", Some(json!("Ann/x"))), "id", "\"Ann\" is not a valid name"),
        (with("/id", Some(json!("ann/builtin"))), "id", "that of the host"),
        (with("/version", Some(json!("1 0"))), "version", "visible"),
        (with("/protocol", None), "protocol", "is missing"),
        (with("/protocol", Some(json!(2))), "protocol", "version 2 is not supported"),
        (with("/protocol", Some(json!("1"))), "protocol", "must be an integer"),
        (with("/command", None), "command", "missing or empty"),
        (with("/command", Some(json!("python3 x"))), "command", "must be a list, not a text"),
        (with("/command", Some(json!(["/bin/sh"]))), "command[0]", "within the folder"),
        (with("/command", Some(json!(["../sh"]))), "command[0]", "within the folder"),
        (with("/command", Some(json!(["sh", 3]))), "command[1]", "must be a text"),
        (with("/comand", Some(json!(["sh"]))), "comand", "unknown key; did you mean command?"),
        (with("/permissions", Some(json!(["root"]))), "permissions[0]", "no permission of hooks"),
        (with("/config_schema", Some(json!("absent.json"))), "config_schema", "there is no such file"),
        (with("/config_schema", Some(json!("../x.json"))), "config_schema", "within the folder"),
        (with("/config_schema", Some(json!("schemas/list.json"))), "config_schema", "not a JSON object"),
        (with("/access", Some(json!({"host": []}))), "access.host", "did you mean hosts?"),
        (with("/access", Some(json!({"read": ["etc"]}))), "access.read[0]", "absolute"),
        (with("/access", Some(json!({"hosts": ["https://a.org"]}))), "access.hosts[0]", "without a scheme"),
        (with("/runners", Some(json!([{"name": "a"}]))), "runners[0].label", "is missing"),
        (
            with("/runners", Some(json!([{"name": "a", "label": "A", "capabilities": {"steaming": true}}]))),
            "runners[0].capabilities.steaming",
            "did you mean streaming?",
        ),
        (
            with("/runners", Some(json!([{"name": "a", "label": "A", "permissions": {"models": ["burn"]}}]))),
            "runners[0].permissions.models",
            "expected a list of operations",
        ),
        (
            with("/runners", Some(json!([{"name": "a", "label": "A"}, {"name": "a", "label": "B"}]))),
            "runners[1].name",
            "declared twice",
        ),
        (with("/hooks", Some(json!([{"name": "run_model"}]))), "hooks[0].name", "no hook of a plugin process"),
        (with("/hooks", Some(json!([{"name": "build_promt"}]))), "hooks[0].name", "did you mean build_prompt?"),
        (
            with("/hooks", Some(json!([{"name": "build_prompt", "arguments": ["tape"]}]))),
            "hooks[0].arguments[0]",
            "which has message, session_id, state, tools, handle",
        ),
        (
            with("/hooks", Some(json!([{"name": "build_prompt", "fail_closed": true}]))),
            "hooks[0].fail_closed",
            "only interception hooks",
        ),
        (with("/hooks", Some(json!([{"name": "system_prompt", "mode": "static"}]))), "hooks[0].text", "is missing"),
        (with("/hooks", Some(json!([{"name": "on_error", "text": "a"}]))), "hooks[0].text", "only system_prompt"),
        (with("/tools", tool(json!({"name": "Big"}))), "tools[0].name", "not a valid name"),
        (with("/tools", tool(json!({"effect": "read"}))), "tools[0].effect", "did you mean reads?"),
        (with("/tools", tool(json!({"effect": "writes"}))), "tools[0].resource", "belong together"),
        (
            with("/tools", tool(json!({"effect": "writes", "resource": "file"}))),
            "tools[0].resource",
            "no property of parameters",
        ),
        (with("/tools", tool(json!({"parameters": {"type": "array"}}))), "tools[0].parameters.type", "object"),
        (with("/tools", tool(json!({"max_concurrent_calls": 0}))), "tools[0].max_concurrent_calls", "at least 1"),
        (with("/tools", tool(json!({"needs_knowledge": "yes"}))), "tools[0].needs_knowledge", "true or false"),
        (
            with("/channels", Some(json!([{"name": "a", "intake": {"debounce": {"quiet_ms": 1}}}]))),
            "channels[0].intake.debounce.max_wait_ms",
            "is missing",
        ),
        (
            with("/channels", Some(json!([{"name": "a", "intake": {"admission": "wait"}}]))),
            "channels[0].intake.admission",
            "none of follow_up",
        ),
        (with("/knowledge", Some(json!([{"id": "a"}]))), "knowledge[0].description", "is missing"),
        (with("/models", Some(json!([{"name": ""}]))), "models[0].name", "must not be empty"),
    ];
    for (manifest, path, reason) in cases {
        let error = parse(manifest.clone()).unwrap_err();
        assert_eq!(error.path, path, "{manifest}: {error}");
        assert!(error.reason.contains(reason), "{path}: {error}");
        assert_eq!(error.code(), ErrorCode::PluginInvalid);
        assert!(!error.hint.is_empty() && error.to_string().lines().count() == 1, "{error}");
    }
}

#[test]
fn g03_text_of_a_manifest_is_shown_short_and_without_control_characters() {
    let long = "x\u{1b}[2J\n".repeat(1000);
    for manifest in [with("/id", Some(json!(long))), with(&format!("/{}", long.replace('/', "~1")), Some(json!(1)))] {
        let error = parse(manifest).unwrap_err().to_string();
        assert!(error.len() < 800 && !error.contains(['\u{1b}', '\n']), "{error}");
    }
}

#[test]
fn h05_every_remote_hook_has_a_name_and_arguments_of_its_own() {
    for hook in RemoteHook::HOOKS {
        let manifest = with("/hooks", Some(json!([{"name": hook.name, "arguments": hook.arguments}])));
        assert_eq!(parse(manifest).unwrap().hooks[0].arguments, hook.arguments, "{}", hook.name);
    }
}

//! Description of a manifest: what a plugin contributes, and what it asks for.

use capstan_protocol::plugin_protocol::{PluginManifest, PluginPromptMode};
use capstan_protocol::{PermissionSet, escape_line};
use serde_json::Value;

/// Lines that describe a manifest.
pub(super) fn describe_manifest(manifest: &PluginManifest) -> Vec<String> {
    let mut lines = vec![format!("{} {}", manifest.id, manifest.version)];
    let mut add = |label: &str, text: String| lines.push(format!("  {label:12} {}", escape_line(&text)));
    if !manifest.description.is_empty() {
        add("", manifest.description.clone());
    }
    add("command", manifest.command.join(" "));
    for runner in &manifest.runners {
        let permissions = describe_permissions(&runner.permissions);
        let permissions = if permissions.is_empty() { "no permissions".to_owned() } else { permissions };
        add("runner", format!("{}: {permissions}", runner.name));
    }
    for hook in &manifest.hooks {
        let detail = match hook.mode {
            PluginPromptMode::Static => "static".to_owned(),
            PluginPromptMode::Dynamic if hook.arguments.is_empty() => "no arguments".to_owned(),
            PluginPromptMode::Dynamic => hook.arguments.join(", "),
        };
        add("hook", format!("{}: {detail}", hook.name));
    }
    for tool in &manifest.tools {
        add("tool", format!("{}: {}", tool.name, tool.description));
    }
    for channel in &manifest.channels {
        add("channel", channel.name.clone());
    }
    for source in &manifest.knowledge {
        add("knowledge", format!("{}: {}", source.id, source.description));
    }
    for provider in &manifest.models {
        add("models", provider.name.clone());
    }
    let access = &manifest.access;
    let asked = [
        ("hooks may", &manifest.permissions),
        ("network", &access.hosts),
        ("reads", &access.read),
        ("writes", &access.write),
    ];
    for (label, names) in asked {
        if !names.is_empty() {
            add(label, names.join(", "));
        }
    }
    lines
}

/// Permissions that differ from none, as `state: conversation`.
fn describe_permissions(permissions: &PermissionSet) -> String {
    let as_object = |set: &PermissionSet| match serde_json::to_value(set) {
        Ok(Value::Object(fields)) => fields,
        _ => capstan_protocol::JsonObject::new(),
    };
    let (asked, none) = (as_object(permissions), as_object(&PermissionSet::none()));
    let given = asked.iter().filter(|(key, value)| none.get(*key) != Some(value));
    let texts = given.map(|(key, value)| match describe_value(value) {
        text if text.is_empty() => key.clone(),
        text => format!("{key} ({text})"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn describe_value(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let names = fields.get("names").filter(|names| *names != "all").map(describe_value);
            let operations = fields.get("operations").or_else(|| fields.get("only")).map(describe_value);
            [operations, names].into_iter().flatten().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" of ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

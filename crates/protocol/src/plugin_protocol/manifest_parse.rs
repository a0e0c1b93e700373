//! Parser of manifests: every problem is reported with the path of its key.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::manifest_table::{ManifestTable, quote, suggestion, type_name};
use super::{
    ManifestError, PLUGIN_PROTOCOL_VERSION, PluginAccessRequest, PluginChannelCapabilities, PluginChannelManifest,
    PluginDebounce, PluginHookManifest, PluginIntake, PluginKnowledgeManifest, PluginManifest, PluginModelManifest,
    PluginPromptMode, PluginRunnerManifest, PluginToolEffect, PluginToolManifest, RemoteHook, remote_hook,
};
use crate::{AdmissionMode, LocalizedText, PermissionSet, RunnerCapabilities};

/// Maximum length of a name.
const MAX_NAME_LEN: usize = 64;
/// Maximum number of contributions of one kind.
const MAX_CONTRIBUTIONS: usize = 256;
const NAME_HINT: &str = "use lower case letters, digits, - and _, beginning with a letter, at most 64 characters";
const PROTOCOL_HINT: &str = "install a version of the plugin for this host, or a newer host";
const COMMAND_HINT: &str = "name the program and its arguments: command = [\"python3\", \"main.py\"]";
const PATH_HINT: &str = "name a file in the folder of the plugin, without ..";
const UNIQUE_HINT: &str = "give every contribution of a kind its own name";
const HOOK_HINT: &str = "docs/plugin-protocol.md lists the hooks of plugin processes and their arguments";
const STATIC_HINT: &str = "a static system_prompt has mode = \"static\" and text; a dynamic one has arguments";
const RESOURCE_HINT: &str = "name the argument whose value is changed with resource, together with effect = \"writes\"";
const SCHEMA_HINT: &str = "a schema is a table, or the name of a JSON file in the folder of the plugin";
const PERMISSION_HINT: &str = "permissions of hooks are note, anchor, send and send:CHANNEL";
/// Name of the plugin of the host itself.
const BUILTIN_NAME: &str = "builtin";

/// Reads a JSON file of the plugin's folder by its relative name.
type ReadSchemaFile<'a> = &'a dyn Fn(&str) -> Result<Value, String>;

impl PluginManifest {
    /// Parses a manifest, which has been converted from TOML. `read_file` returns the content of a JSON file in the
    /// folder of the plugin, for schemas that are files of their own.
    pub fn from_json(value: Value, read_file: impl Fn(&str) -> Result<Value, String>) -> Result<Self, ManifestError> {
        let mut table = ManifestTable::new("", value)?;
        let protocol = table.count("protocol")?;
        if protocol != PLUGIN_PROTOCOL_VERSION {
            let reason = format!("version {protocol} is not supported; this host speaks {PLUGIN_PROTOCOL_VERSION}");
            return Err(ManifestError::new("protocol", reason, PROTOCOL_HINT));
        }
        let manifest = Self {
            id: read_id(&mut table)?,
            version: read_version(&mut table)?,
            protocol,
            command: read_command(&mut table)?,
            description: table.optional_text("description")?.unwrap_or_default(),
            required: table.flag("required")?,
            permissions: read_permissions(&mut table)?,
            config_schema: read_schema(&mut table, "config_schema", &read_file)?,
            access: read_access(&mut table)?,
            runners: table.tables("runners", |table| read_runner(table, &read_file))?,
            hooks: table.tables("hooks", read_hook)?,
            tools: table.tables("tools", |table| read_tool(table, &read_file))?,
            channels: table.tables("channels", read_channel)?,
            knowledge: table.tables("knowledge", read_knowledge)?,
            models: table.tables("models", read_model)?,
        };
        table.finish()?;
        manifest.check_names()?;
        Ok(manifest)
    }

    fn check_names(&self) -> Result<(), ManifestError> {
        check_unique("runners", "name", self.runners.iter().map(|it| it.name.as_str()))?;
        check_unique("hooks", "name", self.hooks.iter().map(|it| it.name.as_str()))?;
        check_unique("tools", "name", self.tools.iter().map(|it| it.name.as_str()))?;
        check_unique("channels", "name", self.channels.iter().map(|it| it.name.as_str()))?;
        check_unique("knowledge", "id", self.knowledge.iter().map(|it| it.id.as_str()))?;
        check_unique("models", "name", self.models.iter().map(|it| it.name.as_str()))
    }
}

fn check_unique<'a>(list: &str, key: &str, names: impl Iterator<Item = &'a str>) -> Result<(), ManifestError> {
    let mut seen = BTreeSet::new();
    for (index, name) in names.enumerate() {
        if index == MAX_CONTRIBUTIONS {
            let reason = format!("has more than {MAX_CONTRIBUTIONS} entries");
            return Err(ManifestError::new(list, reason, UNIQUE_HINT));
        }
        if !seen.insert(name) {
            let path = format!("{list}[{index}].{key}");
            return Err(ManifestError::new(path, format!("{} is declared twice", quote(name)), UNIQUE_HINT));
        }
    }
    Ok(())
}

fn is_name(name: &str, can_have_dots: bool) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    name.len() <= MAX_NAME_LEN
        && name.split('.').all(|part| !part.is_empty())
        && (can_have_dots || !name.contains('.'))
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| is_allowed(c) || c == '.')
}

fn read_name(table: &mut ManifestTable, key: &'static str, can_have_dots: bool) -> Result<String, ManifestError> {
    let name = table.text(key)?;
    if is_name(&name, can_have_dots) {
        Ok(name)
    } else {
        Err(ManifestError::new(table.key_path(key), format!("{} is not a valid name", quote(&name)), NAME_HINT))
    }
}

fn read_id(table: &mut ManifestTable) -> Result<String, ManifestError> {
    let id = table.text("id")?;
    let invalid = |reason: String| ManifestError::new("id", reason, NAME_HINT);
    let Some((author, name)) = id.split_once('/') else {
        return Err(invalid(format!("{} is not of the form AUTHOR/NAME", quote(&id))));
    };
    for part in [author, name] {
        if !is_name(part, false) {
            return Err(invalid(format!("{} is not a valid name", quote(part))));
        }
    }
    if name == BUILTIN_NAME {
        return Err(invalid(format!("the name {BUILTIN_NAME} is that of the host")));
    }
    Ok(id)
}

fn read_version(table: &mut ManifestTable) -> Result<String, ManifestError> {
    let version = table.text("version")?;
    if version.len() <= MAX_NAME_LEN && version.chars().all(|c| c.is_ascii_graphic()) {
        Ok(version)
    } else {
        Err(table.error("version", "must be at most 64 visible ASCII characters without spaces"))
    }
}

fn read_command(table: &mut ManifestTable) -> Result<Vec<String>, ManifestError> {
    let command = table.texts("command")?;
    let Some(program) = command.first() else {
        return Err(ManifestError::new("command", "is missing or empty", COMMAND_HINT));
    };
    if program.contains('/') && !is_inner_path(program) {
        let reason = format!("{} is not a path within the folder of the plugin", quote(program));
        return Err(ManifestError::new("command[0]", reason, PATH_HINT));
    }
    Ok(command)
}

/// Returns true for a relative path that stays in its folder.
fn is_inner_path(path: &str) -> bool {
    let path = std::path::Path::new(path);
    let is_inner = |part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir);
    path.components().all(is_inner)
}

fn read_permissions(table: &mut ManifestTable) -> Result<Vec<String>, ManifestError> {
    let names = table.texts("permissions")?;
    for (index, name) in names.iter().enumerate() {
        let is_known = matches!(name.as_str(), "note" | "anchor" | "send")
            || name.strip_prefix("send:").is_some_and(|channel| !channel.is_empty());
        if !is_known {
            let reason = format!("{} is no permission of hooks", quote(name));
            return Err(ManifestError::new(format!("permissions[{index}]"), reason, PERMISSION_HINT));
        }
    }
    Ok(names)
}

fn read_schema(
    table: &mut ManifestTable,
    key: &'static str,
    read_file: ReadSchemaFile<'_>,
) -> Result<Option<Value>, ManifestError> {
    let invalid = |table: &ManifestTable, reason| ManifestError::new(table.key_path(key), reason, SCHEMA_HINT);
    match table.take(key) {
        None => Ok(None),
        Some(schema @ Value::Object(_)) => Ok(Some(schema)),
        Some(Value::String(name)) if !is_inner_path(&name) || name.is_empty() => {
            let reason = format!("{} is not a path within the folder of the plugin", quote(&name));
            Err(ManifestError::new(table.key_path(key), reason, PATH_HINT))
        }
        Some(Value::String(name)) => match read_file(&name) {
            Ok(schema @ Value::Object(_)) => Ok(Some(schema)),
            Ok(_) => Err(invalid(table, format!("{} is not a JSON object", quote(&name)))),
            Err(error) => Err(invalid(table, format!("{}: {error}", quote(&name)))),
        },
        Some(other) => Err(invalid(table, format!("must be a table or the name of a file, not {}", type_name(&other)))),
    }
}

fn read_access(table: &mut ManifestTable) -> Result<PluginAccessRequest, ManifestError> {
    let mut access = table.table("access")?;
    let request = PluginAccessRequest {
        hosts: access.texts("hosts")?,
        read: access.texts("read")?,
        write: access.texts("write")?,
    };
    for (key, paths) in [("read", &request.read), ("write", &request.write)] {
        if let Some(index) = paths.iter().position(|path| !path.starts_with('/')) {
            return Err(access.error(&format!("{key}[{index}]"), "must be an absolute path"));
        }
    }
    let is_host = |host: &String| !host.contains(|c: char| c.is_whitespace() || c == '/') && !host.contains("://");
    if let Some(index) = request.hosts.iter().position(|host| !is_host(host)) {
        return Err(access.error(&format!("hosts[{index}]"), "must be NAME, NAME:PORT or *.DOMAIN, without a scheme"));
    }
    access.finish()?;
    Ok(request)
}

fn read_runner(
    table: &mut ManifestTable,
    read_file: ReadSchemaFile<'_>,
) -> Result<PluginRunnerManifest, ManifestError> {
    let name = read_name(table, "name", false)?;
    let label = table.parse::<LocalizedText>("label")?;
    Ok(PluginRunnerManifest {
        label: label.ok_or_else(|| table.error("label", "is missing"))?,
        name,
        description: table.parse("description")?,
        capabilities: table.parse_fields("capabilities", &RunnerCapabilities::default())?,
        permissions: table.parse_fields("permissions", &PermissionSet::none())?,
        requires: table.parse_fields("requires", &PermissionSet::none())?,
        config_schema: read_schema(table, "config_schema", read_file)?,
        timeout_seconds: table.optional_count("timeout_seconds")?,
    })
}

fn read_hook(table: &mut ManifestTable) -> Result<PluginHookManifest, ManifestError> {
    const MODES: &[(&str, PluginPromptMode)] =
        &[("static", PluginPromptMode::Static), ("dynamic", PluginPromptMode::Dynamic)];
    let name = table.text("name")?;
    let Some(hook) = remote_hook(&name) else {
        let names: Vec<&str> = RemoteHook::HOOKS.iter().map(|hook| hook.name).collect();
        let reason = format!("{} is no hook of a plugin process{}", quote(&name), suggestion(&name, &names));
        return Err(ManifestError::new(table.key_path("name"), reason, HOOK_HINT));
    };
    let arguments = table.texts("arguments")?;
    for (index, argument) in arguments.iter().enumerate() {
        let path = table.key_path(&format!("arguments[{index}]"));
        if !hook.arguments.contains(&argument.as_str()) {
            let known = hook.arguments.join(", ");
            let reason = format!("{} is no argument of {name}, which has {known}", quote(argument));
            return Err(ManifestError::new(path, reason, HOOK_HINT));
        }
        if arguments[..index].contains(argument) {
            return Err(ManifestError::new(path, format!("{} is declared twice", quote(argument)), UNIQUE_HINT));
        }
    }
    let fail_closed = table.flag("fail_closed")?;
    if fail_closed && !hook.is_interception {
        return Err(ManifestError::new(
            table.key_path("fail_closed"),
            "only interception hooks can fail closed",
            HOOK_HINT,
        ));
    }
    let mode = table.choice("mode", MODES)?;
    let text = table.optional_text("text")?;
    let static_error = |key, reason: &str| Err(ManifestError::new(table.key_path(key), reason, STATIC_HINT));
    if name != RemoteHook::SYSTEM_PROMPT && (mode.is_some() || text.is_some()) {
        return static_error(if text.is_some() { "text" } else { "mode" }, "only system_prompt can be static");
    }
    let mode = mode.unwrap_or_default();
    match (mode, text) {
        (PluginPromptMode::Static, None) => static_error("text", "is missing"),
        (PluginPromptMode::Dynamic, Some(_)) => static_error("text", "a dynamic system_prompt has no text"),
        (PluginPromptMode::Static, Some(_)) if !arguments.is_empty() => {
            static_error("arguments", "a static system_prompt has no arguments")
        }
        (_, text) => Ok(PluginHookManifest { name, arguments, fail_closed, mode, text }),
    }
}

fn read_tool(table: &mut ManifestTable, read_file: ReadSchemaFile<'_>) -> Result<PluginToolManifest, ManifestError> {
    const EFFECTS: &[(&str, PluginToolEffect)] = &[
        ("none", PluginToolEffect::None),
        ("reads", PluginToolEffect::Reads),
        ("writes", PluginToolEffect::Writes),
        ("unrestricted", PluginToolEffect::Unrestricted),
    ];
    let name = read_name(table, "name", true)?;
    let description = table.text("description")?;
    let no_arguments = || json!({"type": "object", "properties": {}});
    let parameters = read_schema(table, "parameters", read_file)?.unwrap_or_else(no_arguments);
    if parameters.get("type").is_some_and(|kind| kind != "object") {
        return Err(ManifestError::new(table.key_path("parameters.type"), "must be \"object\"", SCHEMA_HINT));
    }
    let effect = table.choice("effect", EFFECTS)?.unwrap_or_default();
    let resource = table.optional_text("resource")?;
    if (effect == PluginToolEffect::Writes) != resource.is_some() {
        let reason = "effect = \"writes\" and resource belong together";
        return Err(ManifestError::new(table.key_path("resource"), reason, RESOURCE_HINT));
    }
    if let Some(argument) = &resource
        && parameters.pointer("/properties").and_then(|properties| properties.get(argument)).is_none()
    {
        let reason = format!("{} is no property of parameters", quote(argument));
        return Err(ManifestError::new(table.key_path("resource"), reason, RESOURCE_HINT));
    }
    Ok(PluginToolManifest {
        name,
        description,
        parameters,
        effect,
        resource,
        max_concurrent_calls: table.optional_count("max_concurrent_calls")?,
        needs_trusted_origin: table.flag("needs_trusted_origin")?,
        needs_knowledge: table.flag("needs_knowledge")?,
        command_only: table.flag("command_only")?,
        has_own_deadline: table.flag("has_own_deadline")?,
    })
}

fn read_channel(table: &mut ManifestTable) -> Result<PluginChannelManifest, ManifestError> {
    let name = read_name(table, "name", false)?;
    let mut capabilities = table.table("capabilities")?;
    let media = capabilities.flag("media")?;
    capabilities.finish()?;
    let capabilities = PluginChannelCapabilities { media };
    let mut intake = table.table("intake")?;
    let admission = intake.choice("admission", &AdmissionMode::MODES.map(|mode| (mode.as_str(), mode)))?;
    let debounce = match intake.take("debounce") {
        None => None,
        Some(value) => {
            let mut table = ManifestTable::new(intake.key_path("debounce"), value)?;
            let debounce = PluginDebounce {
                quiet_ms: table.count("quiet_ms")?,
                max_wait_ms: table.count("max_wait_ms")?,
                active_window_ms: table.optional_count("active_window_ms")?,
            };
            table.finish()?;
            Some(debounce)
        }
    };
    intake.finish()?;
    Ok(PluginChannelManifest { name, capabilities, intake: PluginIntake { admission, debounce } })
}

fn read_knowledge(table: &mut ManifestTable) -> Result<PluginKnowledgeManifest, ManifestError> {
    Ok(PluginKnowledgeManifest { id: read_name(table, "id", false)?, description: table.text("description")? })
}

fn read_model(table: &mut ManifestTable) -> Result<PluginModelManifest, ManifestError> {
    Ok(PluginModelManifest { name: read_name(table, "name", false)? })
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;

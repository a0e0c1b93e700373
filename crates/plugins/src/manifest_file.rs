//! Reads the manifest of a plugin from its folder.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use capstan_protocol::plugin_protocol::{ManifestError, PLUGIN_MANIFEST_FILE, PluginManifest};
use serde_json::Value;

use crate::PluginError;

/// Maximum size of a manifest, and of a schema in a file of its own.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
const FILE_HINT: &str = "a plugin is a folder with a file plugin.toml; docs/plugin-protocol.md describes it";
const TOML_HINT: &str = "correct the syntax of the file at the given line";
const SCHEMA_HINT: &str = "correct the schema, which must be JSON Schema";

/// Reads the manifest in the folder of a plugin. Nothing is started.
pub fn read_manifest(folder: &Path) -> Result<PluginManifest, PluginError> {
    parse_folder(folder).map_err(|error| PluginError::Invalid { folder: folder.display().to_string(), error })
}

fn parse_folder(folder: &Path) -> Result<PluginManifest, ManifestError> {
    let text = read_file(&folder.join(PLUGIN_MANIFEST_FILE))
        .map_err(|error| ManifestError::new("", format!("{PLUGIN_MANIFEST_FILE}: {error}"), FILE_HINT))?;
    let value: toml::Value = toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        let message = error.message().lines().next().unwrap_or_default().to_owned();
        ManifestError::new("", format!("{PLUGIN_MANIFEST_FILE}, line {line}: {message}"), TOML_HINT)
    })?;
    let value = serde_json::to_value(value)
        .map_err(|error| ManifestError::new("", format!("{PLUGIN_MANIFEST_FILE}: {error}"), TOML_HINT))?;
    let manifest = PluginManifest::from_json(value, |name| {
        let text = read_file(&folder.join(name))?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    })?;
    check_schemas(&manifest)?;
    Ok(manifest)
}

fn read_file(path: &Path) -> Result<String, String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err("not a file".to_owned());
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_FILE_BYTES { Err("larger than 1 MiB".to_owned()) } else { Ok(text) }
}

/// Refuses schemas that are no JSON Schema.
fn check_schemas(manifest: &PluginManifest) -> Result<(), ManifestError> {
    let settings = manifest.config_schema.iter().map(|schema| ("config_schema".to_owned(), schema));
    let runners = manifest.runners.iter().enumerate().filter_map(|(index, runner)| {
        runner.config_schema.as_ref().map(|schema| (format!("runners[{index}].config_schema"), schema))
    });
    let tools =
        manifest.tools.iter().enumerate().map(|(index, tool)| (format!("tools[{index}].parameters"), &tool.parameters));
    settings.chain(runners).chain(tools).try_for_each(|(path, schema)| check_schema(path, schema))
}

fn check_schema(path: String, schema: &Value) -> Result<(), ManifestError> {
    match jsonschema::validator_for(schema) {
        Ok(_) => Ok(()),
        Err(error) => Err(ManifestError::new(path, format!("not a valid schema: {error}"), SCHEMA_HINT)),
    }
}

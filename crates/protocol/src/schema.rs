//! JSON Schemas of the protocol, generated from its types.
//!
//! `capstan.json` is the bundle: all types under `$defs`, including the requests and responses of the run API. The
//! other files describe one type each, for validators.
//!
//! Code generators get usable names: a tagged enum is a `oneOf` of named definitions with a `discriminator`, as in
//! OpenAPI.

use schemars::generate::SchemaSettings;
use schemars::{Schema, json_schema, schema_for};
use serde_json::{Map, Value, json};

use crate::plugin_protocol::{
    PluginChannelEnded, PluginChannelError, PluginChannelEvent, PluginChannelSend, PluginChannelStart,
    PluginChannelStop, PluginHookAnswer, PluginHookCall, PluginInitialize, PluginInitialized, PluginIntakeError,
    PluginKnowledgePassages, PluginKnowledgeSearch, PluginLog, PluginManifest, PluginModelError, PluginModelStream,
    PluginProgress, PluginRequestCancel, PluginRunCall, PluginRunCancel, PluginRunResult, PluginRunStart,
    PluginShutdown, PluginStreamCredit, PluginStreamItem, PluginToolCall,
};
use crate::run_api::{ApiRequest, ApiResponse};
use crate::{
    ApiError, Binding, Descriptor, Event, Grant, ModelRequest, OutboundMessage, Outcome, RunContext, RunResult,
    StreamEvent, ToolOutput,
};

/// Schema and its file name.
pub struct SchemaFile {
    /// File name under `schema/`.
    pub file: &'static str,
    /// Content of the file.
    pub schema: Value,
}

/// All schemas that are checked in.
pub fn schema_files() -> Vec<SchemaFile> {
    let document = |file, schema| SchemaFile { file, schema: finish_document(&schema) };
    vec![
        SchemaFile { file: "capstan.json", schema: bundle() },
        document("binding.json", schema_for!(Binding)),
        document("descriptor.json", schema_for!(Descriptor)),
        document("event.json", schema_for!(Event)),
        document("grant.json", schema_for!(Grant)),
        document("model_request.json", schema_for!(ModelRequest)),
        document("outbound.json", schema_for!(OutboundMessage)),
        document("outcome.json", schema_for!(Outcome)),
        document("run_context.json", schema_for!(RunContext)),
        document("run_result.json", schema_for!(RunResult)),
        document("stream_event.json", schema_for!(StreamEvent)),
    ]
}

/// Document with all types.
fn bundle() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    macro_rules! define {
        ($($Type:ty),+ $(,)?) => { $(generator.subschema_for::<$Type>();)+ };
    }
    define!(
        ApiError,
        ApiRequest,
        ApiResponse,
        Binding,
        Descriptor,
        Event,
        Grant,
        ModelRequest,
        OutboundMessage,
        Outcome,
        PluginChannelEnded,
        PluginChannelError,
        PluginChannelEvent,
        PluginChannelSend,
        PluginChannelStart,
        PluginChannelStop,
        PluginHookAnswer,
        PluginHookCall,
        PluginInitialize,
        PluginInitialized,
        PluginIntakeError,
        PluginKnowledgePassages,
        PluginKnowledgeSearch,
        PluginLog,
        PluginManifest,
        PluginModelError,
        PluginModelStream,
        PluginProgress,
        PluginRequestCancel,
        PluginRunCall,
        PluginRunCancel,
        PluginRunResult,
        PluginRunStart,
        PluginShutdown,
        PluginStreamCredit,
        PluginStreamItem,
        PluginToolCall,
        RunContext,
        RunResult,
        StreamEvent,
        ToolOutput,
    );
    let definitions = generator.take_definitions(true);
    finish_document(&json_schema!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Capstan",
        "description": "The types of the Capstan protocol, by name.",
        "$defs": definitions,
    }))
}

/// Names the variants of tagged enums in a document.
fn finish_document(schema: &Schema) -> Value {
    // Serialisation puts titles and descriptions first.
    let Ok(Value::Object(mut root)) = serde_json::to_value(schema) else { return Value::Bool(true) };
    let mut definitions = match root.shift_remove(DEFINITIONS) {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    name_variants(&mut definitions);
    let title = root.get("title").and_then(Value::as_str).unwrap_or_default().to_owned();
    name_variants_of(&title, &mut root, &mut definitions);
    definitions.sort_keys();
    if !definitions.is_empty() {
        root.insert(DEFINITIONS.to_owned(), Value::Object(definitions));
    }
    Value::Object(root)
}

const DEFINITIONS: &str = "$defs";

/// Names the variants of all tagged enums.
fn name_variants(definitions: &mut Map<String, Value>) {
    let names: Vec<String> = definitions.keys().cloned().collect();
    for name in names {
        if let Some(Value::Object(mut definition)) = definitions.get_mut(&name).map(Value::take) {
            name_variants_of(&name, &mut definition, definitions);
            definitions.insert(name, Value::Object(definition));
        }
    }
}

/// Moves the variants of a tagged enum to definitions named after the enum and the tag: `StreamEventText`. Leaves other
/// schemas unchanged.
fn name_variants_of(name: &str, schema: &mut Map<String, Value>, definitions: &mut Map<String, Value>) {
    let Some((list, tag)) =
        ["oneOf", "anyOf"].into_iter().find_map(|list| Some((list, common_tag(schema.get(list)?)?)))
    else {
        return;
    };
    let Some(Value::Array(variants)) = schema.shift_remove(list) else { return };
    let (mut references, mut mapping) = (Vec::new(), Map::new());
    for variant in variants {
        let value = tag_value(&variant, &tag).unwrap_or_default().to_owned();
        let variant_name = format!("{name}{}", pascal_case(&value));
        let reference = format!("#/{DEFINITIONS}/{variant_name}");
        references.push(json!({ "$ref": reference }));
        mapping.insert(value, Value::String(reference));
        definitions.insert(variant_name, variant);
    }
    // The tag excludes all other variants, so `oneOf` replaces `anyOf`.
    schema.insert("oneOf".to_owned(), Value::Array(references));
    schema.insert("discriminator".to_owned(), json!({ "propertyName": tag, "mapping": mapping }));
}

/// Property that is a constant in every variant, if there is one.
fn common_tag(variants: &Value) -> Option<String> {
    let variants = variants.as_array()?;
    let candidates = variants.first()?.get("properties")?.as_object()?.keys();
    let is_tag = |property: &&String| variants.iter().all(|variant| tag_value(variant, property).is_some());
    candidates.into_iter().find(is_tag).cloned()
}

fn tag_value<'a>(variant: &'a Value, tag: &str) -> Option<&'a str> {
    variant.get("properties")?.get(tag)?.get("const")?.as_str()
}

/// Converts `tool.call.started` to `ToolCallStarted`.
fn pascal_case(text: &str) -> String {
    let words = text.split(['.', '_', '-']).filter(|word| !word.is_empty());
    words.map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

//! The tools that models are offered: one that a provider refuses would fail every call of every session.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::Tool;
use capstan_hooks::points::ProvideTools;
use capstan_protocol::{PluginName, ToolSpec};

/// How long a name may be: no provider allows more than the shortest of them.
const MAX_OFFERED_TOOL_NAME_LEN: usize = 64;

/// The tools that plugins provide, and which plugin each is of, without those that cannot be offered; of these somebody is told.
pub(crate) fn collect_tools(hooks: &HookRuntime) -> Vec<(PluginName, Arc<dyn Tool>)> {
    let mut taken = HashSet::new();
    let mut tools =
        hooks.collect_provided_with_plugin::<ProvideTools, Arc<dyn Tool>>(|tool| tool.spec().name.to_string());
    tools.retain(|(_, tool)| {
        let spec = tool.spec();
        let fault = spec_error(&spec).or_else(|| {
            let is_free = taken.insert(spec.name.model_name());
            (!is_free).then_some("a tool that goes before it has the same name for a model")
        });
        if let Some(reason) = fault {
            tracing::warn!(tool = %spec.name, reason, "a tool is left out");
        }
        fault.is_none()
    });
    tools
}

/// Where each tool stands, by its own name and by the one a model was given. An own name goes before.
pub(crate) fn index_by_name(tools: &[Arc<dyn Tool>]) -> HashMap<String, usize> {
    let names = || tools.iter().map(|tool| tool.spec().name).enumerate();
    let given = names().map(|(place, name)| (name.model_name(), place));
    given.chain(names().map(|(place, name)| (name.to_string(), place))).collect()
}

/// Why a tool cannot be offered to every model, if it cannot.
fn spec_error(spec: &ToolSpec) -> Option<&'static str> {
    let name = spec.name.model_name();
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    if !begins || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-')) {
        return Some("its name must begin with a letter and have only letters, digits, `.`, `_` and `-`");
    }
    if name.len() > MAX_OFFERED_TOOL_NAME_LEN {
        return Some("its name has more than 64 letters");
    }
    let is_object = spec.parameters.get("type").is_some_and(|kind| kind == "object");
    (!is_object).then_some("the schema of its arguments is not of the type object")
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ToolName, ToolSpec};
    use serde_json::{Value, json};

    use super::spec_error;

    fn spec(name: &str, parameters: Value) -> ToolSpec {
        ToolSpec { name: ToolName::new(name), description: String::new(), parameters: parameters.into() }
    }

    #[test]
    fn a04_only_what_every_provider_takes_is_offered() {
        let longest = "x".repeat(64);
        for name in ["fs.read", "mcp-tool_1", "_x", &longest] {
            assert_eq!(spec_error(&spec(name, json!({"type": "object"}))), None, "{name}");
        }
        let too_long = "x".repeat(65);
        for name in ["", "a/b", "1st", "größe", "a b", "-x", &too_long] {
            assert!(spec_error(&spec(name, json!({"type": "object"}))).is_some(), "{name}");
        }
        for schema in [json!({}), json!(true), json!({"type": "string"}), json!({"type": ["object", "null"]})] {
            assert!(spec_error(&spec("x", schema.clone())).is_some(), "{schema}");
        }
    }
}

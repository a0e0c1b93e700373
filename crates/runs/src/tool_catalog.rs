//! Catalog of the tools that models are offered and people call. A tool that a provider refuses would fail every call of every session.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use capstan_hooks::contracts::Tool;
use capstan_hooks::points::ProvideTools;
use capstan_hooks::{HookRuntime, PluginIdentity};
use capstan_protocol::{AllowList, PluginName, ToolSpec};

/// Maximum length of a name: the smallest limit of all providers.
const MAX_OFFERED_TOOL_NAME_LEN: usize = 64;

/// Tools that models are offered, and those for people only.
pub struct ToolCatalog {
    tools: Vec<Arc<dyn Tool>>,
    /// Plugin of each tool, in the same order.
    plugins: Vec<PluginIdentity>,
    /// Specification of each tool, in the same order.
    specs: Arc<[ToolSpec]>,
    /// Specifications of the tools that are not for people only.
    model_specs: Arc<[ToolSpec]>,
    /// Own names of the tools that events of remote origin get by default.
    remote_tools: AllowList,
    /// Position of each tool, by its own name and by its name for models.
    by_name: HashMap<String, usize>,
}

impl ToolCatalog {
    /// Catalog of the tools that plugins provide. Tools that search knowledge are skipped if there is no knowledge
    /// base.
    pub fn from_hooks(hooks: &HookRuntime, has_knowledge: bool) -> Self {
        let mut offered = collect_tools(hooks);
        offered.retain(|(_, tool)| !tool.needs_knowledge() || has_knowledge);
        let identify = |(plugin, tool)| Some((hooks.registry().identity(&plugin)?.clone(), tool));
        let (plugins, tools): (Vec<_>, Vec<_>) = offered.into_iter().filter_map(identify).unzip();
        Self {
            by_name: index_by_name(&tools),
            remote_tools: remote_tools(&tools),
            specs: tools.iter().map(|tool| tool.spec()).collect(),
            model_specs: tools.iter().filter(|tool| !tool.is_command_only()).map(|tool| tool.spec()).collect(),
            tools,
            plugins,
        }
    }

    /// Specifications of all tools, for a run of a comma command.
    pub fn specs(&self) -> &Arc<[ToolSpec]> {
        &self.specs
    }

    /// Specifications of the tools that models are offered.
    pub fn model_specs(&self) -> &Arc<[ToolSpec]> {
        &self.model_specs
    }

    /// Own names of the tools that events of remote origin get by default: all but those that need a trusted origin.
    pub fn remote_tools(&self) -> &AllowList {
        &self.remote_tools
    }

    /// Tool by its own name or by its name for models.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// Plugin of a tool, by the tool's own name or its name for models.
    pub(crate) fn plugin(&self, name: &str) -> Option<&PluginIdentity> {
        self.plugins.get(*self.by_name.get(name)?)
    }

    /// Names of the tools of these plugins; fails for a plugin without tools. A LangBot plugin name contains an author.
    pub fn names_of_plugins(&self, plugins: &[String]) -> Result<Vec<String>, String> {
        let mut names = Vec::new();
        for wanted in plugins {
            let name_without_author = wanted.rsplit_once('/').map(|(_, name)| name);
            let is_wanted =
                |plugin: &PluginName| plugin.as_str() == wanted || Some(plugin.as_str()) == name_without_author;
            let tools = self.tools.iter().zip(&self.plugins).filter(|(_, plugin)| is_wanted(&plugin.name));
            let count_before = names.len();
            names.extend(tools.map(|(tool, _)| tool.spec().name.to_string()));
            if names.len() == count_before {
                let known: BTreeSet<&str> = self.plugins.iter().map(|plugin| plugin.name.as_str()).collect();
                let known: Vec<&str> = known.into_iter().collect();
                return Err(format!("no plugin {wanted} has tools here; known: {}", known.join(", ")));
            }
        }
        Ok(names)
    }
}

/// Collects the tools that plugins provide, each with its plugin. A tool that cannot be offered is skipped with a
/// warning.
fn collect_tools(hooks: &HookRuntime) -> Vec<(PluginName, Arc<dyn Tool>)> {
    let mut model_names = HashSet::new();
    let mut tools =
        hooks.collect_provided_with_plugin::<ProvideTools, Arc<dyn Tool>>(|tool| tool.spec().name.to_string());
    tools.retain(|(_, tool)| {
        let spec = tool.spec();
        let problem = spec_error(&spec).or_else(|| {
            let is_free = model_names.insert(spec.name.model_name());
            (!is_free).then_some("a tool with higher precedence has the same name for models")
        });
        if let Some(reason) = problem {
            tracing::warn!(tool = %spec.name, reason, "skipping a tool");
        }
        problem.is_none()
    });
    tools
}

/// Own names of the tools that do not need a trusted origin.
fn remote_tools(tools: &[Arc<dyn Tool>]) -> AllowList {
    let offered = tools.iter().filter(|tool| !tool.needs_trusted_origin());
    AllowList::only(offered.map(|tool| tool.spec().name.to_string()))
}

/// Maps names to positions: own names and names for models. Own names take precedence.
fn index_by_name(tools: &[Arc<dyn Tool>]) -> HashMap<String, usize> {
    let names = || tools.iter().map(|tool| tool.spec().name).enumerate();
    let model_names = names().map(|(position, name)| (name.model_name(), position));
    model_names.chain(names().map(|(position, name)| (name.to_string(), position))).collect()
}

/// Reason why a tool cannot be offered to every model, if there is one.
fn spec_error(spec: &ToolSpec) -> Option<&'static str> {
    let name = spec.name.model_name();
    let has_valid_start = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    if !has_valid_start || !name.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-')) {
        return Some("its name must begin with a letter or `_` and contain only letters, digits, `.`, `_` and `-`");
    }
    if name.len() > MAX_OFFERED_TOOL_NAME_LEN {
        return Some("its name has more than 64 characters");
    }
    let is_object = spec.parameters.get("type").is_some_and(|kind| kind == "object");
    (!is_object).then_some("the schema of its arguments does not have the type object")
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
    fn a04_only_tools_that_every_provider_accepts_are_offered() {
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

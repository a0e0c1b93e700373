//! Configuration of a runner in a binding: its schema, and the resources that it names.
//!
//! A property of a schema that names a resource carries [`RESOURCE_KEYWORD`], so that a binding whose configuration names
//! a model or a tool outside of its own policy is refused when it is saved. A `default` of such a property stands for the
//! name that the runner uses if the property is absent.

use capstan_protocol::{Binding, Descriptor, ModelId, ModelOperation, PermissionSet, ToolName, ToolOperation};
use serde_json::Value;

/// Keyword of a schema whose value is the name of a resource: `model` or `tool`.
pub const RESOURCE_KEYWORD: &str = "x-capstan-resource";

/// Keyword of a property whose value is a limit that the host enforces: `steps`, the maximum number of model calls of a run
/// and its child runs.
pub const LIMIT_KEYWORD: &str = "x-capstan-limit";

/// Maximum number of problems of a configuration in one message.
const MAX_REPORTED_PROBLEMS: usize = 3;

/// Kind of a resource that a configuration can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResourceKind {
    Model,
    Tool,
}

/// A resource that a configuration names.
#[derive(Debug, PartialEq, Eq)]
struct NamedResource<'a> {
    kind: ResourceKind,
    /// Path of the property, such as `fallbacks.0`.
    path: String,
    name: &'a str,
}

/// Validator of the configuration of one runner.
pub struct RunnerConfigValidator {
    /// The compiled schema, or the reason why it cannot be compiled; `None`: the runner takes no configuration.
    schema: Option<Result<jsonschema::Validator, String>>,
}

impl RunnerConfigValidator {
    /// Compiles the schema of a runner.
    pub fn new(runner: &Descriptor) -> Self {
        let compile = |schema| jsonschema::validator_for(schema).map_err(|error| error.to_string());
        Self { schema: runner.config_schema.as_ref().map(compile) }
    }

    /// Checks the configuration of a binding, or returns the problem.
    pub(super) fn check(&self, binding: &Binding, runner: &Descriptor) -> Result<(), String> {
        let validator = match &self.schema {
            Some(Ok(validator)) => validator,
            Some(Err(error)) => {
                return Err(format!("the config schema of the runner {} is not valid: {error}", runner.id));
            }
            None => {
                return match binding.runner_config.keys().next() {
                    None => Ok(()),
                    Some(key) => Err(format!("the runner {} takes no configuration, and {key} is set", runner.id)),
                };
            }
        };
        let config = Value::Object(binding.runner_config.clone());
        let problems: Vec<String> = validator
            .iter_errors(&config)
            .take(MAX_REPORTED_PROBLEMS)
            .map(|error| match error.instance_path().to_string() {
                path if path.is_empty() => error.to_string(),
                path => format!("{}: {error}", path.trim_start_matches('/').replace('/', ".")),
            })
            .collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(format!("its runner_config does not fit: {}", problems.join("; ")))
    }
}

/// Checks that a binding grants every resource that the configuration names: otherwise every run would fail, or do less
/// than the binding says.
pub(super) fn check_named_resources(binding: &Binding, runner: &Descriptor) -> Result<(), String> {
    let Some(schema) = &runner.config_schema else { return Ok(()) };
    let config = Value::Object(binding.runner_config.clone());
    let cap = runner.permissions.intersect(&binding.max_permissions());
    let outside = named_resources(schema, &config).into_iter().find(|resource| !is_granted(&cap, runner, resource));
    outside.map_or(Ok(()), |NamedResource { kind, path, name }| {
        let is_set = config.pointer(&format!("/{}", path.replace('.', "/"))).is_some();
        let (policy, plural) = match kind {
            ResourceKind::Model => ("resource_policy.models", "model"),
            ResourceKind::Tool => ("resource_policy.tools", "tool"),
        };
        Err(if is_set {
            format!("runner_config.{path} names the {plural} {name}, which {policy} does not grant")
        } else {
            format!("{policy} does not grant {name}, the {plural} that the runner uses unless runner_config.{path} names another")
        })
    })
}

/// Checks that the models of the configuration have a provider.
pub(super) fn check_model_providers(
    binding: &Binding,
    runners: &[Descriptor],
    providers: &[String],
) -> Result<(), String> {
    let runner = runners.iter().find(|runner| runner.id == binding.runner_id);
    let Some(schema) = runner.and_then(|runner| runner.config_schema.as_ref()) else { return Ok(()) };
    let config = Value::Object(binding.runner_config.clone());
    let is_unknown = |resource: &NamedResource<'_>| {
        let provider = resource.name.parse::<ModelId>().map(|model| model.provider().to_owned());
        resource.kind == ResourceKind::Model && !provider.is_ok_and(|provider| providers.contains(&provider))
    };
    let is_set =
        |resource: &NamedResource<'_>| config.pointer(&format!("/{}", resource.path.replace('.', "/"))).is_some();
    match named_resources(schema, &config).into_iter().find(|resource| is_set(resource) && is_unknown(resource)) {
        None => Ok(()),
        Some(NamedResource { path, name, .. }) => Err(format!(
            "runner_config.{path} names the model {name}, whose provider is not there; known: {}",
            providers.join(", ")
        )),
    }
}

/// Checks that the tools of the configuration are there. A tool has a name of its own and one for models.
pub(super) fn check_known_tools(binding: &Binding, runners: &[Descriptor], tools: &[String]) -> Result<(), String> {
    let runner = runners.iter().find(|runner| runner.id == binding.runner_id);
    let Some(schema) = runner.and_then(|runner| runner.config_schema.as_ref()) else { return Ok(()) };
    let config = Value::Object(binding.runner_config.clone());
    let is_set =
        |resource: &NamedResource<'_>| config.pointer(&format!("/{}", resource.path.replace('.', "/"))).is_some();
    let is_unknown =
        |resource: &NamedResource<'_>| resource.kind == ResourceKind::Tool && !is_tool(tools, resource.name);
    match named_resources(schema, &config).into_iter().find(|resource| is_set(resource) && is_unknown(resource)) {
        None => Ok(()),
        Some(NamedResource { path, name, .. }) => {
            Err(format!("runner_config.{path} names the tool {name}, which is not there; known: {}", tools.join(", ")))
        }
    }
}

/// Returns true if a tool has this name, of its own or for models.
pub(super) fn is_tool(tools: &[String], name: &str) -> bool {
    tools.iter().any(|tool| tool == name || ToolName::new(tool).model_name() == name)
}

/// Maximum number of steps that the configuration of a binding sets, if the runner has a property for it.
pub fn step_limit(binding: &Binding, runner: &Descriptor) -> Option<u64> {
    let properties = runner.config_schema.as_ref()?.get("properties")?.as_object()?;
    let limits =
        properties.iter().filter(|(_, schema)| schema.get(LIMIT_KEYWORD).is_some_and(|limit| limit == "steps"));
    limits.filter_map(|(name, _)| binding.runner_config.get(name)?.as_u64()).min()
}

/// A model is needed for the operations that the runner requires, by default for `stream`.
fn is_granted(cap: &PermissionSet, runner: &Descriptor, resource: &NamedResource<'_>) -> bool {
    match resource.kind {
        ResourceKind::Model => {
            let required = runner.requires.models.operations;
            let operation = required.iter().next().unwrap_or(ModelOperation::Stream);
            cap.models.allows(operation, resource.name)
        }
        ResourceKind::Tool => cap.tools.allows(ToolOperation::Call, resource.name),
    }
}

/// Resources that a configuration names, and those that a runner uses by default.
fn named_resources<'a>(schema: &'a Value, config: &'a Value) -> Vec<NamedResource<'a>> {
    let mut found = Vec::new();
    collect_resources(schema, schema, Some(config), "", &mut found);
    found
}

fn collect_resources<'a>(
    root: &'a Value,
    schema: &'a Value,
    value: Option<&'a Value>,
    path: &str,
    found: &mut Vec<NamedResource<'a>>,
) {
    let schema = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| root.pointer(reference.strip_prefix('#')?))
        .unwrap_or(schema);
    let kind = match schema.get(RESOURCE_KEYWORD).and_then(Value::as_str) {
        Some("model") => Some(ResourceKind::Model),
        Some("tool") => Some(ResourceKind::Tool),
        _ => None,
    };
    let named = value.filter(|value| !value.is_null()).or_else(|| schema.get("default")).and_then(Value::as_str);
    if let (Some(kind), Some(name)) = (kind, named) {
        found.push(NamedResource { kind, path: path.to_owned(), name });
    }
    let child_path = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let value = value.and_then(|value| value.get(name));
        collect_resources(root, property, value, &child_path(name), found);
    }
    if let Some(items) = schema.get("items") {
        for (index, item) in value.and_then(Value::as_array).into_iter().flatten().enumerate() {
            collect_resources(root, items, Some(item), &child_path(&index.to_string()), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{Binding, Descriptor, PermissionSet};
    use serde_json::{Value, json};

    use super::{check_model_providers, check_named_resources, step_limit};
    use crate::default_binding;

    fn runner() -> Descriptor {
        let schema = json!({
            "properties": {
                "model": {"type": "string", "x-capstan-resource": "model", "default": "demo:"},
                "fallbacks": {"items": {"$ref": "#/$defs/model"}},
                "tools": {"items": {"x-capstan-resource": "tool"}},
            },
            "$defs": {"model": {"x-capstan-resource": "model"}},
        });
        let permissions = PermissionSet::all();
        Descriptor { config_schema: Some(schema), permissions, ..Descriptor::new("builtin:agent", "Agent") }
    }

    fn binding(config: &Value, policy: Value) -> Binding {
        let runner_config = config.as_object().cloned().unwrap();
        Binding { runner_config, resource_policy: serde_json::from_value(policy).unwrap(), ..default_binding() }
    }

    #[test]
    fn g02_a_policy_covers_the_models_and_tools_of_the_configuration() {
        let problem = |config: Value, policy| check_named_resources(&binding(&config, policy), &runner()).err();
        let only_x = || json!({"models": {"only": ["openai:x"]}});
        assert_eq!(problem(json!({}), json!({})), None);
        assert_eq!(problem(json!({"model": "openai:x"}), only_x()), None);
        assert_eq!(
            problem(json!({}), only_x()).unwrap(),
            "resource_policy.models does not grant demo:, the model that the runner uses unless runner_config.model names another"
        );
        assert_eq!(
            problem(json!({"model": "openai:x", "fallbacks": ["openai:x", "openai:y"]}), only_x()).unwrap(),
            "runner_config.fallbacks.1 names the model openai:y, which resource_policy.models does not grant"
        );
        assert_eq!(
            problem(json!({"tools": ["bash"]}), json!({"tools": {"only": ["help"]}})).unwrap(),
            "runner_config.tools.0 names the tool bash, which resource_policy.tools does not grant"
        );
        assert_eq!(problem(json!({"tools": ["help"]}), json!({"tools": {"only": ["help"]}})), None);
    }

    #[test]
    fn g02_a_step_limit_is_a_property_with_the_keyword() {
        let limit = |keyword: &str| {
            let schema = json!({"properties": {"turns": {"x-capstan-limit": keyword}, "max_steps": {}}});
            let runner = Descriptor { config_schema: Some(schema), ..runner() };
            step_limit(&binding(&json!({"turns": 4, "max_steps": 2}), json!({})), &runner)
        };
        assert_eq!((limit("steps"), limit("other")), (Some(4), None));
    }

    #[test]
    fn g02_the_models_of_a_configuration_have_a_provider() {
        let problem = |config: Value| {
            check_model_providers(&binding(&config, json!({})), &[runner()], &["demo".to_owned(), "house".to_owned()])
                .err()
        };
        assert_eq!(problem(json!({"model": "house:x"})), None);
        assert_eq!(
            problem(json!({"model": "nowhere:x"})).unwrap(),
            "runner_config.model names the model nowhere:x, whose provider is not there; known: demo, house"
        );
    }
}

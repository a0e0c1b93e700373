//! Comparison of required permissions with granted ones.

use serde_json::Value;

use crate::{AllowList, OperationSet, PermissionSet, ResourceAccess, ResourceOperation};

impl PermissionSet {
    /// Required permissions that this set lacks, written as in a policy.
    ///
    /// For models, tools, knowledge bases and actions, [`AllowList::All`] requires at least one.
    pub fn missing_permissions(&self, required: &Self) -> Vec<String> {
        let mut missing = Vec::new();
        missing.extend(missing_access("models", &self.models, &required.models));
        missing.extend(missing_access("tools", &self.tools, &required.tools));
        missing.extend(missing_access("knowledge_bases", &self.knowledge_bases, &required.knowledge_bases));
        missing.extend(missing_operations("history", self.history, required.history));
        missing.extend(missing_operations("events", self.events, required.events));
        missing.extend(missing_level("reach", &self.reach, &required.reach));
        missing.extend(missing_operations("artifacts", self.artifacts, required.artifacts));
        missing.extend(missing_operations("state", self.state, required.state));
        missing.extend(missing_operations("storage", self.storage, required.storage));
        // An empty list requires nothing; `AllowList::All` requires at least one action.
        if required.platform_api != AllowList::none() {
            missing.extend(missing_names("platform_api", &self.platform_api, &required.platform_api));
        }
        missing.extend(missing_level("tape", &self.tape, &required.tape));
        missing.extend(missing_level("prompt", &self.prompt, &required.prompt));
        missing.extend(missing_level("children", &self.children, &required.children));
        missing.extend(missing_level("steering", &self.steering, &required.steering));
        missing
    }
}

fn missing_access<O: ResourceOperation + serde::Serialize>(
    field: &str,
    granted: &ResourceAccess<O>,
    required: &ResourceAccess<O>,
) -> Option<String> {
    if required.operations.is_empty() {
        return None;
    }
    missing_operations(field, granted.operations, required.operations)
        .or_else(|| missing_names(field, &granted.names, &required.names))
}

fn missing_names(field: &str, granted: &AllowList, required: &AllowList) -> Option<String> {
    match required {
        AllowList::All if *granted == AllowList::none() => Some(format!("any of the {field}")),
        AllowList::All => None,
        AllowList::Only(names) => {
            let missing: Vec<&str> = names.iter().filter(|name| !granted.allows(name)).map(String::as_str).collect();
            (!missing.is_empty()).then(|| format!("{} of the {field}", missing.join(", ")))
        }
    }
}

fn missing_operations<O: ResourceOperation + serde::Serialize>(
    field: &str,
    granted: OperationSet<O>,
    required: OperationSet<O>,
) -> Option<String> {
    let missing: Vec<String> = required
        .iter()
        .filter(|operation| !granted.contains(operation))
        .map(|operation| to_policy_text(&operation))
        .collect();
    (!missing.is_empty()).then(|| format!("{} of {field}", missing.join(", ")))
}

fn missing_level<T: PartialOrd + serde::Serialize>(field: &str, granted: &T, required: &T) -> Option<String> {
    (granted < required).then(|| format!("{field} = {}", to_policy_text(required)))
}

/// Value as written in a policy.
fn to_policy_text(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).as_ref().map(Value::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::{AllowList, ModelOperation, PermissionSet, ResourceAccess, StateScope, TapeAccess, ToolOperation};

    #[test]
    fn g05_required_permissions_that_are_not_granted_are_listed() {
        let required = PermissionSet {
            models: ResourceAccess { names: AllowList::All, operations: [ModelOperation::Stream].into() },
            tools: ResourceAccess { names: AllowList::only(["bash"]), operations: [ToolOperation::Call].into() },
            state: [StateScope::Actor].into(),
            platform_api: AllowList::only(["message.pin"]),
            tape: TapeAccess::Read,
            children: true,
            ..PermissionSet::none()
        };
        assert_eq!(PermissionSet::all().missing_permissions(&required), Vec::<String>::new());
        assert_eq!(PermissionSet::none().missing_permissions(&PermissionSet::none()), Vec::<String>::new());
        assert_eq!(
            PermissionSet::none().missing_permissions(&required),
            [
                "\"stream\" of models",
                "\"call\" of tools",
                "\"actor\" of state",
                "message.pin of the platform_api",
                "tape = \"read\"",
                "children = true"
            ]
        );
        let one_model = PermissionSet { models: ResourceAccess::only(["demo:"]), ..PermissionSet::all() };
        assert_eq!(one_model.missing_permissions(&required), Vec::<String>::new(), "any model will do");
        let no_model = PermissionSet { models: ResourceAccess::only([""; 0]), ..PermissionSet::all() };
        assert_eq!(no_model.missing_permissions(&required), ["any of the models"]);
        let another = PermissionSet { tools: ResourceAccess::only(["help"]), ..PermissionSet::all() };
        assert_eq!(another.missing_permissions(&required), ["bash of the tools"]);
    }
}

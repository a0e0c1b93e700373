//! What somebody cannot do without, beside what is granted.

use serde_json::Value;

use crate::{Access, Authority, Operation, Operations, Uses};

impl Authority {
    /// What is required and not in here, in the words of a policy; empty: everything is.
    ///
    /// Of models, tools, knowledge bases and actions, [`Access::All`] requires any one of them.
    pub fn lacks(&self, required: &Self) -> Vec<String> {
        let mut missing = Vec::new();
        missing.extend(uses("models", &self.models, &required.models));
        missing.extend(uses("tools", &self.tools, &required.tools));
        missing.extend(uses("knowledge_bases", &self.knowledge_bases, &required.knowledge_bases));
        missing.extend(set("history", self.history, required.history));
        missing.extend(set("events", self.events, required.events));
        missing.extend(level("reach", &self.reach, &required.reach));
        missing.extend(set("artifacts", self.artifacts, required.artifacts));
        missing.extend(set("state", self.state, required.state));
        missing.extend(set("storage", self.storage, required.storage));
        // None is what nobody requires, and any one is what requires all of them.
        if required.platform_api != Access::none() {
            missing.extend(names("platform_api", &self.platform_api, &required.platform_api));
        }
        missing.extend(level("tape", &self.tape, &required.tape));
        missing.extend(level("prompt", &self.prompt, &required.prompt));
        missing.extend(level("children", &self.children, &required.children));
        missing.extend(level("steering", &self.steering, &required.steering));
        missing
    }
}

fn uses<O: Operation + serde::Serialize>(field: &str, given: &Uses<O>, required: &Uses<O>) -> Option<String> {
    if required.operations.is_empty() {
        return None;
    }
    set(field, given.operations, required.operations).or_else(|| names(field, &given.names, &required.names))
}

fn names(field: &str, given: &Access, required: &Access) -> Option<String> {
    match required {
        Access::All if *given == Access::none() => Some(format!("any of the {field}")),
        Access::All => None,
        Access::Only(names) => {
            let missing: Vec<&str> = names.iter().filter(|name| !given.allows(name)).map(String::as_str).collect();
            (!missing.is_empty()).then(|| format!("{} of the {field}", missing.join(", ")))
        }
    }
}

fn set<O: Operation + serde::Serialize>(field: &str, given: Operations<O>, required: Operations<O>) -> Option<String> {
    let missing: Vec<String> =
        required.iter().filter(|operation| !given.contains(operation)).map(|operation| word(&operation)).collect();
    (!missing.is_empty()).then(|| format!("{} of {field}", missing.join(", ")))
}

fn level<T: PartialOrd + serde::Serialize>(field: &str, given: &T, required: &T) -> Option<String> {
    (given < required).then(|| format!("{field} = {}", word(required)))
}

/// A value as it is written in a policy.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).as_ref().map(Value::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::{Access, Authority, ModelUse, StateScope, TapeAccess, ToolUse, Uses};

    #[test]
    fn g05_what_is_required_is_lacking_where_less_is_granted() {
        let required = Authority {
            models: Uses { names: Access::All, operations: [ModelUse::Stream].into() },
            tools: Uses { names: Access::only(["bash"]), operations: [ToolUse::Call].into() },
            state: [StateScope::Actor].into(),
            platform_api: Access::only(["message.pin"]),
            tape: TapeAccess::Read,
            children: true,
            ..Authority::none()
        };
        assert_eq!(Authority::all().lacks(&required), Vec::<String>::new());
        assert_eq!(Authority::none().lacks(&Authority::none()), Vec::<String>::new());
        assert_eq!(
            Authority::none().lacks(&required),
            [
                "\"stream\" of models",
                "\"call\" of tools",
                "\"actor\" of state",
                "message.pin of the platform_api",
                "tape = \"read\"",
                "children = true"
            ]
        );
        let one_model = Authority { models: Uses::only(["demo:"]), ..Authority::all() };
        assert_eq!(one_model.lacks(&required), Vec::<String>::new(), "any model will do");
        let no_model = Authority { models: Uses::only([""; 0]), ..Authority::all() };
        assert_eq!(no_model.lacks(&required), ["any of the models"]);
        let another = Authority { tools: Uses::only(["help"]), ..Authority::all() };
        assert_eq!(another.lacks(&required), ["bash of the tools"]);
    }
}

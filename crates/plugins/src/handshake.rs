//! Compares the answer to `initialize` with the manifest.

use std::collections::BTreeSet;

use capstan_protocol::escape_line;
use capstan_protocol::plugin_protocol::{PluginInitialized, PluginManifest, PluginPromptMode};

/// First difference between a program and its manifest, as a message; `None` if they agree.
pub(crate) fn find_difference(manifest: &PluginManifest, program: &PluginInitialized) -> Option<String> {
    if program.protocol != manifest.protocol {
        return Some(format!(
            "it speaks version {} of the protocol, its manifest says {}",
            program.protocol, manifest.protocol
        ));
    }
    let identities = [("id", &program.id, &manifest.id), ("version", &program.version, &manifest.version)];
    if let Some((key, theirs, ours)) = identities.into_iter().find(|(_, theirs, ours)| theirs != ours) {
        return Some(format!("its program says {key} {:?}, its manifest {ours:?}", escape_line(theirs)));
    }
    let lists: [(&str, Vec<&str>, &[String]); 5] = [
        ("runner", manifest.runners.iter().map(|it| it.name.as_str()).collect(), &program.runners),
        ("tool", manifest.tools.iter().map(|it| it.name.as_str()).collect(), &program.tools),
        ("channel", manifest.channels.iter().map(|it| it.name.as_str()).collect(), &program.channels),
        ("knowledge source", manifest.knowledge.iter().map(|it| it.id.as_str()).collect(), &program.knowledge),
        ("model provider", manifest.models.iter().map(|it| it.name.as_str()).collect(), &program.models),
    ];
    let of_lists = lists.into_iter().find_map(|(kind, declared, implemented)| {
        name_difference(kind, &declared, &implemented.iter().map(String::as_str).collect::<Vec<_>>())
    });
    of_lists.or_else(|| hook_difference(manifest, program))
}

fn name_difference(kind: &str, declared: &[&str], implemented: &[&str]) -> Option<String> {
    if let Some(name) = declared.iter().find(|name| !implemented.contains(name)) {
        return Some(format!("its program does not implement the {kind} {name} of its manifest"));
    }
    if let Some(name) = implemented.iter().find(|name| !declared.contains(name)) {
        return Some(format!(
            "its program implements the {kind} {:?}, which its manifest does not declare",
            escape_line(name)
        ));
    }
    (implemented.len() != declared.len()).then(|| format!("its program names a {kind} twice"))
}

fn hook_difference(manifest: &PluginManifest, program: &PluginInitialized) -> Option<String> {
    let called: Vec<_> = manifest.hooks.iter().filter(|hook| hook.mode == PluginPromptMode::Dynamic).collect();
    let declared: Vec<&str> = called.iter().map(|hook| hook.name.as_str()).collect();
    let implemented: Vec<&str> = program.hooks.keys().map(String::as_str).collect();
    if let Some(difference) = name_difference("hook", &declared, &implemented) {
        return Some(difference);
    }
    let set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<String>>();
    let differs = |hook: &&_| {
        let hook: &capstan_protocol::plugin_protocol::PluginHookManifest = hook;
        program.hooks.get(&hook.name).is_none_or(|arguments| set(arguments) != set(&hook.arguments))
    };
    let hook = called.iter().copied().find(differs)?;
    Some(format!("its program wants other arguments of the hook {} than its manifest declares", hook.name))
}

#[cfg(test)]
mod tests {
    use capstan_protocol::plugin_protocol::{PluginInitialized, PluginManifest};
    use serde_json::{Value, json};

    use super::find_difference;

    fn difference(change: Value) -> Option<String> {
        let manifest = json!({
            "id": "ann/greeter", "version": "1.0.0", "protocol": 1, "command": ["x"],
            "runners": [{"name": "hello", "label": "Hello"}],
            "tools": [{"name": "a", "description": "A"}, {"name": "b", "description": "B"}],
            "hooks": [
                {"name": "system_prompt", "mode": "static", "text": "x"},
                {"name": "build_prompt", "arguments": ["message", "state"]},
            ],
        });
        let manifest = PluginManifest::from_json(manifest, |_| Err(String::new())).unwrap();
        let mut answer = json!({
            "protocol": 1, "id": "ann/greeter", "version": "1.0.0", "runners": ["hello"], "tools": ["b", "a"],
            "hooks": {"build_prompt": ["state", "message"]}, "unknown": true,
        });
        answer.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let program: PluginInitialized = serde_json::from_value(answer).unwrap();
        find_difference(&manifest, &program)
    }

    #[test]
    fn h06_a_program_that_agrees_with_its_manifest_in_any_order_is_accepted() {
        assert_eq!(difference(json!({})), None);
    }

    #[test]
    fn x05_every_difference_from_the_manifest_is_named() {
        let cases = [
            (json!({"protocol": 2}), "version 2 of the protocol"),
            (json!({"id": "eve/greeter"}), "id \"eve/greeter\""),
            (json!({"version": "2"}), "version \"2\""),
            (json!({"runners": []}), "does not implement the runner hello"),
            (json!({"tools": ["a", "b", "c"]}), "the tool \"c\", which its manifest does not declare"),
            (json!({"tools": ["a", "b", "b"]}), "names a tool twice"),
            (json!({"channels": ["x\n"]}), "the channel \"x\\\\n\""),
            (json!({"knowledge": ["k"]}), "knowledge source"),
            (json!({"models": ["m"]}), "model provider"),
            (json!({"hooks": {}}), "does not implement the hook build_prompt"),
            (json!({"hooks": {"build_prompt": ["message"]}}), "other arguments of the hook build_prompt"),
            (json!({"hooks": {"build_prompt": ["message", "state"], "on_error": []}}), "the hook \"on_error\""),
        ];
        for (change, expected) in cases {
            let found = difference(change.clone()).unwrap_or_default();
            assert!(found.contains(expected), "{change}: {found}");
        }
    }
}

//! H2: of several objects with the same name the one of the highest priority is used.

use std::sync::Arc;

use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::{FnTool, Tool};
use capstan_hooks::points::ProvideTools;
use capstan_protocol::ToolOutput;
use serde_json::json;

use crate::support::{FnPlugin, plugin, runtime};

/// Plugin that provides tools with these names; their description is the name of the plugin.
fn tool_provider(name: &'static str, tools: &'static [&'static str]) -> FnPlugin {
    plugin(name, move |hooks| {
        hooks.on_sync(ProvideTools, move || {
            let tool = |tool: &&str| {
                let action = |_, _| async { Ok(ToolOutput::ok("")) };
                Arc::new(FnTool::new(tool, name, json!({"type": "object"}), action)) as Arc<dyn Tool>
            };
            Ok(Some(tools.iter().map(tool).collect()))
        });
    })
}

fn provided_tools(hooks: &HookRuntime) -> Vec<String> {
    let tools = hooks.collect_provided::<ProvideTools, _>(|tool| tool.spec().name.to_string());
    tools.iter().map(|tool| format!("{} of {}", tool.spec().name, tool.spec().description)).collect()
}

#[test]
fn h02_later_registered_plugin_overrides_a_name_and_no_other() {
    let empty = plugin("empty", |hooks| {
        hooks.on_sync(ProvideTools, || Ok(None));
    });
    let hooks =
        runtime([tool_provider("builtin", &["bash", "help"]), empty, tool_provider("sandbox", &["bash", "look"])]);
    assert_eq!(provided_tools(&hooks), ["bash of sandbox", "look of sandbox", "help of builtin"]);
}

#[test]
fn h02_name_that_a_plugin_provides_twice_is_used_once() {
    assert_eq!(provided_tools(&runtime([tool_provider("twice", &["bash", "bash"])])), ["bash of twice"]);
}

#[test]
fn h09_failing_provider_provides_nothing_and_the_others_still_do() {
    let broken = plugin("broken", |hooks| {
        hooks.on_sync(ProvideTools, || Err("no tools".into()));
    });
    assert_eq!(provided_tools(&runtime([tool_provider("builtin", &["bash"]), broken])), ["bash of builtin"]);
}

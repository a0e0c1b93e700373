//! `capstan hooks`.

use capstan_hooks::HookListing;
use clap::Args;
use serde_json::{Value, json};

use super::{CommandContext, WorkspaceFlag, print, print_json};
use crate::CommandError;
use crate::command_catalog::CommandCatalog;

#[derive(Args)]
pub(crate) struct HooksArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceFlag,
}

pub(crate) fn list_hooks(context: &CommandContext<'_>, as_json: bool) -> Result<(), CommandError> {
    let runtime = context.build_hooks();
    let listing = runtime.registry().hook_listings();
    let failures = runtime.registry().load_failures();
    let catalog = CommandCatalog::from_hooks(&runtime);
    let grants = runtime.registry().grants().iter().filter(|grant| !grant.permissions.is_empty());
    if as_json {
        let permissions = grants.map(|grant| {
            let names: Vec<String> = grant.permissions.iter().map(ToString::to_string).collect();
            json!({ "plugin": grant.plugin, "permissions": names })
        });
        let failed = failures.iter().map(|failure| json!({ "plugin": failure.plugin, "reason": failure.reason }));
        return print_json(&json!({
            "hooks": listing.iter().map(hook_to_json).collect::<Vec<_>>(),
            "permissions": permissions.collect::<Vec<_>>(),
            "failed_plugins": failed.collect::<Vec<_>>(),
            "unavailable_commands": catalog.unavailable(),
        }));
    }
    for hook in &listing {
        let plugins: Vec<&str> = hook.implementors.iter().map(|one| one.plugin.as_str()).collect();
        let plugins = if plugins.is_empty() { "-".to_owned() } else { plugins.join(", ") };
        let (point, call) = (hook.point, if hook.point.is_synchronous { "sync" } else { "async" });
        let aggregation = point.aggregation.to_string();
        print(&format!("{:22} {aggregation:20} {call:5}  {:14} {plugins}", point.name, point.phase.to_string()))?;
    }
    for grant in grants {
        print(&format!("\nhooks of plugin {} may also: {}", grant.plugin, grant.permissions))?;
    }
    for failure in failures {
        print(&format!("\nplugin {} did not load: {}", failure.plugin, failure.reason))?;
    }
    for command in catalog.unavailable() {
        print(&format!("\n{command}"))?;
    }
    Ok(())
}

fn hook_to_json(hook: &HookListing) -> Value {
    let plugins = hook.implementors.iter().map(|one| json!({ "plugin": one.plugin, "arguments": one.arguments }));
    json!({
        "hook": hook.point.name,
        "aggregation": hook.point.aggregation.to_string(),
        "phase": hook.point.phase.to_string(),
        "synchronous": hook.point.is_synchronous,
        "plugins": plugins.collect::<Vec<_>>(),
    })
}

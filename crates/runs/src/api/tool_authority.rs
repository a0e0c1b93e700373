//! Authority of a tool: its own, not that of the runner that calls it.

use capstan_hooks::PluginIdentity;
use capstan_hooks::contracts::Tool;
use capstan_protocol::{ApiError, ApiErrorCode, PermissionSet, StorageArea, ToolOperation};
use serde_json::{Value, json};

use super::required_permission::RequiredPermission;
use crate::run::Run;

/// Authority of a tool during a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolAuthority {
    /// Permissions of the tool, never wider than the grant of the run.
    may: PermissionSet,
    /// Owner of the storage area `plugin`: the plugin that provides the tool.
    pub(super) storage_owner: Value,
}

impl ToolAuthority {
    /// Authority of a tool of this plugin in a run. A tool of the host also gets the permissions that it declares.
    pub(super) fn new(run: &Run, tool: &dyn Tool, plugin: &PluginIdentity) -> Self {
        let mut permissions = if plugin.is_builtin { tool.permissions() } else { PermissionSet::none() };
        permissions.storage.insert(StorageArea::Plugin);
        let may = permissions.intersect(&run.grant().may);
        Self { may, storage_owner: json!([plugin.author, plugin.name]) }
    }

    /// Authority of a tool whose plugin is not known.
    pub(super) fn none() -> Self {
        Self { may: PermissionSet::none(), storage_owner: Value::Null }
    }

    /// Refuses a permission that the tool does not have.
    pub(super) fn check(&self, run: &Run, permission: &RequiredPermission) -> Result<(), ApiError> {
        let permission = match permission {
            // For a runner, the list of tools needs no permission. A tool has to declare that it reads the list.
            RequiredPermission::Nothing => &RequiredPermission::AnyTool(ToolOperation::Detail),
            permission => permission,
        };
        let refusal = permission.check(&self.may);
        if refusal.is_ok() || permission.check(&run.grant().may).is_err() {
            return refusal;
        }
        let message = "the run may do this, the tool may not: a tool has the storage of its plugin, and a tool of the host \
            the permissions that it declares";
        Err(ApiError::new(ApiErrorCode::Unauthorized, message))
    }
}

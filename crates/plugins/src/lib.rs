//! Plugins that run as processes of their own, in any language. `docs/plugin-protocol.md` is the specification.
//!
//! - [`read_manifest`] reads `plugin.toml` without starting anything; [`PluginFolder`] is an installed plugin;
//! - [`PluginProcess`] starts the process when it is needed, checks it against its manifest, and starts it again after a
//!   failure;
//! - [`ProcessPlugin`] registers the contributions of a manifest like those of any other plugin: each is a proxy that
//!   calls the process.
//!
//! Identity is assigned here, from the manifest: nothing that a process says of itself is used. A process reaches the
//! host only through the run API, under the authority of a run or a call that it is serving.

mod call_api;
mod child_process;
mod connection;
mod error;
mod handshake;
mod manifest_file;
mod options;
mod plugin_folder;
mod plugin_process;
mod process_plugin;
mod proxies;
mod rate_limit;
mod stderr_log;

pub use self::error::PluginError;
pub use self::manifest_file::read_manifest;
pub use self::options::PluginOptions;
pub use self::plugin_folder::{InstallRecord, PluginFolder, PluginHome};
pub use self::plugin_process::{PluginProcess, PluginStatus};
pub use self::process_plugin::{FailedPlugin, ProcessPlugin};

//! Deadlines and limits of plugin processes.

use std::path::PathBuf;
use std::time::Duration;

use capstan_hooks::HookDeadlines;
use capstan_rpc::RpcOptions;
use capstan_sandbox::ResourceLimits;

/// Deadlines and limits of plugin processes.
#[derive(Debug, Clone)]
pub struct PluginOptions {
    /// Home of the host. It is closed to the processes, but for the folder of the plugin, which they may read, and its data.
    pub home: Option<PathBuf>,
    /// Limits of the processes.
    pub resource_limits: ResourceLimits,
    /// Limits of the connection.
    pub rpc: RpcOptions,
    /// Time for the answer to `initialize`, and for runs and channels to start.
    pub start_timeout: Duration,
    /// Time without a message after which the host sends `ping`.
    pub heartbeat_interval: Duration,
    /// Time for the answer to `ping`.
    pub heartbeat_timeout: Duration,
    /// Time for the answer to `shutdown`.
    pub shutdown_timeout: Duration,
    /// Time for the process to exit after its input has ended.
    pub exit_timeout: Duration,
    /// Pause after the first failure in a row; doubled with each further one.
    pub first_backoff: Duration,
    /// Maximum pause.
    pub max_backoff: Duration,
    /// Time after which a connection that was ready resets the pause.
    pub stable_after: Duration,
    /// Time for the last results of a cancelled run.
    pub cancel_grace: Duration,
    /// Time for the answer to `channel.send`.
    pub send_timeout: Duration,
    /// Time for the answer to `knowledge.search`.
    pub search_timeout: Duration,
    /// Time for the answer of a dynamic `system_prompt`.
    pub prompt_timeout: Duration,
    /// Deadlines of hooks, which the host enforces.
    pub hook_deadlines: HookDeadlines,
    /// Credit for the results of a run.
    pub run_credit: u32,
    /// Credit for the output of a model.
    pub model_credit: u32,
    /// Credit for the events of a channel.
    pub channel_credit: u32,
    /// Maximum number of `log` messages in a second.
    pub log_messages_per_second: u32,
}

impl Default for PluginOptions {
    fn default() -> Self {
        Self {
            home: None,
            resource_limits: ResourceLimits {
                memory_bytes: Some(4 << 30),
                open_files: Some(4_096),
                processes: Some(1_024),
            },
            rpc: RpcOptions::default(),
            start_timeout: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(15),
            heartbeat_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(5),
            exit_timeout: Duration::from_secs(2),
            first_backoff: Duration::from_millis(500),
            max_backoff: Duration::from_mins(1),
            stable_after: Duration::from_mins(1),
            cancel_grace: Duration::from_secs(2),
            send_timeout: Duration::from_mins(1),
            search_timeout: Duration::from_secs(30),
            prompt_timeout: Duration::from_secs(5),
            hook_deadlines: HookDeadlines::default(),
            run_credit: 16,
            model_credit: 64,
            channel_credit: 32,
            log_messages_per_second: 200,
        }
    }
}

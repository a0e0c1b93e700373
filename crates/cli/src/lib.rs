//! The `capstan` command line, its configuration, and the builder for custom distributions.
//!
//! [`Capstan::builder`] collects plugins. [`Capstan::main`] then runs the whole command line with those plugins;
//! [`HostBuilder::start`] returns a running [`Host`] to embed or to test instead. [`config`] merges the configuration
//! layers, and [`CommandError`] is the failure of any command: a stable code, a message, a hint and an exit code.
//!
//! Agents, models, channels and stores live in crates of their own. This crate selects and wires them; it contains no
//! logic of a turn or a run.
//!
//! ```no_run
//! # use capstan::hooks::{BoxError, HookRegistrar, Plugin};
//! # struct MyPlugin;
//! # impl Plugin for MyPlugin {
//! #     fn name(&self) -> &str { "mine" }
//! #     fn register(&self, _: &mut HookRegistrar) -> Result<(), BoxError> { Ok(()) }
//! # }
//! fn main() -> std::process::ExitCode {
//!     capstan::Capstan::builder().plugin(MyPlugin).build().main()
//! }
//! ```

#[macro_use]
mod output;

mod attended_terminal;
mod builder;
mod builtin;
mod command_catalog;
mod command_environment;
mod command_error;
mod command_line;
mod command_line_preview;
mod commands;
pub mod config;
mod home;
mod init_process;
mod open_files;
mod runtime;

pub use builder::{Capstan, CapstanBuilder, HostBuilder};
pub use capstan_channels as channels;
pub use capstan_hooks as hooks;
pub use capstan_host::{Host, HostError, IncomingEvent, ServedEvent};
pub use capstan_protocol as protocol;
pub use capstan_store as store;
pub use capstan_tape as tape;
pub use command_environment::StartedHost;
pub use command_error::CommandError;

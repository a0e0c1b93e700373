//! Capstan: a self-hosted agent host in one binary, and the builder for distributions of one's own.
//!
//! [`Capstan::builder`] takes plugins. [`Capstan::main`] is then the whole command line with them; [`Builder::start`]
//! gives a running [`Host`] to embed or to test.
//!
//! ```no_run
//! # use capstan::hooks::{BoxError, Plugin, Registrar};
//! # struct MyPlugin;
//! # impl Plugin for MyPlugin {
//! #     fn name(&self) -> &str { "mine" }
//! #     fn register(&self, _: &mut Registrar) -> Result<(), BoxError> { Ok(()) }
//! # }
//! fn main() -> std::process::ExitCode {
//!     capstan::Capstan::builder().plugin(MyPlugin).build().main()
//! }
//! ```

#[macro_use]
mod stderr;

mod builder;
mod builtin;
mod command_error;
mod command_line;
mod commands;
pub mod config;
mod runtime;

pub use builder::{Capstan, CapstanBuilder};
pub use capstan_channels as channels;
pub use capstan_hooks as hooks;
pub use capstan_host::{Host, HostError, ServedEvent};
pub use capstan_protocol as protocol;
pub use capstan_store as store;
pub use capstan_tape as tape;
pub use command_error::CommandError;

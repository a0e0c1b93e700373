//! The channels Capstan comes with: [`Cli`], the terminal, for one message at a time, [`chat`], the same for a whole
//! conversation, and [`Stdio`], one JSON object per line, for scripts and supervisors.
//!
//! A channel knows the gateway and nothing else. Each is a [`capstan_hooks::contracts::Channel`] and is provided
//! through the `provide_channels` hook like any plugin's.

pub mod chat;
mod cli;
mod shared_tty;
pub mod stdio;

pub use chat::ChatChannel;
pub use cli::{CliChannel, CliPrinter};
pub use shared_tty::{NoteWriter, ReplyWriter, SharedTty};
pub use stdio::StdioChannel;

//! Built-in channels.
//!
//! - [`CliChannel`]: the terminal, for one message at a time.
//! - [`ChatChannel`]: the terminal, for an interactive conversation; see [`chat`].
//! - [`StdioChannel`]: one JSON object per line, for scripts and supervisors; see [`stdio`].
//!
//! A channel depends on the gateway only. Each implements [`Channel`](capstan_hooks::contracts::Channel) and is
//! registered through the `provide_channels` hook, as channels of plugins are.

pub mod chat;
mod cli;
mod shared_tty;
pub mod stdio;

pub use chat::ChatChannel;
pub use cli::{CliChannel, CliPrinter};
pub use shared_tty::{NoteWriter, ReplyWriter, SharedTty};
pub use stdio::StdioChannel;

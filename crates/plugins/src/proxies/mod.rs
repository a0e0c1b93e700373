//! Contributions of a plugin process, as proxies that register like those of any other plugin.

mod channel;
mod hook;
mod knowledge;
mod runner;
mod tool;

pub(crate) use self::channel::ChannelProxy;
pub(crate) use self::hook::register_hook;
pub(crate) use self::knowledge::KnowledgeProxy;
pub(crate) use self::runner::RunnerProxy;
pub(crate) use self::tool::ToolProxy;

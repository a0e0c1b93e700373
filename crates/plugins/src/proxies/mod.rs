//! Contributions of a plugin process, as proxies that register like those of any other plugin.

mod runner;

pub(crate) use self::runner::RunnerProxy;

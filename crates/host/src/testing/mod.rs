//! Hosts for tests (feature `test-util`).
//!
//! [`TestHost::builder`] starts a host with the built-in stages, the agent, the demo model and a silent terminal, on a store
//! in memory. A [`TestEnvironment`] outlives its hosts, for tests with several hosts on one store or with a restart.
//! Functions of this module panic on failure.
//!
//! ```
//! use capstan_host::testing::TestHost;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let host = TestHost::builder().start().await;
//! let served = host.send_message("hello").await;
//! assert!(served.error.is_none());
//! # }
//! ```

mod builder;
mod closure_plugin;
mod environment;
mod test_host;

pub use builder::{SCRIPTED_MODEL_KEY, TestHostBuilder, scripted_provider_options};
pub use closure_plugin::ClosurePlugin;
pub use environment::TestEnvironment;
pub use test_host::TestHost;

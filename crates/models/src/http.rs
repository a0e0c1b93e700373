//! The HTTP clients of all providers.

use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;
use tokio::sync::OnceCell;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The HTTP clients of all providers, each made on its first use and then shared, with its connections.
///
/// There are two: one reads the roots of trust of the machine, which takes a while, and a server that is spoken to
/// without encryption need not wait for that.
#[derive(Debug, Default)]
pub struct Http {
    encrypted: OnceCell<Client>,
    plain: OnceCell<Client>,
}

impl Http {
    /// Clients to be shared by providers. Nothing is made yet.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) async fn client(&self, encrypted: bool) -> Result<&Client, reqwest::Error> {
        // No redirects: a header with a key would follow them wherever they lead.
        let builder = || Client::builder().connect_timeout(CONNECT_TIMEOUT).redirect(Policy::none());
        if encrypted {
            // Reading the roots of trust blocks for a few milliseconds, once in the life of the process.
            self.encrypted.get_or_try_init(|| async { builder().build() }).await
        } else {
            self.plain.get_or_try_init(|| async { builder().tls_certs_only([]).build() }).await
        }
    }
}

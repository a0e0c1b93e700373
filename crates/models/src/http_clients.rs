//! The HTTP clients of all providers.

use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;
use tokio::sync::OnceCell;

const PROVIDER_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The HTTP clients of all providers, each made on its first use and then shared, with its connections.
///
/// One reads the roots of trust of the machine, which takes a while: a server that is spoken to without encryption need
/// not wait for that. One knows no proxy, for servers on this machine.
#[derive(Debug, Default)]
pub struct HttpClients {
    encrypted: OnceCell<Client>,
    plain: OnceCell<Client>,
    local: OnceCell<Client>,
}

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportKind {
    /// Over an encrypted connection.
    Encrypted,
    /// In the open.
    Plain,
    /// In the open, on this machine.
    Local,
}

impl HttpClients {
    /// Clients to be shared by providers. Nothing is made yet.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) async fn client(&self, reach: TransportKind) -> Result<&Client, reqwest::Error> {
        // No redirects: a header with a key would follow them wherever they lead.
        let builder = || Client::builder().connect_timeout(PROVIDER_CONNECT_TIMEOUT).redirect(Policy::none());
        match reach {
            // Reading the roots of trust blocks for a few milliseconds, once in the life of the process.
            TransportKind::Encrypted => self.encrypted.get_or_try_init(|| async { builder().build() }).await,
            TransportKind::Plain => self.plain.get_or_try_init(|| async { builder().tls_certs_only([]).build() }).await,
            TransportKind::Local => {
                self.local.get_or_try_init(|| async { builder().no_proxy().tls_certs_only([]).build() }).await
            }
        }
    }
}

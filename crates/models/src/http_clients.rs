//! HTTP clients shared by all providers.

use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;
use tokio::sync::OnceCell;

const PROVIDER_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP clients shared by all providers, each built on first use and kept with its connection pool.
///
/// There are three, because loading the trust roots of the machine takes a while and unencrypted servers do not need
/// them, and because servers on this machine must be reached without a proxy.
#[derive(Debug, Default)]
pub struct HttpClients {
    /// Maximum number of idle connections per server; `None` is no limit.
    max_idle: Option<usize>,
    encrypted: OnceCell<Client>,
    plain: OnceCell<Client>,
    local: OnceCell<Client>,
}

/// Connection type of an endpoint, which selects the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportKind {
    /// HTTPS.
    Encrypted,
    /// Plain HTTP.
    Plain,
    /// Plain HTTP to a loopback address.
    Local,
}

impl HttpClients {
    /// Creates an empty set of clients.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty set of clients that keep at most this many idle connections per server. Each holds a file
    /// descriptor, which running turns may need.
    pub fn with_max_idle_connections(max_idle: usize) -> Self {
        Self { max_idle: Some(max_idle), ..Self::default() }
    }

    pub(crate) async fn client(&self, transport: TransportKind) -> Result<&Client, reqwest::Error> {
        // No redirects: they would receive the headers, key included.
        let builder = || {
            let builder = Client::builder().connect_timeout(PROVIDER_CONNECT_TIMEOUT).redirect(Policy::none());
            builder.pool_max_idle_per_host(self.max_idle.unwrap_or(usize::MAX))
        };
        match transport {
            // Loading the trust roots blocks for a few milliseconds, once per process.
            TransportKind::Encrypted => self.encrypted.get_or_try_init(|| async { builder().build() }).await,
            TransportKind::Plain => self.plain.get_or_try_init(|| async { builder().tls_certs_only([]).build() }).await,
            TransportKind::Local => {
                self.local.get_or_try_init(|| async { builder().no_proxy().tls_certs_only([]).build() }).await
            }
        }
    }
}

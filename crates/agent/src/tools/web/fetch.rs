//! Fetching of pages: every address is checked before a request is sent, and only checked addresses are connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capstan_protocol::is_public_address;
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};

use super::WebOptions;
use super::page_content::{self, PageContent};
use super::proxy_tunnel::ProxyTunnel;
use crate::tools::work_slots::WorkSlots;

/// Timeout of a fetch, including redirects.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for a connection.
const FETCH_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of pages that a host fetches at the same time: each may be held in memory.
pub(super) const MAX_CONCURRENT_FETCHES: usize = 16;
/// Maximum number of pages that a host converts to text at the same time.
const MAX_CONCURRENT_CONVERSIONS: usize = 2;
/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 5;
/// Maximum size read of a page.
const MAX_PAGE_BYTES: usize = 5 * 1024 * 1024;
/// Value of the `Accept` header.
const ACCEPT_VALUE: &str = "text/html,application/xhtml+xml,text/plain,text/*;q=0.9,application/json,image/*,*/*;q=0.1";

/// Resolver of host names.
#[async_trait]
pub(super) trait NameResolver: Send + Sync {
    async fn lookup(&self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>>;
}

/// Resolver of the operating system.
pub(super) struct SystemResolver;

#[async_trait]
impl NameResolver for SystemResolver {
    async fn lookup(&self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        // Names below `localhost` always mean this machine, which not every system knows without its hosts file.
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        if name == "localhost" || name.ends_with(".localhost") {
            return Ok([IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()]
                .map(|address| SocketAddr::new(address, port))
                .to_vec());
        }
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}

/// Fetcher of web pages.
pub(super) struct PageFetcher {
    options: WebOptions,
    resolver: Arc<dyn NameResolver>,
    fetches: WorkSlots,
    conversions: WorkSlots,
}

/// Page fetched from the web.
#[derive(Debug)]
pub(super) struct FetchedPage {
    /// Final URL after redirects.
    pub(super) url: Url,
    /// Content of the page.
    pub(super) content: PageContent,
    /// Status reported by the server, unless it is a success.
    pub(super) problem: Option<String>,
}

impl PageFetcher {
    pub(super) fn new(options: WebOptions, resolver: Arc<dyn NameResolver>) -> Self {
        let (fetches, conversions) =
            (WorkSlots::new(MAX_CONCURRENT_FETCHES), WorkSlots::new(MAX_CONCURRENT_CONVERSIONS));
        Self { options, resolver, fetches, conversions }
    }

    /// Fetches a page and follows redirects. The timeout begins when a slot is free.
    pub(super) async fn fetch_page(&self, address: &str) -> Result<FetchedPage, String> {
        let url = Url::parse(address).map_err(|error| format!("invalid URL: {error}"))?;
        let _slot = self.fetches.acquire().await?;
        let timed_out = |_| format!("the page did not load within {} seconds", FETCH_TIMEOUT.as_secs());
        tokio::time::timeout(FETCH_TIMEOUT, self.follow_redirects(url)).await.map_err(timed_out)?
    }

    async fn follow_redirects(&self, mut url: Url) -> Result<FetchedPage, String> {
        for _ in 0..=MAX_REDIRECTS {
            url.set_fragment(None);
            // The tunnel must outlive the reading of the page.
            let (response, _tunnel) = self.send_request(&url).await?;
            let Some(next) = redirect_location(&response) else { return self.read_page(url, response).await };
            url = url.join(&next).map_err(|error| format!("invalid redirect to {next:?}: {error}"))?;
        }
        Err(format!("the page redirects more than {MAX_REDIRECTS} times"))
    }

    async fn send_request(&self, url: &Url) -> Result<(Response, Option<ProxyTunnel>), String> {
        let target = self.check_url(url).await?;
        let client = Client::builder().redirect(Policy::none()).referer(false).pool_max_idle_per_host(0);
        let client =
            client.user_agent(concat!("capstan/", env!("CARGO_PKG_VERSION"))).connect_timeout(FETCH_CONNECT_TIMEOUT);
        // Proxy variables of the environment must not redirect the request, and the name must not be resolved a second
        // time: the answer may differ by then.
        let client = client.no_proxy();
        let (client, tunnel) = match (&self.options.proxy, target) {
            (None, FetchTarget::Addresses(addresses)) => {
                (client.dns_resolver(Arc::new(PinnedResolver(addresses))), None)
            }
            (None, FetchTarget::Hostname(name)) => return Err(format!("{name} was not resolved")),
            (Some(proxy), target) => {
                let proxy = Url::parse(proxy).map_err(|_| "web_proxy is not a valid URL".to_owned())?;
                let tunnel = ProxyTunnel::open(&proxy, &target.to_authorities(), FETCH_CONNECT_TIMEOUT).await?;
                (client.unix_socket(tunnel.socket_path()), Some(tunnel))
            }
        };
        // Building a client reads the system's certificates.
        let client = tokio::task::spawn_blocking(move || client.build()).await.map_err(|error| error.to_string())?;
        let client = client.map_err(|error| error_chain(&error))?;
        let response = client.get(url.clone()).header(ACCEPT, ACCEPT_VALUE).send().await;
        Ok((response.map_err(|error| error_chain(&error.without_url()))?, tunnel))
    }

    /// Resolves a URL to the addresses to connect to, if all of them may be reached.
    async fn check_url(&self, url: &Url) -> Result<FetchTarget, String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("the scheme {}: is not allowed, only http: and https: are", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a URL with a user name or password is not allowed".to_owned());
        }
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err("the URL has no host".to_owned());
        };
        let plain_host = host.trim_start_matches('[').trim_end_matches(']');
        let allowed = &self.options.allow_private;
        let is_allowed_name = allowed.iter().any(|allowed| allowed.covers_name(plain_host, port));
        let addresses = match plain_host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            // Possibly only the proxy can resolve the name; it is allowed wherever it points.
            Err(_) if is_allowed_name && self.options.proxy.is_some() => {
                return Ok(FetchTarget::Hostname(format!("{host}:{port}")));
            }
            Err(_) => match self.resolver.lookup(host, port).await {
                Ok(addresses) => addresses,
                Err(error) if self.options.proxy.is_some() => {
                    return Err(format!(
                        "{host} cannot be resolved here and may be private behind the proxy, which is not allowed (the \
                         user can allow it with web_allow_private; {error})"
                    ));
                }
                Err(error) => return Err(format!("{host} cannot be resolved: {error}")),
            },
        };
        if addresses.is_empty() {
            return Err(format!("{host} has no address"));
        }
        let is_reachable = |address: IpAddr| {
            is_public_address(address) || allowed.iter().any(|host| host.covers_address(address, port))
        };
        if let Some(private) = addresses.iter().find(|address| !is_allowed_name && !is_reachable(address.ip())) {
            // The model learns nothing about the network of the host.
            tracing::debug!(host, address = %private.ip(), "refused to fetch from a private address");
            return Err(format!(
                "{host} leads to a private address, which is not allowed (the user can allow it with web_allow_private)"
            ));
        }
        Ok(FetchTarget::Addresses(addresses))
    }

    async fn read_page(&self, url: Url, mut response: Response) -> Result<FetchedPage, String> {
        let status = response.status();
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| error_chain(&error.without_url()))? {
            let room = (MAX_PAGE_BYTES - bytes.len()).min(chunk.len());
            bytes.extend_from_slice(&chunk[..room]);
            if room < chunk.len() {
                break;
            }
        }
        let is_truncated = bytes.len() == MAX_PAGE_BYTES;
        // Parsing a large page is CPU-bound.
        let base = url.clone();
        let conversion = move || page_content::parse_page(&base, &kind, &bytes, is_truncated);
        let content = self.conversions.run_blocking(conversion).await.map_err(|error| error.to_string())?;
        let problem = (!status.is_success()).then(|| format!("the server answered {status}"));
        match (content, problem) {
            (Ok(content), problem) => Ok(FetchedPage { url, content, problem }),
            // The server's status matters more than the form of its page.
            (Err(_), Some(problem)) => Err(problem),
            (Err(reason), None) => Err(reason),
        }
    }
}

/// Destination of a request.
enum FetchTarget {
    /// Addresses that may be reached.
    Addresses(Vec<SocketAddr>),
    /// Name with port that the user allows wherever it points, to be resolved by the proxy.
    Hostname(String),
}

impl FetchTarget {
    /// Returns the authorities to request from a proxy.
    fn to_authorities(&self) -> Vec<String> {
        match self {
            Self::Addresses(addresses) => addresses.iter().map(SocketAddr::to_string).collect(),
            Self::Hostname(name) => vec![name.clone()],
        }
    }
}

/// Resolver that returns the checked addresses for any name.
struct PinnedResolver(Vec<SocketAddr>);

impl Resolve for PinnedResolver {
    fn resolve(&self, _name: Name) -> Resolving {
        let addresses = self.0.clone();
        Box::pin(async move { Ok(Box::new(addresses.into_iter()) as reqwest::dns::Addrs) })
    }
}

/// Returns the target of a redirect.
fn redirect_location(response: &Response) -> Option<String> {
    let redirects = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    let location = response.headers().get(LOCATION).filter(|_| redirects.contains(&response.status()))?;
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
}

/// Formats an error with its causes.
fn error_chain(error: &reqwest::Error) -> String {
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    message
}

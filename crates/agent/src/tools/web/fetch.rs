//! Getting a page: each address is looked at before anything is sent to it, and nothing else is connected to.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};

use super::WebOptions;
use super::page_content::{self, PageContent};
use super::proxy_tunnel::ProxyTunnel;
use super::public_address::is_public;

/// How long all of it may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may take.
const FETCH_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a page may lead to another.
const MAX_REDIRECTS: usize = 5;
/// How much of a page is read.
const MAX_PAGE_BYTES: usize = 5 * 1024 * 1024;
/// What a page is asked for.
const ACCEPT_VALUE: &str = "text/html,application/xhtml+xml,text/plain,text/*;q=0.9,application/json,image/*,*/*;q=0.1";

/// Who knows the addresses of a name.
#[async_trait]
pub(super) trait NameResolver: Send + Sync {
    async fn lookup(&self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>>;
}

/// The machine's own way.
pub(super) struct SystemResolver;

#[async_trait]
impl NameResolver for SystemResolver {
    async fn lookup(&self, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}

/// Gets pages.
pub(super) struct PageFetcher {
    options: WebOptions,
    resolver: Arc<dyn NameResolver>,
}

/// A page that was got.
#[derive(Debug)]
pub(super) struct FetchedPage {
    /// Where it came from in the end.
    pub(super) url: Url,
    /// What it says.
    pub(super) content: PageContent,
    /// Whether it is longer than what was read of it.
    pub(super) is_truncated: bool,
    /// What the server said about it, if all was not well.
    pub(super) problem: Option<String>,
}

impl PageFetcher {
    pub(super) fn new(settings: WebOptions, names: Arc<dyn NameResolver>) -> Self {
        Self { options: settings, resolver: names }
    }

    /// Gets a page, wherever its address leads.
    pub(super) async fn fetch_page(&self, address: &str) -> Result<FetchedPage, String> {
        let url = Url::parse(address).map_err(|error| format!("that is no address: {error}"))?;
        let too_long = |_| format!("it took longer than {} seconds", FETCH_TIMEOUT.as_secs());
        tokio::time::timeout(FETCH_TIMEOUT, self.follow_redirects(url)).await.map_err(too_long)?
    }

    async fn follow_redirects(&self, mut url: Url) -> Result<FetchedPage, String> {
        for _ in 0..=MAX_REDIRECTS {
            url.set_fragment(None);
            // The tunnel must be there until the page is read.
            let (response, _tunnel) = self.send_request(&url).await?;
            let Some(next) = redirect_location(&response) else { return read_page(url, response).await };
            url = url.join(&next).map_err(|error| format!("it leads to {next:?}, which is no address: {error}"))?;
        }
        Err(format!("it leads from one address to another more than {MAX_REDIRECTS} times"))
    }

    async fn send_request(&self, url: &Url) -> Result<(Response, Option<ProxyTunnel>), String> {
        let target = self.check_url(url).await?;
        let client = Client::builder().redirect(Policy::none()).referer(false).pool_max_idle_per_host(0);
        let client =
            client.user_agent(concat!("capstan/", env!("CARGO_PKG_VERSION"))).connect_timeout(FETCH_CONNECT_TIMEOUT);
        // Variables of the environment must not decide where this goes, and the name is not looked up a second time: it
        // might be somebody else by then.
        let client = client.no_proxy();
        let (client, tunnel) = match (&self.options.proxy, target) {
            (None, FetchTarget::Addresses(addresses)) => {
                (client.dns_resolver(Arc::new(PinnedResolver(addresses))), None)
            }
            (None, FetchTarget::Hostname(name)) => return Err(format!("{name} was not looked up")),
            (Some(proxy), target) => {
                let proxy = Url::parse(proxy).map_err(|_| "web_proxy is no address".to_owned())?;
                let tunnel = ProxyTunnel::open(&proxy, &target.to_authorities(), FETCH_CONNECT_TIMEOUT).await?;
                (client.unix_socket(tunnel.socket_path()), Some(tunnel))
            }
        };
        // It reads the certificates of the machine.
        let client = tokio::task::spawn_blocking(move || client.build()).await.map_err(|error| error.to_string())?;
        let client = client.map_err(|error| error_chain(&error))?;
        let response = client.get(url.clone()).header(ACCEPT, ACCEPT_VALUE).send().await;
        Ok((response.map_err(|error| error_chain(&error.without_url()))?, tunnel))
    }

    /// Where a URL leads, if all of it may be reached.
    async fn check_url(&self, url: &Url) -> Result<FetchTarget, String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("{}: is not allowed, only http: and https: are", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("an address with a name or password in it is not allowed".to_owned());
        }
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err("the address has no host".to_owned());
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let allowed = &self.options.allow_private;
        let is_named = allowed.iter().any(|allowed| allowed.covers_name(bare, port));
        let addresses = match bare.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            // Behind a proxy there may be nobody else who knows, and wherever it is, it may be reached.
            Err(_) if is_named && self.options.proxy.is_some() => {
                return Ok(FetchTarget::Hostname(format!("{host}:{port}")));
            }
            Err(_) => match self.resolver.lookup(host, port).await {
                Ok(addresses) => addresses,
                Err(error) if self.options.proxy.is_some() => {
                    return Err(format!(
                        "{host} is not known here, and may be private where the proxy knows it: that is not allowed (the \
                         user can allow it with web_allow_private; {error})"
                    ));
                }
                Err(error) => return Err(format!("{host} is not known: {error}")),
            },
        };
        if addresses.is_empty() {
            return Err(format!("{host} has no address"));
        }
        let may = |address: IpAddr| is_public(address) || allowed.iter().any(|host| host.covers_address(address, port));
        if let Some(private) = addresses.iter().find(|address| !is_named && !may(address.ip())) {
            return Err(format!(
                "{host} is at {}, which is a private address: that is not allowed (the user can allow it with \
                 web_allow_private)",
                private.ip()
            ));
        }
        Ok(FetchTarget::Addresses(addresses))
    }
}

/// Where a URL leads.
enum FetchTarget {
    /// To addresses that may be reached.
    Addresses(Vec<SocketAddr>),
    /// To a name, with its port, that the user allows wherever it is, and that the proxy knows.
    Hostname(String),
}

impl FetchTarget {
    /// As a proxy is told it.
    fn to_authorities(&self) -> Vec<String> {
        match self {
            Self::Addresses(addresses) => addresses.iter().map(SocketAddr::to_string).collect(),
            Self::Hostname(name) => vec![name.clone()],
        }
    }
}

/// The addresses that were looked at, whatever name is asked for.
struct PinnedResolver(Vec<SocketAddr>);

impl Resolve for PinnedResolver {
    fn resolve(&self, _name: Name) -> Resolving {
        let addresses = self.0.clone();
        Box::pin(async move { Ok(Box::new(addresses.into_iter()) as reqwest::dns::Addrs) })
    }
}

/// Where a response leads to, if it does.
fn redirect_location(response: &Response) -> Option<String> {
    let leads = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    let location = response.headers().get(LOCATION).filter(|_| leads.contains(&response.status()))?;
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
}

async fn read_page(url: Url, mut response: Response) -> Result<FetchedPage, String> {
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error_chain(&error.without_url()))? {
        let room = (MAX_PAGE_BYTES - bytes.len()).min(chunk.len());
        bytes.extend_from_slice(&chunk[..room]);
        if room < chunk.len() {
            break;
        }
    }
    let is_cut = bytes.len() == MAX_PAGE_BYTES;
    // Pages can be large, and reading them is work that does not wait for anything.
    let base = url.clone();
    let read = tokio::task::spawn_blocking(move || page_content::parse_page(&base, &kind, &bytes, is_cut)).await;
    let read = read.map_err(|error| error.to_string())?;
    let problem = (!status.is_success()).then(|| format!("the server answered {status}"));
    match (read, problem) {
        (Ok(read), problem) => Ok(FetchedPage { url, content: read, is_truncated: is_cut, problem }),
        // What the server says matters more than how it says it.
        (Err(_), Some(problem)) => Err(problem),
        (Err(reason), None) => Err(reason),
    }
}

/// An error with what caused it.
fn error_chain(error: &reqwest::Error) -> String {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}

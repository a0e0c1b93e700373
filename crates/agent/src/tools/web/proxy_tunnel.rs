//! Tunnel through a proxy to a checked address.
//!
//! A proxy that is given a name resolves it itself, possibly to a private address that was never checked. The proxy is
//! therefore asked to tunnel to the address; the name and its certificate are used inside the tunnel, as without a
//! proxy.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener};
use tokio_util::task::AbortOnDropHandle;

/// Maximum size of a proxy's response.
const MAX_PROXY_RESPONSE_BYTES: usize = 8 * 1024;

/// Open tunnel; dropping it closes the connection.
pub(super) struct ProxyTunnel {
    folder: TempDir,
    _relay: AbortOnDropHandle<()>,
}

impl ProxyTunnel {
    /// Opens a tunnel to the first target the proxy can reach. A target is an address or a name, with its port.
    pub(super) async fn open(proxy: &Url, targets: &[String], timeout: Duration) -> Result<Self, String> {
        let mut problem = "there is no address to connect to".to_owned();
        for target in targets {
            match tokio::time::timeout(timeout, connect_via_proxy(proxy, target)).await {
                Ok(Ok(stream)) => return Self::relay(stream).map_err(|error| format!("the proxy: {error}")),
                Ok(Err(reason)) => problem = format!("the proxy: {reason}"),
                Err(_) => problem = format!("the proxy did not answer within {} seconds", timeout.as_secs()),
            }
        }
        Err(problem)
    }

    /// Returns the socket of the tunnel, which accepts one connection.
    pub(super) fn socket_path(&self) -> PathBuf {
        self.folder.path().join("tunnel")
    }

    /// Relays a stream to a socket in a folder that only the user can enter.
    fn relay(mut stream: TcpStream) -> std::io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let listener = UnixListener::bind(folder.path().join("tunnel"))?;
        let relay = tokio::spawn(async move {
            if let Ok((mut client, _)) = listener.accept().await {
                // The client inside sees the end of the stream itself.
                let _ended = tokio::io::copy_bidirectional(&mut client, &mut stream).await;
            }
        });
        Ok(Self { folder, _relay: AbortOnDropHandle::new(relay) })
    }
}

/// Connects to a target through the proxy.
async fn connect_via_proxy(proxy: &Url, target: &str) -> Result<TcpStream, String> {
    let (Some(host), Some(port)) = (proxy.host_str(), proxy.port_or_known_default()) else {
        return Err("its URL has no host".to_owned());
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{}\r\n", authorization_header(proxy));
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        if response.len() == MAX_PROXY_RESPONSE_BYTES {
            return Err("its response is too long".to_owned());
        }
        // Byte by byte: everything after the response belongs to the tunnelled stream.
        response.push(stream.read_u8().await.map_err(|error| error.to_string())?);
    }
    let response = String::from_utf8_lossy(&response);
    let line = response.lines().next().unwrap_or_default();
    match line.strip_prefix("HTTP/1.").and_then(|rest| rest.split_once(' ')) {
        Some((_, status)) if status.starts_with('2') => Ok(stream),
        _ => Err(format!("it refused a tunnel to {target}: {}", line.chars().take(100).collect::<String>())),
    }
}

/// Returns the header for the credentials in the proxy's URL, if any.
fn authorization_header(proxy: &Url) -> String {
    if proxy.username().is_empty() {
        return String::new();
    }
    let mut pair = percent_decode(proxy.username());
    pair.push(b':');
    pair.extend(percent_decode(proxy.password().unwrap_or_default()));
    format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(pair))
}

/// Decodes percent-encoded text.
fn percent_decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        let code = others.get(..2).filter(|_| first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => (bytes.push(byte), rest = &others[2..]),
            None => (bytes.push(first), rest = others),
        };
    }
    bytes
}

//! A way through a proxy to an address that was looked at.
//!
//! A proxy that is given a name looks it up itself, and may come to a private address that nobody looked at. So it is asked
//! for a tunnel to the address, and what is said inside, the name and its certificate, is said as without a proxy.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener};
use tokio_util::task::AbortOnDropHandle;

/// How long a proxy's answer may be.
const MAX_PROXY_RESPONSE_BYTES: usize = 8 * 1024;

/// A tunnel that is open, until it is dropped.
pub(super) struct ProxyTunnel {
    folder: TempDir,
    _relay: AbortOnDropHandle<()>,
}

impl ProxyTunnel {
    /// Opens one to the first of these that the proxy gets to, each an address or a name with its port.
    pub(super) async fn open(proxy: &Url, targets: &[String], patience: Duration) -> Result<Self, String> {
        let mut problem = "there is nowhere to go".to_owned();
        for target in targets {
            match tokio::time::timeout(patience, connect_via_proxy(proxy, target)).await {
                Ok(Ok(stream)) => return Self::relay(stream).map_err(|error| format!("the proxy: {error}")),
                Ok(Err(reason)) => problem = format!("the proxy: {reason}"),
                Err(_) => problem = format!("the proxy did not answer within {} seconds", patience.as_secs()),
            }
        }
        Err(problem)
    }

    /// The socket by which it is entered, once.
    pub(super) fn socket_path(&self) -> PathBuf {
        self.folder.path().join("tunnel")
    }

    /// Only the user can get into its folder.
    fn relay(mut stream: TcpStream) -> std::io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let listener = UnixListener::bind(folder.path().join("tunnel"))?;
        let relay = tokio::spawn(async move {
            if let Ok((mut inside, _)) = listener.accept().await {
                // Whoever is inside sees how it ends.
                let _ended = tokio::io::copy_bidirectional(&mut inside, &mut stream).await;
            }
        });
        Ok(Self { folder, _relay: AbortOnDropHandle::new(relay) })
    }
}

/// A stream through the proxy.
async fn connect_via_proxy(proxy: &Url, target: &str) -> Result<TcpStream, String> {
    let (Some(host), Some(port)) = (proxy.host_str(), proxy.port_or_known_default()) else {
        return Err("it has no address".to_owned());
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{}\r\n", authorization_header(proxy));
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() == MAX_PROXY_RESPONSE_BYTES {
            return Err("its answer has no end".to_owned());
        }
        // One at a time: what follows the answer belongs to whoever is at the other end.
        answer.push(stream.read_u8().await.map_err(|error| error.to_string())?);
    }
    let answer = String::from_utf8_lossy(&answer);
    let line = answer.lines().next().unwrap_or_default();
    match line.strip_prefix("HTTP/1.").and_then(|rest| rest.split_once(' ')) {
        Some((_, status)) if status.starts_with('2') => Ok(stream),
        _ => Err(format!("it opens no way to {target}: {}", line.chars().take(100).collect::<String>())),
    }
}

/// The header with what the user set before the proxy's name, if anything.
fn authorization_header(proxy: &Url) -> String {
    if proxy.username().is_empty() {
        return String::new();
    }
    let mut pair = percent_decode(proxy.username());
    pair.push(b':');
    pair.extend(percent_decode(proxy.password().unwrap_or_default()));
    format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(pair))
}

/// A part of an address as it was before it was made one.
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

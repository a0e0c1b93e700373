//! Private hosts that the user allows tools to reach.

use std::net::IpAddr;
use std::str::FromStr;

/// Host, or one port of it, that may be reached although it is private: `localhost:3000`, `10.0.0.7`, `[::1]:80`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost {
    host: String,
    port: Option<u16>,
}

/// Error for a text that is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a host or host:port, such as 127.0.0.1:8080")]
pub struct HostParseError(String);

impl AllowedHost {
    /// Returns true if a URL with this host name and port is allowed.
    pub(super) fn covers_name(&self, host: &str, port: u16) -> bool {
        self.host.eq_ignore_ascii_case(host) && self.port.is_none_or(|allowed| allowed == port)
    }

    /// Returns true if this address and port are allowed.
    pub(super) fn covers_address(&self, address: IpAddr, port: u16) -> bool {
        self.host.parse() == Ok(address) && self.port.is_none_or(|allowed| allowed == port)
    }
}

impl FromStr for AllowedHost {
    type Err = HostParseError;

    fn from_str(text: &str) -> Result<Self, HostParseError> {
        let invalid = || HostParseError(text.to_owned());
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(invalid)?;
                (host, rest.strip_prefix(':').or(if rest.is_empty() { None } else { Some("?") }))
            }
            // More than one colon: an IPv6 address without brackets has no port.
            None if text.matches(':').count() > 1 => (text, None),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let is_host = host.parse::<IpAddr>().is_ok()
            || (!host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')));
        if !is_host {
            return Err(invalid());
        }
        let port = port.map(|port| port.parse().map_err(|_| invalid())).transpose()?;
        Ok(Self { host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::AllowedHost;

    #[test]
    fn host_is_allowed_by_name_or_address_with_or_without_a_port() {
        let allowed = |text: &str| text.parse::<AllowedHost>().unwrap();
        assert!(allowed("127.0.0.1:8080").covers_address("127.0.0.1".parse().unwrap(), 8080));
        assert!(!allowed("127.0.0.1:8080").covers_address("127.0.0.1".parse().unwrap(), 8081));
        assert!(allowed("[::1]:80").covers_address("::1".parse().unwrap(), 80));
        assert!(allowed("::1").covers_address("::1".parse().unwrap(), 443));
        assert!(allowed("Intranet").covers_name("intranet", 443));
        for invalid in ["", "http://x", "a:b", "[::1", "[::1]x", "a/b", ":80"] {
            assert!(invalid.parse::<AllowedHost>().is_err(), "{invalid}");
        }
    }
}

//! Endpoint URL of a provider's models.

use std::net::IpAddr;

use capstan_hooks::contracts::{ModelError, ModelErrorKind};
use reqwest::Url;

use crate::WireProtocol;
use crate::http_clients::TransportKind;

/// Endpoint of a provider's models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelEndpoint {
    wire: WireProtocol,
    /// URL of requests, without the path segments that name a model.
    base_url: Url,
    /// True if no base URL was configured and the provider's own is used.
    pub is_default: bool,
}

impl ModelEndpoint {
    /// Builds the endpoint from a base URL in any common spelling: with or without a trailing slash, with or without the
    /// request path.
    pub(crate) fn parse(provider: &str, wire: WireProtocol, base: Option<&str>) -> Result<Self, ModelError> {
        let base = base.map(str::trim).filter(|base| !base.is_empty());
        let url = Url::parse(base.unwrap_or(wire.default_base())).ok();
        let Some(mut base_url) = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) else {
            let message = format!("{provider}: invalid base URL; expected a URL such as {}", wire.default_base());
            return Err(ModelError::new(ModelErrorKind::Unreachable, message));
        };
        set_path(&mut base_url, wire);
        Ok(Self { wire, base_url, is_default: base.is_none() })
    }

    /// URL that requests to a model are posted to. Only Gemini names the model in the path.
    pub(crate) fn url(&self, model: &str) -> Url {
        let mut url = self.base_url.clone();
        if self.wire == WireProtocol::Gemini {
            let name = model.strip_prefix("models/").unwrap_or(model);
            let folder = if name.contains('/') { None } else { Some("models") };
            // A URL with a host always has path segments.
            if let Ok(mut segments) = url.path_segments_mut() {
                segments.extend(folder).extend(format!("{name}:streamGenerateContent").split('/'));
            }
        }
        url
    }

    /// URL that rerank requests are posted to: `/rerank` beside the path of chat requests. `None` if the provider has none:
    /// only servers that are compatible with `OpenAI` have it, and `OpenAI` itself does not.
    pub(crate) fn rerank_url(&self) -> Option<Url> {
        let mut url = Some(&self.base_url).filter(|_| self.wire == WireProtocol::OpenAi && !self.is_default)?.clone();
        let path = url.path().strip_suffix("/chat/completions").unwrap_or_default();
        let path = format!("{path}/rerank");
        url.set_path(&path);
        Some(url)
    }

    /// Scheme, host and port. Safe to display: contains no credentials.
    pub(crate) fn origin(&self) -> String {
        self.base_url.origin().ascii_serialization()
    }

    /// Possible secrets: the query values, both decoded and as written, and the password, or a user name without one, which
    /// is a token.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let decoded = self.base_url.query_pairs().map(|(_, value)| value.into_owned());
        let written = self.base_url.query().into_iter().flat_map(|query| query.split('&'));
        let written = written.filter_map(|pair| Some(pair.split_once('=')?.1.to_owned()));
        let user_info = self.base_url.password().unwrap_or_else(|| self.base_url.username());
        decoded.chain(written).chain([user_info.to_owned()]).collect()
    }

    /// Connection type.
    pub(crate) fn transport(&self) -> TransportKind {
        let host = self.base_url.host_str().unwrap_or_default();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        match self.base_url.scheme() {
            "https" => TransportKind::Encrypted,
            _ if host == "localhost" || address.is_ok_and(|address| address.is_loopback()) => TransportKind::Local,
            _ => TransportKind::Plain,
        }
    }
}

/// Appends the request path of the protocol, unless `url` already ends with it.
fn set_path(url: &mut Url, wire: WireProtocol) {
    let path = url.path().trim_end_matches('/').to_owned();
    match wire {
        WireProtocol::OpenAi | WireProtocol::OpenRouter => url.set_path(&with_suffix(&path, "/chat/completions")),
        WireProtocol::OpenAiResponses => url.set_path(&with_suffix(&path, "/responses")),
        WireProtocol::Anthropic => {
            let base = path.strip_suffix("/messages").unwrap_or(&path);
            url.set_path(&with_suffix(&with_suffix(base, "/v1"), "/messages"));
        }
        WireProtocol::Ollama => {
            let suffixes = ["/api/chat", "/api", "/v1"];
            let base = suffixes.iter().find_map(|suffix| path.strip_suffix(suffix)).unwrap_or(&path);
            url.set_path(&with_suffix(base, "/api/chat"));
        }
        WireProtocol::Gemini => {
            url.set_path(if path.is_empty() { "/v1beta" } else { &path });
            url.query_pairs_mut().append_pair("alt", "sse");
        }
    }
}

fn with_suffix(path: &str, suffix: &str) -> String {
    format!("{}{suffix}", path.strip_suffix(suffix).unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::ModelEndpoint;
    use crate::WireProtocol;
    use crate::http_clients::TransportKind;

    fn endpoint_url(wire: WireProtocol, base: &str) -> String {
        ModelEndpoint::parse("p", wire, Some(base)).unwrap().url("m").to_string()
    }

    #[test]
    fn base_url_is_accepted_in_common_spellings() {
        let expected = "http://127.0.0.1:1234/v1/chat/completions";
        for base in ["/v1", "/v1/", "/v1//", "/v1/chat/completions", "/v1/chat/completions/"] {
            assert_eq!(
                endpoint_url(WireProtocol::OpenAi, &format!(" http://127.0.0.1:1234{base}\n")),
                expected,
                "{base}"
            );
        }
        assert_eq!(
            endpoint_url(WireProtocol::OpenAi, "http://localhost:8080"),
            "http://localhost:8080/chat/completions"
        );
        assert_eq!(
            endpoint_url(WireProtocol::OpenAi, "https://x.example/v1?version=2"),
            "https://x.example/v1/chat/completions?version=2"
        );
    }

    #[test]
    fn k04_rerank_requests_go_beside_the_chat_requests_of_a_compatible_server() {
        let rerank_url = |wire, base| {
            let endpoint = ModelEndpoint::parse("p", wire, base).unwrap();
            endpoint.rerank_url().map(|url| url.to_string())
        };
        for base in ["https://x.example/v1", "https://x.example/v1/chat/completions"] {
            assert_eq!(rerank_url(WireProtocol::OpenAi, Some(base)).unwrap(), "https://x.example/v1/rerank");
        }
        assert_eq!(rerank_url(WireProtocol::OpenAi, Some("http://h?v=2")).unwrap(), "http://h/rerank?v=2");
        assert_eq!(rerank_url(WireProtocol::OpenAi, None), None);
        assert_eq!(rerank_url(WireProtocol::Ollama, Some("http://h")), None);
    }

    #[test]
    fn each_protocol_has_its_own_request_path() {
        for base in ["http://h", "http://h/", "http://h/v1", "http://h/v1/messages"] {
            assert_eq!(endpoint_url(WireProtocol::Anthropic, base), "http://h/v1/messages", "{base}");
        }
        for base in ["http://h", "http://h/api", "http://h/v1/", "http://h/api/chat"] {
            assert_eq!(endpoint_url(WireProtocol::Ollama, base), "http://h/api/chat", "{base}");
        }
        for base in ["http://h", "http://h/v1beta/"] {
            assert_eq!(
                endpoint_url(WireProtocol::Gemini, base),
                "http://h/v1beta/models/m:streamGenerateContent?alt=sse",
                "{base}"
            );
        }
        assert_eq!(endpoint_url(WireProtocol::OpenAiResponses, "http://h/v1"), "http://h/v1/responses");
        assert_eq!(endpoint_url(WireProtocol::OpenRouter, "http://h/api/v1"), "http://h/api/v1/chat/completions");
    }

    #[test]
    fn model_name_cannot_escape_its_path_segment() {
        let url_for =
            |model| ModelEndpoint::parse("p", WireProtocol::Gemini, Some("http://h")).unwrap().url(model).to_string();
        assert_eq!(url_for("models/m"), "http://h/v1beta/models/m:streamGenerateContent?alt=sse");
        assert_eq!(url_for("tunedModels/m"), "http://h/v1beta/tunedModels/m:streamGenerateContent?alt=sse");
        assert_eq!(url_for("../../x?y"), "http://h/v1beta/x%3Fy:streamGenerateContent?alt=sse");
    }

    #[test]
    fn missing_base_url_selects_the_default_endpoint() {
        for base in [None, Some(""), Some("  ")] {
            let endpoint = ModelEndpoint::parse("openai", WireProtocol::OpenAi, base).unwrap();
            assert!(endpoint.is_default);
            assert_eq!(endpoint.url("m").as_str(), "https://api.openai.com/v1/chat/completions");
        }
    }

    #[test]
    fn transport_distinguishes_loopback_from_remote_hosts() {
        let transport = |base| ModelEndpoint::parse("p", WireProtocol::OpenAi, Some(base)).unwrap().transport();
        for base in ["http://localhost:1", "http://127.0.0.2:1/v1", "http://[::1]:8080"] {
            assert_eq!(transport(base), TransportKind::Local, "{base}");
        }
        assert_eq!(transport("http://10.0.0.1:1"), TransportKind::Plain);
        assert_eq!(transport("https://localhost:1"), TransportKind::Encrypted);
    }

    #[test]
    fn invalid_base_url_is_rejected_without_being_quoted() {
        for base in ["127.0.0.1:1234/v1", "user:secret@host/v1", "ftp://host/v1", "not a url"] {
            let error = ModelEndpoint::parse("p", WireProtocol::OpenAi, Some(base)).unwrap_err();
            assert!(!error.message.contains("secret"), "{error}");
        }
    }

    #[test]
    fn origin_omits_credentials() {
        let endpoint = ModelEndpoint::parse("p", WireProtocol::OpenAi, Some("https://u:pw@host:8443/v1")).unwrap();
        assert_eq!(endpoint.origin(), "https://host:8443");
    }
}

//! Where requests go.

use std::net::IpAddr;

use capstan_hooks::contracts::{ModelError, ModelErrorKind};
use reqwest::Url;

use crate::WireProtocol;
use crate::http_clients::TransportKind;

/// The address requests of one model are posted to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelEndpoint {
    /// The URL requests are posted to.
    pub url: Url,
    /// Whether it is the provider's own because no other was set.
    pub is_default: bool,
}

impl ModelEndpoint {
    /// Reads a base URL as people write it: with or without a slash at the end, or with the path requests go to.
    pub(crate) fn parse(
        provider: &str,
        wire: WireProtocol,
        base: Option<&str>,
        model: &str,
    ) -> Result<Self, ModelError> {
        let base = base.map(str::trim).filter(|base| !base.is_empty());
        let url = Url::parse(base.unwrap_or(wire.default_base())).ok();
        let Some(mut url) = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) else {
            let message = format!("{provider}: the base URL is not one; it is written like {}", wire.default_base());
            return Err(ModelError::new(ModelErrorKind::Unreachable, message));
        };
        set_path(&mut url, wire, model);
        Ok(Self { url, is_default: base.is_none() })
    }

    /// Scheme, host and port: fit to be shown, as it holds no credentials.
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// What in it may be a secret: whatever is said in its query, as it is meant and as it is written, and a password.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let meant = self.url.query_pairs().map(|(_, value)| value.into_owned());
        let written = self.url.query().into_iter().flat_map(|query| query.split('&'));
        let written = written.filter_map(|pair| Some(pair.split_once('=')?.1.to_owned()));
        meant.chain(written).chain(self.url.password().map(str::to_owned)).collect()
    }

    /// How it is reached.
    pub(crate) fn transport(&self) -> TransportKind {
        let host = self.url.host_str().unwrap_or_default();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        match self.url.scheme() {
            "https" => TransportKind::Encrypted,
            _ if host == "localhost" || address.is_ok_and(|address| address.is_loopback()) => TransportKind::Local,
            _ => TransportKind::Plain,
        }
    }
}

fn set_path(url: &mut Url, wire: WireProtocol, model: &str) {
    let written = url.path().trim_end_matches('/').to_owned();
    match wire {
        WireProtocol::OpenAi | WireProtocol::OpenRouter => url.set_path(&with_suffix(&written, "/chat/completions")),
        WireProtocol::OpenAiResponses => url.set_path(&with_suffix(&written, "/responses")),
        WireProtocol::Anthropic => {
            let base = written.strip_suffix("/messages").unwrap_or(&written);
            url.set_path(&with_suffix(&with_suffix(base, "/v1"), "/messages"));
        }
        WireProtocol::Ollama => {
            let ends = ["/api/chat", "/api", "/v1"];
            let base = ends.iter().find_map(|end| written.strip_suffix(end)).unwrap_or(&written);
            url.set_path(&with_suffix(base, "/api/chat"));
        }
        WireProtocol::Gemini => {
            url.set_path(if written.is_empty() { "/v1beta" } else { &written });
            let name = model.strip_prefix("models/").unwrap_or(model);
            let folder = if name.contains('/') { None } else { Some("models") };
            // An address that has a host has segments.
            if let Ok(mut segments) = url.path_segments_mut() {
                segments.extend(folder).extend(format!("{name}:streamGenerateContent").split('/'));
            }
            url.query_pairs_mut().append_pair("alt", "sse");
        }
    }
}

fn with_suffix(path: &str, end: &str) -> String {
    format!("{}{end}", path.strip_suffix(end).unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::ModelEndpoint;
    use crate::WireProtocol;
    use crate::http_clients::TransportKind;

    fn endpoint_url(wire: WireProtocol, base: &str) -> String {
        ModelEndpoint::parse("p", wire, Some(base), "m").unwrap().url.to_string()
    }

    #[test]
    fn a_base_url_is_taken_as_people_write_it() {
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
    fn each_provider_has_a_path_of_its_own() {
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
    fn the_name_of_a_model_stays_within_its_path() {
        let of =
            |model| ModelEndpoint::parse("p", WireProtocol::Gemini, Some("http://h"), model).unwrap().url.to_string();
        assert_eq!(of("models/m"), "http://h/v1beta/models/m:streamGenerateContent?alt=sse");
        assert_eq!(of("tunedModels/m"), "http://h/v1beta/tunedModels/m:streamGenerateContent?alt=sse");
        assert_eq!(of("../../x?y"), "http://h/v1beta/x%3Fy:streamGenerateContent?alt=sse");
    }

    #[test]
    fn without_a_base_url_it_is_the_provider_itself() {
        for base in [None, Some(""), Some("  ")] {
            let endpoint = ModelEndpoint::parse("openai", WireProtocol::OpenAi, base, "m").unwrap();
            assert!(endpoint.is_default);
            assert_eq!(endpoint.url.as_str(), "https://api.openai.com/v1/chat/completions");
        }
    }

    #[test]
    fn a_server_on_this_machine_is_told_from_others() {
        let reach = |base| ModelEndpoint::parse("p", WireProtocol::OpenAi, Some(base), "m").unwrap().transport();
        for base in ["http://localhost:1", "http://127.0.0.2:1/v1", "http://[::1]:8080"] {
            assert_eq!(reach(base), TransportKind::Local, "{base}");
        }
        assert_eq!(reach("http://10.0.0.1:1"), TransportKind::Plain);
        assert_eq!(reach("https://localhost:1"), TransportKind::Encrypted);
    }

    #[test]
    fn what_is_no_url_is_refused_without_repeating_it() {
        for base in ["127.0.0.1:1234/v1", "user:secret@host/v1", "ftp://host/v1", "not a url"] {
            let error = ModelEndpoint::parse("p", WireProtocol::OpenAi, Some(base), "m").unwrap_err();
            assert!(!error.message.contains("secret"), "{error}");
        }
    }

    #[test]
    fn credentials_in_the_url_are_not_shown() {
        let endpoint = ModelEndpoint::parse("p", WireProtocol::OpenAi, Some("https://u:pw@host:8443/v1"), "m").unwrap();
        assert_eq!(endpoint.origin(), "https://host:8443");
    }
}

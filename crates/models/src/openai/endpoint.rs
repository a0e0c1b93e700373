//! Where requests go.

use capstan_hooks::contracts::{ModelError, ModelErrorKind};
use reqwest::Url;

const DEFAULT_BASE: &str = "https://api.openai.com/v1";
const CHAT: &str = "/chat/completions";

/// The address of a chat endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// The URL requests are posted to.
    pub chat: Url,
    /// Whether it is the one of `OpenAI` itself because no other was set.
    pub is_default: bool,
}

impl Endpoint {
    /// Reads a base URL as people write it: with or without a slash at the end, or with the path of the chat endpoint.
    pub(super) fn parse(base: Option<&str>) -> Result<Self, ModelError> {
        let base = base.map(str::trim).filter(|base| !base.is_empty());
        let url = Url::parse(base.unwrap_or(DEFAULT_BASE)).ok();
        let Some(mut chat) = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) else {
            let message = "openai: the base URL is not one; it is written like http://127.0.0.1:1234/v1";
            return Err(ModelError::new(ModelErrorKind::Unreachable, message));
        };
        let path = chat.path().trim_end_matches('/');
        let path = format!("{}{CHAT}", path.strip_suffix(CHAT).unwrap_or(path));
        chat.set_path(&path);
        Ok(Self { chat, is_default: base.is_none() })
    }

    /// Scheme, host and port: fit to be shown, as it holds no credentials.
    pub(super) fn origin(&self) -> String {
        self.chat.origin().ascii_serialization()
    }
}

#[cfg(test)]
mod tests {
    use super::Endpoint;

    fn chat(base: &str) -> String {
        Endpoint::parse(Some(base)).unwrap().chat.to_string()
    }

    #[test]
    fn a_base_url_is_taken_as_people_write_it() {
        let expected = "http://127.0.0.1:1234/v1/chat/completions";
        for base in ["/v1", "/v1/", "/v1//", "/v1/chat/completions", "/v1/chat/completions/"] {
            assert_eq!(chat(&format!(" http://127.0.0.1:1234{base}\n")), expected, "{base}");
        }
        assert_eq!(chat("http://localhost:8080"), "http://localhost:8080/chat/completions");
        assert_eq!(chat("https://x.example/v1?version=2"), "https://x.example/v1/chat/completions?version=2");
    }

    #[test]
    fn without_a_base_url_it_is_openai_itself() {
        for base in [None, Some(""), Some("  ")] {
            let endpoint = Endpoint::parse(base).unwrap();
            assert!(endpoint.is_default);
            assert_eq!(endpoint.chat.as_str(), "https://api.openai.com/v1/chat/completions");
        }
    }

    #[test]
    fn what_is_no_url_is_refused_without_repeating_it() {
        for base in ["127.0.0.1:1234/v1", "user:secret@host/v1", "ftp://host/v1", "not a url"] {
            let error = Endpoint::parse(Some(base)).unwrap_err();
            assert!(!error.message.contains("secret"), "{error}");
        }
    }

    #[test]
    fn credentials_in_the_url_are_not_shown() {
        assert_eq!(Endpoint::parse(Some("https://u:pw@host:8443/v1")).unwrap().origin(), "https://host:8443");
    }
}

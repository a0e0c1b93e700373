//! Check of the addresses of attachments.
//!
//! The host passes attachments on to models and runners and fetches none of them. A provider or runner may fetch them from
//! its own network and file system, so an address of a stranger must be one of the public internet.

use capstan_protocol::{ContentPart, KnownPart, is_public_address};
use serde_json::Value;
use url::{Host, Url};

/// Fields that name a file of the machine that reads them.
const PATH_FIELDS: [&str; 4] = ["path", "file_path", "filepath", "local_path"];
/// Suffixes of the names of fields that hold an address.
const ADDRESS_FIELD_SUFFIXES: [&str; 4] = ["url", "uri", "src", "href"];
/// Beginnings of a text that is an address whatever the name of its field.
const ADDRESS_PREFIXES: [&str; 2] = ["file:", "javascript:"];
/// Domains of names that resolve within a private network only.
const PRIVATE_DOMAINS: [&str; 6] = ["localhost", "local", "internal", "intranet", "lan", "home.arpa"];
/// Maximum length of an address in an error message, in bytes.
const MAX_SHOWN_ADDRESS_LEN: usize = 100;

/// Attachment with an address that a remote source may not name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the address {address:?} of an attachment is refused: {reason}")]
pub struct AttachmentError {
    /// The address, shortened.
    pub address: String,
    /// Reason of the refusal.
    pub reason: &'static str,
}

/// Checks the attachments of an event of remote origin: addresses are `data:` URLs, or `http:` and `https:` URLs of the
/// public internet, and no field names a file.
pub fn check_attachments(parts: &[ContentPart]) -> Result<(), AttachmentError> {
    parts.iter().try_for_each(|part| match part {
        ContentPart::Known(KnownPart::Text { .. }) => Ok(()),
        ContentPart::Known(KnownPart::ImageUrl { image_url }) => check_address(&image_url.url),
        ContentPart::Other(fields) => {
            // The text of a message may contain any address.
            let is_text = |name: &str| name == "text" && fields.get("type").is_some_and(|kind| kind == "text");
            fields.iter().filter(|(name, _)| !is_text(name)).try_for_each(|(name, value)| check_field(name, value))
        }
    })
}

/// Checks a field of an attachment, and the fields and items inside it.
fn check_field(name: &str, value: &Value) -> Result<(), AttachmentError> {
    match value {
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| check_field(name, value)),
        Value::Array(items) => items.iter().try_for_each(|item| check_field(name, item)),
        Value::String(text) => check_text(&name.to_ascii_lowercase(), text),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn check_text(name: &str, text: &str) -> Result<(), AttachmentError> {
    if PATH_FIELDS.contains(&name) {
        return Err(refusal(text, "it is a path of a file"));
    }
    let is_address_field = ADDRESS_FIELD_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    if is_address_field || looks_like_address(text) { check_address(text) } else { Ok(()) }
}

/// Returns true for `scheme://...`, and for schemes that do not need the slashes.
fn looks_like_address(text: &str) -> bool {
    let text = text.trim_start_matches(|char: char| char.is_whitespace() || char.is_control());
    let has_prefix = |prefix: &&str| text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    let is_scheme = |scheme: &str| {
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    ADDRESS_PREFIXES.iter().any(has_prefix) || text.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme))
}

fn check_address(address: &str) -> Result<(), AttachmentError> {
    let Ok(url) = Url::parse(address) else { return Err(refusal(address, "it is not a complete URL")) };
    match url.scheme() {
        "data" => return Ok(()),
        "http" | "https" => {}
        _ => return Err(refusal(address, "only data:, http: and https: are allowed")),
    }
    let is_public = match url.host() {
        Some(Host::Domain(domain)) => is_public_domain(domain),
        Some(Host::Ipv4(ip)) => is_public_address(ip.into()),
        Some(Host::Ipv6(ip)) => is_public_address(ip.into()),
        None => false,
    };
    if is_public { Ok(()) } else { Err(refusal(address, "its host is not on the public internet")) }
}

/// Returns true for names that can be public. They are not resolved: the host does not connect to them, and the network
/// of those that do may resolve them differently.
fn is_public_domain(domain: &str) -> bool {
    let domain = domain.strip_suffix('.').unwrap_or(domain);
    let is_within =
        |parent: &&str| domain.strip_suffix(*parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    domain.contains('.') && !PRIVATE_DOMAINS.iter().any(is_within)
}

fn refusal(address: &str, reason: &'static str) -> AttachmentError {
    let mut address = address.to_owned();
    capstan_protocol::truncate_bytes(&mut address, MAX_SHOWN_ADDRESS_LEN, "…");
    AttachmentError { address, reason }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::ContentPart;
    use serde_json::{Value, json};

    use super::check_attachments;

    fn check(part: Value) -> Result<(), String> {
        let part: ContentPart = serde_json::from_value(part).unwrap();
        check_attachments(&[part]).map_err(|error| error.to_string())
    }

    fn check_image(url: &str) -> Result<(), String> {
        check(json!({"type": "image_url", "image_url": {"url": url}}))
    }

    #[test]
    fn x06_public_addresses_and_inline_data_are_allowed() {
        for url in [
            "https://example.com/a.png",
            "http://93.184.215.14/a.png",
            "HTTPS://cdn.example.org:8443/a?b=c#d",
            "https://[2606:4700::1111]/a.png",
            "data:image/png;base64,AA==",
        ] {
            assert_eq!(check_image(url), Ok(()), "{url}");
        }
        for part in [
            json!({"type": "text", "text": "see file:///etc/passwd", "cache_control": {"type": "ephemeral"}}),
            json!({"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}),
            json!({"type": "file", "file": {"filename": "Re: report.pdf", "file_data": "data:application/pdf;base64,AA=="}}),
            json!({"type": "file", "file": {"file_id": "file-1"}}),
        ] {
            assert_eq!(check(part.clone()), Ok(()), "{part}");
        }
    }

    #[test]
    fn x06_private_addresses_are_refused_in_every_notation() {
        for url in [
            "http://169.254.169.254/latest/meta-data",
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http:169.254.169.254/",
            "http:\\\\10.0.0.1\\x",
            " http://192.168.1.1/",
            "ht\ntp://192.168.1.1/",
            "http://example.com@10.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:169.254.169.254]/",
            "http://１２７.0.0.1/",
            "http://localhost/",
            "http://LOCALHOST./",
            "http://a.localhost/",
            "http://metadata.google.internal/",
            "http://printer.local/",
            "http://intranet/",
        ] {
            let reason = check_image(url).unwrap_err();
            assert!(reason.contains("is not on the public internet"), "{url}: {reason}");
        }
    }

    #[test]
    fn x06_files_and_other_schemes_are_refused_in_every_field() {
        for url in [
            "file:///etc/passwd",
            "javascript:alert(1)",
            "ftp://example.com/a",
            "gopher://x.example/",
            "/etc/passwd",
            "",
        ] {
            assert!(check_image(url).is_err(), "{url}");
        }
        for part in [
            json!({"type": "file", "path": "/etc/passwd"}),
            json!({"type": "file", "file": {"path": "notes.txt"}}),
            json!({"type": "file", "file": {"file_url": "file:///etc/passwd"}}),
            json!({"type": "file", "file": {"file_id": "file:///etc/passwd"}}),
            json!({"type": "file", "file": {"anything": ["http://10.0.0.1/"]}}),
            json!({"type": "file", "Url": "http://10.0.0.1/"}),
            json!({"type": "input_image", "image_url": "http://10.0.0.1/"}),
            json!({"type": "image_url", "image_url": {"url": "http://10.0.0.1/", "detail": "low"}, "more": 1}),
            json!({"type": "image_url", "image_url": "http://10.0.0.1/"}),
        ] {
            assert!(check(part.clone()).is_err(), "{part}");
        }
    }
}

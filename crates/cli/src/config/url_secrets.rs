//! Secrets in URLs: a password or token before the host, and the values of the query.

use super::layer::CONFIG_SECRET_MASK;

/// Query parameter of Azure that is no secret, and that a user wants to see.
const PUBLIC_PARAMETER: &str = "api-version";

/// Secrets in a value, if it is a URL, as they are written and decoded.
pub(super) fn url_secrets(value: &str) -> Vec<String> {
    let mut secrets: Vec<String> = secret_ranges(value).into_iter().map(|range| value[range].to_owned()).collect();
    let decoded: Vec<String> = secrets.iter().map(|secret| percent_decode(secret)).collect();
    secrets.extend(decoded);
    secrets.sort();
    secrets.dedup();
    secrets
}

/// Masks the secrets in a value that is a URL.
pub(super) fn mask_url_secrets(value: &str) -> String {
    let mut masked = value.to_owned();
    for range in secret_ranges(value).into_iter().rev() {
        masked.replace_range(range, CONFIG_SECRET_MASK);
    }
    masked
}

/// Positions of the secrets in a URL, in order.
fn secret_ranges(value: &str) -> Vec<std::ops::Range<usize>> {
    let mut ranges = Vec::new();
    let Some(start) = value.find("://").map(|at| at + "://".len()) else { return ranges };
    let host_end = value[start..].find(['/', '?', '#']).map_or(value.len(), |at| start + at);
    if let Some(at) = value[start..host_end].rfind('@') {
        let user_info = &value[start..start + at];
        // A name alone is a token, since a name without a password proves nothing.
        let secret_start = user_info.find(':').map_or(start, |colon| start + colon + 1);
        ranges.push(secret_start..start + at);
    }
    let Some(query_start) = value[host_end..].find('?').map(|at| host_end + at + 1) else { return ranges };
    let query_end = value[query_start..].find('#').map_or(value.len(), |at| query_start + at);
    let mut part_start = query_start;
    for part in value[query_start..query_end].split('&') {
        let (name_len, separator_len) = part.find('=').map_or((0, 0), |at| (at, 1));
        if !part[..name_len].eq_ignore_ascii_case(PUBLIC_PARAMETER) {
            ranges.push(part_start + name_len + separator_len..part_start + part.len());
        }
        part_start += part.len() + 1;
    }
    ranges.retain(|range| !range.is_empty());
    ranges
}

/// Decodes `%XX`.
fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{mask_url_secrets, url_secrets};

    #[test]
    fn x06_secrets_of_a_url_are_found_and_masked() {
        let cases = [
            ("http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1", &[][..]),
            ("https://user:pass%2Fword@h/v1", "https://user:********@h/v1", &["pass%2Fword", "pass/word"]),
            ("https://token-of-mine@h/v1", "https://********@h/v1", &["token-of-mine"]),
            (
                "https://h/v1?api-version=2024-10-01&api-key=K1&x=@a:b#f",
                "https://h/v1?api-version=2024-10-01&api-key=********&x=********#f",
                &["@a:b", "K1"],
            ),
            ("https://h?bare-token", "https://h?********", &["bare-token"]),
            ("no url ? a=b", "no url ? a=b", &[]),
        ];
        for (url, masked, secrets) in cases {
            assert_eq!(mask_url_secrets(url), masked);
            assert_eq!(url_secrets(url), secrets, "{url}");
        }
    }
}

//! Where secrets stand in a text.

use std::cmp::Reverse;
use std::ops::Range;

use memchr::memmem::Finder;

/// How much of a secret must be there for a part of it to be masked: this many bytes, and a quarter of it. Less is what many
/// keys begin with, such as `sk-`, and gives little away.
const MIN_PARTIAL_SECRET_LEN: usize = 8;
/// How long a secret must be for parts of it to be masked, and how many digits it must have. Otherwise it may be a name or a
/// sentence that somebody gave a server, whose words stand in other texts too.
const MIN_KEY_LEN: usize = 16;
const MIN_KEY_DIGITS: usize = 2;

/// Where secrets stand whole, in order. Those that overlap are one.
pub(super) fn find_whole(secrets: &[Finder<'static>], text: &[u8]) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for secret in secrets {
        let mut from = 0;
        while let Some(found) = secret.find(&text[from..]) {
            let span = from + found..from + found + secret.needle().len();
            from = span.start + 1;
            // One that repeats itself may be found at every letter of a long text.
            match spans.last_mut() {
                Some(last) if last.contains(&span.start) => last.end = last.end.max(span.end),
                _ => spans.push(span),
            }
        }
    }
    merge_overlapping(spans)
}

/// The spans in order, with one in place of those that overlap.
pub(super) fn merge_overlapping(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.sort_unstable_by_key(|span| (span.start, Reverse(span.end)));
    let mut apart: Vec<Range<usize>> = Vec::with_capacity(spans.len());
    for span in spans {
        match apart.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => apart.push(span),
        }
    }
    apart
}

/// The good part of a secret that a text ends with: the rest of it was cut off.
pub(super) fn find_partial_at_end(secrets: &[Finder<'static>], text: &[u8]) -> Option<Range<usize>> {
    let parts = secrets.iter().map(|secret| (secret.needle(), prefix_len_at_end(secret.needle(), text)));
    let length =
        parts.filter(|(secret, length)| is_maskable_partial(secret, *length)).map(|(_, length)| length).max()?;
    Some(text.len() - length..text.len())
}

/// The good part of a secret that a text begins with: what was before it was cut off.
pub(super) fn find_partial_at_start(secrets: &[Finder<'static>], text: &[u8]) -> Option<Range<usize>> {
    let rest = |secret: &[u8]| {
        let lengths = 1..secret.len().min(text.len() + 1);
        lengths.rev().find(|length| text.starts_with(&secret[secret.len() - length..])).unwrap_or_default()
    };
    let parts = secrets.iter().map(|secret| (secret.needle(), rest(secret.needle())));
    let length =
        parts.filter(|(secret, length)| is_maskable_partial(secret, *length)).map(|(_, length)| length).max()?;
    Some(0..length)
}

fn is_maskable_partial(secret: &[u8], length: usize) -> bool {
    let digits = secret.iter().filter(|byte| byte.is_ascii_digit()).count();
    let is_key = secret.len() >= MIN_KEY_LEN && digits >= MIN_KEY_DIGITS && !secret.iter().any(u8::is_ascii_whitespace);
    is_key && length >= MIN_PARTIAL_SECRET_LEN && length * 4 >= secret.len()
}

/// How many bytes at the end of a text may be the beginning of a secret, of which more is to come.
pub(super) fn pending_prefix_len(secrets: &[Finder<'static>], text: &[u8]) -> usize {
    secrets.iter().map(|secret| prefix_len_at_end(secret.needle(), text)).max().unwrap_or_default()
}

/// How much of a secret, but not all of it, a text ends with.
fn prefix_len_at_end(secret: &[u8], text: &[u8]) -> usize {
    let lengths = 1..secret.len().min(text.len() + 1);
    lengths.rev().find(|length| text.ends_with(&secret[..*length])).unwrap_or_default()
}

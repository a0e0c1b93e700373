//! Positions of secrets in a text.

use std::cmp::Reverse;
use std::ops::Range;

use memchr::memmem::Finder;

/// Minimum length in bytes of a partial secret that is masked; it must also be at least a quarter of the secret. Shorter
/// parts, such as the common prefix `sk-`, reveal little.
const MIN_PARTIAL_SECRET_BYTES: usize = 8;
/// Minimum length in bytes of a secret whose parts are masked. A shorter secret may be a name or a phrase whose
/// words occur in other texts too.
const MIN_PARTIAL_MASK_SECRET_BYTES: usize = 16;
/// Minimum number of digits of a secret whose parts are masked.
const MIN_PARTIAL_MASK_DIGITS: usize = 2;

/// Spans of complete secrets, in order. Overlapping spans are merged.
pub(super) fn find_whole(secrets: &[Finder<'static>], text: &[u8]) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for secret in secrets {
        let mut from = 0;
        while let Some(found) = secret.find(&text[from..]) {
            let span = from + found..from + found + secret.needle().len();
            from = span.start + 1;
            // A repetitive secret (`aaaa`) can match at every byte of a text: merge at once to keep the list short.
            match spans.last_mut() {
                Some(last) if last.contains(&span.start) => last.end = last.end.max(span.end),
                _ => spans.push(span),
            }
        }
    }
    merge_overlapping(spans)
}

/// Sorts the spans and merges those that overlap.
pub(super) fn merge_overlapping(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.sort_unstable_by_key(|span| (span.start, Reverse(span.end)));
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}

/// Substantial beginning of a secret at the end of a text that was truncated.
pub(super) fn find_partial_at_end(secrets: &[Finder<'static>], text: &[u8]) -> Option<Range<usize>> {
    let parts = secrets.iter().map(|secret| (secret.needle(), prefix_len_at_end(secret.needle(), text)));
    let length =
        parts.filter(|(secret, length)| is_maskable_partial(secret, *length)).map(|(_, length)| length).max()?;
    Some(text.len() - length..text.len())
}

/// Substantial end of a secret at the beginning of a text that was truncated.
pub(super) fn find_partial_at_start(secrets: &[Finder<'static>], text: &[u8]) -> Option<Range<usize>> {
    let suffix_len = |secret: &[u8]| {
        let lengths = 1..secret.len().min(text.len() + 1);
        lengths.rev().find(|length| text.starts_with(&secret[secret.len() - length..])).unwrap_or_default()
    };
    let parts = secrets.iter().map(|secret| (secret.needle(), suffix_len(secret.needle())));
    let length =
        parts.filter(|(secret, length)| is_maskable_partial(secret, *length)).map(|(_, length)| length).max()?;
    Some(0..length)
}

fn is_maskable_partial(secret: &[u8], length: usize) -> bool {
    let digits = secret.iter().filter(|byte| byte.is_ascii_digit()).count();
    let is_key = secret.len() >= MIN_PARTIAL_MASK_SECRET_BYTES
        && digits >= MIN_PARTIAL_MASK_DIGITS
        && !secret.iter().any(u8::is_ascii_whitespace);
    is_key && length >= MIN_PARTIAL_SECRET_BYTES && length * 4 >= secret.len()
}

/// Number of bytes at the end of an unfinished text that may be the beginning of a secret.
pub(super) fn pending_prefix_len(secrets: &[Finder<'static>], text: &[u8]) -> usize {
    secrets.iter().map(|secret| prefix_len_at_end(secret.needle(), text)).max().unwrap_or_default()
}

/// Length of the longest proper prefix of `secret` that is a suffix of `text`.
fn prefix_len_at_end(secret: &[u8], text: &[u8]) -> usize {
    let lengths = 1..secret.len().min(text.len() + 1);
    lengths.rev().find(|length| text.ends_with(&secret[..*length])).unwrap_or_default()
}

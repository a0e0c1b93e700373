//! Positions of secrets in a text.

use std::cmp::Reverse;
use std::ops::Range;

use memchr::memmem::Finder;

/// Minimum length of a part of a secret to be masked, in bytes; it must also be a quarter of the secret. Shorter parts,
/// such as the common prefix `sk-`, reveal little.
const MIN_PARTIAL_SECRET_LEN: usize = 8;
/// Minimum length of a secret for parts of it to be masked, in bytes. A shorter secret may be a name or a phrase whose
/// words occur in other texts too.
const MIN_KEY_LEN: usize = 16;
/// Minimum number of digits of a secret for parts of it to be masked.
const MIN_KEY_DIGITS: usize = 2;

/// Spans of complete secrets, in order. Overlapping spans are merged.
pub(super) fn find_whole(secrets: &[Finder<'static>], text: &[u8]) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for secret in secrets {
        let mut from = 0;
        while let Some(found) = secret.find(&text[from..]) {
            let span = from + found..from + found + secret.needle().len();
            from = span.start + 1;
            // A periodic secret may be found at every byte of a long text, so overlaps are merged here already.
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
    let is_key = secret.len() >= MIN_KEY_LEN && digits >= MIN_KEY_DIGITS && !secret.iter().any(u8::is_ascii_whitespace);
    is_key && length >= MIN_PARTIAL_SECRET_LEN && length * 4 >= secret.len()
}

/// Number of bytes at the end of an unfinished text that may be the beginning of a secret.
pub(super) fn pending_prefix_len(secrets: &[Finder<'static>], text: &[u8]) -> usize {
    secrets.iter().map(|secret| prefix_len_at_end(secret.needle(), text)).max().unwrap_or_default()
}

/// Length of the longest proper prefix of a secret that a text ends with.
fn prefix_len_at_end(secret: &[u8], text: &[u8]) -> usize {
    let lengths = 1..secret.len().min(text.len() + 1);
    lengths.rev().find(|length| text.ends_with(&secret[..*length])).unwrap_or_default()
}

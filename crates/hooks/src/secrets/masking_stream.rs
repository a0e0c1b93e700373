//! Masking what comes bit by bit.

use std::fmt;
use std::ops::Range;

use super::{SECRET_MASK, SecretMasker, secret_spans};

/// Masks what comes bit by bit: a secret that comes in pieces is masked as one that comes whole.
///
/// What may be the beginning of a secret is held back until it is clear whether it is one.
///
/// ```
/// # use capstan_hooks::SecretMasker;
/// let mut stream = SecretMasker::new(["sk-0123456789".to_owned()]).masking_stream();
/// assert_eq!(stream.push(b"KEY=sk-01234"), b"KEY=");
/// assert_eq!(stream.push(b"56789!"), b"[masked]!");
/// assert_eq!(stream.finish(), b"");
/// ```
pub struct MaskingStream {
    secrets: SecretMasker,
    buffered: Vec<u8>,
    /// How much of the beginning of what is held is the end of a secret in whose place a mask was given: it may be the
    /// beginning of another one too.
    masked_prefix_len: usize,
}

/// What is held may be the beginning of a secret.
impl fmt::Debug for MaskingStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MaskingStream({} buffered)", self.buffered.len())
    }
}

impl MaskingStream {
    pub(super) fn new(secrets: SecretMasker) -> Self {
        Self { secrets, buffered: Vec::new(), masked_prefix_len: 0 }
    }

    /// More has come; gives what can be shown by now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.buffered.extend_from_slice(bytes);
        let known = self.buffered.len() - secret_spans::pending_prefix_len(&self.secrets.0, &self.buffered);
        self.emit_until(known, Vec::new())
    }

    /// Nothing more will come; gives the rest. A good part of a secret is masked.
    pub fn finish(&mut self) -> Vec<u8> {
        let part = secret_spans::find_partial_at_end(&self.secrets.0, &self.buffered);
        self.emit_until(self.buffered.len(), Vec::from_iter(part))
    }

    /// Gives what is held up to a place, with secrets masked, and these spans.
    fn emit_until(&mut self, end: usize, mut spans: Vec<Range<usize>>) -> Vec<u8> {
        spans.extend(secret_spans::find_whole(&self.secrets.0, &self.buffered));
        spans.extend((self.masked_prefix_len > 0).then_some(0..self.masked_prefix_len));
        let (mut given, mut from) = (Vec::with_capacity(end), 0);
        for span in secret_spans::merge_overlapping(spans).into_iter().take_while(|span| span.start < end) {
            given.extend_from_slice(&self.buffered[from..span.start]);
            let has_mask = span.start == 0 && self.masked_prefix_len > 0;
            given.extend_from_slice(if has_mask { b"" } else { SECRET_MASK.as_bytes() });
            from = span.end;
        }
        given.extend_from_slice(&self.buffered[from.min(end)..end]);
        self.buffered.drain(..end);
        self.masked_prefix_len = from.max(self.masked_prefix_len).saturating_sub(end);
        given
    }
}

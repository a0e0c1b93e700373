//! Masking of secrets in a stream of chunks.

use std::fmt;
use std::ops::Range;

use super::{SECRET_MASK, SecretMasker, secret_spans};

/// Masks secrets in a stream of chunks, including secrets that are split between chunks.
///
/// Bytes that may be the beginning of a secret are buffered until the following bytes decide.
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
    /// Number of bytes at the start of the buffer that belong to a secret whose mask was emitted already. They stay in
    /// the buffer because they may be the beginning of another secret.
    masked_prefix_len: usize,
}

/// Omits the buffered bytes, which may be the beginning of a secret.
impl fmt::Debug for MaskingStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MaskingStream({} buffered)", self.buffered.len())
    }
}

impl MaskingStream {
    pub(super) fn new(secrets: SecretMasker) -> Self {
        Self { secrets, buffered: Vec::new(), masked_prefix_len: 0 }
    }

    /// Adds a chunk and returns the bytes that are decided.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.buffered.extend_from_slice(bytes);
        let decided_len = self.buffered.len() - secret_spans::pending_prefix_len(&self.secrets.0, &self.buffered);
        self.emit_until(decided_len, Vec::new())
    }

    /// Ends the stream and returns the remaining bytes. A substantial part of a secret is masked.
    pub fn finish(&mut self) -> Vec<u8> {
        let partial = secret_spans::find_partial_at_end(&self.secrets.0, &self.buffered);
        self.emit_until(self.buffered.len(), Vec::from_iter(partial))
    }

    /// Removes the first `end` bytes from the buffer and returns them with secrets and the given spans masked.
    fn emit_until(&mut self, end: usize, mut spans: Vec<Range<usize>>) -> Vec<u8> {
        spans.extend(secret_spans::find_whole(&self.secrets.0, &self.buffered));
        spans.extend((self.masked_prefix_len > 0).then_some(0..self.masked_prefix_len));
        let (mut emitted, mut from) = (Vec::with_capacity(end), 0);
        for span in secret_spans::merge_overlapping(spans).into_iter().take_while(|span| span.start < end) {
            emitted.extend_from_slice(&self.buffered[from..span.start]);
            let has_mask = span.start == 0 && self.masked_prefix_len > 0;
            emitted.extend_from_slice(if has_mask { b"" } else { SECRET_MASK.as_bytes() });
            from = span.end;
        }
        emitted.extend_from_slice(&self.buffered[from.min(end)..end]);
        self.buffered.drain(..end);
        self.masked_prefix_len = from.max(self.masked_prefix_len).saturating_sub(end);
        emitted
    }
}

//! Masking what comes bit by bit.

use std::fmt;
use std::ops::Range;

use super::{MASK, Secrets, find};

/// Masks what comes bit by bit: a secret that comes in pieces is masked as one that comes whole.
///
/// What may be the beginning of a secret is held back until it is clear whether it is one.
///
/// ```
/// # use capstan_hooks::Secrets;
/// let mut stream = Secrets::new(["sk-0123456789".to_owned()]).stream();
/// assert_eq!(stream.push(b"KEY=sk-01234"), b"KEY=");
/// assert_eq!(stream.push(b"56789!"), b"[masked]!");
/// assert_eq!(stream.end(), b"");
/// ```
pub struct MaskedStream {
    secrets: Secrets,
    held: Vec<u8>,
    /// How much of the beginning of what is held is the end of a secret in whose place a mask was given: it may be the
    /// beginning of another one too.
    covered: usize,
}

/// What is held may be the beginning of a secret.
impl fmt::Debug for MaskedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MaskedStream({} held)", self.held.len())
    }
}

impl MaskedStream {
    pub(super) fn new(secrets: Secrets) -> Self {
        Self { secrets, held: Vec::new(), covered: 0 }
    }

    /// More has come; gives what can be shown by now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let known = self.held.len() - find::unfinished(&self.secrets.0, &self.held);
        self.give(known, Vec::new())
    }

    /// Nothing more will come; gives the rest. A good part of a secret is masked.
    pub fn end(&mut self) -> Vec<u8> {
        let part = find::part_at_end(&self.secrets.0, &self.held);
        self.give(self.held.len(), Vec::from_iter(part))
    }

    /// Gives what is held up to a place, with secrets masked, and these spans.
    fn give(&mut self, end: usize, mut spans: Vec<Range<usize>>) -> Vec<u8> {
        spans.extend(find::whole(&self.secrets.0, &self.held));
        spans.extend((self.covered > 0).then_some(0..self.covered));
        let (mut given, mut from) = (Vec::with_capacity(end), 0);
        for span in find::apart(spans).into_iter().take_while(|span| span.start < end) {
            given.extend_from_slice(&self.held[from..span.start]);
            let has_mask = span.start == 0 && self.covered > 0;
            given.extend_from_slice(if has_mask { b"" } else { MASK.as_bytes() });
            from = span.end;
        }
        given.extend_from_slice(&self.held[from.min(end)..end]);
        self.held.drain(..end);
        self.covered = from.max(self.covered).saturating_sub(end);
        given
    }
}

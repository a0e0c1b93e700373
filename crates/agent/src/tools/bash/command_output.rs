//! Bounded buffer for a command's output: complete if it fits, otherwise its beginning and its end.

use std::collections::VecDeque;

use capstan_hooks::{MaskingStream, SecretMasker};

/// Maximum output kept of a foreground command: half of it from the beginning, half from the end.
pub(super) const MAX_FOREGROUND_OUTPUT_BYTES: usize = 8 * 1024 * 1024;
/// Maximum output kept of a background command, of which there may be many.
pub(super) const MAX_BACKGROUND_OUTPUT_BYTES: usize = 64 * 1024;

/// Output of a command.
#[derive(Debug)]
pub(super) struct CommandOutput {
    /// Maximum size of the head, and of the tail.
    half_limit: usize,
    /// Masks secrets before any part of the output is dropped or read.
    masking: MaskingStream,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Number of bytes received, except for a possible beginning of a secret.
    total_bytes: usize,
    /// Number of bytes already read by the caller.
    read_bytes: usize,
}

/// State of a command's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputState {
    /// More output may follow.
    Open,
    /// The command has exited.
    Closed,
}

impl CommandOutput {
    /// Creates an empty buffer that keeps at most `max_bytes` and masks `secrets`.
    pub(super) fn with_max_bytes(max_bytes: usize, secrets: &SecretMasker) -> Self {
        Self {
            half_limit: max_bytes / 2,
            masking: secrets.masking_stream(),
            head: Vec::new(),
            tail: VecDeque::new(),
            total_bytes: 0,
            read_bytes: 0,
        }
    }

    /// Appends output.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let masked = self.masking.push(bytes);
        self.append(&masked);
    }

    fn append(&mut self, bytes: &[u8]) {
        self.total_bytes += bytes.len();
        let (head, rest) = bytes.split_at((self.half_limit - self.head.len()).min(bytes.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(self.half_limit)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.half_limit);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// Returns the output since the last call, with a notice in place of dropped bytes. While the output is open, a
    /// possible beginning of a secret is held back.
    pub(super) fn take_new(&mut self, state: OutputState) -> String {
        if state == OutputState::Closed {
            let rest = self.masking.finish();
            self.append(&rest);
        }
        let head = self.head.get(self.read_bytes..).unwrap_or_default().to_vec();
        let tail_start = self.total_bytes - self.tail.len();
        let dropped = tail_start.saturating_sub(self.read_bytes.max(self.head.len()));
        let skipped = self.read_bytes.saturating_sub(tail_start);
        let tail: Vec<u8> = self.tail.iter().skip(skipped).copied().collect();
        self.read_bytes = self.total_bytes;
        if dropped > 0 {
            return format!("{}\n[{dropped} bytes left out]\n{}", to_text(head), to_text(tail));
        }
        let mut output = head;
        output.extend(tail);
        if state == OutputState::Open {
            // The rest of the character may still arrive.
            let partial = partial_char_len(&output);
            self.read_bytes -= partial;
            output.truncate(output.len() - partial);
        }
        to_text(output)
    }
}

/// Converts bytes to text. Invalid UTF-8 is replaced, and so are zero bytes, which many readers take for the end.
fn to_text(bytes: Vec<u8>) -> String {
    let marked = |error: std::string::FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into_owned();
    let text = String::from_utf8(bytes).unwrap_or_else(marked);
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// Returns the number of bytes at the end that are the beginning of a character.
fn partial_char_len(bytes: &[u8]) -> usize {
    let begin = bytes.len().saturating_sub(4);
    let tail = &bytes[begin..];
    let Some(lead) = tail.iter().rposition(|byte| byte & 0b1100_0000 != 0b1000_0000) else { return 0 };
    match std::str::from_utf8(&tail[lead..]) {
        Err(error) if error.error_len().is_none() => tail.len() - lead,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use capstan_hooks::SecretMasker;

    use super::{CommandOutput, MAX_BACKGROUND_OUTPUT_BYTES, MAX_FOREGROUND_OUTPUT_BYTES, OutputState};

    const OUTPUT_SECRET: &str = "sk-SECRETOPENAI-1234567890abcdef";

    fn masking_output(max_bytes: usize) -> CommandOutput {
        CommandOutput::with_max_bytes(max_bytes, &SecretMasker::new([OUTPUT_SECRET.to_owned()]))
    }

    #[test]
    fn x06_secret_at_the_edge_of_the_dropped_middle_is_masked() {
        let half = MAX_FOREGROUND_OUTPUT_BYTES / 2;
        for (before, end) in [(half - 14, 2 * half), (0, half - 14)] {
            let mut output = masking_output(MAX_FOREGROUND_OUTPUT_BYTES);
            output.push(&vec![b'x'; before]);
            output.push(OUTPUT_SECRET.as_bytes());
            output.push(&vec![b'y'; end]);
            output.push(&vec![b'z'; MAX_FOREGROUND_OUTPUT_BYTES - end]);
            let text = output.take_new(OutputState::Closed);
            assert!(text.contains(" bytes left out]\n"), "{}", text.len());
            let part =
                OUTPUT_SECRET.as_bytes().windows(4).find(|part| text.contains(std::str::from_utf8(part).unwrap()));
            assert_eq!(part, None);
        }
    }

    #[test]
    fn x06_secret_written_in_pieces_between_reads_is_masked() {
        let mut output = masking_output(MAX_BACKGROUND_OUTPUT_BYTES);
        let reads =
            [&OUTPUT_SECRET[..11], &OUTPUT_SECRET[11..20], &OUTPUT_SECRET[20..], " and more\n", "sk-"].map(|piece| {
                output.push(piece.as_bytes());
                output.take_new(OutputState::Open)
            });
        assert_eq!(reads, ["", "", "[masked]", " and more\n", ""]);
        assert_eq!(output.take_new(OutputState::Closed), "sk-", "text that is not a secret follows at the end");
        let mut output = masking_output(MAX_BACKGROUND_OUTPUT_BYTES);
        output.push(&OUTPUT_SECRET.as_bytes()[..31]);
        assert_eq!(output.take_new(OutputState::Closed), "[masked]", "a truncated secret is masked too");
    }

    #[test]
    fn a10_output_within_the_limit_is_kept_completely() {
        let mut output = CommandOutput::with_max_bytes(MAX_FOREGROUND_OUTPUT_BYTES, &SecretMasker::default());
        let chunk: Vec<u8> = (b'a'..=b'z').cycle().take(1 << 20).collect();
        (0..8).for_each(|_| output.push(&chunk));
        assert_eq!(output.take_new(OutputState::Closed).into_bytes(), chunk.repeat(8));
        let mut output = CommandOutput::with_max_bytes(MAX_FOREGROUND_OUTPUT_BYTES, &SecretMasker::default());
        (0..9).for_each(|_| output.push(&chunk));
        let text = output.take_new(OutputState::Closed);
        assert!(
            text.contains("\n[1048576 bytes left out]\n") && text.len() < MAX_FOREGROUND_OUTPUT_BYTES + 100,
            "{}",
            text.len()
        );
    }

    #[test]
    fn a04_only_head_and_tail_are_kept_beyond_the_limit() {
        let mut output = CommandOutput::with_max_bytes(MAX_BACKGROUND_OUTPUT_BYTES, &SecretMasker::default());
        output.push(b"first ");
        for _ in 0..1000 {
            output.push(&[b'x'; 1000]);
        }
        output.push(b" last");
        assert!(output.head.len() + output.tail.len() <= 64 * 1024);
        let text = output.take_new(OutputState::Closed);
        assert!(text.starts_with("first x") && text.ends_with("x last"));
        assert!(text.contains("\n[934475 bytes left out]\n"), "{}", &text[32_700..32_900]);
    }

    #[test]
    fn a04_output_is_returned_only_once() {
        let mut output = CommandOutput::with_max_bytes(MAX_BACKGROUND_OUTPUT_BYTES, &SecretMasker::default());
        output.push(b"one");
        assert_eq!(output.take_new(OutputState::Open), "one");
        assert_eq!(output.take_new(OutputState::Open), "");
        output.push(&vec![b'x'; 32 * 1024]);
        output.push(b"end");
        assert!(output.take_new(OutputState::Open).ends_with("xend"));
        output.push(b"two");
        assert_eq!(output.take_new(OutputState::Open), "two");
        output.push(&vec![b'y'; 100 * 1024]);
        let text = output.take_new(OutputState::Open);
        assert!(text.starts_with(&format!("\n[{} bytes left out]\nyyy", 68 * 1024)), "{}", &text[..40]);
    }

    #[test]
    fn a04_characters_are_not_split_and_invalid_bytes_are_replaced() {
        let mut output = CommandOutput::with_max_bytes(MAX_BACKGROUND_OUTPUT_BYTES, &SecretMasker::default());
        output.push("a\u{20ac}".as_bytes().split_last().unwrap().1);
        assert_eq!(output.take_new(OutputState::Open), "a");
        output.push(b"\xac");
        assert_eq!(output.take_new(OutputState::Open), "\u{20ac}");
        output.push(b"caf\xe9\0");
        assert_eq!(output.take_new(OutputState::Open), "caf\u{fffd}\u{fffd}");
    }
}

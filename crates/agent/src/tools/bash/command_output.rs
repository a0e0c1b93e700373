//! What a command says, of which a bounded part is kept: all of it where it is not too much, else how it began and how it
//! ended.

use std::collections::VecDeque;

use capstan_hooks::{MaskingStream, SecretMasker};

/// How much is kept of a command that is waited for: half of it of the beginning, half of the end.
pub(super) const MAX_FOREGROUND_OUTPUT_BYTES: usize = 8 * 1024 * 1024;
/// How much is kept of a command in the background. There may be many of them.
pub(super) const MAX_BACKGROUND_OUTPUT_BYTES: usize = 64 * 1024;

/// What a command has said so far.
#[derive(Debug)]
pub(super) struct CommandOutput {
    /// How much of the beginning is kept, and how much of the end.
    half_limit: usize,
    /// What was said goes through this before any of it is left out or given.
    masking: MaskingStream,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// How many bytes it has said, as far as they are known to be no secret.
    total_bytes: usize,
    /// How many of them were given to whoever asked.
    read_bytes: usize,
}

/// Whether a command may say more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputState {
    /// It still runs.
    Open,
    /// It has ended.
    Closed,
}

impl CommandOutput {
    /// Nothing yet. No more than this is kept, and nothing of these.
    pub(super) fn with_max_bytes(most: usize, secrets: &SecretMasker) -> Self {
        let masked = secrets.masking_stream();
        Self {
            half_limit: most / 2,
            masking: masked,
            head: Vec::new(),
            tail: VecDeque::new(),
            total_bytes: 0,
            read_bytes: 0,
        }
    }

    /// It says more.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let masked = self.masking.push(bytes);
        self.append(&masked);
    }

    fn append(&mut self, bytes: &[u8]) {
        self.total_bytes += bytes.len();
        let (head, rest) = bytes.split_at((self.half_limit - self.head.len()).min(bytes.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(self.half_limit)..];
        let too_many = (self.tail.len() + rest.len()).saturating_sub(self.half_limit);
        self.tail.drain(..too_many);
        self.tail.extend(rest);
    }

    /// What was said since the last time; where it was too much, a line tells how much is missing. While more may come,
    /// what may be the beginning of a secret is not told.
    pub(super) fn take_new(&mut self, more: OutputState) -> String {
        if more == OutputState::Closed {
            let rest = self.masking.finish();
            self.append(&rest);
        }
        let head = self.head.get(self.read_bytes..).unwrap_or_default().to_vec();
        let tail_begins = self.total_bytes - self.tail.len();
        let left_out = tail_begins.saturating_sub(self.read_bytes.max(self.head.len()));
        let skipped = self.read_bytes.saturating_sub(tail_begins);
        let tail: Vec<u8> = self.tail.iter().skip(skipped).copied().collect();
        self.read_bytes = self.total_bytes;
        if left_out > 0 {
            return format!("{}\n[{left_out} bytes left out]\n{}", to_text(head), to_text(tail));
        }
        let mut news = head;
        news.extend(tail);
        if more == OutputState::Open {
            // The rest of a character may still come.
            let cut = partial_char_len(&news);
            self.read_bytes -= cut;
            news.truncate(news.len() - cut);
        }
        to_text(news)
    }
}

/// The bytes as text. What is none is marked, and so are zero bytes, which many readers take for an end.
fn to_text(bytes: Vec<u8>) -> String {
    let marked = |error: std::string::FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into_owned();
    let text = String::from_utf8(bytes).unwrap_or_else(marked);
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// How many bytes at the end are the beginning of a character.
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

    fn masking_output(most: usize) -> CommandOutput {
        CommandOutput::with_max_bytes(most, &SecretMasker::new([OUTPUT_SECRET.to_owned()]))
    }

    #[test]
    fn x06_a_key_that_lies_where_the_middle_is_left_out_is_masked() {
        let half = MAX_FOREGROUND_OUTPUT_BYTES / 2;
        for (before, end) in [(half - 14, 2 * half), (0, half - 14)] {
            let mut said = masking_output(MAX_FOREGROUND_OUTPUT_BYTES);
            said.push(&vec![b'x'; before]);
            said.push(OUTPUT_SECRET.as_bytes());
            said.push(&vec![b'y'; end]);
            said.push(&vec![b'z'; MAX_FOREGROUND_OUTPUT_BYTES - end]);
            let text = said.take_new(OutputState::Closed);
            assert!(text.contains(" bytes left out]\n"), "{}", text.len());
            let part =
                OUTPUT_SECRET.as_bytes().windows(4).find(|part| text.contains(std::str::from_utf8(part).unwrap()));
            assert_eq!(part, None);
        }
    }

    #[test]
    fn x06_a_key_that_is_said_in_pieces_between_looks_is_masked() {
        let mut said = masking_output(MAX_BACKGROUND_OUTPUT_BYTES);
        let looks =
            [&OUTPUT_SECRET[..11], &OUTPUT_SECRET[11..20], &OUTPUT_SECRET[20..], " and more\n", "sk-"].map(|piece| {
                said.push(piece.as_bytes());
                said.take_new(OutputState::Open)
            });
        assert_eq!(looks, ["", "", "[masked]", " and more\n", ""]);
        assert_eq!(said.take_new(OutputState::Closed), "sk-", "what is no key comes at the end");
        let mut said = masking_output(MAX_BACKGROUND_OUTPUT_BYTES);
        said.push(&OUTPUT_SECRET.as_bytes()[..31]);
        assert_eq!(said.take_new(OutputState::Closed), "[masked]", "what was cut off is masked too");
    }

    #[test]
    fn a10_what_is_not_too_much_is_kept_whole() {
        let mut said = CommandOutput::with_max_bytes(MAX_FOREGROUND_OUTPUT_BYTES, &SecretMasker::default());
        let chunk: Vec<u8> = (b'a'..=b'z').cycle().take(1 << 20).collect();
        (0..8).for_each(|_| said.push(&chunk));
        assert_eq!(said.take_new(OutputState::Closed).into_bytes(), chunk.repeat(8));
        let mut said = CommandOutput::with_max_bytes(MAX_FOREGROUND_OUTPUT_BYTES, &SecretMasker::default());
        (0..9).for_each(|_| said.push(&chunk));
        let text = said.take_new(OutputState::Closed);
        assert!(
            text.contains("\n[1048576 bytes left out]\n") && text.len() < MAX_FOREGROUND_OUTPUT_BYTES + 100,
            "{}",
            text.len()
        );
    }

    #[test]
    fn a04_the_beginning_and_the_end_are_kept_and_no_more() {
        let mut said = CommandOutput::with_max_bytes(MAX_BACKGROUND_OUTPUT_BYTES, &SecretMasker::default());
        said.push(b"first ");
        for _ in 0..1000 {
            said.push(&[b'x'; 1000]);
        }
        said.push(b" last");
        assert!(said.head.len() + said.tail.len() <= 64 * 1024);
        let text = said.take_new(OutputState::Closed);
        assert!(text.starts_with("first x") && text.ends_with("x last"));
        assert!(text.contains("\n[934475 bytes left out]\n"), "{}", &text[32_700..32_900]);
    }

    #[test]
    fn a04_what_was_given_is_not_given_again() {
        let mut said = CommandOutput::with_max_bytes(MAX_BACKGROUND_OUTPUT_BYTES, &SecretMasker::default());
        said.push(b"one");
        assert_eq!(said.take_new(OutputState::Open), "one");
        assert_eq!(said.take_new(OutputState::Open), "");
        said.push(&vec![b'x'; 32 * 1024]);
        said.push(b"end");
        assert!(said.take_new(OutputState::Open).ends_with("xend"));
        said.push(b"two");
        assert_eq!(said.take_new(OutputState::Open), "two");
        said.push(&vec![b'y'; 100 * 1024]);
        let text = said.take_new(OutputState::Open);
        assert!(text.starts_with(&format!("\n[{} bytes left out]\nyyy", 68 * 1024)), "{}", &text[..40]);
    }

    #[test]
    fn a04_characters_are_not_torn_and_what_is_no_text_is_marked() {
        let mut said = CommandOutput::with_max_bytes(MAX_BACKGROUND_OUTPUT_BYTES, &SecretMasker::default());
        said.push("a\u{20ac}".as_bytes().split_last().unwrap().1);
        assert_eq!(said.take_new(OutputState::Open), "a");
        said.push(b"\xac");
        assert_eq!(said.take_new(OutputState::Open), "\u{20ac}");
        said.push(b"caf\xe9\0");
        assert_eq!(said.take_new(OutputState::Open), "caf\u{fffd}\u{fffd}");
    }
}

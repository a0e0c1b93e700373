//! What a command says, of which a bounded part is kept: all of it where it is not too much, else how it began and how it
//! ended.

use std::collections::VecDeque;

use capstan_hooks::{MaskedStream, Secrets};

/// How much is kept of a command that is waited for: half of it of the beginning, half of the end.
pub(super) const WAITED_FOR: usize = 8 * 1024 * 1024;
/// How much is kept of a command in the background. There may be many of them.
pub(super) const IN_BACKGROUND: usize = 64 * 1024;

/// What a command has said so far.
#[derive(Debug)]
pub(super) struct Said {
    /// How much of the beginning is kept, and how much of the end.
    half: usize,
    /// What was said goes through this before any of it is left out or given.
    masked: MaskedStream,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// How many bytes it has said, as far as they are known to be no secret.
    total: usize,
    /// How many of them were given to whoever asked.
    given: usize,
}

/// Whether a command may say more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    /// It still runs.
    MayCome,
    /// It has ended.
    Never,
}

impl Said {
    /// Nothing yet. No more than this is kept, and nothing of these.
    pub(super) fn keeping(most: usize, secrets: &Secrets) -> Self {
        let masked = secrets.stream();
        Self { half: most / 2, masked, head: Vec::new(), tail: VecDeque::new(), total: 0, given: 0 }
    }

    /// It says more.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let masked = self.masked.push(bytes);
        self.keep(&masked);
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.total += bytes.len();
        let (head, rest) = bytes.split_at((self.half - self.head.len()).min(bytes.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let too_many = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..too_many);
        self.tail.extend(rest);
    }

    /// What was said since the last time; where it was too much, a line tells how much is missing. While more may come,
    /// what may be the beginning of a secret is not told.
    pub(super) fn news(&mut self, more: More) -> String {
        if more == More::Never {
            let rest = self.masked.end();
            self.keep(&rest);
        }
        let head = self.head.get(self.given..).unwrap_or_default().to_vec();
        let tail_begins = self.total - self.tail.len();
        let left_out = tail_begins.saturating_sub(self.given.max(self.head.len()));
        let skipped = self.given.saturating_sub(tail_begins);
        let tail: Vec<u8> = self.tail.iter().skip(skipped).copied().collect();
        self.given = self.total;
        if left_out > 0 {
            return format!("{}\n[{left_out} bytes left out]\n{}", text(head), text(tail));
        }
        let mut news = head;
        news.extend(tail);
        if more == More::MayCome {
            // The rest of a character may still come.
            let cut = unfinished(&news);
            self.given -= cut;
            news.truncate(news.len() - cut);
        }
        text(news)
    }
}

/// The bytes as text. What is none is marked, and so are zero bytes, which many readers take for an end.
fn text(bytes: Vec<u8>) -> String {
    let marked = |error: std::string::FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into_owned();
    let text = String::from_utf8(bytes).unwrap_or_else(marked);
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// How many bytes at the end are the beginning of a character.
fn unfinished(bytes: &[u8]) -> usize {
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
    use capstan_hooks::Secrets;

    use super::{IN_BACKGROUND, More, Said, WAITED_FOR};

    const KEY: &str = "sk-SECRETOPENAI-1234567890abcdef";

    fn keeping(most: usize) -> Said {
        Said::keeping(most, &Secrets::new([KEY.to_owned()]))
    }

    #[test]
    fn x06_a_key_that_lies_where_the_middle_is_left_out_is_masked() {
        let half = WAITED_FOR / 2;
        for (before, end) in [(half - 14, 2 * half), (0, half - 14)] {
            let mut said = keeping(WAITED_FOR);
            said.push(&vec![b'x'; before]);
            said.push(KEY.as_bytes());
            said.push(&vec![b'y'; end]);
            said.push(&vec![b'z'; WAITED_FOR - end]);
            let text = said.news(More::Never);
            assert!(text.contains(" bytes left out]\n"), "{}", text.len());
            let part = KEY.as_bytes().windows(4).find(|part| text.contains(std::str::from_utf8(part).unwrap()));
            assert_eq!(part, None);
        }
    }

    #[test]
    fn x06_a_key_that_is_said_in_pieces_between_looks_is_masked() {
        let mut said = keeping(IN_BACKGROUND);
        let looks = [&KEY[..11], &KEY[11..20], &KEY[20..], " and more\n", "sk-"].map(|piece| {
            said.push(piece.as_bytes());
            said.news(More::MayCome)
        });
        assert_eq!(looks, ["", "", "[masked]", " and more\n", ""]);
        assert_eq!(said.news(More::Never), "sk-", "what is no key comes at the end");
        let mut said = keeping(IN_BACKGROUND);
        said.push(&KEY.as_bytes()[..31]);
        assert_eq!(said.news(More::Never), "[masked]", "what was cut off is masked too");
    }

    #[test]
    fn a10_what_is_not_too_much_is_kept_whole() {
        let mut said = Said::keeping(WAITED_FOR, &Secrets::default());
        let chunk: Vec<u8> = (b'a'..=b'z').cycle().take(1 << 20).collect();
        (0..8).for_each(|_| said.push(&chunk));
        assert_eq!(said.news(More::Never).into_bytes(), chunk.repeat(8));
        let mut said = Said::keeping(WAITED_FOR, &Secrets::default());
        (0..9).for_each(|_| said.push(&chunk));
        let text = said.news(More::Never);
        assert!(text.contains("\n[1048576 bytes left out]\n") && text.len() < WAITED_FOR + 100, "{}", text.len());
    }

    #[test]
    fn a04_the_beginning_and_the_end_are_kept_and_no_more() {
        let mut said = Said::keeping(IN_BACKGROUND, &Secrets::default());
        said.push(b"first ");
        for _ in 0..1000 {
            said.push(&[b'x'; 1000]);
        }
        said.push(b" last");
        assert!(said.head.len() + said.tail.len() <= 64 * 1024);
        let text = said.news(More::Never);
        assert!(text.starts_with("first x") && text.ends_with("x last"));
        assert!(text.contains("\n[934475 bytes left out]\n"), "{}", &text[32_700..32_900]);
    }

    #[test]
    fn a04_what_was_given_is_not_given_again() {
        let mut said = Said::keeping(IN_BACKGROUND, &Secrets::default());
        said.push(b"one");
        assert_eq!(said.news(More::MayCome), "one");
        assert_eq!(said.news(More::MayCome), "");
        said.push(&vec![b'x'; 32 * 1024]);
        said.push(b"end");
        assert!(said.news(More::MayCome).ends_with("xend"));
        said.push(b"two");
        assert_eq!(said.news(More::MayCome), "two");
        said.push(&vec![b'y'; 100 * 1024]);
        let text = said.news(More::MayCome);
        assert!(text.starts_with(&format!("\n[{} bytes left out]\nyyy", 68 * 1024)), "{}", &text[..40]);
    }

    #[test]
    fn a04_characters_are_not_torn_and_what_is_no_text_is_marked() {
        let mut said = Said::keeping(IN_BACKGROUND, &Secrets::default());
        said.push("a\u{20ac}".as_bytes().split_last().unwrap().1);
        assert_eq!(said.news(More::MayCome), "a");
        said.push(b"\xac");
        assert_eq!(said.news(More::MayCome), "\u{20ac}");
        said.push(b"caf\xe9\0");
        assert_eq!(said.news(More::MayCome), "caf\u{fffd}\u{fffd}");
    }
}

//! Messages of earlier chats, in a file that only its owner can read.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use capstan_channels::chat::MAX_HISTORY_MESSAGES;

/// The history file of a home, one JSON string per line.
pub(super) struct ChatHistory {
    path: PathBuf,
}

impl ChatHistory {
    /// Opens the history and returns its messages, newest last. Skips lines that cannot be read, because a chat works
    /// without them.
    pub(super) fn open(home: &Path) -> (Self, Vec<String>) {
        let history = Self { path: home.join("chat_history") };
        let text = std::fs::read_to_string(&history.path).unwrap_or_default();
        let messages: Vec<String> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let newest = messages[messages.len().saturating_sub(MAX_HISTORY_MESSAGES)..].to_vec();
        if messages.len() > 2 * MAX_HISTORY_MESSAGES
            && let Err(error) = history.rewrite(&newest)
        {
            tracing::debug!(%error, "could not shorten the chat history");
        }
        (history, newest)
    }

    /// Adds a message.
    pub(super) fn add(&self, message: &str) {
        if let Err(error) = self.append(message) {
            tracing::debug!(%error, "could not add a message to the chat history");
        }
    }

    fn append(&self, message: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)?;
        file.write_all(format!("{}\n", serde_json::to_string(message)?).as_bytes())
    }

    fn rewrite(&self, messages: &[String]) -> io::Result<()> {
        let mut text = String::new();
        for message in messages {
            text.push_str(&serde_json::to_string(message)?);
            text.push('\n');
        }
        crate::config::write_private_file(&self.path, &text)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::ChatHistory;

    #[test]
    fn c01_history_is_stored_in_a_private_file() {
        let home = tempfile::tempdir().unwrap();
        let (history, before) = ChatHistory::open(home.path());
        assert_eq!(before, [""; 0]);
        history.add("one\ntwo");
        history.add("three");
        assert_eq!(ChatHistory::open(home.path()).1, ["one\ntwo", "three"]);
        let mode = std::fs::metadata(home.path().join("chat_history")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn c01_history_file_is_bounded() {
        let home = tempfile::tempdir().unwrap();
        let lines: Vec<String> = (0..2500).map(|number| format!("\"{number}\"")).collect();
        std::fs::write(home.path().join("chat_history"), lines.join("\n") + "\nnot json\n").unwrap();
        let (_, before) = ChatHistory::open(home.path());
        assert_eq!((before.len(), before[999].as_str()), (1000, "2499"));
        let text = std::fs::read_to_string(home.path().join("chat_history")).unwrap();
        assert_eq!(text.lines().count(), 1000);
    }
}

//! Replaces the view: the part of a tape that a model reads. The tape itself is unchanged.
//!
//! The selector shows the newest messages as they are. In place of the older ones it shows a summary that a model writes,
//! and what a search finds about the current message, also from before the anchor. The messages are made valid for the
//! provider before they are sent, so a selector need not care about splitting a call from its result.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use capstan::hooks::args::PromptContent;
use capstan::hooks::contracts::ModelCall;
use capstan::hooks::points::BuildTapeContext;
use capstan::hooks::{BoxError, ContextModel, HookPermission, HookPermissions, HookRegistrar, Plugin};
use capstan::protocol::{ChatMessage, SessionId};
use capstan::tape::{EntryKind, TapeReader, TapeSlice, WindowStart};

/// Instruction for the model that summarises.
const SUMMARY_PROMPT: &str =
    "Summarise this conversation in a few sentences. Keep names, decisions and open questions.";
/// Maximum number of earlier passages that are shown.
const MAX_RETRIEVED: usize = 3;

/// Selector with the newest messages, a summary of the others, and retrieved passages.
#[derive(Clone)]
pub struct SummaryMemory {
    /// Number of messages that are shown as they are.
    pub recent: usize,
    /// Number of older messages from which on they are summarised.
    pub summarise_from: usize,
    /// Last summary of each session, with the number of the messages that it covers.
    summaries: Arc<Mutex<HashMap<SessionId, (usize, String)>>>,
}

impl SummaryMemory {
    /// Selector that shows `recent` messages as they are.
    pub fn new(recent: usize) -> Self {
        Self { recent, summarise_from: recent, summaries: Arc::default() }
    }

    async fn select(
        &self,
        session: SessionId,
        prompt: PromptContent,
        tape: TapeReader,
        model: ContextModel,
    ) -> Result<Vec<ChatMessage>, BoxError> {
        let mut older = tape.window(WindowStart::LastAnchor).await?.messages();
        let recent = older.split_off(older.len().saturating_sub(self.recent));
        let mut selected: Vec<ChatMessage> = retrieve(&prompt.text(), &tape).await?.into_iter().collect();
        if older.len() < self.summarise_from {
            selected.extend(older);
        } else {
            let summary = self.summarise(&session, older, &model).await?;
            selected.push(ChatMessage::user(format!("[Summary of earlier messages] {summary}")));
        }
        selected.extend(recent);
        Ok(selected)
    }

    /// Summary of the older messages. The next model call of the same turn reuses it: it is written again only when as many
    /// messages have been added as there are recent ones.
    async fn summarise(
        &self,
        session: &SessionId,
        older: Vec<ChatMessage>,
        model: &ContextModel,
    ) -> Result<String, BoxError> {
        let count = older.len();
        let known = self.summaries.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned();
        if let Some((covered, summary)) = known
            && (covered..covered + self.recent.max(1)).contains(&count)
        {
            return Ok(summary);
        }
        let call = ModelCall { system: SUMMARY_PROMPT.to_owned(), messages: older, ..ModelCall::default() };
        let summary = model.invoke(call).await?.text;
        let known = (count, summary.clone());
        self.summaries.lock().unwrap_or_else(PoisonError::into_inner).insert(session.clone(), known);
        Ok(summary)
    }
}

/// Messages from before the newest anchor that share a long word with the prompt, as one message.
async fn retrieve(prompt: &str, tape: &TapeReader) -> Result<Option<ChatMessage>, BoxError> {
    let Some(anchor) = tape.read(&TapeSlice::last_anchor()).await?.pop() else { return Ok(None) };
    // The last line of the prompt is the message, without its header.
    let words = prompt.lines().last().unwrap_or_default().split(|c: char| !c.is_alphanumeric());
    let mut passages = Vec::new();
    for word in words.filter(|word| word.chars().count() > 4).take(MAX_RETRIEVED) {
        let found = tape.search(word, TapeReader::MAX_PAGE_ENTRIES).await?;
        let earlier = found.into_iter().filter(|entry| entry.id < anchor.id && entry.kind == EntryKind::Message);
        passages.extend(earlier.filter_map(|entry| Some(entry.payload.get("content")?.as_str()?.to_owned())));
    }
    passages.dedup();
    passages.truncate(MAX_RETRIEVED);
    Ok((!passages.is_empty()).then(|| ChatMessage::user(format!("[Earlier] {}", passages.join("\n[Earlier] ")))))
}

impl Plugin for SummaryMemory {
    fn name(&self) -> &'static str {
        "summary-memory"
    }

    fn permissions(&self) -> HookPermissions {
        HookPermissions::from([HookPermission::CallModel])
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let memory = self.clone();
        hooks.on(
            BuildTapeContext,
            move |session: SessionId, prompt: PromptContent, tape: TapeReader, model: ContextModel| {
                let memory = memory.clone();
                async move { memory.select(session, prompt, tape, model).await.map(Some) }
            },
        );
        Ok(())
    }
}

//! Knowledge bases, as a run may ask them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capstan_hooks::contracts::{
    ApiMethod, KnowledgeApi, KnowledgeBase, KnowledgeSource, Page, Passage, Question, RetrieveCall, Retrieved,
    RetrievedPage,
};
use capstan_protocol::{ApiError, ApiErrorCode, KnowledgeUse};
use futures::FutureExt as _;
use serde_json::json;

use super::cursor::List;
use super::parts;
use crate::runs::run::Run;

/// How long a source may take to answer. The first question to a large folder reads all of it.
const LONGEST_ANSWER: Duration = Duration::from_mins(1);
/// How long a passage may be, in bytes. What is longer is cut.
const LONGEST_PASSAGE: usize = 64 * 1024;
/// How long the passages of one answer may be together, in bytes. The others come with the next one.
const LONGEST_PAGE: usize = 256 * 1024;
/// How long what a source says about itself may be, in bytes.
const LONGEST_NOTICE: usize = 2 * 1024;

pub(super) struct Knowledge(pub(super) Arc<Run>);

#[async_trait]
impl KnowledgeApi for Knowledge {
    async fn list(&self) -> Result<Vec<KnowledgeBase>, ApiError> {
        let may = &self.0.grant().may.knowledge_bases;
        let bases = self.0.services.knowledge().iter().map(|(base, _)| base);
        Ok(bases.filter(|base| may.allows(KnowledgeUse::List, &base.id)).cloned().collect())
    }

    async fn retrieve(&self, call: RetrieveCall) -> Result<RetrievedPage, ApiError> {
        let RetrieveCall { base, question, cursor, limit } = call;
        let limit = parts::most(limit)?;
        if question.trim().is_empty() {
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, "the question is empty"));
        }
        let source = self.0.services.knowledge().iter().find(|(known, _)| known.id == base);
        let Some((_, source)) = source else {
            return Err(ApiError::new(ApiErrorCode::NotFound, format!("there is no knowledge base {base}")));
        };
        // Another question has another order.
        let of = json!([base, question]).to_string();
        let list = List { method: ApiMethod::KnowledgeRetrieve, of: &of };
        let place = cursor.map(|cursor| list.place(&cursor)).transpose()?;
        let offset = place.and_then(|place| place.parse().ok()).unwrap_or_default();
        // One more than is asked for tells whether there are more.
        let question = Question { text: question, offset, limit: limit + 1 };
        let Retrieved { passages, left_out } = ask(&base, source.as_ref(), question).await?;
        let mut items = page(passages, limit);
        let next = items.has_more.then(|| list.cursor(&(offset + items.passages.len()).to_string()));
        let secrets = &self.0.services.settings.secrets;
        // A source cuts passages out of longer texts, wherever it likes.
        items.passages.iter_mut().for_each(|passage| secrets.mask_piece(&mut passage.text));
        let left_out = left_out.map(|words| cut(words, LONGEST_NOTICE));
        Ok(RetrievedPage { passages: Page { items: items.passages, next }, left_out })
    }
}

/// A panic of a source is its own failure; one that does not answer in time has none. What else fails a source tells of
/// itself, with what it knows.
async fn ask(base: &str, source: &dyn KnowledgeSource, question: Question) -> Result<Retrieved, ApiError> {
    let failed = |reason: &str| {
        let message = format!("the knowledge base {base} did not answer: {reason}");
        ApiError::new(ApiErrorCode::RuntimeError, message)
    };
    let answer = AssertUnwindSafe(source.retrieve(question)).catch_unwind();
    match tokio::time::timeout(LONGEST_ANSWER, answer).await {
        Ok(Ok(Ok(retrieved))) => Ok(retrieved),
        Ok(Ok(Err(error))) => Err(failed(&cut(error.to_string(), LONGEST_NOTICE))),
        Ok(Err(_)) => {
            tracing::error!(base, "a knowledge base crashed");
            Err(failed("it crashed"))
        }
        Err(_) => {
            tracing::warn!(base, "a knowledge base took too long");
            Err(ApiError { retryable: true, ..failed("it took too long") })
        }
    }
}

/// A part of an answer.
struct Part {
    passages: Vec<Passage>,
    has_more: bool,
}

/// As many passages as were asked for, and as fit into one answer: the first always does.
fn page(passages: Vec<Passage>, limit: usize) -> Part {
    let (mut part, mut bytes) = (Part { passages: Vec::new(), has_more: false }, 0);
    for mut passage in passages {
        passage.text = cut(passage.text, LONGEST_PASSAGE);
        passage.source = cut(passage.source, LONGEST_NOTICE);
        bytes += passage.text.len() + passage.source.len();
        if part.passages.len() == limit || (bytes > LONGEST_PAGE && !part.passages.is_empty()) {
            part.has_more = true;
            break;
        }
        // What is no number cannot be written.
        passage.score = if passage.score.is_finite() { passage.score } else { 0.0 };
        part.passages.push(passage);
    }
    part
}

/// The text up to a letter that still fits.
fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

#[cfg(test)]
mod tests {
    use capstan_hooks::contracts::Passage;

    use super::{LONGEST_PAGE, LONGEST_PASSAGE, page};

    fn passages(count: usize, bytes: usize) -> Vec<Passage> {
        let passage = |_| Passage { source: "x".to_owned(), line: None, text: "é".repeat(bytes / 2), score: f64::NAN };
        (0..count).map(passage).collect()
    }

    #[test]
    fn k04_an_answer_has_as_many_passages_as_were_asked_for_and_as_fit() {
        let part = page(passages(4, 10), 3);
        assert!(part.passages.len() == 3 && part.has_more);
        let part = page(passages(3, 10), 3);
        assert!(part.passages.len() == 3 && !part.has_more);
        let part = page(passages(50, LONGEST_PASSAGE), 50);
        assert!(
            part.passages.len() == LONGEST_PAGE / LONGEST_PASSAGE - 1 && part.has_more,
            "they are too long together"
        );
    }

    #[test]
    fn k04_what_a_source_says_is_brought_into_bounds() {
        let part = page(passages(1, 2 * LONGEST_PASSAGE + 2), 3);
        assert_eq!(part.passages[0].text.len(), LONGEST_PASSAGE);
        assert!(part.passages[0].score.is_finite(), "what is no number cannot be written");
        assert!(!part.has_more);
    }
}

//! Methods of `knowledge.*`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use capstan_hooks::contracts::methods::{KnowledgeList, KnowledgeRetrieve};
use capstan_hooks::contracts::{
    ApiMethod, CursorPage, KnowledgeBase, KnowledgePassage, KnowledgeQuery, KnowledgeSource, RetrieveCall,
    RetrievedPage, RetrievedPassages,
};
use capstan_protocol::run_api::EmptyCall;
use capstan_protocol::{ApiError, ApiErrorCode, KnowledgeOperation};
use futures::FutureExt as _;
use serde_json::json;

use super::cursor::PagedList;
use super::method_handler::MethodHandler;
use super::paging;
use super::required_permission::RequiredPermission;
use crate::payload_size::{PayloadSize, optional_text_size, text_size};
use crate::run::Run;

/// Timeout of a source. The first question to a large folder reads all of it.
const KNOWLEDGE_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum length of a passage, in bytes. A longer one is truncated.
const MAX_PASSAGE_LEN: usize = 64 * 1024;
/// Maximum length of all passages of a page, in bytes. The others come with the next one.
const MAX_PASSAGE_PAGE_BYTES: usize = 256 * 1024;
/// Maximum length of a source's notices, in bytes.
const MAX_NOTICE_LEN: usize = 2 * 1024;

impl MethodHandler for KnowledgeList {
    fn permission(_: &Run, _: &EmptyCall) -> RequiredPermission {
        RequiredPermission::AnyKnowledge(KnowledgeOperation::List)
    }

    async fn handle(run: &Arc<Run>, _: EmptyCall) -> Result<Vec<KnowledgeBase>, ApiError> {
        let may = &run.grant().may.knowledge_bases;
        let bases = run.environment.knowledge().iter().map(|(base, _)| base);
        Ok(bases.filter(|base| may.allows(KnowledgeOperation::List, &base.id)).cloned().collect())
    }
}

impl MethodHandler for KnowledgeRetrieve {
    fn permission(_: &Run, call: &RetrieveCall) -> RequiredPermission {
        RequiredPermission::Knowledge(KnowledgeOperation::Retrieve, call.base.clone())
    }

    fn payload(_: &Run, call: &RetrieveCall) -> PayloadSize {
        let cursor = optional_text_size(call.cursor.as_deref());
        PayloadSize::Arguments(text_size(&call.base) + text_size(&call.question) + cursor)
    }

    async fn handle(run: &Arc<Run>, call: RetrieveCall) -> Result<RetrievedPage, ApiError> {
        let RetrieveCall { base, question, cursor, limit } = call;
        let limit = paging::clamp_limit(limit)?;
        if question.trim().is_empty() {
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, "the question is empty"));
        }
        let source = run.environment.knowledge().iter().find(|(known, _)| known.id == base);
        let Some((_, source)) = source else {
            return Err(ApiError::new(ApiErrorCode::NotFound, format!("there is no knowledge base {base}")));
        };
        // Another question has another order.
        let of = json!([base, question]).to_string();
        let list = PagedList { method: ApiMethod::KnowledgeRetrieve, list_key: &of };
        let place = cursor.map(|cursor| list.decode_cursor(&cursor)).transpose()?;
        let offset = place.and_then(|place| place.parse().ok()).unwrap_or_default();
        // One more than is asked for tells whether there are more.
        let question = KnowledgeQuery { text: question, offset, limit: limit + 1 };
        let RetrievedPassages { passages, left_out } = query_source(&base, source.as_ref(), question).await?;
        let mut items = build_page(passages, limit);
        let next = items.has_more.then(|| list.encode_cursor(&(offset + items.passages.len()).to_string()));
        let secrets = &run.environment.options.secret_masker;
        // A source cuts passages out of longer texts, wherever it likes.
        items.passages.iter_mut().for_each(|passage| secrets.mask_fragment(&mut passage.text));
        let left_out = left_out.map(|words| truncate_text(words, MAX_NOTICE_LEN));
        Ok(RetrievedPage { passages: CursorPage { items: items.passages, next }, left_out })
    }
}

/// Asks a source. A panic or a timeout is an error of its own; other failures are reported in the source's words.
async fn query_source(
    base: &str,
    source: &dyn KnowledgeSource,
    question: KnowledgeQuery,
) -> Result<RetrievedPassages, ApiError> {
    let failed = |reason: &str| {
        let message = format!("the knowledge base {base} did not answer: {reason}");
        ApiError::new(ApiErrorCode::RuntimeError, message)
    };
    let answer = AssertUnwindSafe(source.retrieve(question)).catch_unwind();
    match tokio::time::timeout(KNOWLEDGE_TIMEOUT, answer).await {
        Ok(Ok(Ok(retrieved))) => Ok(retrieved),
        Ok(Ok(Err(error))) => Err(failed(&truncate_text(error.to_string(), MAX_NOTICE_LEN))),
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

/// A page of an answer.
struct PassagePage {
    passages: Vec<KnowledgePassage>,
    has_more: bool,
}

/// As many passages as were asked for, and as fit into one answer: the first always does.
fn build_page(passages: Vec<KnowledgePassage>, limit: usize) -> PassagePage {
    let (mut part, mut bytes) = (PassagePage { passages: Vec::new(), has_more: false }, 0);
    for mut passage in passages {
        passage.text = truncate_text(passage.text, MAX_PASSAGE_LEN);
        passage.source = truncate_text(passage.source, MAX_NOTICE_LEN);
        bytes += passage.text.len() + passage.source.len();
        if part.passages.len() == limit || (bytes > MAX_PASSAGE_PAGE_BYTES && !part.passages.is_empty()) {
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
fn truncate_text(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

#[cfg(test)]
mod tests {
    use capstan_hooks::contracts::KnowledgePassage;

    use super::{MAX_PASSAGE_LEN, MAX_PASSAGE_PAGE_BYTES, build_page};

    fn passages(count: usize, bytes: usize) -> Vec<KnowledgePassage> {
        let passage =
            |_| KnowledgePassage { source: "x".to_owned(), line: None, text: "é".repeat(bytes / 2), score: f64::NAN };
        (0..count).map(passage).collect()
    }

    #[test]
    fn k04_an_answer_has_as_many_passages_as_were_asked_for_and_as_fit() {
        let part = build_page(passages(4, 10), 3);
        assert!(part.passages.len() == 3 && part.has_more);
        let part = build_page(passages(3, 10), 3);
        assert!(part.passages.len() == 3 && !part.has_more);
        let part = build_page(passages(50, MAX_PASSAGE_LEN), 50);
        assert!(
            part.passages.len() == MAX_PASSAGE_PAGE_BYTES / MAX_PASSAGE_LEN - 1 && part.has_more,
            "they are too long together"
        );
    }

    #[test]
    fn k04_what_a_source_says_is_brought_into_bounds() {
        let part = build_page(passages(1, 2 * MAX_PASSAGE_LEN + 2), 3);
        assert_eq!(part.passages[0].text.len(), MAX_PASSAGE_LEN);
        assert!(part.passages[0].score.is_finite(), "what is no number cannot be written");
        assert!(!part.has_more);
    }
}

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
use capstan_protocol::{ApiError, ApiErrorCode, KnowledgeOperation, truncate_bytes};
use futures::FutureExt as _;
use serde_json::json;

use super::cursor::PagedList;
use super::method_handler::MethodHandler;
use super::paging;
use super::required_permission::RequiredPermission;
use crate::payload_size::{PayloadSize, optional_text_size, text_size};
use crate::run::Run;
use crate::run::call_limiter::CallPermit;

/// Timeout of a source. The first query of a large folder reads all of it.
const KNOWLEDGE_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum length of a passage, in bytes. A longer one is truncated.
const MAX_PASSAGE_LEN: usize = 64 * 1024;
/// Maximum length of all passages of a page, in bytes. The others are on the next page.
const MAX_PASSAGE_PAGE_BYTES: usize = 256 * 1024;
/// Maximum number of sources that a query names.
const MAX_QUERY_SOURCES: usize = 32;
/// Maximum length of a source's notices, in bytes.
const MAX_NOTICE_LEN: usize = 2 * 1024;

impl MethodHandler for KnowledgeList {
    fn permission(_: &Run, _: &EmptyCall) -> RequiredPermission {
        RequiredPermission::AnyKnowledge(KnowledgeOperation::List)
    }

    async fn handle(run: &Arc<Run>, _: EmptyCall, _: CallPermit) -> Result<Vec<KnowledgeBase>, ApiError> {
        let granted = &run.grant().may.knowledge_bases;
        let bases = run.environment.knowledge().iter().map(|(base, _)| base);
        Ok(bases.filter(|base| granted.allows(KnowledgeOperation::List, &base.id)).cloned().collect())
    }
}

impl MethodHandler for KnowledgeRetrieve {
    fn permission(_: &Run, call: &RetrieveCall) -> RequiredPermission {
        RequiredPermission::Knowledge(KnowledgeOperation::Retrieve, call.base.clone())
    }

    fn payload(_: &Run, call: &RetrieveCall) -> PayloadSize {
        let cursor = optional_text_size(call.cursor.as_deref());
        let sources: u64 = call.sources.iter().map(|source| text_size(source)).sum();
        PayloadSize::Arguments(text_size(&call.base) + text_size(&call.question) + cursor + sources)
    }

    async fn handle(run: &Arc<Run>, call: RetrieveCall, _: CallPermit) -> Result<RetrievedPage, ApiError> {
        let RetrieveCall { base, question, cursor, limit, sources } = call;
        let limit = paging::clamp_limit(limit)?;
        if question.trim().is_empty() {
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, "the question is empty"));
        }
        let source = run.environment.knowledge().iter().find(|(known, _)| known.id == base);
        let Some((_, source)) = source else {
            return Err(ApiError::new(ApiErrorCode::NotFound, format!("there is no knowledge base {base}")));
        };
        if sources.len() > MAX_QUERY_SOURCES {
            let message = format!("a query names at most {MAX_QUERY_SOURCES} sources");
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
        }
        if !sources.is_empty() && !source.filters_sources() {
            let message = format!("the knowledge base {base} cannot be limited to some of its sources");
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
        }
        // Each question has an order of its own, so it is part of the list key.
        let list_key = if sources.is_empty() { json!([base, question]) } else { json!([base, question, sources]) };
        let list_key = list_key.to_string();
        let list = PagedList { method: ApiMethod::KnowledgeRetrieve, list_key: &list_key };
        let position = cursor.map(|cursor| list.decode_cursor(&cursor)).transpose()?;
        let offset = position.and_then(|position| position.parse().ok()).unwrap_or_default();
        // One more than requested, to know if there is a next page.
        let query = KnowledgeQuery { text: question, offset, limit: limit + 1, sources };
        let RetrievedPassages { passages, skipped } = query_source(&base, source.as_ref(), query).await?;
        let mut page = build_page(passages, limit);
        let next = page.has_more.then(|| list.encode_cursor(&(offset + page.passages.len()).to_string()));
        let masker = &run.environment.options.secret_masker;
        // A passage is a fragment of a longer text and may begin or end within a secret.
        page.passages.iter_mut().for_each(|passage| masker.mask_fragment(&mut passage.text));
        let skipped = skipped.map(|notice| truncate_text(notice, MAX_NOTICE_LEN));
        Ok(RetrievedPage { passages: CursorPage { items: page.passages, next }, skipped })
    }
}

/// Queries a source. A panic or a timeout is an error of its own; other failures are reported with the source's
/// message.
async fn query_source(
    base: &str,
    source: &dyn KnowledgeSource,
    query: KnowledgeQuery,
) -> Result<RetrievedPassages, ApiError> {
    let runtime_error = |reason: &str| {
        let message = format!("the knowledge base {base} did not answer: {reason}");
        ApiError::new(ApiErrorCode::RuntimeError, message)
    };
    let retrieval = AssertUnwindSafe(source.retrieve(query)).catch_unwind();
    match tokio::time::timeout(KNOWLEDGE_TIMEOUT, retrieval).await {
        Ok(Ok(Ok(retrieved))) => Ok(retrieved),
        Ok(Ok(Err(error))) => Err(runtime_error(&truncate_text(error.to_string(), MAX_NOTICE_LEN))),
        Ok(Err(_)) => {
            tracing::error!(base, "a knowledge base panicked");
            Err(runtime_error("it crashed"))
        }
        Err(_) => {
            tracing::warn!(base, "a knowledge base timed out");
            Err(ApiError { retryable: true, ..runtime_error("it took too long") })
        }
    }
}

/// Page of passages.
struct PassagePage {
    passages: Vec<KnowledgePassage>,
    has_more: bool,
}

/// Builds a page of at most `limit` passages within the size limit. The first passage is always included.
fn build_page(passages: Vec<KnowledgePassage>, limit: usize) -> PassagePage {
    let (mut page, mut bytes) = (PassagePage { passages: Vec::new(), has_more: false }, 0);
    for mut passage in passages {
        passage.text = truncate_text(passage.text, MAX_PASSAGE_LEN);
        passage.source = truncate_text(passage.source, MAX_NOTICE_LEN);
        bytes += passage.text.len() + passage.source.len();
        if page.passages.len() == limit || (bytes > MAX_PASSAGE_PAGE_BYTES && !page.passages.is_empty()) {
            page.has_more = true;
            break;
        }
        // JSON has no NaN or infinity.
        passage.score = if passage.score.is_finite() { passage.score } else { 0.0 };
        page.passages.push(passage);
    }
    page
}

/// Truncates a text at a character boundary.
fn truncate_text(mut text: String, max_bytes: usize) -> String {
    truncate_bytes(&mut text, max_bytes, "");
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
    fn g11_a_page_has_at_most_the_requested_passages_and_bytes() {
        let page = build_page(passages(4, 10), 3);
        assert!(page.passages.len() == 3 && page.has_more);
        let page = build_page(passages(3, 10), 3);
        assert!(page.passages.len() == 3 && !page.has_more);
        let page = build_page(passages(50, MAX_PASSAGE_LEN), 50);
        assert!(
            page.passages.len() == MAX_PASSAGE_PAGE_BYTES / MAX_PASSAGE_LEN - 1 && page.has_more,
            "together they exceed the size limit"
        );
    }

    #[test]
    fn g11_passages_of_a_source_are_brought_within_bounds() {
        let page = build_page(passages(1, 2 * MAX_PASSAGE_LEN + 2), 3);
        assert_eq!(page.passages[0].text.len(), MAX_PASSAGE_LEN);
        assert!(page.passages[0].score.is_finite(), "JSON has no NaN");
        assert!(!page.has_more);
    }
}

//! Responses of rerank requests, in the format that Jina, Cohere, vLLM and `LiteLLM` share.

use capstan_hooks::contracts::{ModelError, ModelErrorKind, ModelEvent};
use capstan_protocol::run_api::RerankScore;
use serde::Deserialize;
use serde_json::Value;

use super::response_reader::{FrameProgress, ResponseReader};
use crate::frame_decoder::WireFrame;
use crate::provider_error::ResponseFault;

/// Reader of a response that is one JSON value, on one line or several. Its only event before the stop is the text of
/// the value.
#[derive(Default)]
pub(crate) struct RerankReader {
    text: String,
    is_complete: bool,
}

impl RerankReader {
    /// Emits the value if the text is all of it.
    fn emit_if_complete(&mut self, events: &mut Vec<ModelEvent>) -> Result<FrameProgress, ResponseFault> {
        let Ok(value) = serde_json::from_str::<Value>(&self.text) else { return Ok(FrameProgress::More) };
        if value.get("error").is_some_and(|error| !error.is_null()) {
            return Err(ResponseFault::Reported { status: None, body: value });
        }
        self.is_complete = true;
        events.push(ModelEvent::Text(std::mem::take(&mut self.text)));
        Ok(FrameProgress::Complete)
    }
}

impl ResponseReader for RerankReader {
    fn read(&mut self, frame: &WireFrame, events: &mut Vec<ModelEvent>) -> Result<FrameProgress, ResponseFault> {
        // Of a value on several lines, the last one is not indented. To parse after each line would take quadratic time.
        let may_be_last = self.text.is_empty() || frame.data.starts_with(['}', ']']);
        self.text.push_str(&frame.data);
        self.text.push('\n');
        if may_be_last { self.emit_if_complete(events) } else { Ok(FrameProgress::More) }
    }

    fn call_count(&self) -> usize {
        0
    }

    fn held_bytes(&self) -> usize {
        self.text.len()
    }

    fn has_stop_reason(&self) -> bool {
        self.is_complete
    }

    fn finish(&mut self) -> Result<Vec<ModelEvent>, ResponseFault> {
        let mut events = Vec::new();
        if self.is_complete || self.emit_if_complete(&mut events)? == FrameProgress::Complete {
            events.push(ModelEvent::Stop);
            return Ok(events);
        }
        Err(ResponseFault::Incomplete("the response is not complete"))
    }
}

/// One result: `relevance_score` in most formats, `score` in that of text-embeddings-inference.
#[derive(Deserialize)]
struct RerankResult {
    index: usize,
    #[serde(alias = "score")]
    relevance_score: f64,
}

/// A response: an object with results, or the results alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum RerankResponse {
    Object { results: Vec<RerankResult> },
    List(Vec<RerankResult>),
}

/// Reads the scores of a response.
pub(crate) fn parse_scores(provider: &str, text: &str) -> Result<Vec<RerankScore>, ModelError> {
    let response = serde_json::from_str(text).map_err(|_| {
        let message = format!("{provider}: the response to the rerank request has no results");
        ModelError::new(ModelErrorKind::Broken, message)
    })?;
    let (RerankResponse::Object { results } | RerankResponse::List(results)) = response;
    let score = |RerankResult { index, relevance_score }: RerankResult| RerankScore { index, score: relevance_score };
    Ok(results.into_iter().map(score).collect())
}

#[cfg(test)]
mod tests {
    use super::parse_scores;

    #[test]
    fn k04_scores_are_read_in_the_formats_of_several_servers() {
        for text in [
            r#"{"results": [{"index": 1, "relevance_score": 0.5, "document": {"text": "b"}}], "usage": {}}"#,
            r#"[{"index": 1, "score": 0.5}]"#,
        ] {
            let scores = parse_scores("p", text).unwrap();
            assert_eq!(scores.iter().map(|score| (score.index, score.score)).collect::<Vec<_>>(), [(1, 0.5)]);
        }
        for text in ["{}", "[]x", r#"{"results": [{"index": -1, "relevance_score": 0.5}]}"#] {
            assert!(parse_scores("p", text).unwrap_err().message.contains("has no results"), "{text}");
        }
    }
}

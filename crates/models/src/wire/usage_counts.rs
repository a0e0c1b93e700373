//! Token usage in one format for all providers: the one of `OpenAI` chat.

use capstan_protocol::{JsonObject, Usage};
use serde_json::{Value, json};

/// Token counts of a call, as far as the provider reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UsageCounts {
    /// Request tokens, including cached ones.
    pub prompt: Option<u64>,
    /// Response tokens, including reasoning.
    pub completion: Option<u64>,
    /// Request tokens read from the provider's cache.
    pub cached: Option<u64>,
    /// Request tokens written to the provider's cache.
    pub cache_written: Option<u64>,
    /// Response tokens used for reasoning.
    pub reasoning: Option<u64>,
}

impl UsageCounts {
    /// Usage record; `None` if no count is known.
    pub(super) fn into_usage(self) -> Option<Usage> {
        if self == Self::default() {
            return None;
        }
        let details = |counts: &[(&str, Option<u64>)]| {
            let known = counts.iter().filter_map(|(name, count)| {
                let count = (*count).filter(|count| *count > 0)?;
                Some(((*name).to_owned(), json!(count)))
            });
            known.collect::<JsonObject>()
        };
        let all = [
            (
                "prompt_tokens_details",
                details(&[("cached_tokens", self.cached), ("cache_write_tokens", self.cache_written)]),
            ),
            ("completion_tokens_details", details(&[("reasoning_tokens", self.reasoning)])),
        ];
        let extra = all.into_iter().filter(|(_, details)| !details.is_empty());
        Some(Usage {
            prompt_tokens: self.prompt,
            completion_tokens: self.completion,
            total_tokens: self
                .prompt
                .zip(self.completion)
                .map(|(prompt, completion)| prompt.saturating_add(completion)),
            extra: extra.map(|(name, details)| (name.to_owned(), Value::Object(details))).collect(),
        })
    }
}

/// Sum of counts, of which some may be missing; `None` if all are.
pub(super) fn sum_known(counts: &[Option<u64>]) -> Option<u64> {
    counts.iter().flatten().copied().reduce(u64::saturating_add)
}

//! What a call used, in one form for all providers: the one of `OpenAI` chat.

use capstan_protocol::{JsonObject, Usage};
use serde_json::{Value, json};

/// The figures of a call, as far as a provider tells them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UsageCounts {
    /// Tokens of the request, cached ones included.
    pub prompt: Option<u64>,
    /// Tokens of the reply, reasoning included.
    pub completion: Option<u64>,
    /// Those of the request that were read from the provider's cache.
    pub cached: Option<u64>,
    /// Those of the request that were written to it.
    pub cache_written: Option<u64>,
    /// Those of the reply that were reasoning.
    pub reasoning: Option<u64>,
}

impl UsageCounts {
    /// The usage; `None` when nothing is known.
    pub(super) fn into_usage(self) -> Option<Usage> {
        if self == Self::default() {
            return None;
        }
        let details = |figures: &[(&str, Option<u64>)]| {
            let known = figures.iter().filter_map(|(name, count)| {
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

/// A sum of figures some of which may be missing.
pub(super) fn sum_known(figures: &[Option<u64>]) -> Option<u64> {
    figures.iter().flatten().copied().reduce(u64::saturating_add)
}

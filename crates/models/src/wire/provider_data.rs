//! Provider data: signatures, encrypted reasoning and ids that only the provider that sent them understands.
//!
//! # Format
//!
//! The data is stored under the provider's name in the key `provider` of a message or a call, together with the model
//! name. Data of a message without text is stored on its first call. For a list of items, each item records the number
//! of texts and calls before it.
//!
//! # Who gets it back
//!
//! Anthropic signs thoughts and `OpenAI` encrypts reasoning for one model, Gemini rejects signatures of other models, and
//! `OpenRouter` passes on data of any of them. A request with the wrong data is rejected as a whole, so signed data is
//! sent back only to the model that produced it. Every provider accepts a conversation without it.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::{ChatMessage, JsonObject, MessageRole, ToolCall};
use serde_json::Value;

use super::response_reader::StopReason;

/// Key in `extra`.
const PROVIDER_DATA_KEY: &str = "provider";
/// Key of the model name within the data.
const PROVIDER_MODEL_KEY: &str = "model";

/// Model of a provider, as the source or the recipient of provider data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelOrigin {
    provider: String,
    model: String,
}

impl ModelOrigin {
    /// Creates the origin for this provider and model name.
    pub(crate) fn new(provider: &str, model: &str) -> Self {
        Self { provider: provider.to_owned(), model: model.to_owned() }
    }

    /// Event that carries the data of a text response.
    pub(super) fn text_data_event(&self, data: JsonObject) -> ModelEvent {
        ModelEvent::ProviderMeta(self.tag_data(data))
    }

    /// Attaches data to a call, in addition to data that is already there.
    pub(super) fn attach_to_call(&self, call: &mut ToolCall, data: JsonObject) {
        if data.is_empty() {
            return;
        }
        let present = call
            .extra
            .get(PROVIDER_DATA_KEY)
            .and_then(|data| data.get(&self.provider))
            .and_then(Value::as_object)
            .cloned();
        let mut all = present.unwrap_or_default();
        all.extend(data);
        call.extra.insert(PROVIDER_DATA_KEY.to_owned(), Value::Object(self.tag_data(all)));
    }

    /// Data that this model attached to a call.
    pub(super) fn call_data<'a>(&self, call: &'a ToolCall, name: &str) -> Option<&'a Value> {
        self.find(&call.extra, name, OriginMatch::Model)
    }

    /// Data that this model attached to a message.
    pub(super) fn message_data<'a>(&self, message: &'a ChatMessage, name: &str) -> Option<&'a Value> {
        self.find_in_message(message, name, OriginMatch::Model)
    }

    /// Data that any model of this provider attached to a message: plain text, which is not signed.
    pub(super) fn unsigned_message_data<'a>(&self, message: &'a ChatMessage, name: &str) -> Option<&'a Value> {
        self.find_in_message(message, name, OriginMatch::Provider)
    }

    fn find_in_message<'a>(&self, message: &'a ChatMessage, name: &str, by: OriginMatch) -> Option<&'a Value> {
        let own = self.find(&message.extra, name, by);
        own.or_else(|| self.find(&message.tool_calls.first()?.extra, name, by))
    }

    fn find<'a>(&self, extra: &'a JsonObject, name: &str, by: OriginMatch) -> Option<&'a Value> {
        let data = extra.get(PROVIDER_DATA_KEY)?.get(&self.provider)?;
        let is_ours = match by {
            OriginMatch::Provider => true,
            // Data recorded without a model name may belong to any model.
            OriginMatch::Model => data
                .get(PROVIDER_MODEL_KEY)?
                .as_str()
                .is_some_and(|model| model_family(model) == model_family(&self.model)),
        };
        data.get(name).filter(|_| is_ours)
    }

    fn tag_data(&self, mut data: JsonObject) -> JsonObject {
        data.insert(PROVIDER_MODEL_KEY.to_owned(), Value::from(self.model.as_str()));
        JsonObject::from_iter([(self.provider.clone(), Value::Object(data))])
    }
}

/// Required origin of provider data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OriginMatch {
    Provider,
    Model,
}

/// Model name without its release date: `claude-sonnet-4-5` and `claude-sonnet-4-5-20250929` are the same model, and so
/// are `gpt-5` and `gpt-5-2025-08-07`.
fn model_family(model: &str) -> &str {
    let is_number = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
    if let Some((name, date)) = model.rsplit_once(['-', '@'])
        && is_number(date, 8)
    {
        return name;
    }
    let mut parts = model.rsplitn(4, '-');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(day), Some(month), Some(year), Some(name))
            if is_number(day, 2) && is_number(month, 2) && is_number(year, 4) =>
        {
            name
        }
        _ => model,
    }
}

/// Items of a list, each with its recorded position.
fn positioned_items(list: Option<&Value>) -> Vec<(usize, Value)> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    let position = |item: &Value| Some((usize::try_from(item.get("at")?.as_u64()?).ok()?, item.get("item")?.clone()));
    items.filter_map(position).collect()
}

/// Inserts items at their positions among `own`; a position past the end appends.
fn interleave_items(own: Vec<Value>, items: Vec<(usize, Value)>) -> Vec<Value> {
    let mut items = items.into_iter().peekable();
    let mut all = Vec::new();
    for (position, value) in own.into_iter().enumerate() {
        while let Some((_, item)) = items.next_if(|(at, _)| *at <= position) {
            all.push(item);
        }
        all.push(value);
    }
    all.extend(items.map(|(_, item)| item));
    all
}

/// Key that is true if the response of a call had text before its calls.
const AFTER_TEXT_KEY: &str = "after_text";

/// Texts, calls and provider items of a response, in order.
#[derive(Debug, Default)]
pub(super) struct ResponseItems {
    has_text: bool,
    calls: Vec<ToolCall>,
    items: Vec<Value>,
    call_count: usize,
}

impl ResponseItems {
    /// Records that text was received.
    pub(super) fn record_text(&mut self) {
        self.has_text = true;
    }

    /// Records that a call has started.
    pub(super) fn start_call(&mut self) {
        self.call_count += 1;
    }

    /// Number of calls that have started.
    pub(super) fn call_count(&self) -> usize {
        self.call_count
    }

    /// Adds a complete call with its own data.
    pub(super) fn push_call(&mut self, call: ToolCall) {
        self.start_call();
        self.calls.push(call);
    }

    /// Completes the arguments at the end of the response, see [`StopReason::fill_missing_arguments`].
    pub(super) fn fill_missing_arguments(&mut self, stop_reason: StopReason) {
        stop_reason.fill_missing_arguments(&mut self.calls);
    }

    /// Adds an item.
    pub(super) fn push_item(&mut self, item: Value) {
        let before = usize::from(self.has_text) + self.calls.len();
        self.items.push(Value::from_iter([("at", Value::from(before)), ("item", item)]));
    }

    /// Takes the calls and the items. The items are stored under `name`: on the first call, or with the text if there is none.
    pub(super) fn take_events(&mut self, origin: &ModelOrigin, name: &str) -> Vec<ModelEvent> {
        let mut calls = std::mem::take(&mut self.calls);
        let items = std::mem::take(&mut self.items);
        let mut text_data = None;
        if !items.is_empty() {
            let mut data = JsonObject::from_iter([(name.to_owned(), Value::Array(items))]);
            match calls.first_mut() {
                Some(first) => {
                    if self.has_text {
                        data.insert(AFTER_TEXT_KEY.to_owned(), Value::Bool(true));
                    }
                    origin.attach_to_call(first, data);
                }
                None => text_data = Some(origin.text_data_event(data)),
            }
        }
        calls.into_iter().map(ModelEvent::ToolCall).chain(text_data).collect()
    }
}

/// Encodes consecutive assistant messages with `own` and restores the items of this name at their positions.
pub(super) fn restore_items(
    origin: &ModelOrigin,
    name: &str,
    messages: &[ChatMessage],
    own: impl Fn(&ChatMessage) -> Vec<Value>,
) -> Vec<Value> {
    let mut all = Vec::new();
    let mut items = Vec::new();
    for message in messages {
        let after_text = origin.message_data(message, AFTER_TEXT_KEY) == Some(&Value::Bool(true));
        // The text of a response and its calls are two messages here.
        let start = all.len().saturating_sub(usize::from(after_text));
        let positioned = positioned_items(origin.message_data(message, name));
        items.extend(positioned.into_iter().map(|(at, item)| (start + at, item)));
        all.extend(own(message));
    }
    interleave_items(all, items)
}

/// Splits a conversation into messages, with consecutive assistant messages kept together: the text of a step and its calls
/// were one response.
pub(super) fn group_assistant_messages(messages: &[ChatMessage]) -> impl Iterator<Item = &[ChatMessage]> {
    messages.chunk_by(|before, next| before.role == MessageRole::Assistant && next.role == MessageRole::Assistant)
}

#[cfg(test)]
mod tests {
    use super::model_family;

    #[test]
    fn releases_of_a_model_are_one_model() {
        assert_eq!(model_family("claude-sonnet-4-5-20250929"), model_family("claude-sonnet-4-5"));
        assert_eq!(model_family("claude-sonnet-4-5@20250929"), model_family("claude-sonnet-4-5"));
        assert_eq!(model_family("gpt-5-2025-08-07"), model_family("gpt-5"));
        for model in ["gpt-5-mini", "claude-opus-4-5", "gemini-2.5-pro", "o3", "", "20250929", "a/b:free"] {
            assert_eq!(model_family(model), model);
        }
    }
}

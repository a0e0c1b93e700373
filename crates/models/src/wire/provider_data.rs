//! What only the provider that gave it understands, and often only the model that made it.
//!
//! It stands under the provider's name in the key `provider` of a message or of a call, with the model's name beside it.
//! What belongs to a message that has no text rides on its first call. A list of it says how many texts and calls stood
//! before each item.
//!
//! Anthropic signs thoughts for the model that had them, `OpenAI` encrypts reasoning for the model that reasoned, Gemini
//! wants no signature of another model, and what `OpenRouter` passes on is theirs: one that comes to another model is
//! refused with the whole request. So what is signed goes back to its model alone. Every provider takes a conversation
//! without it.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::{ChatMessage, JsonObject, MessageRole, ToolCall};
use serde_json::Value;

use super::response_reader::StopReason;

/// Where it stands in `extra`.
const PROVIDER_DATA_KEY: &str = "provider";
/// The model that made it, beside it.
const PROVIDER_MODEL_KEY: &str = "model";

/// Who gave something, or is to get it back: a model of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelOrigin {
    provider: String,
    model: String,
}

impl ModelOrigin {
    /// The model of this name at the provider of this name.
    pub(crate) fn new(provider: &str, model: &str) -> Self {
        Self { provider: provider.to_owned(), model: model.to_owned() }
    }

    /// What belongs to an answer of text, as an event.
    pub(super) fn text_data_event(&self, data: JsonObject) -> ModelEvent {
        ModelEvent::ProviderMeta(self.tag_data(data))
    }

    /// Puts what belongs to one call on it.
    pub(super) fn attach_to_call(&self, call: &mut ToolCall, data: JsonObject) {
        if data.is_empty() {
            return;
        }
        let there = call
            .extra
            .get(PROVIDER_DATA_KEY)
            .and_then(|given| given.get(&self.provider))
            .and_then(Value::as_object)
            .cloned();
        let mut all = there.unwrap_or_default();
        all.extend(data);
        call.extra.insert(PROVIDER_DATA_KEY.to_owned(), Value::Object(self.tag_data(all)));
    }

    /// What this model gave with a call.
    pub(super) fn call_data<'a>(&self, call: &'a ToolCall, name: &str) -> Option<&'a Value> {
        self.find(&call.extra, name, OriginMatch::Model)
    }

    /// What this model gave with a message.
    pub(super) fn message_data<'a>(&self, message: &'a ChatMessage, name: &str) -> Option<&'a Value> {
        self.find_in_message(message, name, OriginMatch::Model)
    }

    /// What any model of this provider gave with a message: words, which no model has signed.
    pub(super) fn unsigned_message_data<'a>(&self, message: &'a ChatMessage, name: &str) -> Option<&'a Value> {
        self.find_in_message(message, name, OriginMatch::Provider)
    }

    fn find_in_message<'a>(&self, message: &'a ChatMessage, name: &str, by: OriginMatch) -> Option<&'a Value> {
        let own = self.find(&message.extra, name, by);
        own.or_else(|| self.find(&message.tool_calls.first()?.extra, name, by))
    }

    fn find<'a>(&self, extra: &'a JsonObject, name: &str, by: OriginMatch) -> Option<&'a Value> {
        let given = extra.get(PROVIDER_DATA_KEY)?.get(&self.provider)?;
        let is_ours = match by {
            OriginMatch::Provider => true,
            // What was given before models were written down may be anybody's.
            OriginMatch::Model => given
                .get(PROVIDER_MODEL_KEY)?
                .as_str()
                .is_some_and(|model| model_family(model) == model_family(&self.model)),
        };
        given.get(name).filter(|_| is_ours)
    }

    fn tag_data(&self, mut data: JsonObject) -> JsonObject {
        data.insert(PROVIDER_MODEL_KEY.to_owned(), Value::from(self.model.as_str()));
        JsonObject::from_iter([(self.provider.clone(), Value::Object(data))])
    }
}

/// Whose gift it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OriginMatch {
    Provider,
    Model,
}

/// A model without the date of its edition: `claude-sonnet-4-5` and `claude-sonnet-4-5-20250929` are one, and so are
/// `gpt-5` and `gpt-5-2025-08-07`.
fn model_family(model: &str) -> &str {
    let is_number = |part: &str, letters: usize| part.len() == letters && part.bytes().all(|b| b.is_ascii_digit());
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

/// The items of a list, each with its place.
fn positioned_items(list: Option<&Value>) -> Vec<(usize, Value)> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    let place = |item: &Value| Some((usize::try_from(item.get("at")?.as_u64()?).ok()?, item.get("item")?.clone()));
    items.filter_map(place).collect()
}

/// Puts items among what they stood with: each before so many of `own` as its place says, or at the end.
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

/// Whether the answer that a call belongs to had text before its calls.
const AFTER_TEXT_KEY: &str = "after_text";

/// What an answer gave, in the order it came: its texts and calls, and the items that only its provider understands.
#[derive(Debug, Default)]
pub(super) struct ResponseItems {
    has_text: bool,
    calls: Vec<ToolCall>,
    items: Vec<Value>,
    has_started_call: bool,
}

impl ResponseItems {
    /// Text came.
    pub(super) fn record_text(&mut self) {
        self.has_text = true;
    }

    /// A call has begun.
    pub(super) fn start_call(&mut self) {
        self.has_started_call = true;
    }

    /// Whether a call has begun.
    pub(super) fn has_started_call(&self) -> bool {
        self.has_started_call
    }

    /// A whole call came, with what belongs to it alone.
    pub(super) fn push_call(&mut self, call: ToolCall) {
        self.start_call();
        self.calls.push(call);
    }

    /// The answer has ended: see [`Ending::fill`].
    pub(super) fn fill_missing_arguments(&mut self, ending: StopReason) {
        ending.fill_missing_arguments(&mut self.calls);
    }

    /// An item came.
    pub(super) fn push_item(&mut self, item: Value) {
        let before = usize::from(self.has_text) + self.calls.len();
        self.items.push(Value::from_iter([("at", Value::from(before)), ("item", item)]));
    }

    /// The calls, and the items under this name: on the first call, or beside the text where there is none.
    pub(super) fn take_events(&mut self, speaker: &ModelOrigin, name: &str) -> Vec<ModelEvent> {
        let mut calls = std::mem::take(&mut self.calls);
        let items = std::mem::take(&mut self.items);
        let mut beside = None;
        if !items.is_empty() {
            let mut data = JsonObject::from_iter([(name.to_owned(), Value::Array(items))]);
            match calls.first_mut() {
                Some(first) => {
                    if self.has_text {
                        data.insert(AFTER_TEXT_KEY.to_owned(), Value::Bool(true));
                    }
                    speaker.attach_to_call(first, data);
                }
                None => beside = Some(speaker.text_data_event(data)),
            }
        }
        calls.into_iter().map(ModelEvent::ToolCall).chain(beside).collect()
    }
}

/// What messages of the assistant that follow each other say, with the items of this name where they stood.
pub(super) fn restore_items(
    speaker: &ModelOrigin,
    name: &str,
    messages: &[ChatMessage],
    own: impl Fn(&ChatMessage) -> Vec<Value>,
) -> Vec<Value> {
    let mut all = Vec::new();
    let mut items = Vec::new();
    for message in messages {
        let after_text = speaker.message_data(message, AFTER_TEXT_KEY) == Some(&Value::Bool(true));
        // The text of an answer and its calls are two messages here.
        let begins = all.len().saturating_sub(usize::from(after_text));
        let placed = positioned_items(speaker.message_data(message, name));
        items.extend(placed.into_iter().map(|(at, item)| (begins + at, item)));
        all.extend(own(message));
    }
    interleave_items(all, items)
}

/// The messages of a conversation, with neighbours of the assistant together: the text of a step and its calls were one
/// answer.
pub(super) fn group_assistant_messages(messages: &[ChatMessage]) -> impl Iterator<Item = &[ChatMessage]> {
    messages.chunk_by(|before, next| before.role == MessageRole::Assistant && next.role == MessageRole::Assistant)
}

#[cfg(test)]
mod tests {
    use super::model_family;

    #[test]
    fn editions_of_a_model_are_one_model_and_others_are_not() {
        assert_eq!(model_family("claude-sonnet-4-5-20250929"), model_family("claude-sonnet-4-5"));
        assert_eq!(model_family("claude-sonnet-4-5@20250929"), model_family("claude-sonnet-4-5"));
        assert_eq!(model_family("gpt-5-2025-08-07"), model_family("gpt-5"));
        for model in ["gpt-5-mini", "claude-opus-4-5", "gemini-2.5-pro", "o3", "", "20250929", "a/b:free"] {
            assert_eq!(model_family(model), model);
        }
    }
}

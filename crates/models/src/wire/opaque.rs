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
use capstan_protocol::{ChatMessage, Map, Role, ToolCall};
use serde_json::Value;

use super::reader::Ending;

/// Where it stands in `extra`.
const KEY: &str = "provider";
/// The model that made it, beside it.
const MODEL: &str = "model";

/// Who gave something, or is to get it back: a model of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Speaker {
    provider: String,
    model: String,
}

impl Speaker {
    /// The model of this name at the provider of this name.
    pub(crate) fn new(provider: &str, model: &str) -> Self {
        Self { provider: provider.to_owned(), model: model.to_owned() }
    }

    /// What belongs to an answer of text, as an event.
    pub(super) fn beside_text(&self, data: Map) -> ModelEvent {
        ModelEvent::ProviderMeta(self.given(data))
    }

    /// Puts what belongs to one call on it.
    pub(super) fn on_call(&self, call: &mut ToolCall, data: Map) {
        if data.is_empty() {
            return;
        }
        let there = call.extra.get(KEY).and_then(|given| given.get(&self.provider)).and_then(Value::as_object).cloned();
        let mut all = there.unwrap_or_default();
        all.extend(data);
        call.extra.insert(KEY.to_owned(), Value::Object(self.given(all)));
    }

    /// What this model gave with a call.
    pub(super) fn in_call<'a>(&self, call: &'a ToolCall, name: &str) -> Option<&'a Value> {
        self.find(&call.extra, name, By::Model)
    }

    /// What this model gave with a message.
    pub(super) fn in_message<'a>(&self, message: &'a ChatMessage, name: &str) -> Option<&'a Value> {
        self.of_message(message, name, By::Model)
    }

    /// What any model of this provider gave with a message: words, which no model has signed.
    pub(super) fn words_in_message<'a>(&self, message: &'a ChatMessage, name: &str) -> Option<&'a Value> {
        self.of_message(message, name, By::Provider)
    }

    fn of_message<'a>(&self, message: &'a ChatMessage, name: &str, by: By) -> Option<&'a Value> {
        let own = self.find(&message.extra, name, by);
        own.or_else(|| self.find(&message.tool_calls.first()?.extra, name, by))
    }

    fn find<'a>(&self, extra: &'a Map, name: &str, by: By) -> Option<&'a Value> {
        let given = extra.get(KEY)?.get(&self.provider)?;
        let is_ours = match by {
            By::Provider => true,
            // What was given before models were written down may be anybody's.
            By::Model => given.get(MODEL)?.as_str().is_some_and(|model| family(model) == family(&self.model)),
        };
        given.get(name).filter(|_| is_ours)
    }

    fn given(&self, mut data: Map) -> Map {
        data.insert(MODEL.to_owned(), Value::from(self.model.as_str()));
        Map::from_iter([(self.provider.clone(), Value::Object(data))])
    }
}

/// Whose gift it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Provider,
    Model,
}

/// A model without the date of its edition: `claude-sonnet-4-5` and `claude-sonnet-4-5-20250929` are one, and so are
/// `gpt-5` and `gpt-5-2025-08-07`.
fn family(model: &str) -> &str {
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
fn placed(list: Option<&Value>) -> Vec<(usize, Value)> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    let place = |item: &Value| Some((usize::try_from(item.get("at")?.as_u64()?).ok()?, item.get("item")?.clone()));
    items.filter_map(place).collect()
}

/// Puts items among what they stood with: each before so many of `own` as its place says, or at the end.
fn interleave(own: Vec<Value>, items: Vec<(usize, Value)>) -> Vec<Value> {
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
const AFTER_TEXT: &str = "after_text";

/// What an answer gave, in the order it came: its texts and calls, and the items that only its provider understands.
#[derive(Debug, Default)]
pub(super) struct Given {
    has_text: bool,
    calls: Vec<ToolCall>,
    items: Vec<Value>,
    is_calling: bool,
}

impl Given {
    /// Text came.
    pub(super) fn text(&mut self) {
        self.has_text = true;
    }

    /// A call has begun.
    pub(super) fn begin_call(&mut self) {
        self.is_calling = true;
    }

    /// Whether a call has begun.
    pub(super) fn is_calling(&self) -> bool {
        self.is_calling
    }

    /// A whole call came, with what belongs to it alone.
    pub(super) fn call(&mut self, call: ToolCall) {
        self.begin_call();
        self.calls.push(call);
    }

    /// The answer has ended: see [`Ending::fill`].
    pub(super) fn fill(&mut self, ending: Ending) {
        ending.fill(&mut self.calls);
    }

    /// An item came.
    pub(super) fn item(&mut self, item: Value) {
        let before = usize::from(self.has_text) + self.calls.len();
        self.items.push(Value::from_iter([("at", Value::from(before)), ("item", item)]));
    }

    /// The calls, and the items under this name: on the first call, or beside the text where there is none.
    pub(super) fn events(&mut self, speaker: &Speaker, name: &str) -> Vec<ModelEvent> {
        let mut calls = std::mem::take(&mut self.calls);
        let items = std::mem::take(&mut self.items);
        let mut beside = None;
        if !items.is_empty() {
            let mut data = Map::from_iter([(name.to_owned(), Value::Array(items))]);
            match calls.first_mut() {
                Some(first) => {
                    if self.has_text {
                        data.insert(AFTER_TEXT.to_owned(), Value::Bool(true));
                    }
                    speaker.on_call(first, data);
                }
                None => beside = Some(speaker.beside_text(data)),
            }
        }
        calls.into_iter().map(ModelEvent::ToolCall).chain(beside).collect()
    }
}

/// What messages of the assistant that follow each other say, with the items of this name where they stood.
pub(super) fn restore(
    speaker: &Speaker,
    name: &str,
    messages: &[ChatMessage],
    own: impl Fn(&ChatMessage) -> Vec<Value>,
) -> Vec<Value> {
    let mut all = Vec::new();
    let mut items = Vec::new();
    for message in messages {
        let after_text = speaker.in_message(message, AFTER_TEXT) == Some(&Value::Bool(true));
        // The text of an answer and its calls are two messages here.
        let begins = all.len().saturating_sub(usize::from(after_text));
        let placed = placed(speaker.in_message(message, name));
        items.extend(placed.into_iter().map(|(at, item)| (begins + at, item)));
        all.extend(own(message));
    }
    interleave(all, items)
}

/// The messages of a conversation, with neighbours of the assistant together: the text of a step and its calls were one
/// answer.
pub(super) fn runs(messages: &[ChatMessage]) -> impl Iterator<Item = &[ChatMessage]> {
    messages.chunk_by(|before, next| before.role == Role::Assistant && next.role == Role::Assistant)
}

#[cfg(test)]
mod tests {
    use super::family;

    #[test]
    fn editions_of_a_model_are_one_model_and_others_are_not() {
        assert_eq!(family("claude-sonnet-4-5-20250929"), family("claude-sonnet-4-5"));
        assert_eq!(family("claude-sonnet-4-5@20250929"), family("claude-sonnet-4-5"));
        assert_eq!(family("gpt-5-2025-08-07"), family("gpt-5"));
        for model in ["gpt-5-mini", "claude-opus-4-5", "gemini-2.5-pro", "o3", "", "20250929", "a/b:free"] {
            assert_eq!(family(model), model);
        }
    }
}

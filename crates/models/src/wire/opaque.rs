//! What only the provider that gave it understands.
//!
//! It stands under the provider's name in the key `provider` of a message or of a call. What belongs to a message that
//! has no text rides on its first call. A list of it says how many texts and calls stood before each item.

use capstan_hooks::contracts::ModelEvent;
use capstan_protocol::{ChatMessage, Map, Role, ToolCall};
use serde_json::Value;

use super::reader::Ending;

/// Where it stands in `extra`.
const KEY: &str = "provider";

/// What belongs to a whole message.
fn of_message(provider: &str, data: Value) -> Map {
    Map::from_iter([(provider.to_owned(), data)])
}

/// What belongs to an answer of text, as an event.
pub(super) fn beside_text(provider: &str, data: Map) -> ModelEvent {
    ModelEvent::ProviderMeta(of_message(provider, Value::Object(data)))
}

/// Puts what belongs to one call on it.
pub(super) fn on_call(provider: &str, call: &mut ToolCall, data: Map) {
    if data.is_empty() {
        return;
    }
    let there = call.extra.get(KEY).and_then(|given| given.get(provider)).and_then(Value::as_object).cloned();
    let mut all = there.unwrap_or_default();
    all.extend(data);
    call.extra.insert(KEY.to_owned(), Value::Object(of_message(provider, Value::Object(all))));
}

/// What this provider gave with a call.
pub(super) fn in_call<'a>(provider: &str, call: &'a ToolCall, name: &str) -> Option<&'a Value> {
    call.extra.get(KEY)?.get(provider)?.get(name)
}

/// What this provider gave with a message.
pub(super) fn in_message<'a>(provider: &str, message: &'a ChatMessage, name: &str) -> Option<&'a Value> {
    let own = || message.extra.get(KEY)?.get(provider)?.get(name);
    own().or_else(|| in_call(provider, message.tool_calls.first()?, name))
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
    pub(super) fn events(&mut self, provider: &str, name: &str) -> Vec<ModelEvent> {
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
                    on_call(provider, first, data);
                }
                None => beside = Some(beside_text(provider, data)),
            }
        }
        calls.into_iter().map(ModelEvent::ToolCall).chain(beside).collect()
    }
}

/// What messages of the assistant that follow each other say, with the items of this name where they stood.
pub(super) fn restore(
    provider: &str,
    name: &str,
    messages: &[ChatMessage],
    own: impl Fn(&ChatMessage) -> Vec<Value>,
) -> Vec<Value> {
    let mut all = Vec::new();
    let mut items = Vec::new();
    for message in messages {
        let after_text = in_message(provider, message, AFTER_TEXT) == Some(&Value::Bool(true));
        // The text of an answer and its calls are two messages here.
        let begins = all.len().saturating_sub(usize::from(after_text));
        let placed = placed(in_message(provider, message, name));
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

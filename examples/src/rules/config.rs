//! Configuration of the rules in a binding.

use capstan::protocol::{RunContext, StateScope};
use serde::Deserialize;
use serde_json::{Value, json};

/// Runner configuration of a binding.
#[derive(Deserialize)]
pub(super) struct RulesConfig {
    /// Rules; the first that matches an event applies.
    pub(super) rules: Vec<EventRule>,
    /// Reply if no rule matches; absent: no reply.
    pub(super) otherwise: Option<String>,
}

/// Rule for an event.
#[derive(Deserialize)]
pub(super) struct EventRule {
    /// Matches a message that starts with this word.
    word: Option<String>,
    /// Matches an event of this type.
    event_type: Option<String>,
    pub(super) does: RuleAction,
    /// Scope of the count or note.
    #[serde(default = "default_scope")]
    pub(super) scope: StateScope,
    /// Reply template with `{count}`, `{list}`, `{name}` and `{text}`.
    pub(super) says: String,
}

/// Action of a rule besides replying.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RuleAction {
    Say,
    Count,
    Remember,
    Recall,
    Vote,
    Tally,
}

fn default_scope() -> StateScope {
    StateScope::Conversation
}

impl RuleAction {
    /// Returns true if the message must have text after the word.
    pub(super) fn needs_text(self) -> bool {
        matches!(self, Self::Remember | Self::Vote)
    }
}

impl EventRule {
    /// Returns the rest of the message, if the rule matches the event.
    pub(super) fn match_event<'a>(&self, context: &'a RunContext) -> Option<&'a str> {
        let text = context.input.plain_text().trim();
        if self.event_type.as_ref().is_some_and(|kind| *kind == context.trigger.kind) {
            return Some(text);
        }
        let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let is_word = self.word.as_ref().is_some_and(|word| word.eq_ignore_ascii_case(first));
        (is_word && context.event.is_message()).then(|| rest.trim())
    }

    /// Returns the name of the rule in the keys of stored values.
    pub(super) fn name(&self) -> &str {
        self.word.as_deref().or(self.event_type.as_deref()).unwrap_or_default()
    }
}

/// Returns the JSON Schema of the configuration. A binding that does not match is refused when it is saved.
pub(super) fn schema() -> Value {
    let rule = json!({
        "type": "object",
        "properties": {
            "word": {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^\\S+$"},
            "event_type": {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^\\S+$"},
            "does": {"enum": ["say", "count", "remember", "recall", "vote", "tally"]},
            "scope": {"enum": ["conversation", "actor"]},
            "says": {"type": "string", "maxLength": 1000}
        },
        "required": ["does", "says"],
        "oneOf": [{"required": ["word"]}, {"required": ["event_type"]}],
        "additionalProperties": false
    });
    json!({
        "type": "object",
        "properties": {
            "rules": {"type": "array", "minItems": 1, "maxItems": 100, "items": rule},
            "otherwise": {"type": "string", "maxLength": 1000}
        },
        "required": ["rules"],
        "additionalProperties": false
    })
}

//! The rules, as a binding has them.

use capstan::protocol::{RunContext, StateScope};
use serde::Deserialize;
use serde_json::{Value, json};

/// What a binding tells the runner.
#[derive(Deserialize)]
pub(super) struct RulesConfig {
    /// The first that fits an event counts.
    pub(super) rules: Vec<EventRule>,
    /// What is answered when none fits; absent: nothing.
    pub(super) otherwise: Option<String>,
}

/// What is done about an event.
#[derive(Deserialize)]
pub(super) struct EventRule {
    /// It fits a message that begins with this word.
    word: Option<String>,
    /// It fits an event of this type.
    event_type: Option<String>,
    pub(super) does: RuleAction,
    /// For whom it counts or remembers.
    #[serde(default = "conversation")]
    pub(super) scope: StateScope,
    /// The answer, with `{count}`, `{list}`, `{name}` and `{text}`.
    pub(super) says: String,
}

/// What a rule does beside answering.
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

fn conversation() -> StateScope {
    StateScope::Conversation
}

impl RuleAction {
    /// Whether the message must say something after the word.
    pub(super) fn needs_text(self) -> bool {
        matches!(self, Self::Remember | Self::Vote)
    }
}

impl EventRule {
    /// The rest of the message, if the rule fits the event.
    pub(super) fn match_event<'a>(&self, context: &'a RunContext) -> Option<&'a str> {
        let text = context.input.plain_text().trim();
        if self.event_type.as_ref().is_some_and(|kind| *kind == context.trigger.kind) {
            return Some(text);
        }
        let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let is_word = self.word.as_ref().is_some_and(|word| word.eq_ignore_ascii_case(first));
        (is_word && context.event.is_message()).then(|| rest.trim())
    }

    /// What the rule is known by, in the keys of what is kept.
    pub(super) fn name(&self) -> &str {
        self.word.as_deref().or(self.event_type.as_deref()).unwrap_or_default()
    }
}

/// What the configuration must look like. A binding that does not fit is refused when it is saved.
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

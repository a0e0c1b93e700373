//! Runner without a model: rules in the binding's configuration determine its actions, and the host stores its state.
//!
//! It counts, takes votes and keeps notes, for a conversation or for one person. `docs/runners.md` has a binding for
//! it.
//!
//! State changes are reported as `state.updated` right before the reply, so that both are one commit: a run interrupted
//! by a crash leaves nothing behind and is resumed. Only turns of the same conversation are serialized, so values that
//! several conversations may write concurrently have one key per conversation.

mod config;
mod stored_state;

use std::sync::Arc;

use capstan::hooks::contracts::{ResultStream, RunApi, Runner};
use capstan::hooks::points::ProvideRunners;
use capstan::hooks::{BoxError, HookRegistrar, Plugin};
use capstan::protocol::{
    ApiError, ApiErrorCode, Descriptor, HostStateRequirement, JsonObject, PermissionSet, ResultBody, RunContext,
    RunResult, RunnerCapabilities, StateScope,
};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

use config::{EventRule, RuleAction, RulesConfig};

/// Runner that serves events by rules.
#[derive(Clone, Copy)]
pub struct RulesRunner;

impl RulesRunner {
    /// Runner id for bindings.
    pub const ID: &str = "plugin:capstan/rules/runner";
}

impl Plugin for RulesRunner {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn author(&self) -> &'static str {
        "capstan"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        hooks.on_sync(ProvideRunners, || Ok(Some(vec![Arc::new(Self) as Arc<dyn Runner>])));
        Ok(())
    }
}

impl Runner for RulesRunner {
    fn descriptor(&self) -> Descriptor {
        let state = [StateScope::Conversation, StateScope::Actor].into();
        Descriptor {
            description: Some("Counts, takes votes and keeps notes, by rules and without a model.".into()),
            capabilities: RunnerCapabilities {
                event_context: true,
                host_state: HostStateRequirement::Required,
                // The host knows all effects of an interrupted run.
                effects_through_host: true,
                ..RunnerCapabilities::default()
            },
            permissions: PermissionSet { state, ..PermissionSet::none() },
            config_schema: Some(config::schema()),
            ..Descriptor::new(Self::ID, "Rules")
        }
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let results = async move {
            serve(&context, &api).await.unwrap_or_else(|error| {
                let (message, code) = (error.message, error.cause);
                vec![ResultBody::RunFailed { message, code }]
            })
        };
        stream::once(results).flat_map(|results| stream::iter(results.into_iter().map(RunResult::from))).boxed()
    }
}

/// Result of a rule.
#[derive(Default)]
struct RuleResult {
    /// State to store, with its scope.
    state_update: Option<(StateScope, JsonObject)>,
    count: u64,
    list: String,
}

async fn serve(context: &RunContext, api: &RunApi) -> Result<Vec<ResultBody>, ApiError> {
    // The binding was checked against the schema when it was saved, possibly by another version with another schema.
    let config: RulesConfig = serde_json::from_value(Value::Object(context.config.clone()))
        .map_err(|error| ApiError::new(ApiErrorCode::InvalidArgument, format!("invalid rules: {error}")))?;
    let Some((rule, text)) = config.rules.iter().find_map(|rule| Some((rule, rule.match_event(context)?))) else {
        return Ok(reply_results(config.otherwise));
    };
    if text.is_empty() && rule.does.needs_text() {
        return Ok(reply_results(Some("Please add the text to the same message.".to_owned())));
    }
    let result = apply_rule(rule, text, context, api).await?;
    let name = context.actor.as_ref().map(|actor| actor.name.as_deref().unwrap_or(&actor.id));
    let count = result.count.to_string();
    let values = [
        ("{count}", count.as_str()),
        ("{name}", name.unwrap_or("someone")),
        ("{list}", &result.list),
        ("{text}", text),
    ];
    let reply = fill_template(&rule.says, &values);
    let state_update = result.state_update.map(|(scope, state)| ResultBody::StateUpdated { scope, state });
    Ok(state_update.into_iter().chain(reply_results(Some(reply))).collect())
}

/// Fills a template. Inserted values are never interpreted as part of the template, since they come from users.
fn fill_template(template: &str, values: &[(&str, &str)]) -> String {
    let (mut filled, mut rest) = (String::new(), template);
    while let Some(position) = rest.find('{') {
        let (before, from_brace) = rest.split_at(position);
        filled.push_str(before);
        let placeholder = values.iter().find(|(name, _)| from_brace.starts_with(name));
        let (name, value) = placeholder.copied().unwrap_or(("{", "{"));
        filled.push_str(value);
        rest = &from_brace[name.len()..];
    }
    filled + rest
}

/// Returns a message and the end of the run, or the end alone.
fn reply_results(text: Option<String>) -> Vec<ResultBody> {
    let silent = text.is_none();
    let message =
        text.map(|text| ResultBody::MessageCompleted { content: text.into(), provider_meta: JsonObject::new() });
    message.into_iter().chain([ResultBody::RunCompleted { silent }]).collect()
}

async fn apply_rule(rule: &EventRule, text: &str, context: &RunContext, api: &RunApi) -> Result<RuleResult, ApiError> {
    let tape = &context.context.tape;
    Ok(match rule.does {
        RuleAction::Say => RuleResult::default(),
        RuleAction::Count => {
            // Words contain no space, so no prefix is the beginning of another.
            let prefix = format!("count/{} ", rule.name());
            let own = format!("{prefix}{tape}");
            let counts = stored_state::list_with_prefix(api, rule.scope, &prefix).await?;
            let count_of = |value: &Value| value.as_u64().unwrap_or_default();
            let previous = counts.iter().find(|entry| entry.key == own).map_or(0, |entry| count_of(&entry.value));
            let count = counts.iter().map(|entry| count_of(&entry.value)).sum::<u64>() + 1;
            RuleResult {
                state_update: Some((rule.scope, JsonObject::from_iter([(own, json!(previous + 1))]))),
                count,
                ..RuleResult::default()
            }
        }
        RuleAction::Remember => {
            // One key per note, so that no other run writes it.
            let note = JsonObject::from_iter([(format!("note/{}", context.run_id), json!(text))]);
            RuleResult { state_update: Some((rule.scope, note)), ..RuleResult::default() }
        }
        RuleAction::Recall => {
            let notes = stored_state::list_with_prefix(api, rule.scope, "note/").await?;
            let list = notes.iter().filter_map(|note| Some(format!("- {}", note.value.as_str()?)));
            RuleResult { count: notes.len() as u64, list: list.collect::<Vec<_>>().join("\n"), ..RuleResult::default() }
        }
        RuleAction::Vote => {
            // One key per voter: voting again replaces the vote.
            let voter = context.actor.as_ref().map_or("", |actor| &actor.id);
            let own = format!("vote/{voter}");
            let ballots = stored_state::list_with_prefix(api, StateScope::Conversation, "vote/").await?;
            let count = ballots.iter().filter(|vote| vote.key != own && vote.value == text).count() as u64 + 1;
            let vote = JsonObject::from_iter([(own, json!(text))]);
            RuleResult { state_update: Some((StateScope::Conversation, vote)), count, ..RuleResult::default() }
        }
        RuleAction::Tally => {
            let votes = stored_state::list_with_prefix(api, StateScope::Conversation, "vote/").await?;
            RuleResult { count: votes.len() as u64, list: stored_state::format_tally(&votes), ..RuleResult::default() }
        }
    })
}

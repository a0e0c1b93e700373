//! A runner without a model: rules in the binding's configuration say what it does, and the host keeps its state.
//!
//! It counts, takes votes and keeps notes, for a conversation or for one person. `docs/runners.md` has a binding for it.
//!
//! What it wants kept it says in a `state.updated` right before its answer, so that both are one commit: a run that a
//! crash cuts off leaves nothing behind and is taken up again. Only the turns of one conversation follow one another,
//! so what several conversations write at the same time has a key for each of them.

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

/// Serves events by rules.
#[derive(Clone, Copy)]
pub struct RulesRunner;

impl RulesRunner {
    /// The id that bindings name.
    pub const ID: &str = "plugin:capstan/examples/rules";
}

impl Plugin for RulesRunner {
    fn name(&self) -> &'static str {
        "rules"
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
                // A run that was cut off did nothing that the host does not know of.
                effects_through_host: true,
                ..RunnerCapabilities::default()
            },
            permissions: PermissionSet { state, ..PermissionSet::none() },
            config_schema: Some(config::schema()),
            ..Descriptor::new(Self::ID, "Rules")
        }
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let served = async move {
            serve(&context, &api).await.unwrap_or_else(|error| {
                let (message, code) = (error.message, error.cause);
                vec![ResultBody::RunFailed { message, code }]
            })
        };
        stream::once(served).flat_map(|results| stream::iter(results.into_iter().map(RunResult::from))).boxed()
    }
}

/// What a rule comes to.
#[derive(Default)]
struct RuleResult {
    /// What is to be kept, and for whom.
    state_update: Option<(StateScope, JsonObject)>,
    count: u64,
    list: String,
}

async fn serve(context: &RunContext, api: &RunApi) -> Result<Vec<ResultBody>, ApiError> {
    // The binding was checked against the schema when it was saved; another version may have had another schema.
    let config: RulesConfig = serde_json::from_value(Value::Object(context.config.clone()))
        .map_err(|error| ApiError::new(ApiErrorCode::InvalidArgument, format!("the rules cannot be read: {error}")))?;
    let Some((rule, text)) = config.rules.iter().find_map(|rule| Some((rule, rule.match_event(context)?))) else {
        return Ok(reply_results(config.otherwise));
    };
    if text.is_empty() && rule.does.needs_text() {
        return Ok(reply_results(Some("What? Please say it in the same message.".to_owned())));
    }
    let done = apply_rule(rule, text, context, api).await?;
    let name = context.actor.as_ref().map(|actor| actor.name.as_deref().unwrap_or(&actor.id));
    let count = done.count.to_string();
    let values =
        [("{count}", count.as_str()), ("{name}", name.unwrap_or("somebody")), ("{list}", &done.list), ("{text}", text)];
    let answer = fill_template(&rule.says, &values);
    let keeps = done.state_update.map(|(scope, state)| ResultBody::StateUpdated { scope, state });
    Ok(keeps.into_iter().chain(reply_results(Some(answer))).collect())
}

/// A form with its places filled. What is filled in is never taken for a part of the form: people say what they like.
fn fill_template(form: &str, values: &[(&str, &str)]) -> String {
    let (mut filled, mut rest) = (String::new(), form);
    while let Some(place) = rest.find('{') {
        let (before, from_place) = rest.split_at(place);
        filled.push_str(before);
        let known = values.iter().find(|(name, _)| from_place.starts_with(name));
        let (name, value) = known.copied().unwrap_or(("{", "{"));
        filled.push_str(value);
        rest = &from_place[name.len()..];
    }
    filled + rest
}

/// A message and the end, or the end alone.
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
            // Nobody's word has a space in it, so none is the beginning of another's.
            let beginning = format!("count/{} ", rule.name());
            let own = format!("{beginning}{tape}");
            let counts = stored_state::list_with_prefix(api, rule.scope, &beginning).await?;
            let count_of = |value: &Value| value.as_u64().unwrap_or_default();
            let before = counts.iter().find(|kept| kept.key == own).map_or(0, |kept| count_of(&kept.value));
            let count = counts.iter().map(|kept| count_of(&kept.value)).sum::<u64>() + 1;
            RuleResult {
                state_update: Some((rule.scope, JsonObject::from_iter([(own, json!(before + 1))]))),
                count,
                ..RuleResult::default()
            }
        }
        RuleAction::Remember => {
            // A key for each note: nobody else writes it.
            let note = JsonObject::from_iter([(format!("note/{}", context.run_id), json!(text))]);
            RuleResult { state_update: Some((rule.scope, note)), ..RuleResult::default() }
        }
        RuleAction::Recall => {
            let notes = stored_state::list_with_prefix(api, rule.scope, "note/").await?;
            let list = notes.iter().filter_map(|note| Some(format!("- {}", note.value.as_str()?)));
            RuleResult { count: notes.len() as u64, list: list.collect::<Vec<_>>().join("\n"), ..RuleResult::default() }
        }
        RuleAction::Vote => {
            // A key for each voter: to vote again is to change one's mind.
            let who = context.actor.as_ref().map_or("", |actor| &actor.id);
            let own = format!("vote/{who}");
            let votes = stored_state::list_with_prefix(api, StateScope::Conversation, "vote/").await?;
            let count = votes.iter().filter(|vote| vote.key != own && vote.value == text).count() as u64 + 1;
            let vote = JsonObject::from_iter([(own, json!(text))]);
            RuleResult { state_update: Some((StateScope::Conversation, vote)), count, ..RuleResult::default() }
        }
        RuleAction::Tally => {
            let votes = stored_state::list_with_prefix(api, StateScope::Conversation, "vote/").await?;
            RuleResult { count: votes.len() as u64, list: stored_state::format_tally(&votes), ..RuleResult::default() }
        }
    })
}

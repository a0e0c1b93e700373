//! Properties of grants: what narrows and widens them, and that nothing outside of one is reachable.

use std::sync::{Arc, Mutex};

use capstan::hooks::contracts::ApiMethod;
use capstan::protocol::{
    Access, ApiErrorCode, ArtifactUse, Authority, Binding, EventUse, HistoryUse, KnowledgeUse, ModelUse, Operation,
    Operations, Reach, ResourcePolicy, StatePolicy, StateScope, StorageArea, TapeAccess, ToolUse, Uses,
};
use capstan_host::default_binding;
use capstan_host::runs::grant::{Scope, compute};
use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::driven::{attempt, driven, generously};

fn some<O: Operation + std::fmt::Debug>() -> impl Strategy<Value = Operations<O>> {
    subsequence(O::ALL.to_vec(), 0..=O::ALL.len()).prop_map(|chosen| chosen.into_iter().collect())
}

fn names(of: &'static [&'static str]) -> impl Strategy<Value = Access> {
    prop_oneof![Just(Access::All), subsequence(of.to_vec(), 0..=of.len()).prop_map(Access::only),]
}

fn uses<O: Operation + std::fmt::Debug>(of: &'static [&'static str]) -> impl Strategy<Value = Uses<O>> {
    (names(of), some::<O>()).prop_map(|(names, operations)| Uses { names, operations })
}

/// What the attempts of the tests name, and something else.
const MODELS: &[&str] = &["demo:x", "other:model"];
const TOOLS: &[&str] = &["help", "bash"];
const BASES: &[&str] = &["base", "another"];
const ACTIONS: &[&str] = &["message.delete", "member.mute"];

fn reach() -> impl Strategy<Value = Reach> {
    prop_oneof![Just(Reach::Conversation), Just(Reach::Workspace)]
}

fn tape() -> impl Strategy<Value = TapeAccess> {
    prop_oneof![Just(TapeAccess::None), Just(TapeAccess::Read), Just(TapeAccess::Write)]
}

fn authority() -> impl Strategy<Value = Authority> {
    let resources = (
        uses::<ModelUse>(MODELS),
        uses::<ToolUse>(TOOLS),
        uses::<KnowledgeUse>(BASES),
        some::<HistoryUse>(),
        some::<EventUse>(),
        reach(),
        some::<ArtifactUse>(),
    );
    let rest = (some::<StateScope>(), some::<StorageArea>(), names(ACTIONS), tape(), any::<[bool; 3]>());
    (resources, rest).prop_map(|(resources, rest)| {
        let (models, tools, knowledge_bases, history, events, reach, artifacts) = resources;
        let (state, storage, platform_api, tape, [prompt, children, steering]) = rest;
        Authority {
            models,
            tools,
            knowledge_bases,
            history,
            events,
            reach,
            artifacts,
            state,
            storage,
            platform_api,
            tape,
            prompt,
            children,
            steering,
        }
    })
}

/// A binding whose policy says this, or nothing, of each kind.
fn binding() -> impl Strategy<Value = Binding> {
    (authority(), any::<[bool; 11]>(), any::<bool>()).prop_map(|(may, says, enabled)| {
        let resource_policy = ResourcePolicy {
            models: says[0].then_some(may.models),
            tools: says[1].then_some(may.tools),
            knowledge_bases: says[2].then_some(may.knowledge_bases),
            history: says[3].then_some(may.history),
            events: says[4].then_some(may.events),
            reach: may.reach,
            artifacts: says[5].then_some(may.artifacts),
            storage: says[6].then_some(may.storage),
            platform_api: says[7].then_some(may.platform_api),
            tape: says[8].then_some(may.tape),
            children: says[9].then_some(may.children),
            steering: says[9].then_some(may.steering),
            ..ResourcePolicy::default()
        };
        let scopes = says[10].then_some(may.state);
        Binding {
            resource_policy,
            state_policy: StatePolicy { enabled, scopes, ..StatePolicy::default() },
            ..default_binding()
        }
    })
}

/// The same binding, allowing no more than this as well.
fn narrowed(binding: &Binding, by: &Authority) -> Binding {
    let cap = binding.cap().intersect(by);
    let resource_policy = ResourcePolicy {
        models: Some(cap.models),
        tools: Some(cap.tools),
        knowledge_bases: Some(cap.knowledge_bases),
        history: Some(cap.history),
        events: Some(cap.events),
        reach: cap.reach,
        artifacts: Some(cap.artifacts),
        storage: Some(cap.storage),
        platform_api: Some(cap.platform_api),
        tape: Some(cap.tape),
        children: Some(cap.children),
        steering: Some(cap.steering),
        ..binding.resource_policy.clone()
    };
    let state_policy = StatePolicy { scopes: Some(cap.state), ..binding.state_policy.clone() };
    Binding { resource_policy, state_policy, ..binding.clone() }
}

fn scope() -> impl Strategy<Value = Scope> {
    any::<[bool; 3]>().prop_map(|[from_cli, has_actor, has_subject]| Scope { from_cli, has_actor, has_subject })
}

/// Whether nothing is in the one that is not in the other.
fn is_within(less: &Authority, more: &Authority) -> bool {
    less.intersect(more) == *less
}

proptest! {
    #[test]
    fn g05_narrowing_never_widens_a_grant_and_widening_never_narrows_it(
        permissions in authority(), by in authority(), binding in binding(), scope in scope(),
    ) {
        let wide = compute(&permissions, &binding, scope);
        prop_assert!(is_within(&wide.may, &permissions));
        prop_assert!(is_within(&wide.may, &binding.cap()));
        // What is narrowed one way is widened the other way.
        let less_asked = compute(&permissions.intersect(&by), &binding, scope);
        prop_assert!(is_within(&less_asked.may, &wide.may));
        let less_allowed = compute(&permissions, &narrowed(&binding, &by), scope);
        prop_assert!(is_within(&less_allowed.may, &wide.may));
        let nobody = Scope { from_cli: false, has_actor: false, has_subject: false };
        let less_told = compute(&permissions, &binding, nobody);
        prop_assert!(is_within(&less_told.may, &wide.may) && less_told.shell_commands <= wide.shell_commands);
        let disabled = StatePolicy { enabled: false, ..binding.state_policy.clone() };
        let no_state = compute(&permissions, &Binding { state_policy: disabled, ..binding.clone() }, scope);
        prop_assert!(no_state.may.state.is_empty());
    }
}

/// Whether an authority covers the attempt at a method, said once more and in other words.
fn covers(may: &Authority, method: ApiMethod) -> bool {
    let model = |what| may.models.allows(what, "demo:x");
    let any_name = |names: &Access| *names != Access::none();
    match method {
        ApiMethod::ModelsStream => model(ModelUse::Stream),
        ApiMethod::ModelsInvoke => model(ModelUse::Invoke),
        ApiMethod::ModelsCountTokens => model(ModelUse::CountTokens),
        ApiMethod::ModelsRerank => model(ModelUse::Rerank),
        ApiMethod::ToolsList => true,
        ApiMethod::ToolsDetail => may.tools.allows(ToolUse::Detail, "help"),
        ApiMethod::ToolsCall => may.tools.operations.contains(&ToolUse::Call) && any_name(&may.tools.names),
        ApiMethod::ToolsCommand => may.tools.allows(ToolUse::Call, "help"),
        ApiMethod::TapeView | ApiMethod::TapeInfo | ApiMethod::TapeAnchors | ApiMethod::TapeSearch => {
            may.tape != TapeAccess::None
        }
        ApiMethod::ToolsRefuseCommand
        | ApiMethod::TapeHandoff
        | ApiMethod::TapeNote
        | ApiMethod::TapeSay
        | ApiMethod::TapeReset => may.tape == TapeAccess::Write,
        ApiMethod::PromptSystem | ApiMethod::PromptContinuation => may.prompt,
        ApiMethod::SteeringTake => may.steering,
        ApiMethod::SessionModel => may.models.operations.contains(&ModelUse::Stream) && any_name(&may.models.names),
        ApiMethod::SessionChooseModel => may.models.allows(ModelUse::Stream, "demo:x"),
        ApiMethod::ArtifactsDescribe => may.artifacts.contains(&ArtifactUse::Metadata),
        ApiMethod::ArtifactsRead => may.artifacts.contains(&ArtifactUse::Read),
        ApiMethod::ArtifactsCreate => may.artifacts.contains(&ArtifactUse::Create),
        ApiMethod::RunsChild => may.children,
        ApiMethod::StateGet | ApiMethod::StateSet | ApiMethod::StateList | ApiMethod::StateDelete => {
            may.state.contains(&StateScope::Conversation)
        }
        ApiMethod::StoragePut | ApiMethod::StorageGet | ApiMethod::StorageList | ApiMethod::StorageDelete => {
            may.storage.contains(&StorageArea::Binding)
        }
        ApiMethod::HistoryPage => may.history.contains(&HistoryUse::Page),
        ApiMethod::HistorySearch => may.history.contains(&HistoryUse::Search),
        ApiMethod::EventsGet => may.events.contains(&EventUse::Get),
        ApiMethod::EventsPage => may.events.contains(&EventUse::Page),
        ApiMethod::KnowledgeList => {
            may.knowledge_bases.operations.contains(&KnowledgeUse::List) && any_name(&may.knowledge_bases.names)
        }
        ApiMethod::KnowledgeRetrieve => may.knowledge_bases.allows(KnowledgeUse::Retrieve, "base"),
        ApiMethod::PlatformCall => may.platform_api.allows("message.delete"),
    }
}

#[tokio::test]
async fn g05_nothing_outside_of_a_grant_is_reachable_and_everything_inside_is() {
    let mut random = TestRunner::deterministic();
    for _ in 0..48 {
        let may = authority().new_tree(&mut random).unwrap().current();
        let attempts = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&attempts);
        let plugin = driven(may.clone(), move |context, api| {
            let seen = Arc::clone(&seen);
            async move {
                // A child is the same runner again: it is enough to see that it began.
                if context.context.tape.as_str().contains("__run-") {
                    return;
                }
                for method in ApiMethod::ALL {
                    let result = attempt(&api, *method, "x").await;
                    seen.lock().unwrap().push((*method, result));
                }
            }
        });
        let conversation = generously(plugin).await;
        conversation.say("go").await;
        let attempts = std::mem::take(&mut *attempts.lock().unwrap());
        assert_eq!(attempts.len(), ApiMethod::ALL.len());
        for (method, result) in attempts {
            let was_refused = result.as_ref().is_err_and(|error| error.code == ApiErrorCode::Unauthorized);
            assert_eq!(was_refused, !covers(&may, method), "{method} gave {result:?} under {may:?}");
        }
    }
}

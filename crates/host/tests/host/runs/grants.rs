//! Properties of grants: narrowing and widening are monotonic, and nothing outside a grant is reachable.

use std::sync::{Arc, Mutex};

use capstan_hooks::contracts::ApiMethod;
use capstan_policy::{EventScope, compute_grant, default_binding};
use capstan_protocol::{
    AllowList, ApiErrorCode, ArtifactOperation, Binding, EventOperation, EventOrigin, HistoryOperation,
    KnowledgeOperation, ModelOperation, OperationSet, PermissionSet, ReadScope, ResourceAccess, ResourceOperation,
    ResourcePolicy, StatePolicy, StateScope, StorageArea, TapeAccess, ToolOperation,
};
use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::api_runner::{action_runner_plugin, call_method, permissive_conversation};

fn operations_strategy<O: ResourceOperation + std::fmt::Debug>() -> impl Strategy<Value = OperationSet<O>> {
    subsequence(O::VARIANTS.to_vec(), 0..=O::VARIANTS.len()).prop_map(|operations| operations.into_iter().collect())
}

fn access_strategy(names: &'static [&'static str]) -> impl Strategy<Value = AllowList> {
    prop_oneof![Just(AllowList::All), subsequence(names.to_vec(), 0..=names.len()).prop_map(AllowList::only),]
}

fn uses_strategy<O: ResourceOperation + std::fmt::Debug>(
    names: &'static [&'static str],
) -> impl Strategy<Value = ResourceAccess<O>> {
    (access_strategy(names), operations_strategy::<O>())
        .prop_map(|(names, operations)| ResourceAccess { names, operations })
}

/// Names used by the calls of the tests, each with one that is not used.
const MODEL_NAMES: &[&str] = &["demo:x", "other:model"];
const TOOL_NAMES: &[&str] = &["help", "bash"];
const KNOWLEDGE_BASE_NAMES: &[&str] = &["base", "another"];
const ACTION_NAMES: &[&str] = &["message.delete", "member.mute"];

fn reach_strategy() -> impl Strategy<Value = ReadScope> {
    prop_oneof![Just(ReadScope::Conversation), Just(ReadScope::Workspace)]
}

fn tape_access_strategy() -> impl Strategy<Value = TapeAccess> {
    prop_oneof![Just(TapeAccess::None), Just(TapeAccess::Read), Just(TapeAccess::Write)]
}

fn authority_strategy() -> impl Strategy<Value = PermissionSet> {
    let resources = (
        uses_strategy::<ModelOperation>(MODEL_NAMES),
        uses_strategy::<ToolOperation>(TOOL_NAMES),
        uses_strategy::<KnowledgeOperation>(KNOWLEDGE_BASE_NAMES),
        operations_strategy::<HistoryOperation>(),
        operations_strategy::<EventOperation>(),
        reach_strategy(),
        operations_strategy::<ArtifactOperation>(),
    );
    let rest = (
        operations_strategy::<StateScope>(),
        operations_strategy::<StorageArea>(),
        access_strategy(ACTION_NAMES),
        tape_access_strategy(),
        any::<[bool; 3]>(),
    );
    (resources, rest).prop_map(|(resources, rest)| {
        let (models, tools, knowledge_bases, history, events, reach, artifacts) = resources;
        let (state, storage, platform_api, tape, [prompt, children, steering]) = rest;
        PermissionSet {
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

/// Binding whose policy limits each kind of resource or leaves it open.
fn binding_strategy() -> impl Strategy<Value = Binding> {
    (authority_strategy(), any::<[bool; 11]>(), any::<bool>()).prop_map(|(may, limits, enabled)| {
        let resource_policy = ResourcePolicy {
            models: limits[0].then_some(may.models),
            tools: limits[1].then_some(may.tools),
            knowledge_bases: limits[2].then_some(may.knowledge_bases),
            history: limits[3].then_some(may.history),
            events: limits[4].then_some(may.events),
            reach: may.reach,
            artifacts: limits[5].then_some(may.artifacts),
            storage: limits[6].then_some(may.storage),
            platform_api: limits[7].then_some(may.platform_api),
            tape: limits[8].then_some(may.tape),
            children: limits[9].then_some(may.children),
            steering: limits[9].then_some(may.steering),
            ..ResourcePolicy::default()
        };
        let scopes = limits[10].then_some(may.state);
        Binding {
            resource_policy,
            state_policy: StatePolicy { enabled, scopes, ..StatePolicy::default() },
            ..default_binding()
        }
    })
}

/// Binding that additionally allows no more than `by` for events of this origin.
fn narrow_binding(binding: &Binding, by: &PermissionSet, origin: EventOrigin) -> Binding {
    let mut cap = binding.max_permissions().intersect(by);
    if origin == EventOrigin::Remote && binding.resource_policy.tools.is_none() {
        // Absent tools are the default of the origin.
        cap.tools.names = cap.tools.names.intersect(&remote_tools());
    }
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
        prompt: Some(cap.prompt),
        children: Some(cap.children),
        steering: Some(cap.steering),
        ..binding.resource_policy.clone()
    };
    let state_policy = StatePolicy { scopes: Some(cap.state), ..binding.state_policy.clone() };
    Binding { resource_policy, state_policy, ..binding.clone() }
}

fn scope_strategy() -> impl Strategy<Value = EventScope> {
    any::<[bool; 4]>().prop_map(|[is_trusted, names_terminal, has_actor, has_subject]| {
        let origin = if is_trusted { EventOrigin::Trusted } else { EventOrigin::Remote };
        EventScope { origin, names_terminal, has_actor, has_subject }
    })
}

/// Tools that remote origins get by default.
fn remote_tools() -> AllowList {
    AllowList::only(TOOL_NAMES.iter().take(1).copied())
}

/// Checks that every permission of `less` is in `more`.
fn is_subset(less: &PermissionSet, more: &PermissionSet) -> bool {
    less.intersect(more) == *less
}

proptest! {
    #[test]
    fn g05_narrowing_an_input_never_widens_the_grant_and_the_reverse(
        permissions in authority_strategy(), by in authority_strategy(), binding in binding_strategy(), scope in scope_strategy(),
    ) {
        let wide = compute_grant(&permissions, &binding, scope, &remote_tools());
        prop_assert!(is_subset(&wide.may, &permissions));
        prop_assert!(is_subset(&wide.may, &binding.max_permissions()));
        // Read from right to left, each comparison is a widening.
        let fewer_requested = compute_grant(&permissions.intersect(&by), &binding, scope, &remote_tools());
        prop_assert!(is_subset(&fewer_requested.may, &wide.may));
        let fewer_allowed = compute_grant(&permissions, &narrow_binding(&binding, &by, scope.origin), scope, &remote_tools());
        prop_assert!(is_subset(&fewer_allowed.may, &wide.may));
        let no_scope = EventScope { origin: EventOrigin::Remote, names_terminal: false, has_actor: false, has_subject: false };
        let narrower_scope = compute_grant(&permissions, &binding, no_scope, &remote_tools());
        prop_assert!(is_subset(&narrower_scope.may, &wide.may) && narrower_scope.shell_commands <= wide.shell_commands);
        prop_assert!(narrower_scope.commands <= wide.commands);
        let fewer_remote = compute_grant(&permissions, &binding, scope, &AllowList::none());
        prop_assert!(is_subset(&fewer_remote.may, &wide.may));
        let disabled = StatePolicy { enabled: false, ..binding.state_policy.clone() };
        let no_state = compute_grant(&permissions, &Binding { state_policy: disabled, ..binding.clone() }, scope, &remote_tools());
        prop_assert!(no_state.may.state.is_empty());
    }
}

/// Independent statement of the rule by which permissions cover the test's call of a method.
fn is_method_covered(may: &PermissionSet, method: ApiMethod) -> bool {
    let model = |operation| may.models.allows(operation, "demo:x");
    let any_name = |names: &AllowList| *names != AllowList::none();
    match method {
        ApiMethod::ModelsStream => model(ModelOperation::Stream),
        ApiMethod::ModelsInvoke => model(ModelOperation::Invoke),
        ApiMethod::ModelsCountTokens => model(ModelOperation::CountTokens),
        ApiMethod::ModelsRerank => model(ModelOperation::Rerank),
        ApiMethod::ToolsList | ApiMethod::PlatformList => true,
        ApiMethod::ToolsDetail => may.tools.allows(ToolOperation::Detail, "help"),
        ApiMethod::ToolsCall => may.tools.operations.contains(&ToolOperation::Call) && any_name(&may.tools.names),
        ApiMethod::ToolsCommand => may.tools.allows(ToolOperation::Call, "help"),
        ApiMethod::TapeView | ApiMethod::TapeInfo | ApiMethod::TapeAnchors | ApiMethod::TapeSearch => {
            may.tape != TapeAccess::None
        }
        ApiMethod::ToolsRefuseCommand
        | ApiMethod::TapeHandoff
        | ApiMethod::TapeNote
        | ApiMethod::TapeSay
        | ApiMethod::TapeFork
        | ApiMethod::TapeReset => may.tape == TapeAccess::Write,
        ApiMethod::PromptSystem | ApiMethod::PromptContinuation => may.prompt,
        ApiMethod::SteeringTake | ApiMethod::SteeringPull => may.steering,
        ApiMethod::SessionModel | ApiMethod::ModelsList => {
            may.models.operations.contains(&ModelOperation::Stream) && any_name(&may.models.names)
        }
        ApiMethod::SessionChooseModel => may.models.allows(ModelOperation::Stream, "demo:x"),
        ApiMethod::ArtifactsDescribe | ApiMethod::ArtifactsList => may.artifacts.contains(&ArtifactOperation::Metadata),
        ApiMethod::ArtifactsRead => may.artifacts.contains(&ArtifactOperation::Read),
        ApiMethod::ArtifactsCreate => may.artifacts.contains(&ArtifactOperation::Create),
        ApiMethod::RunsChild | ApiMethod::RunsCancel => may.children,
        ApiMethod::StateGet | ApiMethod::StateSet | ApiMethod::StateList | ApiMethod::StateDelete => {
            may.state.contains(&StateScope::Conversation)
        }
        ApiMethod::StoragePut | ApiMethod::StorageGet | ApiMethod::StorageList | ApiMethod::StorageDelete => {
            may.storage.contains(&StorageArea::Binding)
        }
        ApiMethod::HistoryPage => may.history.contains(&HistoryOperation::Page),
        ApiMethod::HistorySearch => may.history.contains(&HistoryOperation::Search),
        ApiMethod::EventsGet | ApiMethod::EventsRaw | ApiMethod::RunsGet => may.events.contains(&EventOperation::Get),
        ApiMethod::EventsPage | ApiMethod::RunsList | ApiMethod::RunsEvents => {
            may.events.contains(&EventOperation::Page)
        }
        ApiMethod::KnowledgeList => {
            may.knowledge_bases.operations.contains(&KnowledgeOperation::List) && any_name(&may.knowledge_bases.names)
        }
        ApiMethod::KnowledgeRetrieve => may.knowledge_bases.allows(KnowledgeOperation::Retrieve, "base"),
        ApiMethod::PlatformCall => may.platform_api.allows("message.delete"),
    }
}

#[tokio::test]
async fn g05_exactly_the_methods_inside_a_grant_are_reachable() {
    let mut random = TestRunner::deterministic();
    for _ in 0..48 {
        let may = authority_strategy().new_tree(&mut random).unwrap().current();
        let attempts = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&attempts);
        let plugin = action_runner_plugin(may.clone(), move |context, api| {
            let recorded = Arc::clone(&recorded);
            async move {
                // A child run uses this runner too, and only its start matters here.
                if context.context.tape.as_str().contains("__run-") {
                    return;
                }
                for method in ApiMethod::METHODS {
                    let result = call_method(&api, *method, "x").await;
                    recorded.lock().unwrap().push((*method, result));
                }
            }
        });
        let conversation = permissive_conversation(plugin).await;
        conversation.send_message("go").await;
        let attempts = std::mem::take(&mut *attempts.lock().unwrap());
        assert_eq!(attempts.len(), ApiMethod::METHODS.len());
        for (method, result) in attempts {
            let was_refused = result.as_ref().is_err_and(|error| error.code == ApiErrorCode::Unauthorized);
            assert_eq!(was_refused, !is_method_covered(&may, method), "{method} gave {result:?} under {may:?}");
        }
    }
}

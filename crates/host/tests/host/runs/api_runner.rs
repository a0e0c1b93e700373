//! Runner with a closure for its body, and one call of each run-API method.

use std::sync::Arc;

use capstan_hooks::contracts::{
    ApiMethod, ChildRunCall, CommandCall, ModelCall, NewArtifact, PageRequest, RerankCall, ResultStream, RetrieveCall,
    RunApi, Runner,
};
use capstan_hooks::points::ProvideRunners;
use capstan_hooks::{HookRegistrar, Plugin};
use capstan_host::testing::{ClosurePlugin, TestHost};
use capstan_policy::default_binding;
use capstan_protocol::{
    ActionRequest, ApiError, ArtifactId, Binding, ChatMessage, Descriptor, EventId, JsonObject, PermissionSet,
    ResourcePolicy, ResultBody, RunContext, RunId, RunResult, StatePolicy, StateScope, StorageArea, ToolCall,
};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::Value;

use super::support::broad_capabilities;

type RunnerAction = dyn Fn(RunContext, RunApi) -> BoxFuture<'static, ()> + Send + Sync;

/// Runner that runs `act` and replies with a text or completes silently, in place of the built-in agent.
struct ActionRunner {
    permissions: PermissionSet,
    act: Arc<RunnerAction>,
    reply: Option<&'static str>,
}

impl Runner for ActionRunner {
    fn descriptor(&self) -> Descriptor {
        let (permissions, capabilities) = (self.permissions.clone(), broad_capabilities());
        Descriptor { permissions, capabilities, ..Descriptor::new("builtin:agent", "driven") }
    }

    fn run(&self, context: RunContext, api: RunApi) -> ResultStream {
        let reply = self
            .reply
            .map(|text| ResultBody::MessageCompleted { content: text.into(), provider_meta: JsonObject::new() });
        let end = ResultBody::RunCompleted { silent: self.reply.is_none() };
        let results = reply.into_iter().chain([end]).map(RunResult::from);
        (self.act)(context, api).map(|()| stream::iter(results)).flatten_stream().boxed()
    }
}

/// Plugin with a runner that requests `permissions` and runs `act`.
pub fn action_runner_plugin<F>(
    permissions: PermissionSet,
    act: impl Fn(RunContext, RunApi) -> F + Send + Sync + 'static,
) -> impl Plugin
where
    F: Future<Output = ()> + Send + 'static,
{
    action_plugin(permissions, None, act)
}

/// Plugin with a runner that has all permissions, runs `act` and replies with a text.
pub fn replying_runner_plugin<F>(
    reply: &'static str,
    act: impl Fn(RunContext, RunApi) -> F + Send + Sync + 'static,
) -> impl Plugin
where
    F: Future<Output = ()> + Send + 'static,
{
    action_plugin(PermissionSet::all(), Some(reply), act)
}

fn action_plugin<F>(
    permissions: PermissionSet,
    reply: Option<&'static str>,
    act: impl Fn(RunContext, RunApi) -> F + Send + Sync + 'static,
) -> impl Plugin
where
    F: Future<Output = ()> + Send + 'static,
{
    let act: Arc<RunnerAction> = Arc::new(move |context, api| act(context, api).boxed());
    let runner: Arc<dyn Runner> = Arc::new(ActionRunner { permissions, act, reply });
    ClosurePlugin::new("driven", move |hooks: &mut HookRegistrar| {
        let runner = Arc::clone(&runner);
        hooks.on_sync(ProvideRunners, move || Ok(Some(vec![Arc::clone(&runner)])));
    })
}

/// Binding that grants everything the runner requests.
pub fn permissive_binding() -> Binding {
    let permissions = PermissionSet::all();
    Binding {
        binding_id: "permissive".into(),
        event_types: vec!["message.*".to_owned()],
        resource_policy: ResourcePolicy {
            reach: permissions.reach,
            platform_api: Some(permissions.platform_api),
            ..ResourcePolicy::default()
        },
        state_policy: StatePolicy { enabled: true, ..StatePolicy::default() },
        ..default_binding()
    }
}

/// Conversation under [`permissive_binding`].
pub async fn permissive_conversation(plugin: impl Plugin) -> TestHost {
    TestHost::builder().agent_plugin(plugin).binding(permissive_binding()).start().await
}

/// Calls a method once, with `text` as its largest argument.
pub async fn call_method(api: &RunApi, method: ApiMethod, text: &str) -> Result<(), ApiError> {
    let owned = || text.to_owned();
    let model = || Some("demo:x".parse().unwrap());
    let model_call = || ModelCall {
        model: model(),
        system: owned(),
        messages: vec![ChatMessage::user("hi")],
        ..ModelCall::default()
    };
    let page = || PageRequest { session: None, limit: 5, ..PageRequest::default() };
    let (scope, area) = (StateScope::Conversation, StorageArea::Binding);
    match method {
        ApiMethod::ModelsStream => api.models.stream(model_call()).await.map(drop),
        ApiMethod::ModelsInvoke => api.models.invoke(model_call()).await.map(drop),
        ApiMethod::ModelsCountTokens => api.models.count_tokens(model_call()).await.map(drop),
        ApiMethod::ModelsRerank => {
            api.models.rerank(RerankCall { model: model(), query: owned(), ..RerankCall::default() }).await.map(drop)
        }
        ApiMethod::ToolsList => api.tools.list().await.map(drop),
        ApiMethod::ToolsDetail => api.tools.detail(if text.len() < 10 { "help" } else { text }).await.map(drop),
        ApiMethod::ToolsCall => {
            api.tools.call(vec![ToolCall::new("call", "help", format!("{{\"text\":\"{text}\"}}"))]).await.map(drop)
        }
        ApiMethod::ToolsCommand => {
            let command = CommandCall { raw: owned(), name: "help".to_owned(), arguments: JsonObject::new() };
            api.tools.command(command).await.map(drop)
        }
        ApiMethod::ToolsRefuseCommand => api.tools.refuse_command(text, "no").await,
        ApiMethod::TapeView => api.tape.view().await.map(drop),
        ApiMethod::TapeHandoff => api.tape.handoff(text, JsonObject::new()).await,
        ApiMethod::TapeNote => api.tape.note("mine", text.into()).await,
        ApiMethod::TapeSay => api.tape.say(text.into()).await,
        ApiMethod::TapeReset => api.tape.reset(false).await,
        ApiMethod::TapeFork => api.tape.fork(None).await.map(drop),
        ApiMethod::TapeInfo => api.tape.info().await.map(drop),
        ApiMethod::TapeAnchors => api.tape.anchors(1).await.map(drop),
        ApiMethod::TapeSearch => api.tape.search(text, 1).await.map(drop),
        ApiMethod::PromptSystem => api.prompt.system().await.map(drop),
        ApiMethod::PromptContinuation => api.prompt.continuation(2).await.map(drop),
        ApiMethod::SteeringTake => api.steering.take().await.map(drop),
        ApiMethod::SteeringPull => api.steering.pull().await.map(drop),
        ApiMethod::ModelsList => api.models.list().await.map(drop),
        ApiMethod::ArtifactsList => api.artifacts.list(Some(text).filter(|text| text.len() > 10), 5).await.map(drop),
        ApiMethod::RunsGet => api.runs.get(&RunId::new(text)).await.map(drop),
        ApiMethod::RunsEvents => api.runs.events(&RunId::new(text), None, 5).await.map(drop),
        ApiMethod::RunsCancel => api.runs.cancel(&RunId::new(text)).await.map(drop),
        ApiMethod::RunsList => api.runs.list(Some(text).filter(|text| text.len() > 10), 5).await.map(drop),
        ApiMethod::SessionModel => api.session.model().await.map(drop),
        ApiMethod::SessionChooseModel => api.session.choose_model(Some(format!("demo:{text}").parse().unwrap())).await,
        ApiMethod::ArtifactsDescribe => api.artifacts.describe(&ArtifactId::new(text)).await.map(drop),
        ApiMethod::ArtifactsRead => api.artifacts.read(&ArtifactId::new(text), 0, 1).await.map(drop),
        ApiMethod::ArtifactsCreate => {
            let (name, media_type) = ("a.txt".to_owned(), "text/plain".to_owned());
            api.artifacts.create(NewArtifact { name, media_type, content: owned().into() }).await.map(drop)
        }
        ApiMethod::RunsChild => api.runs.child(ChildRunCall::new(text)).await.map(drop),
        ApiMethod::StateGet => api.state.get(scope, text).await.map(drop),
        ApiMethod::StateSet => api.state.set(scope, "key", text.into()).await,
        ApiMethod::StateList => api.state.list(scope, "", Some(text).filter(|text| text.len() > 10), 5).await.map(drop),
        ApiMethod::StateDelete => api.state.delete(scope, text).await.map(drop),
        ApiMethod::StoragePut => api.storage.put(area, "name", owned().into()).await.map(drop),
        ApiMethod::StorageGet => api.storage.get(area, text).await.map(drop),
        ApiMethod::StorageList => api.storage.list(area, Some(text).filter(|text| text.len() > 10), 5).await.map(drop),
        ApiMethod::StorageDelete => api.storage.delete(area, text).await.map(drop),
        ApiMethod::HistoryPage => api
            .history
            .page(PageRequest { cursor: Some(owned()).filter(|text| text.len() > 10), ..page() })
            .await
            .map(drop),
        ApiMethod::HistorySearch => api.history.search(None, text, 5).await.map(drop),
        ApiMethod::EventsGet => api.events.get(&EventId::new(text)).await.map(drop),
        ApiMethod::EventsRaw => api.events.raw(&EventId::new(text), 0, 5).await.map(drop),
        ApiMethod::EventsPage => api
            .events
            .page(PageRequest { cursor: Some(owned()).filter(|text| text.len() > 10), ..page() })
            .await
            .map(drop),
        ApiMethod::KnowledgeList => api.knowledge.list().await.map(drop),
        ApiMethod::KnowledgeRetrieve => {
            let (base, question) = ("base".to_owned(), owned());
            api.knowledge.retrieve(RetrieveCall { base, question, limit: 5, ..RetrieveCall::default() }).await.map(drop)
        }
        ApiMethod::PlatformList => api.platform.list().await.map(drop),
        ApiMethod::PlatformCall => {
            let arguments = JsonObject::from_iter([("text".to_owned(), Value::from(text))]);
            api.platform.call(ActionRequest { action: "message.delete".to_owned(), arguments }).await.map(drop)
        }
    }
}

//! Ranking of texts: authority, hooks, budget and record of `models.rerank`.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use capstan_hooks::HookRegistrar;
use capstan_hooks::args::{LlmOutcome, LlmRequest};
use capstan_hooks::contracts::{
    CallObserver, ModelError, ModelErrorKind, ModelProvider, ModelStream, RerankCall, RerankRequest, RerankScore,
    RunApi,
};
use capstan_hooks::points::{AfterLlmCall, BeforeLlmCall, LlmCallVerdict, ProvideModelOptions};
use capstan_host::testing::{TestHost, TestHostBuilder};
use capstan_protocol::{
    AllowList, ApiError, ApiErrorCode, ChatMessage, ModelOperation, ModelRequest, PermissionSet, ResourceAccess,
};

use super::api_runner::{action_runner_plugin, permissive_binding};

/// Provider `ranks` that returns these scores.
struct RankingProvider {
    scores: Vec<(usize, f64)>,
    requests: Arc<Mutex<Vec<RerankRequest>>>,
}

#[async_trait]
impl ModelProvider for RankingProvider {
    fn name(&self) -> &'static str {
        "ranks"
    }

    async fn stream(&self, _: &ModelRequest) -> Result<ModelStream, ModelError> {
        Err(ModelError::new(ModelErrorKind::Rejected, "it only ranks"))
    }

    fn can_rerank(&self) -> bool {
        true
    }

    async fn rerank(&self, request: &RerankRequest, _: &dyn CallObserver) -> Result<Vec<RerankScore>, ModelError> {
        self.requests.lock().unwrap().push(request.clone());
        Ok(self.scores.iter().map(|(index, score)| RerankScore { index: *index, score: *score }).collect())
    }
}

type RankResult = Result<Vec<usize>, (ApiErrorCode, String)>;

async fn rank(api: &RunApi, documents: &[&str]) -> RankResult {
    let documents = documents.iter().map(|text| (*text).to_owned()).collect();
    let call = RerankCall { model: Some("ranks:x".parse().unwrap()), query: "rope".to_owned(), documents };
    let scores = api.models.rerank(call).await.map_err(|error: ApiError| (error.code, error.message))?;
    Ok(scores.into_iter().map(|score| score.index).collect())
}

/// Ranks three texts in a run. Returns the result, and the requests to the provider.
async fn rank_in_run(
    permissions: PermissionSet,
    scores: Vec<(usize, f64)>,
    configure: impl FnOnce(TestHostBuilder) -> TestHostBuilder,
) -> (RankResult, Vec<RerankRequest>, TestHost) {
    let (result, requests) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(Vec::new())));
    let recorded = Arc::clone(&result);
    let plugin = action_runner_plugin(permissions, move |_, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            assert_eq!(rank(&api, &[]).await.unwrap_or_default(), [] as [usize; 0]);
            *recorded.lock().unwrap() = Some(rank(&api, &["a", "b", "c"]).await);
        }
    });
    let provider: Arc<dyn ModelProvider> = Arc::new(RankingProvider { scores, requests: Arc::clone(&requests) });
    let builder = TestHost::builder().agent_plugin(plugin).binding(permissive_binding());
    let builder = builder.register("ranking", move |hooks: &mut HookRegistrar| {
        let provider = Arc::clone(&provider);
        hooks.on_sync(ProvideModelOptions, move || Ok(Some(vec![Arc::clone(&provider)])));
    });
    let host = configure(builder).start().await;
    host.send_message("go").await;
    let (result, requests) = (result.lock().unwrap().take().unwrap(), requests.lock().unwrap().clone());
    (result, requests, host)
}

#[tokio::test]
async fn k04_texts_are_ranked_best_first_and_the_call_is_recorded() {
    let scores = vec![(0, 0.1), (2, 0.9), (1, 0.1)];
    let (result, requests, host) = rank_in_run(PermissionSet::all(), scores, |builder| builder).await;
    assert_eq!(result.unwrap(), [2, 0, 1]);
    assert_eq!((requests.len(), requests[0].query.as_str()), (1, "rope"), "no request for no texts");
    assert_eq!(requests[0].documents, ["a", "b", "c"]);
    let (calls, ends) = (host.event_data("model.call").await, host.event_data("run").await);
    assert_eq!((calls.len(), ends.len()), (1, 1));
    assert_eq!((&calls[0]["messages"].as_array().unwrap().len(), &ends[0]["status"]), (&3, &"ok".into()));
}

#[tokio::test]
async fn k04_a_ranking_of_other_texts_is_refused() {
    for scores in [vec![(3, 0.5)], vec![(0, 0.5), (0, 0.4)], vec![(1, f64::NAN)]] {
        let (result, _, host) = rank_in_run(PermissionSet::all(), scores, |builder| builder).await;
        let (code, message) = result.unwrap_err();
        assert!(code == ApiErrorCode::RuntimeError && message.contains("ranked texts"), "{code:?} {message}");
        assert_eq!(host.event_data("run").await[0]["status"], "error");
    }
}

#[tokio::test]
async fn g05_texts_are_ranked_by_a_granted_model_only() {
    let operations = [ModelOperation::Stream, ModelOperation::Invoke].into();
    let models = ResourceAccess { names: AllowList::All, operations };
    let permissions = PermissionSet { models, ..PermissionSet::all() };
    let (result, requests, _host) = rank_in_run(permissions, vec![(0, 0.1)], |builder| builder).await;
    assert_eq!((result.unwrap_err().0, requests.len()), (ApiErrorCode::Unauthorized, 0));
}

#[tokio::test]
async fn h10_hooks_see_and_change_the_texts_to_be_ranked() {
    let outcomes = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&outcomes);
    let (result, requests, _host) = rank_in_run(PermissionSet::all(), vec![(0, 0.1)], |builder| {
        builder.register("redactor", move |hooks| {
            hooks.on(BeforeLlmCall, |request: LlmRequest| async move {
                let mut request = ModelRequest::clone(&request.0);
                request.messages[1] = ChatMessage::user("[redacted]");
                Ok(Some(LlmCallVerdict::Change(request)))
            });
            let seen = Arc::clone(&seen);
            hooks.on(AfterLlmCall, move |_: LlmOutcome| {
                *seen.lock().unwrap() += 1;
                async { Ok(None) }
            });
        })
    })
    .await;
    assert_eq!(result.unwrap(), [0]);
    assert_eq!(requests[0].documents, ["[redacted]", "b", "c"]);
    assert_eq!(*outcomes.lock().unwrap(), 1);
}

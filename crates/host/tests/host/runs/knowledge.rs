//! Knowledge bases: permission to query them, their results, and the search tool of the agent.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use capstan_hooks::contracts::{
    KnowledgeBase, KnowledgeError, KnowledgePassage, KnowledgeQuery, KnowledgeSource, RetrieveCall, RetrievedPage,
    RetrievedPassages, RunApi,
};
use capstan_hooks::points::ProvideKnowledge;
use capstan_hooks::{HookRegistrar, Plugin};
use capstan_host::testing::{ClosurePlugin, TestHost};
use capstan_knowledge::{FolderKnowledge, FolderLimits};
use capstan_protocol::{
    ApiError, ApiErrorCode, Binding, KnowledgeOperation, Outcome, PermissionSet, ResourceAccess, ResourcePolicy,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::api_runner::{action_runner_plugin, permissive_binding};

/// Folder with the files of a small handbook.
fn handbook() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("backup.md", "# Backups\nCopy the home to a safe place every night.\n\n# Restoring\nCopy it back.\n");
    write("rope.md", "The capstan winds the anchor rope.\n");
    folder
}

/// Knowledge base over a folder.
fn knowledge_folder(id: &str, description: &str, folder: &tempfile::TempDir) -> Arc<dyn KnowledgeSource> {
    let base = KnowledgeBase { id: id.to_owned(), description: description.to_owned() };
    Arc::new(FolderKnowledge::new(base, folder.path().to_owned(), Vec::new(), FolderLimits::default()))
}

/// Plugin that provides these knowledge bases.
fn folders_plugin(bases: Vec<Arc<dyn KnowledgeSource>>) -> impl Plugin {
    ClosurePlugin::new("folders", move |hooks| {
        let bases = bases.clone();
        hooks.on_sync(ProvideKnowledge, move || Ok(Some(bases.clone())));
    })
}

fn retrieve_call(base: &str, question: &str, limit: usize) -> RetrieveCall {
    RetrieveCall { base: base.to_owned(), question: question.to_owned(), limit, ..RetrieveCall::default() }
}

/// Binding that grants its runner these knowledge bases only.
fn binding_with_knowledge(bases: ResourceAccess<KnowledgeOperation>) -> Binding {
    let binding = permissive_binding();
    let resource_policy = ResourcePolicy { knowledge_bases: Some(bases), ..binding.resource_policy.clone() };
    Binding { resource_policy, ..binding }
}

async fn save_binding(conversation: &TestHost, binding: &Binding) {
    let host = &conversation;
    host.bindings().save(binding, &host.runners()).await.unwrap();
}

/// Result of `act` in a runner that is granted `bases`, in a host with the knowledge bases `docs` (the handbook) and `notes`.
async fn run_with_handbook<T: Send + 'static>(
    bases: ResourceAccess<KnowledgeOperation>,
    act: impl Fn(RunApi) -> BoxFuture<'static, T> + Send + Sync + 'static,
) -> T {
    let (docs, notes) = (handbook(), tempfile::tempdir().unwrap());
    std::fs::write(notes.path().join("mine.txt"), "a private rope").unwrap();
    let result = Arc::new(Mutex::new(None));
    let result_slot = Arc::clone(&result);
    let plugin = action_runner_plugin(PermissionSet::all(), move |_, api| {
        let (work, result_slot) = (act(api), Arc::clone(&result_slot));
        async move {
            let value = work.await;
            *result_slot.lock().unwrap() = Some(value);
        }
    });
    let bases_plugin =
        folders_plugin(vec![knowledge_folder("docs", "docs", &docs), knowledge_folder("notes", "notes", &notes)]);
    let conversation = TestHost::builder().plugin(bases_plugin).agent_plugin(plugin).start().await;
    save_binding(&conversation, &binding_with_knowledge(bases)).await;
    assert_eq!(conversation.send_message("go").await.outcome, Some(Outcome::Silent));
    result.lock().unwrap().take().expect("the runner completed")
}

fn passage_sources(page: &RetrievedPage) -> Vec<String> {
    page.passages.items.iter().map(|passage| format!("{}:{}", passage.source, passage.line.unwrap())).collect()
}

#[tokio::test]
async fn g11_a_runner_retrieves_passages_with_their_source_lines_in_pages() {
    run_with_handbook(ResourceAccess::all(), |api| {
        async move {
            let full_page = api.knowledge.retrieve(retrieve_call("docs", "copy home anchor", 10)).await.unwrap();
            assert_eq!(passage_sources(&full_page), ["backup.md:1", "rope.md:1", "backup.md:4"]);
            assert_eq!(full_page.passages.items[0].text, "# Backups\nCopy the home to a safe place every night.");
            assert_eq!((&full_page.passages.next, &full_page.skipped), (&None, &None));
            let first = api.knowledge.retrieve(retrieve_call("docs", "copy home anchor", 2)).await.unwrap();
            let cursor = first.passages.next.clone();
            let rest = RetrieveCall { cursor: cursor.clone(), ..retrieve_call("docs", "copy home anchor", 2) };
            let rest = api.knowledge.retrieve(rest).await.unwrap();
            assert_eq!([passage_sources(&first), passage_sources(&rest)].concat(), passage_sources(&full_page));
            assert_eq!(rest.passages.next, None);
            let invalid = [
                RetrieveCall { cursor: cursor.clone(), ..retrieve_call("docs", "another question", 2) },
                RetrieveCall { cursor, ..retrieve_call("notes", "copy home anchor", 2) },
                RetrieveCall { cursor: Some("99".to_owned()), ..retrieve_call("docs", "copy home anchor", 2) },
                retrieve_call("docs", " \n", 2),
                retrieve_call("docs", "copy", 0),
            ];
            for call in invalid {
                let refused = api.knowledge.retrieve(call.clone()).await.unwrap_err();
                assert_eq!(refused.code, ApiErrorCode::InvalidArgument, "{call:?}");
            }
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn g11_a_query_is_limited_to_some_sources() {
    run_with_handbook(ResourceAccess::all(), |api| {
        async move {
            let call = |sources: &[&str], limit| {
                let sources = sources.iter().map(|source| (*source).to_owned()).collect();
                RetrieveCall { sources, ..retrieve_call("docs", "copy home anchor", limit) }
            };
            for (sources, expected) in [
                (&["rope.md"][..], &["rope.md:1"][..]),
                (&["back*"], &["backup.md:1", "backup.md:4"]),
                (&["*"], &["backup.md:1", "rope.md:1", "backup.md:4"]),
                (&["rope.md", "backup.md"], &["backup.md:1", "rope.md:1", "backup.md:4"]),
                (&["back", "notes/*"], &[]),
            ] {
                let page = api.knowledge.retrieve(call(sources, 10)).await.unwrap();
                assert_eq!(passage_sources(&page), expected, "{sources:?}");
            }
            let first = api.knowledge.retrieve(call(&["back*"], 1)).await.unwrap();
            let cursor = first.passages.next.clone();
            let rest = RetrieveCall { cursor: cursor.clone(), ..call(&["back*"], 1) };
            let rest = api.knowledge.retrieve(rest).await.unwrap();
            assert_eq!((passage_sources(&rest), rest.passages.next), (vec!["backup.md:4".to_owned()], None));
            for refused in [RetrieveCall { cursor, ..call(&["rope.md"], 1) }, call(&["x"; 33], 1)] {
                let error = api.knowledge.retrieve(refused).await.unwrap_err();
                assert_eq!(error.code, ApiErrorCode::InvalidArgument);
            }
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn g11_a_knowledge_base_is_queried_under_a_grant_only() {
    use ApiErrorCode::{NotFound, Unauthorized};
    let query_all = |bases| {
        run_with_handbook(bases, |api| {
            async move {
                let listed =
                    api.knowledge.list().await.map(|bases| bases.into_iter().map(|base| base.id).collect::<Vec<_>>());
                let mut codes = Vec::new();
                for base in ["docs", "notes", "nothing", "../notes", ""] {
                    codes.push(
                        api.knowledge
                            .retrieve(retrieve_call(base, "rope", 5))
                            .await
                            .map(|_| base)
                            .map_err(|error| error.code),
                    );
                }
                (listed.map_err(|error| error.code), codes)
            }
            .boxed()
        })
    };
    let (listed, retrieved) = query_all(ResourceAccess::only(["docs", "nothing"])).await;
    assert_eq!(listed, Ok(vec!["docs".to_owned()]), "existing bases within the grant");
    assert_eq!(retrieved, [Ok("docs"), Err(Unauthorized), Err(NotFound), Err(Unauthorized), Err(Unauthorized)]);
    let (listed, retrieved) = query_all(ResourceAccess::none()).await;
    assert_eq!(listed, Err(Unauthorized));
    assert_eq!(retrieved, [Err(Unauthorized); 5]);
}

#[tokio::test]
async fn g11_an_agent_searches_the_knowledge_bases_of_its_binding() {
    let docs = handbook();
    let conversation =
        TestHost::builder().plugin(folders_plugin(vec![knowledge_folder("docs", "docs", &docs)])).start().await;
    conversation.send_message("[[tool:knowledge.search query=\"anchor rope\"]] go").await;
    let view = conversation.view().await;
    let reply = view.iter().find(|line| line.starts_with("tool call_1")).unwrap();
    assert!(reply.starts_with("tool call_1: [rope.md:1, score "), "{reply}");
    assert!(reply.ends_with("]\nThe capstan winds the anchor rope."), "{reply}");
    let help = conversation.send_message(",help").await.output;
    assert!(help.contains(",knowledge.search query=… [base=…] [limit=…] [cursor=…]"), "{help}");

    save_binding(&conversation, &binding_with_knowledge(ResourceAccess::only(["other"]))).await;
    let help = conversation.send_message(",help").await.output;
    assert!(!help.contains("knowledge"), "without a permitted base there is no search: {help}");
    let refused = conversation.send_message(",knowledge.search query=rope base=docs").await;
    assert!(!refused.output.contains("capstan winds"), "{}", refused.output);
}

#[tokio::test]
async fn g11_an_agent_without_knowledge_bases_has_no_search_tool() {
    let conversation = TestHost::builder().start().await;
    assert!(!conversation.send_message(",help").await.output.contains("knowledge"));
    conversation.send_message("[[tool:knowledge.search query=rope]] go").await;
    let view = conversation.view().await;
    assert!(view.iter().any(|line| line == "tool call_1: there is no tool knowledge_search"), "{view:?}");
}

#[tokio::test]
async fn g11_a_search_without_a_base_lists_the_available_ones() {
    let (docs, notes) = (handbook(), tempfile::tempdir().unwrap());
    let bases_plugin = folders_plugin(vec![
        knowledge_folder("docs", "the handbook", &docs),
        knowledge_folder("notes", "notes", &notes),
    ]);
    let conversation = TestHost::builder().plugin(bases_plugin).start().await;
    let listing = conversation.send_message(",knowledge.search query=rope").await.output;
    assert!(
        listing
            .contains("there are several knowledge bases; name one as `base`:\n- docs: the handbook\n- notes: notes"),
        "{listing}"
    );
    let found = conversation.send_message(",knowledge.search query=rope base=docs").await.output;
    assert!(found.contains("[rope.md:1, score"), "{found}");
}

/// Knowledge source of a plugin, answered by a closure.
struct FnKnowledgeSource<F>(F);

#[async_trait]
impl<F> KnowledgeSource for FnKnowledgeSource<F>
where
    F: Fn(KnowledgeQuery) -> Result<RetrievedPassages, KnowledgeError> + Send + Sync + 'static,
{
    fn knowledge_base(&self) -> KnowledgeBase {
        KnowledgeBase { id: "plugin-base".to_owned(), description: "knowledge of a plugin".to_owned() }
    }

    async fn retrieve(&self, question: KnowledgeQuery) -> Result<RetrievedPassages, KnowledgeError> {
        (self.0)(question)
    }
}

fn knowledge_plugin(
    retrieve: impl Fn(KnowledgeQuery) -> Result<RetrievedPassages, KnowledgeError> + Clone + Send + Sync + 'static,
) -> impl Plugin {
    ClosurePlugin::new("knowledge", move |hooks: &mut HookRegistrar| {
        let source: Arc<dyn KnowledgeSource> = Arc::new(FnKnowledgeSource(retrieve.clone()));
        hooks.on_sync(ProvideKnowledge, move || Ok(Some(vec![Arc::clone(&source)])));
    })
}

/// Result of one query against the source of a plugin.
async fn retrieve_through_plugin(
    retrieve: impl Fn(KnowledgeQuery) -> Result<RetrievedPassages, KnowledgeError> + Clone + Send + Sync + 'static,
) -> Result<RetrievedPage, ApiError> {
    call_through_plugin(retrieve, retrieve_call("plugin-base", "rope", 3)).await
}

/// Result of one call against the source of a plugin.
async fn call_through_plugin(
    retrieve: impl Fn(KnowledgeQuery) -> Result<RetrievedPassages, KnowledgeError> + Clone + Send + Sync + 'static,
    call: RetrieveCall,
) -> Result<RetrievedPage, ApiError> {
    let result = Arc::new(Mutex::new(None));
    let result_slot = Arc::clone(&result);
    let runner = action_runner_plugin(PermissionSet::all(), move |_, api| {
        let (result_slot, call) = (Arc::clone(&result_slot), call.clone());
        async move {
            let page = api.knowledge.retrieve(call).await;
            *result_slot.lock().unwrap() = Some(page);
        }
    });
    let conversation = TestHost::builder().agent_plugin(runner).plugin(knowledge_plugin(retrieve)).start().await;
    assert_eq!(conversation.send_message("go").await.outcome, Some(Outcome::Silent));
    result.lock().unwrap().take().unwrap()
}

#[tokio::test]
async fn g11_a_plugin_provides_a_knowledge_source() {
    let retrieve = |question: KnowledgeQuery| {
        let passage = |n: usize| KnowledgePassage {
            source: format!("{} {n}", question.text),
            line: None,
            text: "plugin-base".to_owned(),
            score: 1.0,
        };
        let passages = (question.offset..question.offset + question.limit).map(passage).collect();
        Ok(RetrievedPassages { passages, skipped: Some("the cellar".to_owned()) })
    };
    let page = retrieve_through_plugin(retrieve).await.unwrap();
    let sources: Vec<&str> = page.passages.items.iter().map(|passage| passage.source.as_str()).collect();
    assert_eq!(sources, ["rope 0", "rope 1", "rope 2"]);
    assert!(page.passages.next.is_some());
    assert_eq!(page.skipped.as_deref(), Some("the cellar"));
}

#[tokio::test]
async fn g11_a_source_that_cannot_filter_is_not_queried_with_a_filter() {
    let call = RetrieveCall { sources: vec!["x".to_owned()], ..retrieve_call("plugin-base", "rope", 3) };
    let refused = call_through_plugin(|_| panic!("it is not queried"), call).await.unwrap_err();
    assert_eq!(refused.code, ApiErrorCode::InvalidArgument);
    assert!(refused.message.contains("cannot be limited"), "{refused}");
}

#[tokio::test]
async fn x05_a_source_that_fails_panics_or_floods_affects_only_its_query() {
    let failed = retrieve_through_plugin(|_| Err(KnowledgeError("it is closed today".to_owned()))).await.unwrap_err();
    assert_eq!(failed.code, ApiErrorCode::RuntimeError);
    assert_eq!(failed.message, "the knowledge base plugin-base did not answer: it is closed today");
    let crashed = retrieve_through_plugin(|_| panic!("no more")).await.unwrap_err();
    assert_eq!(crashed.message, "the knowledge base plugin-base did not answer: it crashed");
    let flood = |_| {
        let passage =
            KnowledgePassage { source: "x".repeat(1 << 20), line: None, text: "y".repeat(1 << 20), score: f64::NAN };
        Ok(RetrievedPassages { passages: vec![passage; 50], skipped: Some("z".repeat(1 << 20)) })
    };
    let page = retrieve_through_plugin(flood).await.unwrap();
    assert!(serde_json::to_string(&page).unwrap().len() < 300 * 1024, "the page is truncated");
    assert!(page.passages.items.len() <= 3);
}

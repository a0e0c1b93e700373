//! Authority of tools: their own, not that of the runner that calls them.

use std::sync::{Arc, Mutex};

use capstan_hooks::contracts::{ApiMethod, FnTool, RunApi, ToolContext};
use capstan_host::testing::TestHost;
use capstan_protocol::{
    ApiErrorCode, Clock, Outcome, PermissionSet, StateScope, StorageArea, TapeAccess, ToolCall, ToolOutput,
};
use capstan_tape::{Batch, Fact, KeyValueRecord, blob_hash};
use serde_json::json;

use super::api_runner::{action_runner_plugin, call_method, permissive_binding};
use super::support::{test_tool, tools_plugin};

/// Results of calls, as error codes.
type CallCodes = Arc<Mutex<Vec<(ApiMethod, Option<ApiErrorCode>)>>>;

/// Tool that calls every method of the run API.
fn probing_tool(codes: &CallCodes) -> FnTool {
    let codes = Arc::clone(codes);
    test_tool("probe", move |_, context: ToolContext| {
        let codes = Arc::clone(&codes);
        async move {
            for method in ApiMethod::METHODS {
                let code = call_method(&context.api, *method, "x").await.err().map(|error| error.code);
                codes.lock().unwrap().push((*method, code));
            }
            Ok(ToolOutput::ok("probed"))
        }
    })
}

async fn call_tool(api: &RunApi, name: &str) -> String {
    api.tools.call(vec![ToolCall::new("call", name, "{}")]).await.unwrap()[0].text()
}

#[tokio::test]
async fn g15_a_tool_of_a_plugin_has_no_authority_of_the_calling_run() {
    let codes = CallCodes::default();
    let recorded = Arc::clone(&codes);
    let runner = action_runner_plugin(PermissionSet::all(), |_, api| async move {
        assert_eq!(call_tool(&api, "probe").await, "probed");
    });
    let host = TestHost::builder()
        .agent_plugin(runner)
        .plugin(tools_plugin(move || vec![probing_tool(&recorded).with_permissions(PermissionSet::all())]))
        .binding(permissive_binding())
        .start()
        .await;
    assert_eq!(host.send_message("go").await.outcome, Some(Outcome::Silent));
    let codes = std::mem::take(&mut *codes.lock().unwrap());
    assert_eq!(codes.len(), ApiMethod::METHODS.len());
    for (method, code) in codes {
        let expected = match method {
            ApiMethod::ToolsCall | ApiMethod::ToolsCommand | ApiMethod::ToolsRefuseCommand => {
                ApiErrorCode::InvalidArgument
            }
            _ => ApiErrorCode::Unauthorized,
        };
        assert_eq!(code, Some(expected), "{method}");
    }
}

#[tokio::test]
async fn g15_a_tool_has_the_storage_of_its_own_plugin() {
    let (area, scope) = (StorageArea::Plugin, StateScope::Runner);
    let runner = action_runner_plugin(PermissionSet::all(), move |_, api| async move {
        api.storage.put(area, "secret", b"of the runner".to_vec()).await.unwrap();
        api.state.set(scope, "secret", json!("of the runner")).await.unwrap();
        assert_eq!(call_tool(&api, "keep").await, "1 kept");
        assert_eq!(call_tool(&api, "keep").await, "1 kept", "over calls");
        assert_eq!(api.storage.get(area, "secret").await.unwrap().content, b"of the runner");
        assert_eq!(api.state.get(scope, "secret").await.unwrap(), Some(json!("of the runner")));
    });
    let keep = move |_, context: ToolContext| async move {
        let api = context.api;
        assert_eq!(api.state.get(scope, "secret").await.unwrap_err().code, ApiErrorCode::Unauthorized);
        assert_eq!(api.storage.get(area, "secret").await.map(|_| ()).map_err(|error| error.code).ok(), None);
        api.storage.put(area, "own", b"of the tool".to_vec()).await.unwrap();
        assert_eq!(api.storage.get(area, "own").await.unwrap().content, b"of the tool");
        Ok(ToolOutput::ok(format!("{} kept", api.storage.list(area, None, 10).await.unwrap().items.len())))
    };
    let host = TestHost::builder()
        .agent_plugin(runner)
        .plugin(tools_plugin(move || vec![test_tool("keep", keep)]))
        .binding(permissive_binding())
        .start()
        .await;
    assert_eq!(host.send_message("go").await.outcome, Some(Outcome::Silent));
}

#[tokio::test]
async fn g15_a_tool_of_the_host_has_what_it_declares_within_the_grant_of_the_run() {
    for (granted, expected) in [(TapeAccess::Write, None), (TapeAccess::Read, Some(ApiErrorCode::Unauthorized))] {
        let noted = Arc::new(Mutex::new(None));
        let recorded = Arc::clone(&noted);
        let tool = move || {
            let recorded = Arc::clone(&recorded);
            let note = move |_, context: ToolContext| {
                let recorded = Arc::clone(&recorded);
                async move {
                    let note = context.api.tape.note("mine", json!({})).await.err().map(|error| error.code);
                    let history = context.api.prompt.system().await.err().map(|error| error.code);
                    *recorded.lock().unwrap() = Some((note, history));
                    Ok(ToolOutput::ok("noted"))
                }
            };
            let permissions = PermissionSet { tape: TapeAccess::Write, ..PermissionSet::none() };
            vec![test_tool("note", note).with_permissions(permissions)]
        };
        let permissions = PermissionSet { tape: granted, ..PermissionSet::all() };
        let runner = action_runner_plugin(permissions, |_, api| async move {
            assert_eq!(call_tool(&api, "note").await, "noted");
        });
        let host = TestHost::builder().agent_plugin(runner).host_plugin(tools_plugin(tool)).start().await;
        assert_eq!(host.send_message("go").await.outcome, Some(Outcome::Silent));
        let undeclared = Some(ApiErrorCode::Unauthorized);
        assert_eq!(noted.lock().unwrap().take(), Some((expected, undeclared)), "{granted:?}");
    }
}

#[tokio::test]
async fn g15_contents_that_an_earlier_version_stored_for_a_tool_are_still_read() {
    let area = StorageArea::Plugin;
    let keep = move |_, context: ToolContext| async move {
        let storage = context.api.storage;
        assert_eq!(storage.get(area, "old").await.unwrap().content, b"of an earlier version");
        storage.put(area, "new", b"of this version".to_vec()).await.unwrap();
        let first = storage.list(area, None, 1).await.unwrap();
        let second = storage.list(area, first.next.as_deref(), 1).await.unwrap();
        assert_eq!((first.items[0].name.as_str(), second.items[0].name.as_str()), ("new", "old"));
        assert_eq!(second.next, None);
        assert!(storage.delete(area, "old").await.unwrap());
        assert_eq!(storage.get(area, "old").await.unwrap_err().code, ApiErrorCode::NotFound);
        Ok(ToolOutput::ok("read"))
    };
    let host = TestHost::builder().plugin(tools_plugin(move || vec![test_tool("keep", keep)])).start().await;
    let content = b"of an earlier version".to_vec();
    let hash = blob_hash(&content);
    let mut batch = Batch::new();
    batch.push(Fact::PutBlob { hash: hash.clone(), bytes: content.clone().into() });
    batch.push(Fact::PutKeyValue(KeyValueRecord {
        space: format!("storage:{}", json!(["plugin", "builtin:agent"])),
        key: "old".to_owned(),
        value: json!({"hash": hash, "bytes": content.len()}),
        at: Clock::system().now(),
        by: None,
    }));
    host.tapes().commit(batch).await.unwrap();
    let served = host.send_message("[[tool:keep]]").await;
    let reply = served.outbounds[0].content.text();
    assert!(reply.ends_with("keep answered:\nread"), "{reply}");
}

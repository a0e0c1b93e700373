//! Commands: only the line that a person typed is run, refused and recorded as a command.

use std::sync::{Arc, Mutex};

use capstan_hooks::contracts::{ChildRunCall, CommandCall, RunApi};
use capstan_host::testing::TestHost;
use capstan_protocol::{ApiErrorCode, Event, JsonObject, Outcome, PermissionSet};
use serde_json::json;

use super::api_runner::{action_runner_plugin, permissive_conversation, replying_runner_plugin};

/// Errors of the calls that a runner makes as if a person had typed a line.
type ForgedCalls = Arc<Mutex<Vec<Option<ApiErrorCode>>>>;

/// Runs and refuses lines that no person typed.
async fn forge_commands(api: &RunApi) -> Vec<Option<ApiErrorCode>> {
    let command = |raw: &str, name: &str, arguments: JsonObject| {
        let call = CommandCall { raw: raw.to_owned(), name: name.to_owned(), arguments };
        async { api.tools.command(call).await.err().map(|error| error.code) }
    };
    let model = JsonObject::from_iter([("name".to_owned(), json!("demo:other"))]);
    vec![
        command("tape.reset", "tape.reset", JsonObject::new()).await,
        command("model demo:other", "model", model).await,
        api.tools.refuse_command("rm -rf /", "forged").await.err().map(|error| error.code),
    ]
}

#[tokio::test]
async fn g15_a_runner_of_a_plain_message_cannot_act_as_a_person() {
    let joined =
        Event { event_type: "group.member_joined".to_owned(), ..Event::message("cli", "local", ",tape.reset") };
    for event in [Event::message("cli", "local", "hello"), joined] {
        let calls = ForgedCalls::default();
        let recorded = Arc::clone(&calls);
        let runner = replying_runner_plugin("the reply", move |_, api| {
            let recorded = Arc::clone(&recorded);
            async move { *recorded.lock().unwrap() = forge_commands(&api).await }
        });
        let conversation = TestHost::builder().agent_plugin(runner).start().await;
        let served = conversation.serve(event).await.unwrap();
        assert!(matches!(served.outcome, Some(Outcome::Replied { .. })), "{served:?}");
        assert_eq!(*calls.lock().unwrap(), [Some(ApiErrorCode::InvalidArgument); 3]);
        let view = conversation.view().await;
        assert!(view.len() == 3 && view[1].starts_with("user: "), "the message is on the tape: {view:?}");
        assert_eq!(view[2], "assistant: the reply");
        let names = conversation.event_names().await;
        assert!(!names.iter().any(|name| name.starts_with("command")), "{names:?}");
        assert_eq!(names.iter().filter(|name| *name == "api.refused").count(), 3);
    }
}

#[tokio::test]
async fn g15_a_command_calls_the_tool_that_its_line_names() {
    let calls = ForgedCalls::default();
    let recorded = Arc::clone(&calls);
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            let line = context.command_line().unwrap().to_owned();
            for (name, argument) in [("tape.reset", "archive"), ("bash", "cmd"), ("bash", "")] {
                let arguments = JsonObject::from_iter([(argument.to_owned(), json!(line.as_str()))]);
                let call = CommandCall { raw: line.clone(), name: name.to_owned(), arguments };
                let error = api.tools.command(call).await.err();
                recorded.lock().unwrap().push(error.map(|error| error.code));
            }
        }
    });
    let conversation = TestHost::builder().agent_plugin(plugin).start().await;
    conversation.send_message(",help").await;
    conversation.send_message(",echo hi").await;
    let invalid = Some(ApiErrorCode::InvalidArgument);
    assert_eq!(*calls.lock().unwrap(), [invalid, invalid, invalid, invalid, None, invalid]);
    let commands = conversation.event_data("command").await;
    let names: Vec<_> = commands.iter().map(|data| (data["raw"].clone(), data["name"].clone())).collect();
    assert_eq!(names, [(json!("echo hi"), json!("bash"))]);
}

#[tokio::test]
async fn g15_a_command_is_run_and_refused_by_the_line_of_its_event_only() {
    let calls = ForgedCalls::default();
    let recorded = Arc::clone(&calls);
    let plugin = action_runner_plugin(PermissionSet::all(), move |context, api| {
        let recorded = Arc::clone(&recorded);
        async move {
            if context.context.tape.as_str().contains("__run-") {
                // A child has the event of its parent and is no command all the same.
                let error = api.tools.refuse_command("help", "in a child").await.err();
                recorded.lock().unwrap().push(error.map(|error| error.code));
                return;
            }
            let line = CommandCall { raw: "help".to_owned(), name: "help".to_owned(), arguments: JsonObject::new() };
            let forged = forge_commands(&api).await;
            recorded.lock().unwrap().extend(forged);
            api.runs.child(ChildRunCall::new("child")).await.unwrap();
            api.tools.command(line).await.unwrap();
            api.tools.refuse_command("help", "once is enough").await.unwrap();
        }
    });
    let conversation = permissive_conversation(plugin).await;
    assert_eq!(conversation.send_message(",help").await.outcome, Some(Outcome::Silent));
    assert_eq!(*calls.lock().unwrap(), [Some(ApiErrorCode::InvalidArgument); 4]);
    let commands = conversation.event_data("command").await;
    assert_eq!(commands.iter().map(|data| data["raw"].clone()).collect::<Vec<_>>(), ["help", "help"]);
    assert_eq!(conversation.view().await.len(), 1, "a command is no message");
}

//! Artifacts: tool outputs that are too long for a conversation, and those that runs create.

use capstan_hooks::contracts::NewArtifact;
use capstan_host::testing::{SCRIPTED_MODEL_KEY, TestHost};
use capstan_protocol::{Event, PermissionSet, ToolOutput};
use capstan_tape::EntryKind;
use capstan_testing::{ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

use super::support::{test_tool, tool_replies, tools_plugin};

/// Plugin with a tool that returns a long text of numbered lines.
fn long_output_plugin() -> impl capstan_hooks::Plugin {
    tools_plugin(|| {
        vec![test_tool("long", |_, _| async {
            let lines: Vec<String> = (0..20_000).map(|number| format!("line {number} {SCRIPTED_MODEL_KEY}")).collect();
            Ok(ToolOutput::ok(lines.join("\n")))
        })]
    })
}

fn tool_call_reply(name: &str, arguments: Value) -> ScriptedReply {
    ScriptedReply::tool_calls([("call", name, arguments)])
}

/// Artifact id mentioned in the newest tool result of a request.
fn artifact_handle(request: &Value) -> String {
    let result = tool_replies(request).pop().unwrap();
    let (_, handle) = result.split_once("in artifact ").expect("a preview");
    handle.split_once(',').unwrap().0.to_owned()
}

#[tokio::test]
async fn a10_a_long_tool_output_becomes_an_artifact_that_the_model_can_page_through() {
    let model = ScriptedModel::start_with(|request, answered| match answered {
        0 => tool_call_reply("long", json!({})),
        1 => tool_call_reply(
            "artifact_read",
            json!({"artifact": artifact_handle(request), "offset": 100_000, "limit": 100}),
        ),
        _ => ScriptedReply::text("done"),
    })
    .await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(long_output_plugin()).start().await;
    assert_eq!(conversation.send_message("go").await.output, "done");
    let preview = tool_replies(&model.requests()[1]).pop().unwrap();
    assert!(preview.contains("line 0 ") && preview.contains("line 19999 "), "{preview}");
    assert!(preview.len() < 10_000, "{}", preview.len());
    let part = tool_replies(&model.requests()[2]).pop().unwrap();
    assert!(part.contains("[bytes 100000 to 100100 of "), "{part}");
    assert!(part.contains("; continue with offset 100100]"), "{part}");
    assert!(part.contains("line 5322 [masked]\n"), "{part}");

    let entries = conversation.entries().await;
    let result = entries.iter().find(|entry| entry.kind == EntryKind::ToolResult).unwrap();
    let created = entries.iter().find(|entry| entry.name() == Some("artifact.created")).unwrap();
    assert_eq!(result.meta["artifact"], created.payload["data"]["id"]);
    assert_eq!(created.id.next(), result.id, "both entries are written together");
    let artifact = serde_json::from_value(created.payload["data"].clone()).unwrap();
    let content = conversation.tapes().artifact_content(&artifact).await.unwrap().unwrap();
    assert_eq!(content.len() as u64, created.payload["data"]["bytes"]);
    let content = String::from_utf8(content).unwrap();
    assert!(
        content.contains("line 9999 [masked]") && !content.contains(SCRIPTED_MODEL_KEY),
        "x06: secrets are masked before the blob is stored"
    );
}

#[tokio::test]
async fn a10_an_artifact_of_another_session_is_not_found() {
    let model = ScriptedModel::start_with(|request, answered| match answered {
        0 => tool_call_reply("long", json!({})),
        1 => ScriptedReply::text(artifact_handle(request)),
        2 => {
            let text = request["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
            tool_call_reply("artifact_read", json!({"artifact": text[text.find("run-").unwrap()..]}))
        }
        _ => ScriptedReply::text("done"),
    })
    .await;
    let conversation = TestHost::builder().scripted_model(&model).plugin(long_output_plugin()).start().await;
    let handle = conversation.send_message("go").await.output;
    let other = conversation.serve(Event::message("cli", "other", &handle)).await.unwrap();
    assert_eq!(other.output, "done");
    let refused = tool_replies(&model.requests()[3]).pop().unwrap();
    assert_eq!(refused, format!("call: there is no artifact {handle} in this session"));
}

#[tokio::test]
async fn k04_a_run_creates_and_reads_its_own_artifacts() {
    let model = ScriptedModel::start(vec![tool_call_reply("make", json!({})), ScriptedReply::text("done")]).await;
    let plugin = tools_plugin(|| {
        vec![
            test_tool("make", |_, context: capstan_hooks::contracts::ToolContext| async move {
                let artifacts = context.api.artifacts;
                let new = |content: Vec<u8>| NewArtifact {
                    name: "report.bin".to_owned(),
                    media_type: "application/octet-stream".to_owned(),
                    content,
                };
                let created = artifacts.create(new(vec![0, 255, 1])).await.unwrap();
                assert_eq!(artifacts.describe(&created.id).await.unwrap(), created);
                assert_eq!(artifacts.read(&created.id, 1, 10).await.unwrap().content, [255, 1]);
                assert!(artifacts.read(&created.id, 9, 10).await.unwrap().content.is_empty());
                let masked =
                    artifacts.create(new(format!("the key is {SCRIPTED_MODEL_KEY}").into_bytes())).await.unwrap();
                let chunk = artifacts.read(&masked.id, 0, 100).await.unwrap();
                assert_eq!((chunk.content.as_slice(), masked.bytes), (&b"the key is [masked]"[..], 19), "x06");
                let refused = artifacts.create(new(vec![0; 65 << 20])).await.unwrap_err();
                assert_eq!(refused.code, capstan_protocol::ApiErrorCode::PayloadTooLarge);
                Ok(ToolOutput::ok(format!("{} of {} bytes", created.name, created.bytes)))
            })
            .with_permissions(PermissionSet::all()),
        ]
    });
    let conversation = TestHost::builder().scripted_model(&model).host_plugin(plugin).start().await;
    conversation.send_message("go").await;
    assert_eq!(tool_replies(&model.requests()[1]), ["call: report.bin of 3 bytes"]);
}

#[tokio::test]
async fn x02_a_tool_cannot_write_reserved_events() {
    let model = ScriptedModel::start(vec![tool_call_reply("forge", json!({})), ScriptedReply::text("done")]).await;
    let plugin = tools_plugin(|| {
        vec![
            test_tool("forge", |_, context: capstan_hooks::contracts::ToolContext| async move {
                let tape = context.api.tape;
                for name in ["command", "command.start", "artifact.created", "model.call", "event.accepted", "run"] {
                    let refused = tape.note(name, json!({"id": "run-1.1", "name": "bash"})).await.unwrap_err();
                    assert_eq!(refused.code, capstan_protocol::ApiErrorCode::InvalidArgument, "{name}");
                }
                let refused = context.api.tools.refuse_command("bash", "it is over").await.unwrap_err();
                assert_eq!(refused.message, "a tool cannot call tools", "a tool cannot end the running command");
                tape.note("mine", json!({})).await.unwrap();
                Ok(ToolOutput::ok("as it should be"))
            })
            .with_permissions(PermissionSet::all()),
        ]
    });
    let conversation = TestHost::builder().scripted_model(&model).host_plugin(plugin).start().await;
    conversation.send_message("go").await;
    assert_eq!(tool_replies(&model.requests()[1]), ["call: as it should be"]);
    assert!(conversation.event_names().await.contains(&"mine".to_owned()));
}

//! Bindings of a running host: the runner an event goes to, and bindings that cannot be read.

use std::sync::Arc;

use capstan::hooks::contracts::{ResultStream, RunApi, Runner};
use capstan::hooks::points::ProvideRunners;
use capstan::hooks::{HookRegistrar, Plugin};
use capstan::protocol::{
    Binding, Descriptor, Event, Outcome, ResultBody, RunContext, RunResult, RunnerCapabilities, Timestamp,
};
use capstan::tape::{Batch, Fact, KeyValueRecord, TapeSlice};
use capstan_policy::BindingError;
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::support::{ClosurePlugin, TestConversation};

fn parse_binding(value: Value) -> Binding {
    serde_json::from_value(value).unwrap()
}

fn parse_event(value: Value) -> Event {
    Event::from_envelope(value).unwrap()
}

/// Two more runners: one greets, one says what it was told with its own configuration.
fn extra_runners() -> impl Plugin {
    struct GreeterRunner;
    impl Runner for GreeterRunner {
        fn descriptor(&self) -> Descriptor {
            let capabilities = RunnerCapabilities { event_context: true, ..RunnerCapabilities::default() };
            Descriptor { capabilities, ..Descriptor::new("plugin:capstan/tests/greeter", "Greeter") }
        }

        fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
            let who = context.actor.and_then(|actor| actor.name).unwrap_or_default();
            reply_stream(format!("Welcome, {who}! ({})", context.trigger.kind))
        }
    }
    struct ParrotRunner;
    impl Runner for ParrotRunner {
        fn descriptor(&self) -> Descriptor {
            let schema = json!({
                "type": "object", "required": ["word"], "additionalProperties": false,
                "properties": {"word": {"type": "string", "maxLength": 10}},
            });
            Descriptor { config_schema: Some(schema), ..Descriptor::new("plugin:capstan/tests/parrot", "Parrot") }
        }

        fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
            reply_stream(format!("{} {}", context.config["word"].as_str().unwrap(), context.input.plain_text()))
        }
    }
    fn reply_stream(text: String) -> ResultStream {
        let said = ResultBody::MessageCompleted { content: text.into(), provider_meta: Default::default() };
        let results = [said, ResultBody::RunCompleted { silent: false }].map(RunResult::from);
        futures::stream::iter(results).boxed()
    }
    ClosurePlugin("more-runners", |hooks: &mut HookRegistrar| {
        hooks.on_sync(ProvideRunners, || {
            Ok(Some(vec![Arc::new(GreeterRunner) as Arc<dyn Runner>, Arc::new(ParrotRunner) as Arc<dyn Runner>]))
        });
    })
}

async fn save_binding(conversation: &TestConversation, value: Value) -> Result<(), BindingError> {
    conversation.host.bindings().save(&parse_binding(value), &conversation.host.runners()).await
}

#[tokio::test]
async fn a07_a_member_who_joined_is_greeted_through_the_same_hooks_and_is_no_message() {
    let conversation = TestConversation::with_plugin(extra_runners()).await;
    let greeter = json!({
        "binding_id": "greeter", "runner_id": "plugin:capstan/tests/greeter", "event_types": ["group.member_joined"],
    });
    save_binding(&conversation, greeter).await.unwrap();
    let joined = parse_event(json!({
        "event_type": "group.member_joined", "source": "cli", "conversation_id": "family",
        "actor": {"id": "42", "name": "Ann"}, "subject": {"type": "group", "id": "family"},
        "input": {"text": ",help"},
    }));
    let served = conversation.host.serve(joined).await.unwrap();
    assert_eq!(served.output, "Welcome, Ann! (group.member_joined)");
    let run = conversation.host.tapes().store().run(&served.run_id.unwrap()).await.unwrap().unwrap();
    assert_eq!((run.binding.as_str(), run.runner.as_str()), ("greeter", "plugin:capstan/tests/greeter"));
    let events = conversation.host.tapes().list().await.unwrap();
    let tape = events.into_iter().find(|tape| tape.session.as_ref().is_some_and(|s| s.as_str() == "cli:family"));
    let entries = conversation.host.tapes().read(&tape.unwrap().name, &TapeSlice::all()).await.unwrap();
    let accepted = entries.iter().find(|entry| entry.payload["data"]["event"]["event_type"] == "group.member_joined");
    assert!(accepted.is_some(), "what happened stands on the tape as what it was");
    assert_eq!(conversation.send_message("hello").await.outcome.unwrap().name(), "replied", "messages go to the agent");
}

#[tokio::test]
async fn g02_an_event_that_no_binding_fits_ends_silent() {
    let conversation = TestConversation::with_plugin(extra_runners()).await;
    conversation.host.bindings().set_enabled(&"default".into(), false, &[]).await.unwrap();
    let served = conversation.send_message("hello").await;
    assert_eq!((served.outcome.unwrap().name(), served.run_id, served.outbounds.len()), ("silent", None, 0));
    conversation.host.bindings().set_enabled(&"default".into(), true, &conversation.host.runners()).await.unwrap();
    assert_eq!(conversation.send_message("hello").await.outcome.unwrap().name(), "replied");
}

#[tokio::test]
async fn g02_a_session_can_change_runners_and_loses_nothing() {
    let conversation = TestConversation::with_plugin(extra_runners()).await;
    conversation.send_message("one").await;
    let parrot = json!({
        "binding_id": "parrot", "runner_id": "plugin:capstan/tests/parrot", "runner_config": {"word": "Polly says"},
        "scope": {"channel": "cli", "conversation_id": "local"},
    });
    save_binding(&conversation, parrot).await.unwrap();
    assert_eq!(conversation.send_message("two").await.output, "Polly says two");
    conversation.host.bindings().remove(&"parrot".into()).await.unwrap();
    conversation.send_message("three").await;
    let tapes = conversation.host.tapes().list().await.unwrap();
    let local = tapes.iter().filter(|tape| tape.session.as_ref().is_some_and(|s| s.as_str() == "cli:local"));
    assert_eq!(local.clone().count(), 1, "one continuous tape");
    let name = &local.into_iter().next().unwrap().name;
    let messages = capstan::tape::View::messages(
        &capstan::tape::DefaultView,
        &conversation.host.tapes().window(name).await.unwrap(),
    );
    let texts: Vec<String> = messages.iter().skip(1).map(|message| message.content.text()).collect();
    let said: Vec<&str> = texts.iter().map(|text| text.lines().last().unwrap()).collect();
    assert_eq!(said, ["one", "You said: one", "two", "Polly says two", "three", "You said: three"]);
}

/// Puts a binding in its place that another version of the host has kept.
async fn store_raw_binding(conversation: &TestConversation, id: &str, value: Value) {
    let kept =
        KeyValueRecord { space: "bindings".to_owned(), key: id.to_owned(), value, at: Timestamp::now(), by: None };
    let batch = Batch { facts: vec![Fact::PutKeyValue(kept)], ..Batch::new() };
    conversation.host.tapes().store().commit(batch).await.unwrap();
}

#[tokio::test]
async fn g02_a_binding_that_cannot_be_read_gives_way_to_no_wider_one() {
    let conversation = TestConversation::with_plugin(extra_runners()).await;
    let strict = json!({
        "binding_id": "strict", "runner_id": "builtin:agent", "scope": {"channel": "cli"},
        "resource_policy": {"tools": {"only": ["help"]}},
    });
    let mut later = strict.clone();
    later["colour"] = json!("blue");
    save_binding(&conversation, strict.clone()).await.unwrap();
    store_raw_binding(&conversation, "strict", later.clone()).await;
    let refused = conversation.send_message("[[tool:bash cmd=\"touch done.txt\"]] go").await;
    assert_eq!(refused.error.unwrap().code(), "binding-unreadable");
    assert_eq!(refused.run_id, None, "nothing ran");
    let Some(Outcome::Failed { notice, .. }) = refused.outcome else { panic!("it failed") };
    assert!(notice.contains("strict") && !notice.contains("colour"), "{notice}");

    let bindings = conversation.host.bindings();
    assert_eq!(bindings.unreadable().await.unwrap()[0].binding_id.as_str(), "strict");
    assert_eq!(bindings.get(&"strict".into()).await.unwrap_err().code(), "binding-unreadable");
    let disabled = bindings.set_enabled(&"strict".into(), false, &conversation.host.runners()).await;
    assert_eq!(disabled.unwrap_err().code(), "binding-unreadable", "it would be written as something else");
    let hello = |source: &str| {
        parse_event(json!({
            "event_type": "message.received", "source": source, "conversation_id": "1", "input": {"text": "hello"},
            "delivery": {"output_channel": "cli"},
        }))
    };
    let choice = bindings.dry_run(&hello("cli")).await.unwrap();
    assert_eq!(choice.binding_id, None);
    assert!(choice.reason.contains("strict cannot be read"), "{}", choice.reason);
    let elsewhere = conversation.host.serve(hello("phone")).await.unwrap();
    assert_eq!(elsewhere.outcome.unwrap().name(), "replied", "what it cannot fit is not its business");

    save_binding(&conversation, strict).await.unwrap();
    assert_eq!(conversation.send_message("hello").await.outcome.unwrap().name(), "replied", "it is set anew");
    store_raw_binding(&conversation, "strict", later).await;
    bindings.remove(&"strict".into()).await.unwrap();
    assert_eq!(conversation.send_message("hello").await.outcome.unwrap().name(), "replied", "it is removed");
    assert_eq!(bindings.unreadable().await.unwrap().len(), 0);
}

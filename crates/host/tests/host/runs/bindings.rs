//! Bindings of a running host: the choice of the runner, and unreadable bindings.

use std::sync::Arc;

use capstan_hooks::contracts::{ResultStream, RunApi, Runner};
use capstan_hooks::points::ProvideRunners;
use capstan_hooks::{HookRegistrar, Plugin};
use capstan_host::testing::{ClosurePlugin, TestHost};
use capstan_policy::BindingError;
use capstan_protocol::{
    Binding, Descriptor, Event, Outcome, ResultBody, RunContext, RunResult, RunnerCapabilities, Timestamp,
};
use capstan_tape::{Batch, Fact, KeyValueRecord, TapeSlice};
use futures::StreamExt as _;
use serde_json::{Value, json};

fn parse_binding(value: Value) -> Binding {
    serde_json::from_value(value).unwrap()
}

fn parse_event(value: Value) -> Event {
    Event::from_envelope(value).unwrap()
}

/// Plugin with two more runners: one greets, one repeats the message after a configured word.
fn extra_runners() -> impl Plugin {
    struct GreeterRunner;
    impl Runner for GreeterRunner {
        fn descriptor(&self) -> Descriptor {
            let capabilities = RunnerCapabilities { event_context: true, ..RunnerCapabilities::default() };
            Descriptor { capabilities, ..Descriptor::new("plugin:capstan/tests/greeter", "Greeter") }
        }

        fn run(&self, context: RunContext, _: RunApi) -> ResultStream {
            let name = context.actor.and_then(|actor| actor.name).unwrap_or_default();
            reply_stream(format!("Welcome, {name}! ({})", context.trigger.kind))
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
        let message = ResultBody::MessageCompleted { content: text.into(), provider_meta: Default::default() };
        let results = [message, ResultBody::RunCompleted { silent: false }].map(RunResult::from);
        futures::stream::iter(results).boxed()
    }
    ClosurePlugin::new("tests", |hooks: &mut HookRegistrar| {
        hooks.on_sync(ProvideRunners, || {
            Ok(Some(vec![Arc::new(GreeterRunner) as Arc<dyn Runner>, Arc::new(ParrotRunner) as Arc<dyn Runner>]))
        });
    })
    .with_author("capstan")
}

async fn save_binding(conversation: &TestHost, value: Value) -> Result<(), BindingError> {
    conversation.bindings().save(&parse_binding(value), &conversation.runners()).await
}

#[tokio::test]
async fn a07_a_joined_member_event_runs_its_own_runner_and_keeps_its_type() {
    let conversation = TestHost::builder().plugin(extra_runners()).start().await;
    let greeter = json!({
        "binding_id": "greeter", "runner_id": "plugin:capstan/tests/greeter", "event_types": ["group.member_joined"],
    });
    save_binding(&conversation, greeter).await.unwrap();
    let joined = parse_event(json!({
        "event_type": "group.member_joined", "source": "cli", "conversation_id": "family",
        "actor": {"id": "42", "name": "Ann"}, "subject": {"type": "group", "id": "family"},
        "input": {"text": ",help"},
    }));
    let served = conversation.serve(joined).await.unwrap();
    assert_eq!(served.output, "Welcome, Ann! (group.member_joined)");
    let run = conversation.tapes().store().run(&served.run_id.unwrap()).await.unwrap().unwrap();
    assert_eq!((run.binding.as_str(), run.runner.as_str()), ("greeter", "plugin:capstan/tests/greeter"));
    let tapes = conversation.tapes().list().await.unwrap();
    let tape = tapes.into_iter().find(|tape| tape.session.as_ref().is_some_and(|s| s.as_str() == "cli:family"));
    let entries = conversation.tapes().read(&tape.unwrap().name, &TapeSlice::all()).await.unwrap();
    let accepted = entries.iter().find(|entry| entry.payload["data"]["event"]["event_type"] == "group.member_joined");
    assert!(accepted.is_some(), "the tape records the original event type");
    assert_eq!(conversation.send_message("hello").await.outcome.unwrap().name(), "replied", "messages go to the agent");
}

#[tokio::test]
async fn g02_an_event_without_a_matching_binding_ends_silent() {
    let conversation = TestHost::builder().plugin(extra_runners()).start().await;
    conversation.bindings().set_enabled(&"default".into(), false, &[]).await.unwrap();
    let served = conversation.send_message("hello").await;
    assert_eq!((served.outcome.unwrap().name(), served.run_id, served.outbounds.len()), ("silent", None, 0));
    conversation.bindings().set_enabled(&"default".into(), true, &conversation.runners()).await.unwrap();
    assert_eq!(conversation.send_message("hello").await.outcome.unwrap().name(), "replied");
}

#[tokio::test]
async fn g02_a_session_keeps_its_tape_when_its_runner_changes() {
    let conversation = TestHost::builder().plugin(extra_runners()).start().await;
    conversation.send_message("one").await;
    let parrot = json!({
        "binding_id": "parrot", "runner_id": "plugin:capstan/tests/parrot", "runner_config": {"word": "Polly says"},
        "scope": {"channel": "cli", "conversation_id": "local"},
    });
    save_binding(&conversation, parrot).await.unwrap();
    assert_eq!(conversation.send_message("two").await.output, "Polly says two");
    conversation.bindings().remove(&"parrot".into()).await.unwrap();
    conversation.send_message("three").await;
    let tapes = conversation.tapes().list().await.unwrap();
    let local = tapes.iter().filter(|tape| tape.session.as_ref().is_some_and(|s| s.as_str() == "cli:local"));
    assert_eq!(local.clone().count(), 1, "one continuous tape");
    let name = &local.into_iter().next().unwrap().name;
    let messages = capstan_tape::DefaultView.messages(&conversation.tapes().window(name).await.unwrap());
    let texts: Vec<String> = messages.iter().skip(1).map(|message| message.content.text()).collect();
    let lines: Vec<&str> = texts.iter().map(|text| text.lines().last().unwrap()).collect();
    assert_eq!(lines, ["one", "You said: one", "two", "Polly says two", "three", "You said: three"]);
}

/// Stores a binding as another version of the host could have written it.
async fn store_raw_binding(conversation: &TestHost, id: &str, value: Value) {
    let record =
        KeyValueRecord { space: "bindings".to_owned(), key: id.to_owned(), value, at: Timestamp::now(), by: None };
    let batch = Batch { facts: vec![Fact::PutKeyValue(record)], ..Batch::new() };
    conversation.tapes().store().commit(batch).await.unwrap();
}

#[tokio::test]
async fn g02_an_unreadable_binding_is_not_replaced_by_a_wider_one() {
    let conversation = TestHost::builder().plugin(extra_runners()).start().await;
    let strict = json!({
        "binding_id": "strict", "runner_id": "builtin:agent", "scope": {"channel": "cli"},
        "resource_policy": {"tools": {"only": ["help"]}},
    });
    let mut newer = strict.clone();
    newer["colour"] = json!("blue");
    save_binding(&conversation, strict.clone()).await.unwrap();
    store_raw_binding(&conversation, "strict", newer.clone()).await;
    let refused = conversation.send_message("[[tool:bash cmd=\"touch done.txt\"]] go").await;
    assert_eq!(refused.error.unwrap().code(), "binding-unreadable");
    assert_eq!(refused.run_id, None, "nothing ran");
    let Some(Outcome::Failed { notice, .. }) = refused.outcome else { panic!("the event did not fail") };
    assert!(notice.contains("strict") && !notice.contains("colour"), "{notice}");

    let bindings = conversation.bindings();
    assert_eq!(bindings.unreadable().await.unwrap()[0].binding_id.as_str(), "strict");
    assert_eq!(bindings.get(&"strict".into()).await.unwrap_err().code(), "binding-unreadable");
    let disabled = bindings.set_enabled(&"strict".into(), false, &conversation.runners()).await;
    assert_eq!(disabled.unwrap_err().code(), "binding-unreadable", "an unreadable binding is not rewritten");
    let hello = |source: &str| {
        parse_event(json!({
            "event_type": "message.received", "source": source, "conversation_id": "1", "input": {"text": "hello"},
            "delivery": {"output_channel": "cli"},
        }))
    };
    let choice = bindings.dry_run(&hello("cli")).await.unwrap();
    assert_eq!(choice.binding_id, None);
    assert!(choice.reason.contains("strict cannot be read"), "{}", choice.reason);
    let elsewhere = conversation.serve(hello("phone")).await.unwrap();
    assert_eq!(elsewhere.outcome.unwrap().name(), "replied", "events outside its scope are served");

    save_binding(&conversation, strict).await.unwrap();
    assert_eq!(
        conversation.send_message("hello").await.outcome.unwrap().name(),
        "replied",
        "the binding is saved again"
    );
    store_raw_binding(&conversation, "strict", newer).await;
    bindings.remove(&"strict".into()).await.unwrap();
    assert_eq!(conversation.send_message("hello").await.outcome.unwrap().name(), "replied", "the binding is removed");
    assert_eq!(bindings.unreadable().await.unwrap().len(), 0);
}

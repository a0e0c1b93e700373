//! Which binding an event gets, and what that binding makes of it.

use capstan_protocol::ErrorCode;
use std::sync::Arc;

use capstan::hooks::contracts::{ResultStream, RunApi, Runner};
use capstan::hooks::points::ProvideRunners;
use capstan::hooks::{HookRegistrar, Plugin};
use capstan::protocol::{
    Binding, Descriptor, Event, Outcome, ResultBody, RunContext, RunResult, RunnerCapabilities, Timestamp,
};
use capstan::tape::{Batch, Fact, KeyValueRecord, TapeSlice};
use capstan_host::bindings::{explain_choice, resolve_binding};
use capstan_host::{BindingError, default_binding};
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::support::{ClosurePlugin, TestConversation};

fn parse_binding(value: Value) -> Binding {
    serde_json::from_value(value).unwrap()
}

fn parse_event(value: Value) -> Event {
    Event::from_envelope(value).unwrap()
}

/// Ten bindings over four scopes and more.
fn ten_bindings() -> Vec<Binding> {
    let on = |id: &str, scope: Value, event_types: Value| {
        parse_binding(json!({"binding_id": id, "runner_id": "r", "scope": scope, "event_types": event_types}))
    };
    let mut ten = vec![
        default_binding(),
        on("workspace", json!({"workspace_id": "w"}), json!([])),
        on("bot", json!({"bot_id": "b"}), json!([])),
        on("telegram", json!({"channel": "telegram"}), json!([])),
        on("telegram-groups", json!({"channel": "telegram"}), json!(["group.*"])),
        on("telegram-joined", json!({"channel": "telegram"}), json!(["group.member_joined"])),
        on("family", json!({"channel": "telegram", "conversation_id": "family"}), json!([])),
        on("ann", json!({"actor_id": "ann"}), json!(["message.received"])),
    ];
    let german = json!({
        "binding_id": "german", "runner_id": "r", "scope": {"channel": "telegram"},
        "filters": [{"field": "metadata.lang", "one_of": ["de", "at"]}],
    });
    let off = json!({"binding_id": "off", "runner_id": "r", "enabled": false, "scope": {"actor_id": "bob"}});
    ten.extend([parse_binding(german), parse_binding(off)]);
    ten
}

/// Events, and the binding each gets.
fn binding_cases() -> Vec<(Value, &'static str)> {
    let message = |fields: Value| {
        let mut envelope = json!({"event_type": "message.received", "source": "telegram", "input": {"text": "hi"}});
        envelope.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        envelope
    };
    vec![
        (message(json!({"source": "stdio"})), "default"),
        (message(json!({"source": "stdio", "workspace_id": "w"})), "workspace"),
        (message(json!({"source": "stdio", "workspace_id": "w", "bot_id": "b"})), "bot"),
        (message(json!({"workspace_id": "w", "bot_id": "b"})), "telegram"),
        (message(json!({"conversation_id": "family"})), "family"),
        (message(json!({"conversation_id": "work"})), "telegram"),
        (message(json!({"metadata": {"lang": "de"}})), "german"),
        (message(json!({"metadata": {"lang": "fr"}})), "telegram"),
        (message(json!({"metadata": {"lang": "de"}, "conversation_id": "family"})), "family"),
        (message(json!({"conversation_id": "family", "actor": {"id": "ann"}})), "ann"),
        (message(json!({"actor": {"id": "bob"}})), "telegram"),
        (message(json!({"event_type": "group.member_left"})), "telegram-groups"),
        (message(json!({"event_type": "group.member_joined"})), "telegram-joined"),
        (message(json!({"event_type": "group.member_joined", "conversation_id": "family"})), "family"),
        (message(json!({"event_type": "group.member_joined", "source": "stdio"})), "default"),
    ]
}

#[test]
fn g02_an_event_gets_the_binding_that_fits_closest_whatever_their_order() {
    let mut bindings = ten_bindings();
    for _ in 0..bindings.len() {
        bindings.rotate_left(1);
        for (envelope, expected) in binding_cases() {
            let found =
                resolve_binding(&bindings, &parse_event(envelope.clone())).map(|binding| binding.binding_id.as_str());
            assert_eq!(found, Some(expected), "{envelope}");
        }
    }
}

#[test]
fn g02_a_dry_run_says_why_each_other_binding_lost() {
    let lines: Vec<String> = binding_cases()
        .into_iter()
        .flat_map(|(envelope, _)| {
            let choice = explain_choice(&ten_bindings(), &parse_event(envelope.clone()));
            let winner = format!("{envelope}\n  {}: {}", choice.binding_id.unwrap(), choice.reason);
            let losers =
                choice.losers.into_iter().map(|loser| format!("    not {}: {}", loser.binding_id, loser.reason));
            std::iter::once(winner).chain(losers).collect::<Vec<_>>()
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
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

#[tokio::test]
async fn g02_a_binding_that_makes_no_sense_is_refused_and_nothing_is_stored() {
    let conversation = TestConversation::with_plugin(extra_runners()).await;
    let parrot =
        |config: Value| json!({"binding_id": "p", "runner_id": "plugin:capstan/tests/parrot", "runner_config": config});
    let on = |scope: Value| json!({"binding_id": "b", "runner_id": "builtin:agent", "scope": scope});
    let with = |field: &str, value: Value| {
        let mut binding = on(json!({"channel": "cli"}));
        binding[field] = value;
        binding
    };
    let wrong = [
        (json!({"binding_id": "b", "runner_id": "nobody"}), "runner-unknown"),
        (parrot(json!({})), "binding-invalid"),
        (parrot(json!({"word": 7})), "binding-invalid"),
        (parrot(json!({"word": "much too long"})), "binding-invalid"),
        (parrot(json!({"word": "a", "other": 1})), "binding-invalid"),
        (with("runner_config", json!({"x": 1})), "binding-invalid"),
        (with("binding_id", json!("")), "binding-invalid"),
        (with("binding_id", json!("a b")), "binding-invalid"),
        (with("event_types", json!(["*.received"])), "binding-invalid"),
        (with("event_types", json!(["Message"])), "binding-invalid"),
        (with("filters", json!([{"field": "metadata.x"}])), "binding-invalid"),
        (with("filters", json!([{"field": "weather", "exists": true}])), "binding-invalid"),
        (on(json!({"thread_id": "1", "channel": "cli"})), "binding-invalid"),
        (on(json!({"conversation_id": "1"})), "binding-invalid"),
        (on(json!({"actor_id": "1"})), "binding-invalid"),
        (on(json!({"channel": " "})), "binding-invalid"),
        (on(json!({})), "binding-ambiguous"),
    ];
    for (value, code) in wrong {
        let refused = save_binding(&conversation, value.clone()).await.unwrap_err();
        assert_eq!(refused.code(), code, "{value}: {refused}");
    }
    let ids: Vec<_> =
        conversation.host.bindings().all().await.unwrap().iter().map(|b| b.binding_id.to_string()).collect();
    assert_eq!(ids, ["default"]);
    assert_eq!(
        conversation.host.tapes().store().namespace("bindings").await.unwrap(),
        None,
        "nothing was ever written"
    );
}

#[test]
fn g02_a_field_that_no_binding_has_is_refused() {
    for wrong in [
        json!({"binding_id": "b", "runner_id": "r", "scop": {}}),
        json!({"binding_id": "b", "runner_id": "r", "scope": {"chanel": "cli"}}),
        json!({"binding_id": "b", "runner_id": "r", "resource_policy": {"tool": "all"}}),
        json!({"binding_id": "b", "runner_id": "r", "resource_policy": {"tools": {"name": "all"}}}),
        json!({"binding_id": "b", "runner_id": "r", "state_policy": {"enable": true}}),
        json!({"binding_id": "b", "runner_id": "r", "delivery_policy": {"stream": true}}),
    ] {
        assert!(serde_json::from_value::<Binding>(wrong.clone()).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn g02_two_bindings_are_refused_together_unless_no_event_can_get_either() {
    let on = |id: &str, filters: &Value, event_types: &Value| {
        json!({
            "binding_id": id, "runner_id": "builtin:agent", "scope": {"channel": "cli"}, "filters": filters,
            "event_types": event_types,
        })
    };
    let lang = |condition: Value| {
        let mut filter = json!({"field": "metadata.lang"});
        filter.as_object_mut().unwrap().extend(condition.as_object().unwrap().clone());
        json!([filter])
    };
    let one_of = |values: Value| lang(json!({ "one_of": values }));
    let exists = |exists: bool| lang(json!({ "exists": exists }));
    let contains = |text: &str| lang(json!({ "contains": text }));
    let (none, any) = (json!([]), json!([]));
    let cases = [
        ((&none, &any), (&none, &any), false),
        ((&one_of(json!(["de"])), &any), (&one_of(json!(["fr"])), &any), true),
        ((&one_of(json!(["de", "fr"])), &any), (&one_of(json!(["fr"])), &any), false),
        ((&exists(true), &any), (&exists(false), &any), true),
        ((&one_of(json!(["de"])), &any), (&exists(false), &any), true),
        ((&exists(false), &any), (&contains("d"), &any), true),
        ((&contains("h"), &any), (&contains("x"), &any), false),
        ((&contains("h"), &any), (&none, &any), true),
        ((&none, &json!(["message.*"])), (&none, &json!(["message.received"])), true),
        ((&none, &json!(["message.*", "group.*"])), (&none, &json!(["group.*"])), false),
        ((&none, &json!(["*"])), (&none, &any), false),
    ];
    for (a, b, both) in cases {
        let conversation = TestConversation::with_plugin(extra_runners()).await;
        save_binding(&conversation, on("a", a.0, a.1)).await.unwrap();
        let saved = save_binding(&conversation, on("b", b.0, b.1)).await.map_err(|error| error.code());
        assert_eq!(saved, if both { Ok(()) } else { Err(ErrorCode::BindingAmbiguous) }, "{a:?} {b:?}");
    }
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

//! Resolution of bindings, and what is refused when one is saved.

use std::sync::Arc;

use capstan_policy::bindings::{explain_choice, resolve_binding};
use capstan_policy::{BindingError, BindingStore, default_binding};
use capstan_protocol::{Binding, Clock, Descriptor, ErrorCode, Event, SessionId, WorkspaceId};
use capstan_tape::{MemoryStore, TapeAddress, TapeRepository};
use serde_json::{Value, json};

fn parse_binding(value: Value) -> Binding {
    serde_json::from_value(value).unwrap()
}

fn parse_event(value: Value) -> Event {
    Event::from_envelope(value).unwrap()
}

fn memory_tapes() -> TapeRepository {
    TapeRepository::new(Arc::new(MemoryStore::new()))
}

fn binding_store(tapes: &TapeRepository) -> BindingStore {
    let system = TapeAddress { session: SessionId::from("system"), workspace: WorkspaceId::from("w") };
    BindingStore::new(tapes.clone(), Clock::system(), system)
}

/// The built-in agent, and a runner with a configuration schema.
fn runners() -> Vec<Descriptor> {
    let schema = json!({
        "type": "object", "required": ["word"], "additionalProperties": false,
        "properties": {"word": {"type": "string", "maxLength": 10}},
    });
    let parrot = Descriptor { config_schema: Some(schema), ..Descriptor::new("plugin:capstan/tests/parrot", "Parrot") };
    vec![Descriptor::new("builtin:agent", "Agent"), parrot]
}

async fn save_binding(bindings: &BindingStore, value: Value) -> Result<(), BindingError> {
    bindings.save(&parse_binding(value), &runners()).await
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
            let chosen = format!("{envelope}\n  {}: {}", choice.binding_id.unwrap(), choice.reason);
            let rejected = choice.rejected.into_iter().map(|one| format!("    not {}: {}", one.binding_id, one.reason));
            std::iter::once(chosen).chain(rejected).collect::<Vec<_>>()
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[tokio::test]
async fn g02_a_binding_that_makes_no_sense_is_refused_and_nothing_is_stored() {
    let tapes = memory_tapes();
    let bindings = binding_store(&tapes);
    let parrot =
        |config: Value| json!({"binding_id": "p", "runner_id": "plugin:capstan/tests/parrot", "runner_config": config});
    let on = |scope: Value| json!({"binding_id": "b", "runner_id": "builtin:agent", "scope": scope});
    let with = |field: &str, value: Value| {
        let mut binding = on(json!({"channel": "cli"}));
        binding[field] = value;
        binding
    };
    let wrong = [
        (json!({"binding_id": "b", "runner_id": "missing"}), "runner-unknown"),
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
        let refused = save_binding(&bindings, value.clone()).await.unwrap_err();
        assert_eq!(refused.code(), code, "{value}: {refused}");
    }
    let ids: Vec<_> = bindings.all().await.unwrap().iter().map(|b| b.binding_id.to_string()).collect();
    assert_eq!(ids, ["default"]);
    assert_eq!(tapes.store().namespace("bindings").await.unwrap(), None, "nothing was ever written");
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
        let bindings = binding_store(&memory_tapes());
        save_binding(&bindings, on("a", a.0, a.1)).await.unwrap();
        let saved = save_binding(&bindings, on("b", b.0, b.1)).await.map_err(|error| error.code());
        assert_eq!(saved, if both { Ok(()) } else { Err(ErrorCode::BindingAmbiguous) }, "{a:?} {b:?}");
    }
}

//! H2: `onboard_config` is folded in the order of registration.

use capstan_hooks::args::CurrentConfig;
use capstan_hooks::merge_onboard_config;
use capstan_hooks::points::OnboardConfig;
use capstan_protocol::JsonObject;
use serde_json::{Value, json};

use crate::support::{FnPlugin, plugin, runtime};

/// Plugin that proposes a configuration fragment.
fn config_plugin(name: &'static str, fragment: Value) -> FnPlugin {
    plugin(name, move |hooks| {
        let fragment = fragment.clone();
        hooks.on_sync(OnboardConfig, move || Ok(Some(fragment.clone())));
    })
}

fn to_map(value: &Value) -> JsonObject {
    value.as_object().unwrap().clone()
}

#[test]
fn h02_fragments_are_merged_at_every_depth_and_the_later_one_wins() {
    let hooks = runtime([
        config_plugin("first", json!({"model": "a", "telegram": {"token": "t", "allow": ["ann"]}})),
        config_plugin("second", json!({"model": "b", "telegram": {"allow": ["bob"]}})),
    ]);
    let merged = merge_onboard_config(&hooks, to_map(&json!({"home": "unchanged"}))).unwrap();
    let expected = json!({"home": "unchanged", "model": "b", "telegram": {"token": "t", "allow": ["bob"]}});
    assert_eq!(Value::Object(merged), expected);
}

#[test]
fn h02_each_plugin_sees_the_merged_config_and_none_changes_nothing() {
    let silent = plugin("silent", |hooks| {
        hooks.on_sync(OnboardConfig, || Ok(None));
    });
    let witness = plugin("witness", |hooks| {
        hooks.on_sync(OnboardConfig, |current: CurrentConfig| Ok(Some(json!({"seen": *current.0}))));
    });
    let hooks = runtime([config_plugin("first", json!({"model": "a"})), silent, witness]);
    let merged = merge_onboard_config(&hooks, JsonObject::new()).unwrap();
    assert_eq!(Value::Object(merged), json!({"model": "a", "seen": {"model": "a"}}));
}

#[test]
fn h02_fragment_that_is_not_an_object_is_a_failure_of_its_plugin() {
    for wrong in [json!(["model"]), json!("model"), json!(1), json!(null)] {
        let never = plugin("never called", |hooks| {
            hooks.on_sync(OnboardConfig, || panic!("it was called"));
        });
        let failure = merge_onboard_config(&runtime([config_plugin("wrong", wrong.clone()), never]), JsonObject::new())
            .unwrap_err();
        let expected = format!("onboard_config of plugin wrong failed: it returned {wrong} instead of an object");
        assert_eq!(failure.to_string(), expected);
    }
}

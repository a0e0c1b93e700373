//! H2: `onboard_config` is folded in the order of registration.

use capstan_hooks::args::CurrentConfig;
use capstan_hooks::points::OnboardConfig;
use capstan_protocol::JsonObject;
use serde_json::{Value, json};

use crate::support::{FnPlugin, plugin, runtime};

/// Wants this configured.
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
    let merged = hooks.onboard_config(to_map(&json!({"home": "kept"}))).unwrap();
    let expected = json!({"home": "kept", "model": "b", "telegram": {"token": "t", "allow": ["bob"]}});
    assert_eq!(Value::Object(merged), expected);
}

#[test]
fn h02_each_plugin_sees_what_is_merged_so_far_and_nothing_changes_nothing() {
    let silent = plugin("silent", |hooks| {
        hooks.on_sync(OnboardConfig, || Ok(None));
    });
    let witness = plugin("witness", |hooks| {
        hooks.on_sync(OnboardConfig, |current: CurrentConfig| Ok(Some(json!({"seen": *current.0}))));
    });
    let hooks = runtime([config_plugin("first", json!({"model": "a"})), silent, witness]);
    let merged = hooks.onboard_config(JsonObject::new()).unwrap();
    assert_eq!(Value::Object(merged), json!({"model": "a", "seen": {"model": "a"}}));
}

#[test]
fn h02_what_is_not_a_mapping_is_a_type_error_of_its_plugin() {
    for wrong in [json!(["model"]), json!("model"), json!(1), json!(null)] {
        let never = plugin("never asked", |hooks| {
            hooks.on_sync(OnboardConfig, || panic!("it was asked"));
        });
        let failure =
            runtime([config_plugin("wrong", wrong.clone()), never]).onboard_config(JsonObject::new()).unwrap_err();
        let expected = format!("onboard_config of plugin wrong failed: it gave {wrong}, where an object was expected");
        assert_eq!(failure.to_string(), expected);
    }
}

use capstan_protocol::{JsonObject, OutboundKind};
use serde_json::{Value, json};

use super::{HookAction, HookRefusal, HookTurn, MAX_HOOK_EFFECT_BYTES, MAX_HOOK_EFFECTS};
use crate::{HookHandle, HookPermission, HookPermissions, PluginGrant};

fn grant(permissions: impl Into<HookPermissions>) -> PluginGrant {
    PluginGrant { plugin: "diary".into(), permissions: permissions.into() }
}

fn writer_handle(turn: &HookTurn) -> HookHandle {
    let permissions = [HookPermission::WriteNote, HookPermission::WriteAnchor, HookPermission::SendTo("ops".into())];
    turn.handle(&grant(permissions), OutboundKind::Reply)
}

fn session_turn() -> HookTurn {
    HookTurn::new("cli:local".into(), None).with_anchors()
}

#[test]
fn h12_handle_collects_effects_in_order_with_their_plugin() {
    let turn = session_turn();
    let handle = writer_handle(&turn);
    handle.note("diary.mood", json!({"mood": "calm"})).unwrap();
    handle.anchor("diary/day", JsonObject::new()).unwrap();
    handle.send("ops", "alerts", "look").unwrap();
    let effects = turn.close();
    assert!(effects.iter().all(|effect| effect.plugin.as_str() == "diary"));
    let [HookAction::Note { name, .. }, HookAction::Anchor { .. }, HookAction::Message(message)] =
        &effects.iter().map(|effect| effect.action.clone()).collect::<Vec<_>>()[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((name.as_str(), message.chat_id.as_str()), ("diary.mood", "alerts"));
}

#[test]
fn h12_handle_refuses_what_the_plugin_may_not_do() {
    let turn = session_turn();
    let handle = turn.handle(&grant(HookPermissions::none()), OutboundKind::Reply);
    let refused = |permission: &str| HookRefusal::NotPermitted(permission.to_owned());
    assert_eq!(handle.note("x", Value::Null), Err(refused("note")));
    assert_eq!(handle.anchor("x", JsonObject::new()), Err(refused("anchor")));
    assert_eq!(handle.send("ops", "c", "hi"), Err(refused("send:ops")));
    assert_eq!(handle.tape().unwrap_err(), refused("tape"));
    assert_eq!(writer_handle(&turn).send("cli", "c", "hi"), Err(refused("send:cli")), "another channel");
    assert_eq!(turn.close(), []);
}

#[test]
fn h12_handle_cannot_forge_events_of_the_host() {
    let handle = writer_handle(&session_turn());
    for name in ["model.call", "event.accepted", "run", "run.anything", "outbound", "loop.step", "session.x"] {
        assert_eq!(handle.note(name, json!({})), Err(HookRefusal::ReservedName(name.to_owned())));
    }
}

#[test]
fn h12_effects_are_bounded_in_number_and_size() {
    let turn = session_turn();
    let handle = writer_handle(&turn);
    assert_eq!(handle.note("big", "x".repeat(MAX_HOOK_EFFECT_BYTES)), Err(HookRefusal::TooLarge));
    let deep = (0..110).fold(json!(1), |value, _| json!([value]));
    assert_eq!(handle.note("deep", deep), Err(HookRefusal::TooLarge));
    assert_eq!(handle.note(" ", json!(1)), Err(HookRefusal::InvalidName));
    assert_eq!(handle.note(&"n".repeat(200), json!(1)), Err(HookRefusal::InvalidName));
    for _ in 0..MAX_HOOK_EFFECTS {
        handle.note("n", json!(1)).unwrap();
    }
    assert_eq!(handle.note("n", json!(1)), Err(HookRefusal::TooMany));
    let other = PluginGrant { plugin: "other".into(), ..grant([HookPermission::WriteNote]) };
    turn.handle(&other, OutboundKind::Reply).note("n", json!(1)).unwrap();
}

#[test]
fn h12_handle_is_revoked_with_the_turn() {
    let turn = session_turn();
    let handle = writer_handle(&turn);
    turn.close();
    assert_eq!(handle.note("late", json!(1)), Err(HookRefusal::TurnEnded));
    assert_eq!(writer_handle(&HookTurn::none()).note("n", json!(1)), Err(HookRefusal::TurnEnded));
    let concurrent = HookTurn::new("s".into(), None);
    assert_eq!(writer_handle(&concurrent).anchor("a", JsonObject::new()), Err(HookRefusal::NoAnchorHere));
}

#[test]
fn h12_configuration_narrows_permissions_and_never_widens_them() {
    let declared = HookPermissions::from([HookPermission::WriteNote, HookPermission::SendTo("ops".into())]);
    let allowed = HookPermissions::from([HookPermission::WriteNote, HookPermission::WriteAnchor, HookPermission::Send]);
    assert_eq!(declared.intersect(&allowed).to_string(), "note, send:ops");
    assert_eq!(allowed.intersect(&declared), declared.intersect(&allowed));
    assert!(declared.intersect(&HookPermissions::none()).is_empty());
    for name in ["tape", "note", "anchor", "model", "send", "send:ops"] {
        assert_eq!(HookPermission::parse(name).unwrap().to_string(), name);
    }
    assert_eq!(HookPermission::parse("send:"), None);
}

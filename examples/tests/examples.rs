//! Each example in a whole turn: the turn works as before, and the replaced part is really used.

use std::sync::Arc;

use capstan::hooks::Plugin;
use capstan::protocol::{Event, OutboundKind};
use capstan::tape::{Kind, MemoryStore, Slice, Store as _, TapeStore as _};
use capstan::{Capstan, Host, Served};
use capstan_examples::model_stage::Shout;
use capstan_examples::redactor::Redactor;
use capstan_examples::rendering::Signature;
use capstan_examples::tape_store::Shelf;
use capstan_examples::tool::Reverse;
use capstan_examples::view::ShortMemory;
use tempfile::TempDir;

const INTRODUCTION: &str = "I am the demo model";

/// A host with one plugin, on a workspace and a store of its own.
struct Place {
    host: Host,
    store: Arc<MemoryStore>,
    _workspace: TempDir,
}

impl Place {
    async fn with(plugin: impl Plugin) -> Self {
        let workspace = TempDir::new().unwrap();
        let store = Arc::new(MemoryStore::new());
        let builder = Capstan::builder()
            .plugin(plugin)
            .workspace(workspace.path())
            .home(workspace.path().join("home"))
            .store(Arc::clone(&store) as _)
            .set("model", "demo:");
        Self { host: builder.start().await.unwrap(), store, _workspace: workspace }
    }

    /// Says something and gives what came of it; the turn must not fail.
    async fn say(&self, text: &str) -> Served {
        let served = self.host.serve(Event::message("cli", "local", text)).await.unwrap();
        assert_eq!(served.error, None);
        served
    }

    /// What is on the one tape.
    async fn kinds(&self) -> Vec<Kind> {
        let record = self.host.tapes().list().await.unwrap().pop().unwrap();
        let entries = self.host.tapes().read(&record.name, &Slice::all()).await.unwrap();
        entries.into_iter().map(|entry| entry.kind).collect()
    }
}

/// The texts of what was sent, which must be replies.
fn replies(served: &Served) -> Vec<String> {
    assert!(served.outbounds.iter().all(|outbound| outbound.kind == OutboundKind::Reply));
    served.outbounds.iter().map(|outbound| outbound.content.text()).collect()
}

#[tokio::test]
async fn h01_a_plugin_replaces_the_model_stage() {
    let place = Place::with(Shout).await;
    let served = place.say("hello").await;
    assert_eq!(replies(&served), ["HELLO"]);
    let said = place.kinds().await.iter().filter(|kind| **kind == Kind::Message).count();
    assert_eq!(said, 2, "the message and its answer are on the tape all the same");
}

#[tokio::test]
async fn h01_a_plugin_replaces_the_rendering() {
    let place = Place::with(Signature("the deck")).await;
    let served = place.say("hello").await;
    let [reply] = &replies(&served)[..] else { panic!("one reply, not {:?}", served.outbounds) };
    assert!(reply.starts_with(INTRODUCTION) && reply.ends_with("You said: hello\n-- the deck"), "{reply}");
    assert!(!served.output.contains("the deck"), "what the model said is not changed");
}

#[tokio::test]
async fn h01_p12_a_plugin_keeps_tapes_elsewhere() {
    let shelf = Shelf::default();
    let place = Place::with(shelf.clone()).await;
    assert!(place.say("hello").await.output.starts_with(INTRODUCTION));
    let again = place.say("again").await;
    assert_eq!(again.output, "You said: again", "it knows that it has introduced itself: it read the shelf");

    let tape = shelf.tapes().await.unwrap().pop().unwrap();
    let kept = shelf.read(&tape, &Slice::all()).await.unwrap();
    assert_eq!(kept.iter().filter(|entry| entry.kind == Kind::Message).count(), 4);
    let left = place.store.read(&tape, &Slice::all()).await.unwrap();
    assert!(left.is_empty(), "everything was handed over, {} entries were not", left.len());
}

#[tokio::test]
async fn h01_p08_a_plugin_replaces_the_view() {
    let place = Place::with(ShortMemory { messages: 1 }).await;
    place.say("hello").await;
    let again = place.say("again").await;
    assert!(again.output.starts_with(INTRODUCTION), "it has forgotten its first reply: {}", again.output);
    let said = place.kinds().await.iter().filter(|kind| **kind == Kind::Message).count();
    assert_eq!(said, 4, "the tape has forgotten nothing");
}

#[tokio::test]
async fn h01_a_plugin_adds_a_tool_for_models_and_people() {
    let place = Place::with(Reverse).await;
    let served = place.say("[[tool:text.reverse text=capstan]] please").await;
    assert!(served.output.contains("text_reverse answered:\nnatspac"), "{}", served.output);
    assert!(place.kinds().await.contains(&Kind::ToolResult));

    assert_eq!(replies(&place.say(",text.reverse capstan").await), ["natspac"]);
    assert!(place.say(",help").await.output.contains("text.reverse"));
}

/// What is on the one tape, as text.
async fn written(place: &Place) -> String {
    let record = place.host.tapes().list().await.unwrap().pop().unwrap();
    let entries = place.host.tapes().read(&record.name, &Slice::all()).await.unwrap();
    format!("{entries:?}")
}

#[tokio::test]
async fn h10_x06_a_plugin_keeps_keys_from_models_and_results() {
    let place = Place::with(Redactor).await;
    // The shell puts the key together, so that only its output has it.
    let served = place.say("[[tool:bash cmd=\"echo sk-0123456789''abcdefghij\"]]").await;
    assert!(served.output.contains("bash answered:\n[key]"), "{}", served.output);
    assert!(!written(&place).await.contains("sk-0123456789abcdefghij"));
    let said = place.say("remember ghp_0123456789abcdefghij").await;
    assert!(said.output.ends_with("You said: remember [key]"), "{}", said.output);
}

#[test]
fn h01_h08_a_distribution_of_ones_own_has_the_whole_command_line() {
    let home = TempDir::new().unwrap();
    let shout = || {
        let mut command = assert_cmd::Command::cargo_bin("shout").unwrap();
        command.current_dir(home.path()).env("CAPSTAN_HOME", home.path().join("home")).env("CAPSTAN_MODEL", "demo:");
        command
    };
    shout().args(["run", "hello"]).assert().success().stdout("HELLO\n");

    let listed = shout().args(["hooks", "--json"]).assert().success();
    let listed: serde_json::Value = serde_json::from_slice(&listed.get_output().stdout).unwrap();
    let run_model = listed["hooks"].as_array().unwrap().iter().find(|hook| hook["hook"] == "run_model").unwrap();
    assert_eq!(run_model["plugins"], serde_json::json!([{"plugin": "shout", "arguments": ["prompt"]}]));
}

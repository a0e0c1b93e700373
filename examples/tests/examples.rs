//! Each example in a whole turn: the turn works as before, and the replaced part is really used.

use std::sync::Arc;

use capstan::hooks::Plugin;
use capstan::protocol::{Event, OutboundKind};
use capstan::tape::{EntryKind, JournalStore as _, MemoryStore, TapeSlice, TapeStore as _};
use capstan::{Capstan, Host, ServedEvent};
use capstan_examples::model_stage::ShoutPlugin;
use capstan_examples::redactor::KeyRedactor;
use capstan_examples::rendering::SignaturePlugin;
use capstan_examples::tape_store::ExampleTapeStore;
use capstan_examples::tool::ReversePlugin;
use capstan_examples::view::ShortMemory;
use tempfile::TempDir;

const DEMO_INTRO: &str = "I am the demo model";

/// A host with one plugin, on a workspace and a store of its own.
struct ExampleHost {
    host: Host,
    store: Arc<MemoryStore>,
    _workspace: TempDir,
}

impl ExampleHost {
    async fn with_plugin(plugin: impl Plugin) -> Self {
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
    async fn send(&self, text: &str) -> ServedEvent {
        let served = self.host.serve(Event::message("cli", "local", text)).await.unwrap();
        assert_eq!(served.error, None);
        served
    }

    /// What is on the one tape.
    async fn entry_kinds(&self) -> Vec<EntryKind> {
        let record = self.host.tapes().list().await.unwrap().pop().unwrap();
        let entries = self.host.tapes().read(&record.name, &TapeSlice::all()).await.unwrap();
        entries.into_iter().map(|entry| entry.kind).collect()
    }
}

/// The texts of what was sent, which must be replies.
fn reply_texts(served: &ServedEvent) -> Vec<String> {
    assert!(served.outbounds.iter().all(|outbound| outbound.kind == OutboundKind::Reply));
    served.outbounds.iter().map(|outbound| outbound.content.text()).collect()
}

#[tokio::test]
async fn h01_a_plugin_replaces_the_model_stage() {
    let place = ExampleHost::with_plugin(ShoutPlugin).await;
    let served = place.send("hello").await;
    assert_eq!(reply_texts(&served), ["HELLO"]);
    let said = place.entry_kinds().await.iter().filter(|kind| **kind == EntryKind::Message).count();
    assert_eq!(said, 2, "the message and its answer are on the tape all the same");
}

#[tokio::test]
async fn h01_a_plugin_replaces_the_rendering() {
    let place = ExampleHost::with_plugin(SignaturePlugin("the deck")).await;
    let served = place.send("hello").await;
    let [reply] = &reply_texts(&served)[..] else { panic!("one reply, not {:?}", served.outbounds) };
    assert!(reply.starts_with(DEMO_INTRO) && reply.ends_with("You said: hello\n-- the deck"), "{reply}");
    assert!(!served.output.contains("the deck"), "what the model said is not changed");
}

#[tokio::test]
async fn h01_p12_a_plugin_keeps_tapes_elsewhere() {
    let shelf = ExampleTapeStore::default();
    let place = ExampleHost::with_plugin(shelf.clone()).await;
    assert!(place.send("hello").await.output.starts_with(DEMO_INTRO));
    let again = place.send("again").await;
    assert_eq!(again.output, "You said: again", "it knows that it has introduced itself: it read the shelf");

    let tape = shelf.tapes().await.unwrap().pop().unwrap();
    let kept = shelf.read(&tape, &TapeSlice::all()).await.unwrap();
    assert_eq!(kept.iter().filter(|entry| entry.kind == EntryKind::Message).count(), 4);
    let left = place.store.read(&tape, &TapeSlice::all()).await.unwrap();
    assert!(left.is_empty(), "everything was handed over, {} entries were not", left.len());
}

#[tokio::test]
async fn h01_p08_a_plugin_replaces_the_view() {
    let place = ExampleHost::with_plugin(ShortMemory { messages: 1 }).await;
    place.send("hello").await;
    let again = place.send("again").await;
    assert!(again.output.starts_with(DEMO_INTRO), "it has forgotten its first reply: {}", again.output);
    let said = place.entry_kinds().await.iter().filter(|kind| **kind == EntryKind::Message).count();
    assert_eq!(said, 4, "the tape has forgotten nothing");
}

#[tokio::test]
async fn h01_a_plugin_adds_a_tool_for_models_and_people() {
    let place = ExampleHost::with_plugin(ReversePlugin).await;
    let served = place.send("[[tool:text.reverse text=capstan]] please").await;
    assert!(served.output.contains("text_reverse answered:\nnatspac"), "{}", served.output);
    assert!(place.entry_kinds().await.contains(&EntryKind::ToolResult));

    assert_eq!(reply_texts(&place.send(",text.reverse capstan").await), ["natspac"]);
    assert!(place.send(",help").await.output.contains("text.reverse"));
}

/// What is on the one tape, as text.
async fn tape_text(place: &ExampleHost) -> String {
    let record = place.host.tapes().list().await.unwrap().pop().unwrap();
    let entries = place.host.tapes().read(&record.name, &TapeSlice::all()).await.unwrap();
    format!("{entries:?}")
}

#[tokio::test]
async fn h10_x06_a_plugin_keeps_keys_from_models_and_results() {
    let place = ExampleHost::with_plugin(KeyRedactor).await;
    // The shell puts the key together, so that only its output has it.
    let served = place.send("[[tool:bash cmd=\"echo sk-0123456789''abcdefghij\"]]").await;
    assert!(served.output.contains("bash answered:\n[key]"), "{}", served.output);
    assert!(!tape_text(&place).await.contains("sk-0123456789abcdefghij"));
    let said = place.send("remember ghp_0123456789abcdefghij").await;
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

//! Each example in a complete turn: the turn works as before, and the replaced part is used.

use std::sync::Arc;

use capstan::hooks::Plugin;
use capstan::protocol::{Event, OutboundKind};
use capstan::tape::{EntryKind, JournalStore as _, MemoryStore, TapeSlice, TapeStore as _};
use capstan::{Capstan, Host, IncomingEvent, ServedEvent};
use capstan_examples::model_stage::ShoutPlugin;
use capstan_examples::redactor::KeyRedactor;
use capstan_examples::rendering::SignaturePlugin;
use capstan_examples::tape_store::ExampleTapeStore;
use capstan_examples::tool::ReversePlugin;
use capstan_examples::view::ShortMemory;
use tempfile::TempDir;

const DEMO_INTRO: &str = "I am the demo model";

/// Host with one plugin, and its own workspace and store.
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

    /// Sends a message and returns the result; the turn must not fail.
    async fn send(&self, text: &str) -> ServedEvent {
        let served = self.host.serve(IncomingEvent::trusted(Event::message("cli", "local", text))).await.unwrap();
        assert_eq!(served.error, None);
        served
    }

    /// Returns the kinds of the entries on the only tape.
    async fn entry_kinds(&self) -> Vec<EntryKind> {
        let record = self.host.tapes().list().await.unwrap().pop().unwrap();
        let entries = self.host.tapes().read(&record.name, &TapeSlice::all()).await.unwrap();
        entries.into_iter().map(|entry| entry.kind).collect()
    }
}

/// Returns the texts of the sent messages, which must be replies.
fn reply_texts(served: &ServedEvent) -> Vec<String> {
    assert!(served.outbounds.iter().all(|outbound| outbound.kind == OutboundKind::Reply));
    served.outbounds.iter().map(|outbound| outbound.content.text()).collect()
}

#[tokio::test]
async fn h01_plugin_replaces_the_model_stage() {
    let example = ExampleHost::with_plugin(ShoutPlugin).await;
    let served = example.send("hello").await;
    assert_eq!(reply_texts(&served), ["HELLO"]);
    let messages = example.entry_kinds().await.iter().filter(|kind| **kind == EntryKind::Message).count();
    assert_eq!(messages, 2, "message and reply are on the tape as usual");
}

#[tokio::test]
async fn h01_plugin_replaces_the_rendering() {
    let example = ExampleHost::with_plugin(SignaturePlugin("the deck")).await;
    let served = example.send("hello").await;
    let [reply] = &reply_texts(&served)[..] else { panic!("one reply, not {:?}", served.outbounds) };
    assert!(reply.starts_with(DEMO_INTRO) && reply.ends_with("You said: hello\n-- the deck"), "{reply}");
    assert!(!served.output.contains("the deck"), "the model output is unchanged");
}

#[tokio::test]
async fn h01_p12_plugin_stores_tapes_elsewhere() {
    let tape_store = ExampleTapeStore::default();
    let example = ExampleHost::with_plugin(tape_store.clone()).await;
    assert!(example.send("hello").await.output.starts_with(DEMO_INTRO));
    let second = example.send("again").await;
    assert_eq!(second.output, "You said: again", "it read its introduction from the store");

    let tape = tape_store.tapes().await.unwrap().pop().unwrap();
    let stored = tape_store.read(&tape, &TapeSlice::all()).await.unwrap();
    assert_eq!(stored.iter().filter(|entry| entry.kind == EntryKind::Message).count(), 4);
    let remaining = example.store.read(&tape, &TapeSlice::all()).await.unwrap();
    assert!(remaining.is_empty(), "all entries are replicated, {} remain", remaining.len());
}

#[tokio::test]
async fn h01_p08_plugin_replaces_the_view() {
    let example = ExampleHost::with_plugin(ShortMemory { messages: 1 }).await;
    example.send("hello").await;
    let second = example.send("again").await;
    assert!(second.output.starts_with(DEMO_INTRO), "its first reply is not in the view: {}", second.output);
    let messages = example.entry_kinds().await.iter().filter(|kind| **kind == EntryKind::Message).count();
    assert_eq!(messages, 4, "the tape is complete");
}

#[tokio::test]
async fn h01_plugin_adds_a_tool_for_models_and_people() {
    let example = ExampleHost::with_plugin(ReversePlugin).await;
    let served = example.send("[[tool:text.reverse text=capstan]] please").await;
    assert!(served.output.contains("text_reverse answered:\nnatspac"), "{}", served.output);
    assert!(example.entry_kinds().await.contains(&EntryKind::ToolResult));

    assert_eq!(reply_texts(&example.send(",text.reverse capstan").await), ["natspac"]);
    assert!(example.send(",help").await.output.contains("text.reverse"));
}

/// Returns the content of the only tape as text.
async fn tape_text(example: &ExampleHost) -> String {
    let record = example.host.tapes().list().await.unwrap().pop().unwrap();
    let entries = example.host.tapes().read(&record.name, &TapeSlice::all()).await.unwrap();
    format!("{entries:?}")
}

#[tokio::test]
async fn h10_x06_plugin_masks_keys_in_requests_and_results() {
    let example = ExampleHost::with_plugin(KeyRedactor).await;
    // The shell assembles the key, so that only its output contains it.
    let served = example.send("[[tool:bash cmd=\"echo sk-0123456789''abcdefghij\"]]").await;
    assert!(served.output.contains("bash answered:\n[key]"), "{}", served.output);
    assert!(!tape_text(&example).await.contains("sk-0123456789abcdefghij"));
    let served = example.send("remember ghp_0123456789abcdefghij").await;
    assert!(served.output.ends_with("You said: remember [key]"), "{}", served.output);
}

#[test]
fn h01_h08_custom_distribution_has_the_complete_command_line() {
    let home = TempDir::new().unwrap();
    let shout = || {
        let mut command = assert_cmd::Command::cargo_bin("shout").unwrap();
        command.current_dir(home.path()).env("CAPSTAN_HOME", home.path().join("home")).env("CAPSTAN_MODEL", "demo:");
        command
    };
    shout().args(["run", "hello"]).assert().success().stdout("HELLO\n");

    let output = shout().args(["hooks", "--json"]).assert().success();
    let output: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let run_model = output["hooks"].as_array().unwrap().iter().find(|hook| hook["hook"] == "run_model").unwrap();
    assert_eq!(run_model["plugins"], serde_json::json!([{"plugin": "shout", "arguments": ["prompt"]}]));
}

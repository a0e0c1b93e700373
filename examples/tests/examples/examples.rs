//! Each example in a complete turn: the turn works as before, and the replaced part is used.

use std::sync::{Arc, Mutex};

use capstan::hooks::args::LlmRequest;
use capstan::hooks::points::BeforeLlmCall;
use capstan::hooks::{BoxError, HookRegistrar, Plugin};
use capstan::protocol::{Event, ModelRequest, OutboundKind};
use capstan::tape::{EntryKind, JournalStore as _, MemoryStore, TapeSlice, TapeStore as _};
use capstan::{Capstan, Host, IncomingEvent, ServedEvent};
use capstan_examples::model_stage::ShoutPlugin;
use capstan_examples::redactor::KeyRedactor;
use capstan_examples::rendering::SignaturePlugin;
use capstan_examples::tape_store::ExampleTapeStore;
use capstan_examples::tool::ReversePlugin;
use capstan_examples::view::SummaryMemory;
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
        Self::with_plugins(plugin, RequestRecorder::default()).await
    }

    async fn with_plugins(plugin: impl Plugin, recorder: RequestRecorder) -> Self {
        let workspace = TempDir::new().unwrap();
        let store = Arc::new(MemoryStore::new());
        let builder = Capstan::builder()
            .plugin(plugin)
            .plugin(recorder)
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

/// Plugin that records the requests to models.
#[derive(Clone, Default)]
struct RequestRecorder(Arc<Mutex<Vec<ModelRequest>>>);

impl RequestRecorder {
    fn requests(&self) -> Vec<ModelRequest> {
        self.0.lock().unwrap().clone()
    }

    fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

impl Plugin for RequestRecorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let requests = Arc::clone(&self.0);
        hooks.on(BeforeLlmCall, move |request: LlmRequest| {
            requests.lock().unwrap().push(request.0.as_ref().clone());
            async { Ok(None) }
        });
        Ok(())
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
async fn h01_p08_selector_summarises_older_messages_and_retrieves_from_before_the_anchor() {
    let seen = RequestRecorder::default();
    let example = ExampleHost::with_plugins(SummaryMemory::new(2), seen.clone()).await;
    example.send("My garden has seven orchids").await;
    example.send(",tape.handoff phase-2").await;
    example.send("one").await;
    example.send("two").await;
    seen.clear();
    example.send("How many orchids?").await;
    let requests = seen.requests();
    let [summary, reply] = &requests[..] else { panic!("a summary and a reply, not {requests:?}") };
    assert!(summary.system.starts_with("Summarise") && summary.messages.len() >= 2, "{summary:?}");
    let texts: Vec<String> = reply.messages.iter().map(|message| message.content.text()).collect();
    assert!(texts[0].starts_with("[Earlier] ") && texts[0].contains("seven orchids"), "{texts:?}");
    assert!(texts[1].starts_with("[Summary of earlier messages] "), "{texts:?}");
    assert_eq!(texts.len(), 4, "the two newest messages are shown as they are: {texts:?}");
    assert!(texts[3].ends_with("How many orchids?"), "{texts:?}");
    let messages = example.entry_kinds().await.iter().filter(|kind| **kind == EntryKind::Message).count();
    assert_eq!(messages, 8, "the tape is complete");
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

/// The example distribution with a home of its own.
fn shout_command(folder: &TempDir, arguments: &[&str]) -> assert_cmd::Command {
    let mut command = assert_cmd::Command::cargo_bin("shout").unwrap();
    command.current_dir(folder.path()).env("CAPSTAN_HOME", folder.path().join("home")).args(arguments);
    command
}

#[test]
fn h11_onboarding_writes_the_section_of_a_plugin_and_its_secret_apart() {
    let folder = TempDir::new().unwrap();
    let home = folder.path().join("home");
    let read = |name: &str| std::fs::read_to_string(home.join(name)).unwrap();
    let onboard = || {
        let arguments = ["onboard", "--yes", "--skip-test", "--model", "demo:"];
        shout_command(&folder, &arguments).assert().success();
    };
    onboard();
    assert!(read("config.toml").contains("[plugins.weather]\ncity = \"Paris\""), "{}", read("config.toml"));
    assert!(!read("config.toml").contains("none-yet"), "{}", read("config.toml"));
    assert!(read("secrets.toml").contains("token = \"none-yet\""), "{}", read("secrets.toml"));

    std::fs::write(home.join("config.toml"), read("config.toml").replace("Paris", "Rome")).unwrap();
    onboard();
    assert!(read("config.toml").contains("Rome"), "the plugin has seen its present settings");
    let shown = shout_command(&folder, &["config", "show"]).assert().success().get_output().stdout.clone();
    let shown = String::from_utf8(shown).unwrap();
    let setting = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
    let (city, token) = (setting("plugins.weather.city"), setting("plugins.weather.token"));
    assert!(city.contains("Rome") && city.ends_with("config.toml"), "{city}");
    assert!(token.contains("********") && token.ends_with("secrets.toml"), "{token}");
}

#[test]
fn h09_h11_a_plugin_with_invalid_settings_does_not_load_and_the_others_do() {
    let folder = TempDir::new().unwrap();
    let shout = |arguments: &[&str]| {
        let mut command = shout_command(&folder, arguments);
        command.env("CAPSTAN_PLUGINS__WEATHER__DAYS", "0").assert().success()
    };
    let run = shout(&["run", "hello"]).stdout("HELLO\n");
    let log = String::from_utf8(run.get_output().stderr.clone()).unwrap();
    assert!(log.contains("weather") && log.contains("plugins.weather.days"), "{log}");
    let hooks = String::from_utf8(shout(&["hooks"]).get_output().stdout.clone()).unwrap();
    assert!(hooks.contains("plugin weather did not load: invalid settings"), "{hooks}");
}

#[test]
fn h08_help_lists_the_command_of_a_plugin_with_its_typed_options() {
    let folder = TempDir::new().unwrap();
    let stdout = |arguments: &[&str]| {
        let output = shout_command(&folder, arguments).assert().success().get_output().stdout.clone();
        String::from_utf8(output).unwrap()
    };
    let help = stdout(&["--help"]);
    let mut commands = help.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    assert!(commands.any(|line| line == "forecast Ask for the weather forecast of a city"), "{help}");
    assert!(commands.next().unwrap().starts_with("help "), "{help}");
    let forecast_help = stdout(&["forecast", "--help"]);
    for text in ["forecast [OPTIONS] [CITY]", "--days <DAYS>", "--json", "-w, --workspace <DIR>"] {
        assert!(forecast_help.contains(text), "{text}: {forecast_help}");
    }
    assert_eq!(stdout(&["help", "forecast"]), forecast_help);
    let hooks = stdout(&["hooks"]);
    let listing = hooks.lines().find(|line| line.starts_with("register_cli_commands")).unwrap();
    assert!(listing.ends_with("weather, builtin"), "{listing}");
}

#[test]
fn h08_command_of_a_plugin_gets_options_settings_workspace_and_a_host() {
    let (folder, workspace) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let shout = |arguments: &[&str]| {
        let mut command = shout_command(&folder, arguments);
        command.env("CAPSTAN_PLUGINS__WEATHER__CITY", "Rome");
        command
    };
    let path = workspace.path().to_str().unwrap();
    shout(&["-w", path, "forecast"]).assert().success().stdout("WEATHER IN ROME, 3 DAYS\n");
    shout(&["forecast", "Paris", "--days", "2", "-w", path]).assert().success().stdout("WEATHER IN PARIS, 2 DAYS\n");
    let json = shout(&["forecast", "--json"]).assert().success().get_output().stdout.clone();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json, serde_json::json!({"city": "Rome", "days": 3, "reply": "WEATHER IN ROME, 3 DAYS"}));
    let tapes = shout(&["tape", "list", "-w", path]).assert().success().get_output().stdout.clone();
    assert!(String::from_utf8(tapes).unwrap().contains("cli:forecast"), "the turn was in that workspace");
}

#[test]
fn h08_wrong_options_of_a_plugin_command_are_usage_errors() {
    let folder = TempDir::new().unwrap();
    let stderr = |arguments: &[&str], code: i32| {
        let output = shout_command(&folder, arguments).assert().code(code).get_output().stderr.clone();
        String::from_utf8(output).unwrap()
    };
    let unknown = stderr(&["forecast", "--loud"], 2);
    assert!(unknown.contains("error[usage]: unexpected argument '--loud'"), "{unknown}");
    assert!(unknown.contains("hint: run `capstan forecast --help` for usage"), "{unknown}");
    assert!(stderr(&["forecast", "--days", "0"], 2).contains("0 is not in 1.."));
    let failed = stderr(&["forecast"], 1);
    assert!(failed.contains("error[plugin-command-failed]: no city"), "{failed}");
}

#[test]
fn h08_h09_help_works_if_a_plugin_or_the_configuration_does_not_load() {
    let folder = TempDir::new().unwrap();
    let mut shout = shout_command(&folder, &["--help"]);
    let help = shout.env("CAPSTAN_PLUGINS__WEATHER__DAYS", "0").assert().success().get_output().clone();
    let (stdout, stderr) = (String::from_utf8(help.stdout).unwrap(), String::from_utf8(help.stderr).unwrap());
    assert!(stdout.contains("  run ") && !stdout.contains("forecast"), "{stdout}");
    assert!(stderr.contains("weather") && stderr.contains("plugins.weather.days"), "{stderr}");

    std::fs::create_dir(folder.path().join("home")).unwrap();
    std::fs::write(folder.path().join("home/config.toml"), "max_steps = 0").unwrap();
    let help = shout_command(&folder, &["--help"]).assert().success().get_output().clone();
    let (stdout, stderr) = (String::from_utf8(help.stdout).unwrap(), String::from_utf8(help.stderr).unwrap());
    assert!(stdout.contains("  run "), "{stdout}");
    assert!(stderr.contains("commands of plugins are not listed") && stderr.contains("max_steps"), "{stderr}");
    shout_command(&folder, &["forecast"]).assert().code(3);
}

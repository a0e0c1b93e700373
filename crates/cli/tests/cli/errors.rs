//! Errors as users see them: a stable code, a message and a hint.

use std::fmt::Write as _;
use std::net::TcpListener;

use crate::support::{BinaryOutput, CliFixture, bub_sample_path};
use capstan_testing::{ScriptedModel, ScriptedReply};
use rusqlite::Connection;

/// Table of errors for a snapshot.
#[derive(Default)]
struct ErrorTable(String);

impl ErrorTable {
    /// Runs the binary, which must fail with this code and exit code without output, and adds its error.
    #[track_caller]
    fn add_refused(&mut self, fixture: &CliFixture, title: &str, arguments: &[&str], (code, exit): (&str, i32)) {
        let output = fixture.capstan(arguments).refused(code, exit);
        self.add(fixture, title, arguments, &output);
    }

    fn add(&mut self, fixture: &CliFixture, title: &str, arguments: &[&str], output: &BinaryOutput) {
        let words: Vec<String> = arguments.iter().map(|word| quote_argument(word)).collect();
        let root = fixture.root();
        let text = format!("# {title}\n$ capstan {}\n{}", words.join(" "), output.stderr);
        let text = text.replace(root.to_str().expect("a plain path"), "[ROOT]");
        let exit = output.code.expect("an exit code");
        writeln!(self.0, "{}exit code: {exit}\n", mask_ports(&text)).expect("writing to a string succeeds");
    }
}

/// An argument as typed in a shell, shortened.
fn quote_argument(word: &str) -> String {
    let cut: String = word.chars().take(60).collect();
    let cut = if cut == word { cut } else { cut + "…" };
    if cut.is_empty() || cut.contains([' ', '\'']) { format!("\"{cut}\"") } else { cut }
}

/// Masks the ports of loopback addresses, which differ between runs.
fn mask_ports(text: &str) -> String {
    let mut parts = text.split("127.0.0.1:");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown += "127.0.0.1:[PORT]";
        shown += part.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    shown
}

fn fixture_with_database(bytes: &[u8]) -> CliFixture {
    let fixture = CliFixture::new().config("");
    std::fs::write(fixture.database(), bytes).unwrap();
    fixture
}

/// A loopback address without a listener.
fn unused_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/v1", listener.local_addr().unwrap())
}

#[test]
fn usage_errors() {
    let mut table = ErrorTable::default();
    let fixture = CliFixture::new();
    let usage = ("usage", 2);
    table.add_refused(&fixture, "an unknown flag", &["run", "hello", "--loud"], usage);
    table.add_refused(&fixture, "no message", &["run"], usage);
    table.add_refused(&fixture, "an unknown command", &["rnu", "hello"], usage);
    table.add_refused(&fixture, "flags that do not go together", &CONFLICTING_ARGUMENTS, usage);
    let sample = bub_sample_path();
    let date = ["tape", "show", sample.to_str().unwrap(), "--from", "yesterday"];
    let output = fixture.capstan(&date).refused("usage", 2);
    table.add(&fixture, "a date that is none", &["tape", "show", "sample.jsonl", "--from", "yesterday"], &output);
    let missing = fixture.path("missing");
    let run_there = |folder| ["run", "hello", "--workspace", folder];
    table.add_refused(&fixture, "a workspace that is not there", &run_there(&missing), ("workspace-missing", 2));
    let file = fixture.file("file", "");
    table.add_refused(&fixture, "a workspace that is a file", &run_there(&file), ("workspace-missing", 2));
    table.add_refused(&fixture, "an empty message", &["run", " \n"], ("input-invalid", 2));
    let output = fixture.capstan_with_input(&["run", "-"], b"").refused("input-invalid", 2);
    table.add(&fixture, "an empty standard input", &["run", "-"], &output);
    let output = fixture.capstan_with_input(&["run", "-"], b"caf\xe9").refused("input-invalid", 2);
    table.add(&fixture, "a standard input that is not UTF-8", &["run", "-"], &output);
    assert!(!fixture.home().exists(), "these commands write nothing");

    let without_channels = CliFixture::new().set("CAPSTAN_ENABLED_CHANNELS", "!stdio");
    table.add_refused(&without_channels, "no channel to listen on", &["serve"], ("channel-missing", 2));
    let terminal = ["serve", "--channel", "cli"];
    table.add_refused(&fixture, "a channel that has nothing to listen to", &terminal, ("channel-missing", 2));
    let unknown = ["serve", "--channel", "stdoi"];
    table.add_refused(&fixture, "a channel that no plugin provides", &unknown, ("channel-unknown", 2));
    assert!(!fixture.home().exists(), "neither do these");

    let unknown_channel = ["run", "hello", "--channel", "telegraph"];
    table.add_refused(&fixture, "an unknown channel", &unknown_channel, ("channel-unknown", 2));
    let elsewhere = ["run", "hello", "--channel", "stdio"];
    table.add_refused(&fixture, "a channel that is answered elsewhere", &elsewhere, ("channel-elsewhere", 2));
    let fixture = fixture.set("CAPSTAN_MAX_MESSAGE_BYTES", "64");
    let (long, large) = ("x".repeat(65), ("message-too-large", 2));
    table.add_refused(&fixture, "a message that is too large", &["run", &long], large);
    let output = fixture.capstan_with_input(&["run", "-"], long.as_bytes()).refused("message-too-large", 2);
    table.add(&fixture, "a standard input that is too large", &["run", "-"], &output);
    insta::assert_snapshot!(table.0);
}

const CONFLICTING_ARGUMENTS: [&str; 6] = ["tape", "show", "x", "--after-last-anchor", "--after-anchor", "a"];

#[test]
fn configuration_errors() {
    let mut table = ErrorTable::default();
    let run = ["run", "hello"];
    let invalid = ("config-invalid", 3);
    table.add_refused(&CliFixture::new().config("model = \n"), "a file that is not TOML", &run, invalid);
    table.add_refused(&CliFixture::new().config("modle = 'demo:'\n"), "a key that does not exist", &run, invalid);
    table.add_refused(&CliFixture::new().config("max_steps = 'many'\n"), "a value of the wrong kind", &run, invalid);
    table.add_refused(&CliFixture::new().config("model = ['a']\n"), "a list for a text", &run, invalid);
    let variable = CliFixture::new().set("CAPSTAN_MODEL", "gpt");
    table.add_refused(&variable, "a model without a provider", &run, invalid);
    let store = CliFixture::new().set("CAPSTAN_TAPE_STORE", "paper");
    table.add_refused(&store, "a tape store that does not exist", &["config", "show"], invalid);
    let channels = |text: &str| CliFixture::new().config(text);
    let misspelt = channels("[channels.stdio]\nadmision = 'steer'\n");
    table.add_refused(&misspelt, "a key of a channel that does not exist", &run, invalid);
    let mode = channels("[channels.stdio]\nadmission = 'stear'\n");
    table.add_refused(&mode, "a mode of admission that does not exist", &run, invalid);
    let wait = channels("[channels.stdio]\ndebounce_seconds = 2.5\nmax_wait_seconds = 1\n");
    table.add_refused(&wait, "a debounce that ends before it begins", &run, invalid);
    let redirected = CliFixture::new().set("CAPSTAN_API_KEY", "sk-mine");
    std::fs::write(redirected.workspace().join("capstan.toml"), "api_base = 'http://x.example/v1'\n").unwrap();
    let untrusted = ("config-untrusted", 3);
    table.add_refused(&redirected, "a workspace that chooses who works as the user", &run, untrusted);
    let on_a_file = CliFixture::new();
    on_a_file.file("home", "");
    table.add_refused(&on_a_file, "a home that is a file", &run, ("home-unusable", 3));
    insta::assert_snapshot!(table.0);
}

#[test]
fn unreadable_and_uncreatable_paths_are_reported_with_hints() {
    let fixture = CliFixture::new();
    let file = fixture.workspace().join("capstan.toml");
    std::fs::write(&file, "oops").unwrap();
    let output = fixture.capstan(&["run", "hello"]).refused("config-invalid", 3);
    assert!(output.stderr.contains("hint: the file belongs to the workspace"), "{output:?}");
    std::fs::remove_file(&file).unwrap();
    // A link to itself cannot be opened.
    let looped = CliFixture::new().config("");
    let own = looped.home().join("config.toml");
    std::fs::remove_file(&own).unwrap();
    std::os::unix::fs::symlink(&own, &own).unwrap();
    let output = looped.capstan(&["run", "hello"]).refused("config-invalid", 3);
    assert!(output.stderr.contains("hint: give this user read access"), "{output:?}");
    // No directory can be created there.
    fixture.set("CAPSTAN_HOME", "/proc/nope").capstan(&["run", "hello"]).refused("home-unusable", 3);
}

#[test]
fn store_errors() {
    let mut table = ErrorTable::default();
    let run = ["run", "hello"];
    let corrupt = ("store-corrupt", 4);
    let garbage = fixture_with_database("this is no database, and never was one. ".repeat(100).as_bytes());
    table.add_refused(&garbage, "a database of garbage", &run, corrupt);
    table.add_refused(&garbage, "the same, asked for its tapes", &["tape", "list"], corrupt);
    let other = CliFixture::new().config("");
    Connection::open(other.database()).unwrap().execute_batch("CREATE TABLE bookmarks (url TEXT);").unwrap();
    table.add_refused(&other, "a database of another program", &run, corrupt);
    let newer = CliFixture::new();
    newer.capstan(&run).data();
    Connection::open(newer.database()).unwrap().pragma_update(None, "user_version", 99).unwrap();
    table.add_refused(&newer, "a database of a newer version", &run, ("store-too-new", 4));
    insta::assert_snapshot!(table.0);
}

#[test]
fn tape_errors() {
    let mut table = ErrorTable::default();
    let fixture = CliFixture::new();
    let sample = bub_sample_path();
    let lines = crate::support::bub_sample_lines();
    let path = fixture.file("sample.jsonl", std::fs::read(&sample).unwrap());
    table.add_refused(&fixture, "no such tape", &["tape", "show", "missing"], ("tape-unknown", 2));
    let missing = fixture.path("missing.jsonl");
    table.add_refused(&fixture, "no such file", &["tape", "show", &missing], ("tape-file-unreadable", 2));
    let import = ["tape", "import", &path, "--name", "../x"];
    table.add_refused(&fixture, "a name that leaves its folder", &import, ("tape-name-invalid", 2));
    fixture.capstan(&["tape", "import", &path]).data();
    table.add_refused(&fixture, "a tape that is there already", &["tape", "import", &path], ("tape-exists", 2));
    let swapped = fixture.file("swapped.jsonl", format!("{}\n{}\n", lines[1], lines[0]));
    table.add_refused(&fixture, "ids out of order", &["tape", "import", &swapped], ("tape-out-of-order", 2));
    let late = fixture.file("late.jsonl", lines[0].replacen(": 1,", ": 9223372036854775806,", 1) + "\n");
    table.add_refused(
        &fixture,
        "ids that leave none for new entries",
        &["tape", "import", &late],
        ("tape-id-too-great", 2),
    );
    let broken = fixture.file("broken.jsonl", format!("{}\nnot JSON\n{}\n", lines[0], lines[1]));
    table.add_refused(&fixture, "a damaged line", &["tape", "import", &broken], ("tape-damaged", 2));
    let show = ["tape", "show", "sample", "--generation", "2"];
    table.add_refused(&fixture, "a generation there never was", &show, ("usage", 2));
    table.add_refused(&fixture, "a tape that is no fork", &["tape", "merge", "sample"], ("usage", 2));
    let fork = ["tape", "fork", "sample", "--as", "f", "--at", "9999"];
    table.add_refused(&fixture, "an entry that is not there", &fork, ("usage", 2));
    table.add_refused(&fixture, "no run yet", &["tape", "context"], ("run-unknown", 2));
    table.add_refused(&fixture, "no such run", &["tape", "context", "run-1"], ("run-unknown", 2));
    insta::assert_snapshot!(table.0);
}

#[test]
fn model_errors() {
    let mut table = ErrorTable::default();
    let run = ["run", "hello"];
    let unreachable = CliFixture::new().set("CAPSTAN_MODEL", "openai:x").set("CAPSTAN_API_KEY", "sk-x");
    let unreachable = unreachable.set("CAPSTAN_API_BASE", &unused_address());
    table.add_refused(&unreachable, "no server answers", &run, ("model-unreachable", 1));
    let unknown = CliFixture::new().set("CAPSTAN_MODEL", "missing:x");
    table.add_refused(&unknown, "an unknown provider", &run, ("model-unknown", 1));
    let message = |text: &str| format!("{{\"error\": {{\"message\": \"{text}\"}}}}");
    let server = ScriptedModel::start_blocking(vec![
        ScriptedReply::status(401, message("Incorrect API key provided")),
        ScriptedReply::status(404, message("The model does not exist")),
        ScriptedReply::status(429, message("Slow down")),
        ScriptedReply::status(400, message("This model's maximum context length is 8192 tokens")),
        // Retried once, with a new context.
        ScriptedReply::status(400, message("This model's maximum context length is 8192 tokens")),
        ScriptedReply::status(400, message("Unsupported parameter")),
        ScriptedReply::invalid_json(),
        ScriptedReply::status(301, "<html>moved</html>")
            .with_header("location", "https://u:pw@new.example/v1/chat/completions?token=sk-1"),
        ScriptedReply::raw("<!doctype html><title>Sign in</title>")
            .with_header("content-type", "text/html; charset=utf-8"),
        ScriptedReply::disconnect_after(""),
        ScriptedReply::disconnect_after("half an answer"),
    ]);
    let fixture = CliFixture::with_model(&server).set("CAPSTAN_MODEL_RETRIES", "0");
    table.add_refused(&fixture, "a key that is not accepted", &run, ("model-unauthorized", 1));
    table.add_refused(&fixture, "an unknown model", &run, ("model-unknown", 1));
    table.add_refused(&fixture, "too many requests", &run, ("model-rate-limited", 1));
    table.add_refused(&fixture, "too much context", &run, ("model-context-overflow", 1));
    table.add_refused(&fixture, "a request that is refused", &run, ("model-rejected", 1));
    table.add_refused(&fixture, "an answer that is none", &run, ("model-broken", 1));
    table.add_refused(&fixture, "an endpoint that is elsewhere", &run, ("model-unreachable", 1));
    table.add_refused(&fixture, "a page", &run, ("model-unreachable", 1));
    table.add_refused(&fixture, "a connection that is closed at once", &run, ("model-unreachable", 1));
    let output = fixture.capstan(&run).failed("model-broken", 1);
    table.add(&fixture, "an answer that is cut off, as far as it came on the standard output", &run, &output);
    insta::assert_snapshot!(table.0);
}

#[test]
fn operator_errors() {
    let mut table = ErrorTable::default();
    let fixture = CliFixture::new();
    let backup = fixture.path("b.db");
    let copy = ["store", "backup", &backup];
    table.add_refused(&fixture, "a backup of nothing", &copy, ("store-empty", 2));
    fixture.capstan(&["run", "hello"]).data();
    fixture.capstan(&copy).data();
    table.add_refused(&fixture, "a backup that is there", &copy, ("backup-exists", 2));
    let own = fixture.database().display().to_string();
    table.add_refused(&fixture, "a backup in place of the store", &["store", "backup", &own, "--force"], ("usage", 2));
    table.add_refused(&fixture, "an unknown run", &["runs", "show", "run-x"], ("run-unknown", 2));
    table.add_refused(&fixture, "a status that is none", &["runs", "list", "--status", "lost"], ("usage", 2));
    let damage = "DELETE FROM outcomes; UPDATE blobs SET bytes = X'00'";
    Connection::open(fixture.database()).unwrap().execute_batch(damage).unwrap();
    let output = fixture.capstan(&["doctor"]).failed("problems-found", 1);
    table.add(&fixture, "a home in which not all is well", &["doctor"], &output);
    insta::assert_snapshot!(table.0);
}

#[test]
fn command_errors() {
    let mut table = ErrorTable::default();
    let calls = || ScriptedReply::tool_calls([("call_1", "bash", serde_json::json!({"cmd": "true"}))]);
    let server = ScriptedModel::start_blocking(vec![calls()]);
    let fixture = CliFixture::with_model(&server).set("CAPSTAN_MAX_STEPS", "1");
    table.add_refused(&fixture, "quotes that do not match", &["run", ",fs.read 'x"], ("command-invalid", 1));
    table.add_refused(&fixture, "more steps than allowed", &["run", "hello"], ("max-steps", 1));
    insta::assert_snapshot!(table.0);
}

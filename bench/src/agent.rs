//! Agent on a model without latency: the cost of everything but the model.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use capstan_testing::{ReplyBarrier, ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

use crate::cold_start::{capstan_binary, capstan_command, find_python, python_command, time_command};
use crate::timing_sample::{TimingSample, print_ratio, print_row};
use crate::{BenchError, BenchResult};

const AGENT_WARM_UP_ROUNDS: usize = 5;
const AGENT_ROUNDS: usize = 60;
/// Number of chunks of a long reply.
const LONG_REPLY_CHUNKS: usize = 5000;
const LONG_REPLY_ROUNDS: usize = 10;

/// Returns the reply to the newest message.
fn scripted_reply(request: &Value) -> ScriptedReply {
    let newest = request["messages"].as_array().and_then(|messages| messages.last());
    let is_from_user = newest.is_some_and(|message| message["role"] == "user");
    let text = newest.and_then(|message| message["content"].as_str()).filter(|_| is_from_user).unwrap_or_default();
    let call = |name, arguments| ScriptedReply::tool_calls([("call", name, arguments)]);
    match text.lines().next_back() {
        Some("long") => ScriptedReply::text("word ".repeat(LONG_REPLY_CHUNKS)),
        Some("look") => call("fs_read", json!({"path": "notes.txt"})),
        Some("shell") => call("bash", json!({"cmd": "true"})),
        _ => ScriptedReply::text("hello"),
    }
}

fn with_model_env(mut command: Command, base_url: &str) -> Command {
    command.env("CAPSTAN_MODEL", "openai:scripted").env("CAPSTAN_API_KEY", "sk-0123456789abcdef");
    command.env("CAPSTAN_API_BASE", base_url);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// Measures the time of a process to its first byte and to its exit.
fn time_to_first_byte(command: &mut Command) -> Result<(Duration, Duration), BenchError> {
    let started_at = Instant::now();
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut output = process.stdout.take().ok_or("no output")?;
    let mut byte = [0];
    output.read_exact(&mut byte)?;
    let first = started_at.elapsed();
    let mut rest = Vec::new();
    output.read_to_end(&mut rest)?;
    let status = process.wait()?;
    let total = started_at.elapsed();
    if status.success() { Ok((first, total)) } else { Err(format!("{command:?} exited with {status}").into()) }
}

pub(crate) fn run() -> BenchResult {
    let binary = capstan_binary()?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("notes.txt"), "some notes\n")?;
    let server = ScriptedModel::start_blocking_for_benchmark(|request, _| scripted_reply(request));
    println!("agent: {} on a model without latency, homes in {}", binary.display(), folder.path().display());
    bench_start(&binary, folder.path(), &server)?;
    bench_chunks(&binary, folder.path())?;
    bench_turns(&binary, folder.path(), &server)?;
    let violations = server.violations();
    if let Some(violation) = violations.first() {
        return Err(format!("{} requests were invalid: {violation}", violations.len()).into());
    }
    print_peak_memory(&binary, folder.path())
}

/// Measures the time from the start of `capstan run` to the first token.
fn bench_start(binary: &Path, folder: &Path, server: &ScriptedModel) -> BenchResult {
    let interpreter = find_python()?;
    let mut samples: [TimingSample; 4] = Default::default();
    for number in 0..AGENT_WARM_UP_ROUNDS + AGENT_ROUNDS {
        let session = format!("s{number}");
        let run = ["run", "hello", "--session-id", &session];
        let python_time = time_command(&mut python_command(&interpreter, &["-c", "pass"]))?;
        let (first, total) =
            time_to_first_byte(&mut with_model_env(capstan_command(binary, folder, &run), &server.base_url()))?;
        let (demo, _) = time_to_first_byte(&mut capstan_command(binary, folder, &run))?;
        if number >= AGENT_WARM_UP_ROUNDS {
            samples.iter_mut().zip([python_time, first, total, demo]).for_each(|(sample, time)| sample.push(time));
        }
    }
    let [python, first, total, demo] = &samples;
    print_row("python3 -c pass", python);
    print_row("capstan run, to its first token", first);
    print_row("capstan run, to its end", total);
    print_row("the same on demo:, first token", demo);
    print_ratio("first token, to python3", first.ratio_to(python), Some(2.0));
    Ok(())
}

/// Measures the cost of each streamed chunk beyond reading it from the wire, with each chunk sent separately.
fn bench_chunks(binary: &Path, folder: &Path) -> BenchResult {
    let server = &ScriptedModel::start_blocking_with(|request, _| scripted_reply(request));
    let mut samples: [TimingSample; 4] = Default::default();
    for number in 0..=LONG_REPLY_ROUNDS {
        let session = format!("c{number}");
        let run = |text: &str| {
            let arguments = ["run", text, "--session-id", &session];
            time_to_first_byte(&mut with_model_env(capstan_command(binary, folder, &arguments), &server.base_url()))
                .map(|(_, total)| total)
        };
        let times =
            [time_raw_request(server, "hello")?, time_raw_request(server, "long")?, run("hello")?, run("long")?];
        if number > 0 {
            samples.iter_mut().zip(times).for_each(|(sample, time)| sample.push(time));
        }
    }
    let [raw_short, raw_long, short, long] = &samples;
    print_row(&format!("reading {LONG_REPLY_CHUNKS} chunks"), raw_long);
    print_row(&format!("capstan run with {LONG_REPLY_CHUNKS} chunks"), long);
    let per_chunk = |short: &TimingSample, long: &TimingSample| {
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let chunks = LONG_REPLY_CHUNKS as f64;
        long.median().saturating_sub(short.median()).as_secs_f64() * 1e6 / chunks
    };
    let (bare, with_capstan) = (per_chunk(raw_short, raw_long), per_chunk(short, long));
    println!(
        "  {:34} {:>10.2} µs  (reading alone {bare:.2}, with capstan {with_capstan:.2})",
        "added per chunk",
        with_capstan - bare
    );
    Ok(())
}

/// Measures the same request over a plain socket.
fn time_raw_request(server: &ScriptedModel, text: &str) -> Result<Duration, BenchError> {
    let address = server.base_url().trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": text}]}).to_string();
    let started_at = Instant::now();
    let mut stream = TcpStream::connect(&address)?;
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let elapsed = started_at.elapsed();
    if reply.contains("[DONE]") { Ok(elapsed) } else { Err(format!("incomplete reply: {reply}").into()) }
}

/// Measures turns of a running host with one tool call, compared with the start of a shell.
fn bench_turns(binary: &Path, folder: &Path, server: &ScriptedModel) -> BenchResult {
    let serve = capstan_command(binary, folder, &["serve", "--channel", "stdio"]);
    let mut host = StdioHost::start(with_model_env(serve, &server.base_url()))?;
    let mut samples: [TimingSample; 4] = Default::default();
    for number in 0..AGENT_WARM_UP_ROUNDS + AGENT_ROUNDS {
        let times = [
            time_command(Command::new("sh").args(["-c", "true"]))?,
            host.time_turn(number, "hello")?,
            host.time_turn(number, "look")?,
            host.time_turn(number, "shell")?,
        ];
        if number >= AGENT_WARM_UP_ROUNDS {
            samples.iter_mut().zip(times).for_each(|(sample, time)| sample.push(time));
        }
    }
    let [shell, plain, look, with_shell] = &samples;
    print_row("sh -c true", shell);
    print_row("a turn without a tool", plain);
    print_row("a turn that reads a file", look);
    print_row("a turn that runs true in bash", with_shell);
    print_ratio("with fs.read, to sh -c true", look.ratio_to(shell), Some(3.0));
    print_ratio("with bash, to sh -c true", with_shell.ratio_to(shell), None);
    Ok(())
}

/// Prints the peak memory of a run while its reply arrives.
fn print_peak_memory(binary: &Path, folder: &Path) -> BenchResult {
    let barrier = ReplyBarrier::new();
    let reply_barrier = barrier.clone();
    let server =
        ScriptedModel::start_blocking_with(move |_, _| ScriptedReply::text("hello there").with_barrier(&reply_barrier));
    let mut process =
        with_model_env(capstan_command(binary, folder, &["run", "hello", "--session-id", "peak"]), &server.base_url());
    let mut process = process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    while !barrier.is_reached() {
        std::thread::yield_now();
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id()))?;
    barrier.release();
    process.wait()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    println!("  {:34} {}", "peak memory of capstan run", line.trim_start_matches("VmHWM:").trim());
    Ok(())
}

/// Host that serves the stdio channel.
struct StdioHost {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl StdioHost {
    fn start(mut command: Command) -> Result<Self, BenchError> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(process.stdout.take().ok_or("no output")?);
        let mut host = Self { process, output };
        host.read_line()?;
        Ok(host)
    }

    fn read_line(&mut self) -> Result<String, BenchError> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() { Err("the host has ended".into()) } else { Ok(line) }
    }

    /// Measures a turn in a new session.
    fn time_turn(&mut self, number: usize, text: &str) -> Result<Duration, BenchError> {
        let line = json!({"id": "t", "session": format!("{text}-{number}"), "text": text});
        let started_at = Instant::now();
        writeln!(self.process.stdin.as_mut().ok_or("no input")?, "{line}")?;
        let reply = self.read_line()?;
        let elapsed = started_at.elapsed();
        if reply.contains("\"replied\"") { Ok(elapsed) } else { Err(format!("expected a reply, got {reply}").into()) }
    }
}

impl Drop for StdioHost {
    fn drop(&mut self) {
        // Closing its input ends the host.
        drop(self.process.stdin.take());
        let _ended = self.process.wait();
    }
}

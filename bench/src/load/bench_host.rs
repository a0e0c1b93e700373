//! Host in a child process, driven over its standard input and output.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::BenchError;
use crate::timing_sample::TimingSample;

/// Subcommand that runs this program as a child: a distribution of Capstan whose model stage is an echo.
pub(crate) const SERVE_COMMAND: &str = "serve";
/// Environment variable that makes the agent reply in place of the echo.
pub(crate) const WITH_AGENT_VARIABLE: &str = "BENCH_WITH_AGENT";

/// Host that serves the stdio channel.
pub(crate) struct BenchHost {
    process: tokio::process::Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    sent_count: u64,
    _home: Option<TempDir>,
}

impl BenchHost {
    pub(crate) async fn start() -> Result<Self, BenchError> {
        let home = tempfile::tempdir()?;
        let child = Self::start_in(home.path(), &[]).await?;
        Ok(Self { _home: Some(home), ..child })
    }

    /// Starts a host in a folder that outlives it, with additional environment variables.
    pub(crate) async fn start_in(folder: &Path, environment: &[(&str, String)]) -> Result<Self, BenchError> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([SERVE_COMMAND, "--channel", "stdio", "--workspace"])
            .arg(folder)
            .env("CAPSTAN_HOME", folder.join("home"))
            .env("CAPSTAN_MODEL", "demo:")
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = process.stdin.take().ok_or("no input")?;
        let output = process.stdout.take().ok_or("no output")?;
        let mut child = Self { process, input, output: BufReader::new(output).lines(), sent_count: 0, _home: None };
        let ready = child.output.next_line().await?;
        if ready.as_deref() != Some(r#"{"ready":true}"#) {
            return Err(format!("expected ready, got {ready:?}").into());
        }
        Ok(child)
    }

    /// Runs sessions for a while, each sending a message as soon as it has a reply. Returns turns per second.
    pub(crate) async fn run_for(
        &mut self,
        sessions: usize,
        duration: Duration,
        times: &mut TimingSample,
    ) -> Result<f64, BenchError> {
        let started_at = Instant::now();
        let count = self.run_sessions(sessions, |_| started_at.elapsed() < duration, |time| times.push(time)).await?;
        #[expect(clippy::cast_precision_loss, reason = "a count of a few seconds")]
        Ok(count as f64 / started_at.elapsed().as_secs_f64())
    }

    /// Runs sessions for a number of turns.
    pub(crate) async fn run_turns(&mut self, sessions: usize, turns: usize) -> Result<(), BenchError> {
        self.run_sessions(sessions, |sent| sent < turns, |_| {}).await.map(drop)
    }

    /// Runs one turn in each session, all concurrently, and reports the time of each.
    pub(crate) async fn run_one_turn_each(
        &mut self,
        sessions: usize,
        on_reply: impl FnMut(Duration),
    ) -> Result<(), BenchError> {
        self.run_sessions(sessions, |_| false, on_reply).await.map(drop)
    }

    /// Runs turns in sessions round-robin, at most `max_concurrent` at a time.
    pub(crate) async fn run_turns_bounded(
        &mut self,
        sessions: usize,
        max_concurrent: usize,
        turns: usize,
    ) -> Result<(), BenchError> {
        let mut pending = HashMap::new();
        for turn in 0..turns {
            if pending.len() >= max_concurrent {
                self.read_reply(&mut pending).await?;
            }
            self.send_message(turn % sessions, &mut pending).await?;
        }
        while !pending.is_empty() {
            self.read_reply(&mut pending).await?;
        }
        Ok(())
    }

    async fn run_sessions(
        &mut self,
        sessions: usize,
        should_continue: impl Fn(usize) -> bool,
        mut on_reply: impl FnMut(Duration),
    ) -> Result<usize, BenchError> {
        let mut pending: HashMap<u64, (usize, Instant)> = HashMap::new();
        let mut sent = 0;
        for session in 0..sessions {
            self.send_message(session, &mut pending).await?;
            sent += 1;
        }
        let mut replies = 0;
        while !pending.is_empty() {
            let (session, started_at) = self.read_reply(&mut pending).await?;
            on_reply(started_at.elapsed());
            replies += 1;
            if should_continue(sent) {
                self.send_message(session, &mut pending).await?;
                sent += 1;
            }
        }
        Ok(replies)
    }

    /// Reads the next reply; returns its session and the time of its message.
    async fn read_reply(
        &mut self,
        pending: &mut HashMap<u64, (usize, Instant)>,
    ) -> Result<(usize, Instant), BenchError> {
        let line = self.output.next_line().await?.ok_or("the host has ended")?;
        let reply: Value = serde_json::from_str(&line)?;
        if reply["outcome"] != "replied" {
            return Err(format!("expected a reply, got {line}").into());
        }
        let id = reply["id"].as_u64().ok_or("a reply without an id")?;
        Ok(pending.remove(&id).ok_or("a reply to an unknown id")?)
    }

    async fn send_message(
        &mut self,
        session: usize,
        pending: &mut HashMap<u64, (usize, Instant)>,
    ) -> Result<(), BenchError> {
        self.sent_count += 1;
        let line = json!({ "id": self.sent_count, "session": format!("s{session}"), "text": "hello" });
        pending.insert(self.sent_count, (session, Instant::now()));
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(())
    }

    /// Returns the host's memory in kilobytes.
    pub(crate) fn memory_kb(&self) -> Result<u64, BenchError> {
        self.read_status("VmRSS:")
    }

    /// Returns the host's peak memory in kilobytes.
    pub(crate) fn peak_memory_kb(&self) -> Result<u64, BenchError> {
        self.read_status("VmHWM:")
    }

    /// Returns the number of the host's threads.
    pub(crate) fn thread_count(&self) -> Result<u64, BenchError> {
        self.read_status("Threads:")
    }

    fn read_status(&self, name: &str) -> Result<u64, BenchError> {
        let id = self.process.id().ok_or("the host has ended")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let value = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line")?;
        Ok(value.trim().trim_end_matches("kB").trim().parse()?)
    }

    /// Closes the input and waits until the host has drained.
    pub(crate) async fn shut_down(self) -> Result<(), BenchError> {
        let Self { mut process, input, .. } = self;
        drop(input);
        let status = process.wait().await?;
        if status.success() { Ok(()) } else { Err(format!("the host exited with {status}").into()) }
    }
}

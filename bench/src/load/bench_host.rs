//! A host in a process of its own, talked to over its standard input and output.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::timing_sample::TimingSample;

/// What runs as a child: this program, as a distribution of Capstan whose model stage is an echo.
pub(crate) const SERVE_COMMAND: &str = "serve";
/// The variable that has the agent answer instead of the echo, when it is set.
pub(crate) const WITH_AGENT_VARIABLE: &str = "BENCH_WITH_AGENT";

type BenchHostError = Box<dyn std::error::Error>;

/// A host that serves the stdio channel.
pub(crate) struct BenchHost {
    process: tokio::process::Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    sent_count: u64,
    _home: Option<TempDir>,
}

impl BenchHost {
    pub(crate) async fn start() -> Result<Self, BenchHostError> {
        let home = tempfile::tempdir()?;
        let child = Self::start_in(home.path(), &[]).await?;
        Ok(Self { _home: Some(home), ..child })
    }

    /// A host in a folder that outlives it, with more in its environment.
    pub(crate) async fn start_in(folder: &Path, environment: &[(&str, String)]) -> Result<Self, BenchHostError> {
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
            return Err(format!("not ready but {ready:?}").into());
        }
        Ok(child)
    }

    /// Lets sessions talk for a while, each saying something as soon as it was answered. Gives turns a second.
    pub(crate) async fn run_for(
        &mut self,
        sessions: usize,
        lasts: Duration,
        times: &mut TimingSample,
    ) -> Result<f64, BenchHostError> {
        let begun = Instant::now();
        let count = self.run_sessions(sessions, |_| begun.elapsed() < lasts, |time| times.push(time)).await?;
        #[expect(clippy::cast_precision_loss, reason = "a count of a few seconds")]
        Ok(count as f64 / begun.elapsed().as_secs_f64())
    }

    /// Lets sessions talk for so many turns.
    pub(crate) async fn run_turns(&mut self, sessions: usize, turns: usize) -> Result<(), BenchHostError> {
        self.run_sessions(sessions, |said| said < turns, |_| {}).await.map(drop)
    }

    /// Lets each of so many sessions say one thing, all at the same time. Tells how long each took.
    pub(crate) async fn run_one_turn_each(
        &mut self,
        sessions: usize,
        took: impl FnMut(Duration),
    ) -> Result<(), BenchHostError> {
        self.run_sessions(sessions, |_| false, took).await.map(drop)
    }

    /// Lets sessions have so many turns, a few of them at a time, each of them in its turn.
    pub(crate) async fn run_turns_bounded(
        &mut self,
        sessions: usize,
        at_once: usize,
        turns: usize,
    ) -> Result<(), BenchHostError> {
        let mut waiting = HashMap::new();
        for turn in 0..turns {
            if waiting.len() >= at_once {
                self.read_reply(&mut waiting).await?;
            }
            self.send_message(turn % sessions, &mut waiting).await?;
        }
        while !waiting.is_empty() {
            self.read_reply(&mut waiting).await?;
        }
        Ok(())
    }

    async fn run_sessions(
        &mut self,
        sessions: usize,
        goes_on: impl Fn(usize) -> bool,
        mut took: impl FnMut(Duration),
    ) -> Result<usize, BenchHostError> {
        let mut waiting: HashMap<u64, (usize, Instant)> = HashMap::new();
        let mut said = 0;
        for session in 0..sessions {
            self.send_message(session, &mut waiting).await?;
            said += 1;
        }
        let mut answered = 0;
        while !waiting.is_empty() {
            let (session, begun) = self.read_reply(&mut waiting).await?;
            took(begun.elapsed());
            answered += 1;
            if goes_on(said) {
                self.send_message(session, &mut waiting).await?;
                said += 1;
            }
        }
        Ok(answered)
    }

    /// The session that is answered next, and when it was asked.
    async fn read_reply(
        &mut self,
        waiting: &mut HashMap<u64, (usize, Instant)>,
    ) -> Result<(usize, Instant), BenchHostError> {
        let line = self.output.next_line().await?.ok_or("the host has ended")?;
        let answer: Value = serde_json::from_str(&line)?;
        if answer["outcome"] != "replied" {
            return Err(format!("not replied but {line}").into());
        }
        let id = answer["id"].as_u64().ok_or("an answer without its id")?;
        Ok(waiting.remove(&id).ok_or("an answer nobody waits for")?)
    }

    async fn send_message(
        &mut self,
        session: usize,
        waiting: &mut HashMap<u64, (usize, Instant)>,
    ) -> Result<(), BenchHostError> {
        self.sent_count += 1;
        let line = json!({ "id": self.sent_count, "session": format!("s{session}"), "text": "hello" });
        waiting.insert(self.sent_count, (session, Instant::now()));
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(())
    }

    /// How much memory the host has, in kilobytes.
    pub(crate) fn memory_kb(&self) -> Result<u64, BenchHostError> {
        self.read_status_kb("VmRSS:")
    }

    /// How much it had at most, in kilobytes.
    pub(crate) fn peak_memory_kb(&self) -> Result<u64, BenchHostError> {
        self.read_status_kb("VmHWM:")
    }

    fn read_status_kb(&self, name: &str) -> Result<u64, BenchHostError> {
        let id = self.process.id().ok_or("the host has ended")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let found = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line")?;
        Ok(found.trim().trim_end_matches("kB").trim().parse()?)
    }

    /// Ends the input and waits until the host has drained.
    pub(crate) async fn shut_down(self) -> Result<(), BenchHostError> {
        let Self { mut process, input, .. } = self;
        drop(input);
        let status = process.wait().await?;
        if status.success() { Ok(()) } else { Err(format!("the host ended with {status}").into()) }
    }
}

//! Benchmarks, run by hand: `cargo run --release -p capstan-bench -- NAME`. `bench/README.md` explains the figures.
//!
//! Each benchmark compares two or more subjects within one run, alternating between them, and prints medians and their
//! ratio. None of them runs in tests.

mod agent;
mod cold_start;
mod hooks;
mod load;
mod long_tape;
mod many_sessions;
mod search;
mod timing_sample;
mod turn;

use std::process::ExitCode;

/// Allocator of the program itself, so that everything is measured with it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Error of a benchmark.
type BenchError = Box<dyn std::error::Error>;
/// Result of a benchmark.
type BenchResult = Result<(), BenchError>;

const USAGE: &str = "usage: cargo run --release -p capstan-bench -- NAME
  long-tape    a turn on a tape of a million entries against one on a tape of a thousand
  hooks        first result of 1, 10 and 100 plugins
  load         durable commits and turns per second, with 1 to 512 sessions over the stdio channel
  memory       growth of memory over a hundred thousand turns
  bursts       memory in bursts of a thousand sessions, two hundred thousand turns, and afterwards
  many         a thousand concurrent runs on a model with a latency of one second; ten thousand idle sessions
  search       a search over a tape of a hundred thousand entries, by index and by scan
  turn         a complete turn without a model, in memory and on SQLite
  agent        the agent on a model without latency: first token, chunks, tool calls, memory (build as for cold-start)
  cold-start   `capstan run hello` against `python3 -c pass` (build it first: cargo build --release -p capstan)
  all          all benchmarks";

fn main() -> ExitCode {
    if cfg!(debug_assertions) {
        eprintln!("warning: not a release build; the figures are not meaningful");
    }
    let name = std::env::args().nth(1).unwrap_or_default();
    let outcome = match name.as_str() {
        "long-tape" => block_on_runtime(long_tape::run()),
        "hooks" => block_on_runtime(hooks::run()),
        "search" => block_on_runtime(search::run()),
        "turn" => block_on_runtime(turn::run()),
        "load" => block_on_runtime(load::run()),
        "memory" => block_on_runtime(load::run_memory()),
        "bursts" => block_on_runtime(load::run_bursts()),
        "many" => block_on_runtime(many_sessions::run()),
        load::SERVE_COMMAND if std::env::var_os(load::WITH_AGENT_VARIABLE).is_some() => {
            return capstan::Capstan::builder().build().main();
        }
        // Started by the benchmarks above: a distribution whose model stage is an echo.
        load::SERVE_COMMAND => return capstan::Capstan::builder().plugin(turn::EchoPlugin).build().main(),
        "agent" => agent::run(),
        "cold-start" => cold_start::run(),
        "all" => block_on_runtime(hooks::run())
            .and_then(|()| block_on_runtime(turn::run()))
            .and_then(|()| block_on_runtime(load::run()))
            .and_then(|()| block_on_runtime(load::run_memory()))
            .and_then(|()| block_on_runtime(load::run_bursts()))
            .and_then(|()| block_on_runtime(many_sessions::run()))
            .and_then(|()| block_on_runtime(search::run()))
            .and_then(|()| block_on_runtime(long_tape::run()))
            .and_then(|()| agent::run())
            .and_then(|()| cold_start::run()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a benchmark on the runtime configuration of the command line.
fn block_on_runtime(benchmark: impl Future<Output = BenchResult>) -> BenchResult {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(benchmark)
}

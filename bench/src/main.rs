//! Benchmarks, run by hand: `cargo run --release -p capstan-bench -- NAME`. `bench/README.md` says how to read them.
//!
//! Each compares two or more things within one run, in turns, and prints medians and their ratio. None is run in tests.

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

/// What the program itself has, for everything that is measured here.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What a benchmark ends with.
type BenchResult = Result<(), Box<dyn std::error::Error>>;

const USAGE: &str = "usage: cargo run --release -p capstan-bench -- NAME
  long-tape    a turn on a tape of a million entries against one on a tape of a thousand
  hooks        asking 1, 10 and 100 plugins until one answers
  load         durable commits and turns a second, with 1 to 512 sessions over the stdio channel
  memory       how memory grows over a hundred thousand turns
  many         a thousand runs at the same time on a model that takes a second; ten thousand sessions that are idle
  search       a search over a tape of a hundred thousand entries, by the index and by reading them
  turn         a whole turn without a model, in memory and on SQLite
  agent        the agent on a model without latency: first token, chunks, tool calls, memory (build as for cold-start)
  cold-start   `capstan run hello` against `python3 -c pass` (build it first: cargo build --release -p capstan)
  all          all of them";

fn main() -> ExitCode {
    if cfg!(debug_assertions) {
        eprintln!("warning: this is not a release build; the figures mean little");
    }
    let name = std::env::args().nth(1).unwrap_or_default();
    let outcome = match name.as_str() {
        "long-tape" => block_on_runtime(long_tape::run()),
        "hooks" => block_on_runtime(hooks::run()),
        "search" => block_on_runtime(search::run()),
        "turn" => block_on_runtime(turn::run()),
        "load" => block_on_runtime(load::run()),
        "memory" => block_on_runtime(load::run_memory()),
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

/// The runtime that the command line has.
fn block_on_runtime(benchmark: impl Future<Output = BenchResult>) -> BenchResult {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(benchmark)
}

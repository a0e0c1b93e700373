//! First result of several plugins.

use std::time::Instant;

use capstan::hooks::args::ResolveSessionArgs;
use capstan::hooks::points::ResolveSession;
use capstan::hooks::{BoxError, HookDeadlines, HookRegistrar, HookRuntime, Plugin, Registry};
use capstan::protocol::{Event, SessionId};

use crate::BenchResult;
use crate::timing_sample::{TimingSample, print_ratio, print_row};

/// Number of calls per sample: a single call is too short for the clock.
const CALLS_PER_SAMPLE: u32 = 1000;
const HOOK_ROUNDS: usize = 200;

/// Plugin that resolves the session, or declines.
struct ResolvingPlugin {
    name: String,
    resolves_session: bool,
}

impl Plugin for ResolvingPlugin {
    fn name(&self) -> &str {
        &self.name
    }

    fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
        let resolves_session = self.resolves_session;
        hooks.on(ResolveSession, move || async move { Ok(resolves_session.then(|| SessionId::new("s"))) });
        Ok(())
    }
}

/// Creates a runtime in which only the plugin called last, the one registered first, resolves the session.
fn hook_runtime(plugins: usize) -> HookRuntime {
    let mut registry = Registry::new();
    for number in 0..plugins {
        registry.register(&ResolvingPlugin { name: format!("plugin-{number}"), resolves_session: number == 0 });
    }
    HookRuntime::new(registry, HookDeadlines::default())
}

pub(crate) async fn run() -> BenchResult {
    println!(
        "hooks: first result of n plugins, only the one called last has a result ({CALLS_PER_SAMPLE} calls per sample)"
    );
    let counts = [1, 10, 100];
    let runtimes = counts.map(hook_runtime);
    let mut samples = counts.map(|_| TimingSample::default());
    let args = ResolveSessionArgs { message: Event::message("cli", "local", "hello").into() };
    for _ in 0..HOOK_ROUNDS {
        for (runtime, sample) in runtimes.iter().zip(&mut samples) {
            let started_at = Instant::now();
            for _ in 0..CALLS_PER_SAMPLE {
                let session = runtime.call_first::<ResolveSession>(&args).await?;
                std::hint::black_box(&session);
            }
            sample.push(started_at.elapsed() / CALLS_PER_SAMPLE);
        }
    }
    for (count, sample) in counts.iter().zip(&samples) {
        print_row(&format!("{count} plugins, one call"), sample);
    }
    print_ratio("10 plugins to 1", samples[1].ratio_to(&samples[0]), None);
    print_ratio("100 plugins to 1", samples[2].ratio_to(&samples[0]), None);
    Ok(())
}

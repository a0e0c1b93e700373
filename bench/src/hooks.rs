//! Asking plugins until one answers.

use std::time::Instant;

use capstan::hooks::args::ResolveSessionArgs;
use capstan::hooks::points::ResolveSession;
use capstan::hooks::{BoxError, Deadlines, HookRuntime, Plugin, Registrar, Registry};
use capstan::protocol::{Event, SessionId};

use crate::Outcome;
use crate::sample::{Sample, print_ratio, print_row};

/// How many calls one time covers: a single one is too short for the clock.
const CALLS: u32 = 1000;
const TIMES: usize = 200;

/// A plugin that answers, or says nothing.
struct Asked {
    name: String,
    answers: bool,
}

impl Plugin for Asked {
    fn name(&self) -> &str {
        &self.name
    }

    fn register(&self, hooks: &mut Registrar) -> Result<(), BoxError> {
        let answers = self.answers;
        hooks.on(ResolveSession, move || async move { Ok(answers.then(|| SessionId::new("s"))) });
        Ok(())
    }
}

/// Only the plugin that is asked last answers: the one registered first.
fn runtime(plugins: usize) -> HookRuntime {
    let mut registry = Registry::new();
    for number in 0..plugins {
        registry.register(&Asked { name: format!("plugin-{number}"), answers: number == 0 });
    }
    HookRuntime::new(registry, Deadlines::default())
}

pub(crate) async fn run() -> Outcome {
    println!("hooks: first result of n plugins, only the last one asked answers ({CALLS} calls a time)");
    let counts = [1, 10, 100];
    let runtimes = counts.map(runtime);
    let mut samples = counts.map(|_| Sample::default());
    let args = ResolveSessionArgs { message: Event::message("cli", "local", "hello").into() };
    for _ in 0..TIMES {
        for (runtime, sample) in runtimes.iter().zip(&mut samples) {
            let begun = Instant::now();
            for _ in 0..CALLS {
                let decided = runtime.first::<ResolveSession>(&args).await?;
                std::hint::black_box(&decided);
            }
            sample.push(begun.elapsed() / CALLS);
        }
    }
    for (count, sample) in counts.iter().zip(&samples) {
        print_row(&format!("{count} plugins, a call"), sample);
    }
    print_ratio("10 plugins to 1", samples[1].ratio_to(&samples[0]), None);
    print_ratio("100 plugins to 1", samples[2].ratio_to(&samples[0]), None);
    Ok(())
}

//! The crash matrix: a whole host is killed at every commit and at random moments, started again, and asked to keep
//! every promise.

mod delivery_checks;
mod guarantee_table;
mod invariants;
mod operator_commands;
mod platform;
mod script;
mod scripted_model;
mod snapshot;
mod state_checks;
mod trial;

use std::sync::Mutex;

use capstan_testing::ScriptedModel;
use guarantee_table::CrashTableRow;
use script::{TrialScript, TurnKind};
use trial::{CrashTrial, KillPoint, TrialReport};

/// How many hosts are tried at once.
const CONCURRENT_TRIALS: usize = 2;
/// How many hosts are killed at random moments, once or twice each.
const RANDOM_TRIALS: usize = 20;
/// How many commits of a recovery are tried.
const MAX_RECOVERY_COMMITS: usize = 3;

/// Does something with each of these, a few at a time; what comes of them is in the same order.
fn map_parallel<T: Sync, R: Send>(of: &[T], does: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = Mutex::new(0..of.len());
    let take = || next.lock().expect("no other panicked").next();
    let work = || std::iter::from_fn(take).map(|number| (number, does(&of[number]))).collect::<Vec<_>>();
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CONCURRENT_TRIALS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a trial does not panic")).collect()
    });
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Tries kinds of turns at once, and gives what came of it with everything that does not hold.
fn run_kinds(kinds: &[TurnKind], kills: &[KillPoint], model: &ScriptedModel) -> (Option<TrialReport>, Vec<String>) {
    run_script(&TrialScript::from_kinds(kinds), kills, model)
}

fn run_script(script: &TrialScript, kills: &[KillPoint], model: &ScriptedModel) -> (Option<TrialReport>, Vec<String>) {
    let report = CrashTrial::new(script, kills, &model.base_url()).run();
    let named = |problem: String| format!("{}, {kills:?}: {problem}", script.title);
    match report {
        Err(problem) => (None, vec![named(problem)]),
        Ok(report) => {
            let problems = invariants::find_problems(script, &report).into_iter().map(named).collect();
            (Some(report), problems)
        }
    }
}

fn assert_no_problems(problems: &[String], model: &ScriptedModel) {
    assert_eq!(model.violations(), Vec::<String>::new());
    assert!(problems.is_empty(), "{} promises are not kept:\n{}", problems.len(), problems.join("\n"));
}

/// A commit of a kind of turn.
struct CommitPoint {
    kind: usize,
    commit: String,
}

impl CommitPoint {
    /// What the commit holds.
    fn label(&self) -> &str {
        self.commit.split('#').next().unwrap_or_default()
    }
}

/// Every commit of every kind of turn, found by letting each happen.
fn commit_points(kinds: &[TurnKind], model: &ScriptedModel) -> Vec<CommitPoint> {
    let commits = map_parallel(kinds, |kind| {
        let (report, problems) = run_kinds(std::slice::from_ref(kind), &[], model);
        assert_no_problems(&problems, model);
        let report = report.expect("a trial without problems has a report");
        report.commits[0][report.commit_range.0..report.commit_range.1].to_vec()
    });
    let of_kind =
        |(kind, commits): (usize, Vec<String>)| commits.into_iter().map(move |commit| CommitPoint { kind, commit });
    commits.into_iter().enumerate().flat_map(of_kind).collect()
}

#[test]
fn x01_x02_x03_a09_g02_g06_g10_p13_a_host_killed_at_any_commit_keeps_every_promise() {
    let model = scripted_model::start();
    let kinds = script::turn_kinds();
    let points = commit_points(&kinds, &model);
    let results = map_parallel(&points, |point| {
        ["before", "after"].map(|moment| {
            let kind = &kinds[point.kind];
            let kills = [KillPoint::AtCommit(format!("{} {moment}", point.commit))];
            let (report, mut problems) = run_kinds(std::slice::from_ref(kind), &kills, &model);
            if report.as_ref().is_some_and(|report| report.deaths.is_empty()) {
                problems.push(format!("{}, {kills:?}: it was not killed", kind.title));
            }
            (
                report
                    .map(|report| guarantee_table::describe_restart(kind, &point.commit, &report))
                    .unwrap_or_default(),
                problems,
            )
        })
    });
    let mut table = String::new();
    let mut problems = Vec::new();
    let mut rows: Vec<Vec<CrashTableRow>> = kinds.iter().map(|_| Vec::new()).collect();
    for (point, [before, after]) in points.iter().zip(results) {
        problems.extend(before.1.into_iter().chain(after.1));
        rows[point.kind].push(CrashTableRow { commit: point.commit.clone(), before: before.0, after: after.0 });
    }
    for (kind, rows) in kinds.iter().zip(&rows) {
        table.push_str(&guarantee_table::render_section(kind, rows));
    }
    let (section, of_operator) = operator_commands::render_section(&model);
    table.push_str(&section);
    problems.extend(of_operator);
    println!("{table}");
    assert_no_problems(&problems, &model);
    guarantee_table::compare_with_docs(&table);
}

#[test]
fn x02_a09_a_host_killed_again_in_its_recovery_keeps_every_promise() {
    let model = scripted_model::start();
    let kinds = script::turn_kinds();
    let points = commit_points(&kinds, &model);
    // Where a recovery has most to do: what can be taken up again, and what must be given up.
    let last_end =
        |kind| points.iter().rfind(|point: &&CommitPoint| point.kind == kind && point.commit.contains("settle"));
    let begins = |point: &&CommitPoint| ["open-run", "take-in", "tool-call"].contains(&point.label());
    let first_kills = points.iter().filter(begins).map(|point| (point, "after"));
    let first_kills: Vec<(&CommitPoint, &str)> =
        first_kills.chain((0..kinds.len()).filter_map(last_end).map(|point| (point, "before"))).collect();
    let problems = map_parallel(&first_kills, |(point, moment)| {
        let kind = std::slice::from_ref(&kinds[point.kind]);
        let first = KillPoint::AtCommit(format!("{} {moment}", point.commit));
        let (report, mut problems) = run_kinds(kind, std::slice::from_ref(&first), &model);
        let of_recovery = report.and_then(|report| report.commits.get(1).cloned()).unwrap_or_default();
        // One that only takes a lease changes nothing else.
        let of_recovery = of_recovery.into_iter().filter(|commit| !commit.starts_with("lease#"));
        for commit in of_recovery.take(MAX_RECOVERY_COMMITS) {
            let kills = [first.clone(), KillPoint::AtCommit(format!("{commit} after"))];
            problems.extend(run_kinds(kind, &kills, &model).1);
        }
        problems
    });
    assert_no_problems(&problems.concat(), &model);
}

#[test]
fn x02_a_host_killed_at_random_moments_keeps_every_promise() {
    let model = scripted_model::start();
    let (stand_ins, others): (Vec<TurnKind>, Vec<TurnKind>) =
        script::turn_kinds().into_iter().partition(|kind| kind.replaces_agent);
    let mut random = SeededRandom::seeded();
    // Long enough to come past the end of all of them together.
    let begun = std::time::Instant::now();
    assert_no_problems(&run_kinds(&others, &[], &model).1, &model);
    let longest = begun.elapsed();
    let scripts = [false, true]
        .map(|keeps_files| TrialScript { uses_file_tapes: keeps_files, ..TrialScript::from_kinds(&others) });
    let scripts = [&scripts[0], &TrialScript::from_kinds(&stand_ins), &scripts[1]];
    let trials: Vec<(&TrialScript, Vec<KillPoint>)> = (0..RANDOM_TRIALS)
        .map(|number| {
            let kills =
                (0..=random.next_below(2)).map(|_| KillPoint::AfterDelay(longest.mul_f64(random.next_fraction())));
            (scripts[number % scripts.len()], kills.collect())
        })
        .collect();
    let problems = map_parallel(&trials, |(script, kills)| run_script(script, kills, &model).1);
    assert_no_problems(&problems.concat(), &model);
}

/// Numbers that nobody foresees, and that the same seed gives again.
struct SeededRandom(u64);

impl SeededRandom {
    /// From `CRASH_SEED`, or from the clock; says which.
    fn seeded() -> Self {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let given = std::env::var("CRASH_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| u64::from(clock.subsec_nanos()));
        println!("CRASH_SEED={seed} gives the same moments again");
        Self(seed)
    }

    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn next_below(&mut self, limit: u64) -> u64 {
        self.next_u64() % limit
    }

    fn next_fraction(&mut self) -> f64 {
        f64::from(u32::try_from(self.next_u64() >> 32).unwrap_or_default()) / f64::from(u32::MAX)
    }
}

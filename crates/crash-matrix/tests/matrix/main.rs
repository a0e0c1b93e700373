//! Crash matrix: a complete host is killed at its commits and at random moments, restarted, and checked against every
//! guarantee.
//!
//! `make test` kills once per label of a commit. `make soak` kills before and after every commit, again during recovery,
//! and at random moments; it compares the whole table of `docs/guarantees.md`.

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
mod two_processes;

use std::collections::BTreeSet;
use std::sync::Mutex;

use capstan_testing::ScriptedModel;
use guarantee_table::CrashTableRow;
use script::{TrialScript, TurnKind};
use trial::{CrashTrial, KillPoint, TrialReport};

/// Number of hosts under test at a time.
const CONCURRENT_TRIALS: usize = 2;
/// Number of hosts killed at random moments, once or twice each.
const RANDOM_TRIALS: usize = 20;
/// Maximum number of recovery commits at which the host is killed again.
const MAX_RECOVERY_COMMITS: usize = 3;

/// Maps items with a few threads, preserving their order.
fn map_parallel<T: Sync, R: Send>(items: &[T], map: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = Mutex::new(0..items.len());
    let take = || next.lock().expect("no other worker panicked").next();
    let work = || std::iter::from_fn(take).map(|number| (number, map(&items[number]))).collect::<Vec<_>>();
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CONCURRENT_TRIALS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a trial does not panic")).collect()
    });
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Runs one trial with these kinds of turns in parallel; returns its report and its problems.
fn run_kinds(kinds: &[TurnKind], kills: &[KillPoint], model: &ScriptedModel) -> (Option<TrialReport>, Vec<String>) {
    run_script(&TrialScript::from_kinds(kinds), kills, model)
}

fn run_script(script: &TrialScript, kills: &[KillPoint], model: &ScriptedModel) -> (Option<TrialReport>, Vec<String>) {
    let report = CrashTrial::new(script, kills, &model.base_url()).run();
    let with_context = |problem: String| format!("{}, {kills:?}: {problem}", script.title);
    match report {
        Err(problem) => (None, vec![with_context(problem)]),
        Ok(report) => {
            let problems = invariants::find_problems(script, &report).into_iter().map(with_context).collect();
            (Some(report), problems)
        }
    }
}

fn assert_no_problems(problems: &[String], model: &ScriptedModel) {
    assert_eq!(model.violations(), Vec::<String>::new());
    assert!(problems.is_empty(), "{} violations of the guarantees:\n{}", problems.len(), problems.join("\n"));
}

/// Commit observed while running a kind of turn, as `LABEL#N`.
struct CommitPoint {
    kind: usize,
    /// Position among the commits of its kind.
    number: usize,
    commit: String,
}

impl CommitPoint {
    /// `LABEL` of `LABEL#N`.
    fn label(&self) -> &str {
        self.commit.split('#').next().unwrap_or_default()
    }
}

/// Finds all commits of all kinds of turns by running each without a kill.
fn commit_points(kinds: &[TurnKind], model: &ScriptedModel) -> Vec<CommitPoint> {
    let commits = map_parallel(kinds, |kind| {
        let (report, problems) = run_kinds(std::slice::from_ref(kind), &[], model);
        assert_no_problems(&problems, model);
        let report = report.expect("a trial without problems has a report");
        report.commits[0][report.commit_range.0..report.commit_range.1].to_vec()
    });
    let of_kind = |(kind, commits): (usize, Vec<String>)| {
        commits.into_iter().enumerate().map(move |(number, commit)| CommitPoint { kind, number, commit })
    };
    commits.into_iter().enumerate().flat_map(of_kind).collect()
}

/// Keeps the first commit of each label.
fn first_of_each_label(mut points: Vec<CommitPoint>) -> Vec<CommitPoint> {
    let mut labels = BTreeSet::new();
    points.retain(|point| labels.insert(point.label().to_owned()));
    points
}

#[test]
fn x01_x02_x03_a09_g02_g06_g10_p13_host_killed_after_each_label_keeps_guarantees() {
    let model = scripted_model::start();
    let kinds = script::turn_kinds();
    let problems = map_parallel(&first_of_each_label(commit_points(&kinds, &model)), |point| {
        let kind = &kinds[point.kind];
        let kills = [KillPoint::AtCommit(format!("{} after", point.commit))];
        let (report, mut problems) = run_kinds(std::slice::from_ref(kind), &kills, &model);
        if let Some(report) = report {
            let actions = guarantee_table::describe_restart(kind, &point.commit, &report);
            problems.extend(guarantee_table::find_undocumented_restart(kind, point.number, &actions));
        }
        problems
    });
    assert_no_problems(&problems.concat(), &model);
}

#[test]
fn x02_x04_x07_host_killed_before_each_label_without_lock_files_and_with_few_turns() {
    let model = scripted_model::start();
    let kinds = script::turn_kinds();
    let problems = map_parallel(&first_of_each_label(commit_points(&kinds, &model)), |point| {
        let kinds = std::slice::from_ref(&kinds[point.kind]);
        let script = TrialScript { is_constrained: true, ..TrialScript::from_kinds(kinds) };
        run_script(&script, &[KillPoint::AtCommit(format!("{} before", point.commit))], &model).1
    });
    assert_no_problems(&problems.concat(), &model);
}

#[test]
fn g02_g06_x10_operator_command_killed_at_its_commit_is_complete_or_not_made() {
    let model = scripted_model::start();
    let (section, problems) = operator_commands::render_section(&model);
    assert_no_problems(&problems, &model);
    guarantee_table::assert_documented(&section);
}

#[test]
#[ignore = "takes minutes; `make soak` runs it"]
fn x01_x02_x03_soak_host_killed_at_every_commit_keeps_guarantees() {
    let model = scripted_model::start();
    let kinds = script::turn_kinds();
    let points = commit_points(&kinds, &model);
    let results = map_parallel(&points, |point| {
        ["before", "after"].map(|moment| {
            let kind = &kinds[point.kind];
            let kills = [KillPoint::AtCommit(format!("{} {moment}", point.commit))];
            let (report, mut problems) = run_kinds(std::slice::from_ref(kind), &kills, &model);
            if report.as_ref().is_some_and(|report| report.deaths.is_empty()) {
                problems.push(format!("{}, {kills:?}: the host was not killed", kind.title));
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
    let (section, operator_problems) = operator_commands::render_section(&model);
    table.push_str(&section);
    problems.extend(operator_problems);
    println!("{table}");
    assert_no_problems(&problems, &model);
    guarantee_table::compare_with_docs(&table);
}

/// Kills a host at each first kill, and again at the first commits of the recovery.
fn kill_during_recovery(
    kinds: &[TurnKind],
    first_kills: &[(&CommitPoint, &str)],
    model: &ScriptedModel,
) -> Vec<String> {
    let problems = map_parallel(first_kills, |(point, moment)| {
        let kind = std::slice::from_ref(&kinds[point.kind]);
        let first = KillPoint::AtCommit(format!("{} {moment}", point.commit));
        let (report, mut problems) = run_kinds(kind, std::slice::from_ref(&first), model);
        let recovery_commits = report.and_then(|report| report.commits.get(1).cloned()).unwrap_or_default();
        // A commit that only takes a lease changes nothing else.
        let recovery_commits = recovery_commits.into_iter().filter(|commit| !commit.starts_with("lease#"));
        for commit in recovery_commits.take(MAX_RECOVERY_COMMITS) {
            let kills = [first.clone(), KillPoint::AtCommit(format!("{commit} after"))];
            problems.extend(run_kinds(kind, &kills, model).1);
        }
        problems
    });
    problems.concat()
}

impl CommitPoint {
    /// True if the run goes on after this commit, so that recovery has work to resume or to abandon.
    fn leaves_open_work(&self) -> bool {
        self.label().split('+').any(|fact| ["open-run", "take-in", "tool-call"].contains(&fact))
    }
}

#[test]
fn x02_a09_host_killed_again_during_recovery_of_a_tool_call_keeps_guarantees() {
    let model = scripted_model::start();
    let kinds = script::turn_kinds();
    let kind = kinds.iter().position(|kind| kind.title == "A tool call").expect("the kind with one tool call");
    let points = commit_points(&kinds[kind..=kind], &model);
    let point = points.iter().rfind(|point| point.leaves_open_work()).expect("the commit of the tool call");
    assert_no_problems(&kill_during_recovery(&kinds[kind..=kind], &[(point, "after")], &model), &model);
}

#[test]
#[ignore = "takes minutes; `make soak` runs it"]
fn x02_a09_soak_host_killed_again_during_recovery_keeps_guarantees() {
    let model = scripted_model::start();
    let kinds = script::turn_kinds();
    let points = commit_points(&kinds, &model);
    let last_end =
        |kind| points.iter().rfind(|point: &&CommitPoint| point.kind == kind && point.commit.contains("settle"));
    let open = points.iter().filter(|point| point.leaves_open_work()).map(|point| (point, "after"));
    let first_kills: Vec<(&CommitPoint, &str)> =
        open.chain((0..kinds.len()).filter_map(last_end).map(|point| (point, "before"))).collect();
    assert_no_problems(&kill_during_recovery(&kinds, &first_kills, &model), &model);
}

#[test]
#[ignore = "takes minutes; `make soak` runs it"]
fn x02_soak_host_killed_at_random_moments_keeps_guarantees() {
    let model = scripted_model::start();
    let (replacing_agent, with_agent): (Vec<TurnKind>, Vec<TurnKind>) =
        script::turn_kinds().into_iter().partition(|kind| kind.replaces_agent);
    let mut random = SeededRandom::from_env_or_clock();
    let started_at = std::time::Instant::now();
    assert_no_problems(&run_kinds(&with_agent, &[], &model).1, &model);
    // Kill delays are drawn from the duration of an undisturbed trial.
    let duration = started_at.elapsed();
    let scripts =
        [false, true].map(|uses_file_tapes| TrialScript { uses_file_tapes, ..TrialScript::from_kinds(&with_agent) });
    let scripts = [&scripts[0], &TrialScript::from_kinds(&replacing_agent), &scripts[1]];
    let trials: Vec<(&TrialScript, Vec<KillPoint>)> = (0..RANDOM_TRIALS)
        .map(|number| {
            let kills =
                (0..=random.next_below(2)).map(|_| KillPoint::AfterDelay(duration.mul_f64(random.next_fraction())));
            (scripts[number % scripts.len()], kills.collect())
        })
        .collect();
    let problems = map_parallel(&trials, |(script, kills)| run_script(script, kills, &model).1);
    assert_no_problems(&problems.concat(), &model);
}

/// Pseudo-random numbers, reproducible by their seed.
struct SeededRandom(u64);

impl SeededRandom {
    /// Seeds from `CRASH_SEED`, or from the clock; prints the seed.
    fn from_env_or_clock() -> Self {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let from_env = std::env::var("CRASH_SEED").ok().map(|seed| seed.parse().expect("CRASH_SEED is a number"));
        let seed = from_env.unwrap_or_else(|| u64::from(clock.subsec_nanos()));
        println!("CRASH_SEED={seed} repeats these moments");
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

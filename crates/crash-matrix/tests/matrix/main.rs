//! The crash matrix: a whole host is killed at every commit and at random moments, started again, and asked to keep
//! every promise.

mod check;
mod delivered;
mod keeping;
mod model;
mod operator;
mod platform;
mod script;
mod snapshot;
mod table;
mod trial;

use std::sync::Mutex;

use capstan_testing::ScriptedModel;
use script::{Kind, Script};
use table::Row;
use trial::{Kill, Report, Trial};

/// How many hosts are tried at once.
const AT_ONCE: usize = 2;
/// How many hosts are killed at random moments, once or twice each.
const RANDOM_TRIALS: usize = 20;
/// How many commits of a recovery are tried.
const OF_RECOVERY: usize = 3;

/// Does something with each of these, a few at a time; what comes of them is in the same order.
fn each<T: Sync, R: Send>(of: &[T], does: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = Mutex::new(0..of.len());
    let take = || next.lock().expect("no other panicked").next();
    let work = || std::iter::from_fn(take).map(|number| (number, does(&of[number]))).collect::<Vec<_>>();
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a trial does not panic")).collect()
    });
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Tries kinds of turns at once, and gives what came of it with everything that does not hold.
fn try_out(kinds: &[Kind], kills: &[Kill], model: &ScriptedModel) -> (Option<Report>, Vec<String>) {
    try_script(&Script::of(kinds), kills, model)
}

fn try_script(script: &Script, kills: &[Kill], model: &ScriptedModel) -> (Option<Report>, Vec<String>) {
    let report = Trial::new(script, kills, &model.base_url()).run();
    let named = |problem: String| format!("{}, {kills:?}: {problem}", script.title);
    match report {
        Err(problem) => (None, vec![named(problem)]),
        Ok(report) => {
            let problems = check::problems(script, &report).into_iter().map(named).collect();
            (Some(report), problems)
        }
    }
}

fn assert_none(problems: &[String], model: &ScriptedModel) {
    assert_eq!(model.violations(), Vec::<String>::new());
    assert!(problems.is_empty(), "{} promises are not kept:\n{}", problems.len(), problems.join("\n"));
}

/// A commit of a kind of turn.
struct Point {
    kind: usize,
    commit: String,
}

impl Point {
    /// What the commit holds.
    fn label(&self) -> &str {
        self.commit.split('#').next().unwrap_or_default()
    }
}

/// Every commit of every kind of turn, found by letting each happen.
fn points(kinds: &[Kind], model: &ScriptedModel) -> Vec<Point> {
    let commits = each(kinds, |kind| {
        let (report, problems) = try_out(std::slice::from_ref(kind), &[], model);
        assert_none(&problems, model);
        let report = report.expect("a trial without problems has a report");
        report.commits[0][report.window.0..report.window.1].to_vec()
    });
    let of_kind = |(kind, commits): (usize, Vec<String>)| commits.into_iter().map(move |commit| Point { kind, commit });
    commits.into_iter().enumerate().flat_map(of_kind).collect()
}

#[test]
fn x01_x02_x03_a09_g02_g06_g10_p13_a_host_killed_at_any_commit_keeps_every_promise() {
    let model = model::start();
    let kinds = script::kinds();
    let points = points(&kinds, &model);
    let results = each(&points, |point| {
        ["before", "after"].map(|moment| {
            let kind = &kinds[point.kind];
            let kills = [Kill::At(format!("{} {moment}", point.commit))];
            let (report, mut problems) = try_out(std::slice::from_ref(kind), &kills, &model);
            if report.as_ref().is_some_and(|report| report.deaths.is_empty()) {
                problems.push(format!("{}, {kills:?}: it was not killed", kind.title));
            }
            (report.map(|report| table::aftermath(kind, &point.commit, &report)).unwrap_or_default(), problems)
        })
    });
    let mut table = String::new();
    let mut problems = Vec::new();
    let mut rows: Vec<Vec<Row>> = kinds.iter().map(|_| Vec::new()).collect();
    for (point, [before, after]) in points.iter().zip(results) {
        problems.extend(before.1.into_iter().chain(after.1));
        rows[point.kind].push(Row { point: point.commit.clone(), before: before.0, after: after.0 });
    }
    for (kind, rows) in kinds.iter().zip(&rows) {
        table.push_str(&table::section(kind, rows));
    }
    let (section, of_operator) = operator::section(&model);
    table.push_str(&section);
    problems.extend(of_operator);
    println!("{table}");
    assert_none(&problems, &model);
    table::compare(&table);
}

#[test]
fn x02_a09_a_host_killed_again_in_its_recovery_keeps_every_promise() {
    let model = model::start();
    let kinds = script::kinds();
    let points = points(&kinds, &model);
    // Where a recovery has most to do: what can be taken up again, and what must be given up.
    let last_end = |kind| points.iter().rfind(|point: &&Point| point.kind == kind && point.commit.contains("settle"));
    let begins = |point: &&Point| ["open-run", "take-in", "tool-call"].contains(&point.label());
    let first_kills = points.iter().filter(begins).map(|point| (point, "after"));
    let first_kills: Vec<(&Point, &str)> =
        first_kills.chain((0..kinds.len()).filter_map(last_end).map(|point| (point, "before"))).collect();
    let problems = each(&first_kills, |(point, moment)| {
        let kind = std::slice::from_ref(&kinds[point.kind]);
        let first = Kill::At(format!("{} {moment}", point.commit));
        let (report, mut problems) = try_out(kind, std::slice::from_ref(&first), &model);
        let of_recovery = report.and_then(|report| report.commits.get(1).cloned()).unwrap_or_default();
        // One that only takes a lease changes nothing else.
        let of_recovery = of_recovery.into_iter().filter(|commit| !commit.starts_with("lease#"));
        for commit in of_recovery.take(OF_RECOVERY) {
            let kills = [first.clone(), Kill::At(format!("{commit} after"))];
            problems.extend(try_out(kind, &kills, &model).1);
        }
        problems
    });
    assert_none(&problems.concat(), &model);
}

#[test]
fn x02_a_host_killed_at_random_moments_keeps_every_promise() {
    let model = model::start();
    let (stand_ins, others): (Vec<Kind>, Vec<Kind>) = script::kinds().into_iter().partition(|kind| kind.stands_in);
    let mut random = Random::seeded();
    // Long enough to come past the end of all of them together.
    let begun = std::time::Instant::now();
    assert_none(&try_out(&others, &[], &model).1, &model);
    let longest = begun.elapsed();
    let scripts = [false, true].map(|keeps_files| Script { keeps_files, ..Script::of(&others) });
    let scripts = [&scripts[0], &Script::of(&stand_ins), &scripts[1]];
    let trials: Vec<(&Script, Vec<Kill>)> = (0..RANDOM_TRIALS)
        .map(|number| {
            let kills = (0..=random.below(2)).map(|_| Kill::After(longest.mul_f64(random.fraction())));
            (scripts[number % scripts.len()], kills.collect())
        })
        .collect();
    let problems = each(&trials, |(script, kills)| try_script(script, kills, &model).1);
    assert_none(&problems.concat(), &model);
}

/// Numbers that nobody foresees, and that the same seed gives again.
struct Random(u64);

impl Random {
    /// From `CRASH_SEED`, or from the clock; says which.
    fn seeded() -> Self {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let given = std::env::var("CRASH_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| u64::from(clock.subsec_nanos()));
        println!("CRASH_SEED={seed} gives the same moments again");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn fraction(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).unwrap_or_default()) / f64::from(u32::MAX)
    }
}

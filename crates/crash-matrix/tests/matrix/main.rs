//! The crash matrix: a whole host is killed at every commit and at random moments, started again, and asked to keep
//! every promise.

mod check;
mod delivered;
mod model;
mod platform;
mod script;
mod snapshot;
mod table;
mod trial;

use std::sync::Mutex;
use std::time::Duration;

use capstan_testing::ScriptedModel;
use script::{Kind, Script};
use table::Row;
use trial::{Kill, Report, Trial};

/// How many hosts are tried at once.
const AT_ONCE: usize = 2;
/// How many kills come at random moments.
const RANDOM_KILLS: usize = 30;

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

/// Tries a kind of turn, and gives what came of it with everything that does not hold.
fn try_out(kind: &Kind, kills: &[Kill], model: &ScriptedModel) -> (Option<Report>, Vec<String>) {
    let script = Script::of(std::slice::from_ref(kind));
    let begun = std::time::Instant::now();
    let report = Trial::new(&script, kills, &model.base_url()).run();
    eprintln!("{:?} {} {kills:?}", begun.elapsed(), kind.title);
    let named = |problem: String| format!("{}, {kills:?}: {problem}", kind.title);
    match report {
        Err(problem) => (None, vec![named(problem)]),
        Ok(report) => {
            let problems = check::problems(&script, &report).into_iter().map(named).collect();
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

/// Every commit of every kind of turn, found by letting each happen.
fn points(kinds: &[Kind], model: &ScriptedModel) -> Vec<Point> {
    let commits = each(kinds, |kind| {
        let (report, problems) = try_out(kind, &[], model);
        assert_none(&problems, model);
        let report = report.expect("a trial without problems has a report");
        report.commits[0][report.window.0..report.window.1].to_vec()
    });
    let of_kind = |(kind, commits): (usize, Vec<String>)| commits.into_iter().map(move |commit| Point { kind, commit });
    commits.into_iter().enumerate().flat_map(of_kind).collect()
}

#[test]
fn x01_x02_x03_a09_g10_p13_a_host_killed_at_any_commit_keeps_every_promise() {
    let model = model::start();
    let kinds = script::kinds();
    let points = points(&kinds, &model);
    let results = each(&points, |point| {
        ["before", "after"].map(|moment| {
            let kills = [Kill::At(format!("{} {moment}", point.commit))];
            let (report, mut problems) = try_out(&kinds[point.kind], &kills, &model);
            if report.as_ref().is_some_and(|report| report.deaths.is_empty()) {
                problems.push(format!("{}, {kills:?}: it was not killed", kinds[point.kind].title));
            }
            (report.map(|report| table::aftermath(&kinds[point.kind], &report)).unwrap_or_default(), problems)
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
    println!("{table}");
    assert_none(&problems, &model);
    table::compare(&table);
}

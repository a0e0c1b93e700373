//! Which processes belong to a command.

use std::collections::HashSet;
use std::fs;
use std::io::Read as _;

use rustix::process::{Pid, Signal, kill_process};

/// The variable that marks every process of a command, also one that left its group and lost its parent.
pub(super) const COMMAND_MARK_VARIABLE: &str = "AGENT_COMMAND";
/// How often is looked for more: each look finds what was started during the one before.
const KILL_SCAN_ROUNDS: usize = 8;
/// How much of a process's environment is read.
const MAX_ENVIRON_BYTES: u64 = 256 * 1024;

/// A process, as the kernel tells of it.
#[derive(Debug, Clone, Copy)]
struct ProcessStat {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    /// When it was started, in ticks since the machine was.
    start_ticks: u64,
}

/// What tells that a process belongs to a command, or to any command of a host.
#[derive(Debug)]
pub(super) struct ProcessSelector<'a> {
    /// The first process of the command: its group, its session, its descendants.
    pub(super) leader: Option<Pid>,
    /// The value of the mark, or how it begins.
    pub(super) mark: &'a str,
}

impl ProcessSelector<'_> {
    /// Ends every process that belongs, and those they start meanwhile. What is out of reach: a process that left the
    /// group, lost its parent and cleared its environment, and one of another user.
    pub(super) fn kill_all(&self) {
        let mut ended = HashSet::new();
        for _ in 0..KILL_SCAN_ROUNDS {
            let found: Vec<i32> = self.find_pids().into_iter().filter(|pid| ended.insert(*pid)).collect();
            if found.is_empty() {
                return;
            }
            for pid in found.into_iter().filter_map(Pid::from_raw) {
                // An error means that it is gone, or that it became another user's.
                let _gone = kill_process(pid, Signal::KILL);
            }
        }
    }

    fn find_pids(&self) -> Vec<i32> {
        let processes = list_processes();
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let begun = processes.iter().find(|process| process.pid == own).map_or(0, |process| process.start_ticks);
        let leader = self.leader.map_or(0, Pid::as_raw_pid);
        let is_first = |process: &ProcessStat| {
            let of_leader = leader != 0 && [process.pid, process.group, process.session].contains(&leader);
            // What is older than this process was not started by it.
            of_leader || (process.start_ticks >= begun && has_mark(process.pid, self.mark))
        };
        let mut members: HashSet<i32> =
            processes.iter().filter(|process| process.pid != own && is_first(process)).map(|one| one.pid).collect();
        loop {
            let is_child =
                |process: &&ProcessStat| members.contains(&process.parent) && !members.contains(&process.pid);
            let children: Vec<i32> = processes.iter().filter(is_child).map(|process| process.pid).collect();
            if children.is_empty() {
                return members.into_iter().collect();
            }
            members.extend(children);
        }
    }
}

/// Every process that runs. One that has ended and was not reaped is none.
fn list_processes() -> Vec<ProcessStat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).collect()
}

fn parse_stat(pid: i32, stat: &str) -> Option<ProcessStat> {
    // The name, in brackets, may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    let mut number = || fields.next()?.parse().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    let since = fields.nth(15)?.parse().ok()?;
    Some(ProcessStat { pid, parent, group, session, start_ticks: since })
}

/// Whether a process carries a mark that begins like this. That of another user cannot be told.
fn has_mark(pid: i32, mark: &str) -> bool {
    let Ok(file) = fs::File::open(format!("/proc/{pid}/environ")) else { return false };
    let mut environment = Vec::new();
    if file.take(MAX_ENVIRON_BYTES).read_to_end(&mut environment).is_err() {
        return false;
    }
    let mark = format!("{COMMAND_MARK_VARIABLE}={mark}");
    environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark.as_bytes()))
}

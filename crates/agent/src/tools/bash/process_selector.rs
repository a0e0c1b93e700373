//! Selection of the processes that belong to a command.
//!
//! A process belongs to a command if it is in the group or session of the command's leader, is a descendant of such a
//! process, or carries the command's mark in its environment.

use std::collections::HashSet;
use std::fs;
use std::io::Read as _;

use rustix::process::{Pid, Signal, kill_process};

/// Environment variable that marks every process of a command, including those that left its group and lost their
/// parent.
pub(super) const COMMAND_MARK_VARIABLE: &str = "AGENT_COMMAND";
/// Maximum number of scans; each finds processes started during the previous one.
const MAX_KILL_SCANS: usize = 8;
/// Maximum number of bytes read from a process's environment.
const MAX_ENVIRON_BYTES: u64 = 256 * 1024;

/// Process as described by `/proc/PID/stat`.
#[derive(Debug, Clone, Copy)]
struct ProcessStat {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    /// Start time in clock ticks since boot.
    start_ticks: u64,
}

/// Criteria for the processes of one command, or of all commands of a host.
#[derive(Debug)]
pub(super) struct ProcessSelector<'a> {
    /// First process of the command, which leads its group and session.
    pub(super) leader: Option<Pid>,
    /// Value of the mark, or a prefix of it.
    pub(super) mark: &'a str,
}

impl ProcessSelector<'_> {
    /// Kills all matching processes and those they start meanwhile. Does not reach processes that left the group, lost
    /// their parent and cleared their environment, nor processes of other users.
    pub(super) fn kill_all(&self) {
        let mut killed = HashSet::new();
        for _ in 0..MAX_KILL_SCANS {
            let found: Vec<i32> = self.find_pids().into_iter().filter(|pid| killed.insert(*pid)).collect();
            if found.is_empty() {
                return;
            }
            for pid in found.into_iter().filter_map(Pid::from_raw) {
                // An error means that the process is gone or now belongs to another user.
                let _gone = kill_process(pid, Signal::KILL);
            }
        }
    }

    fn find_pids(&self) -> Vec<i32> {
        let processes = list_processes();
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let own_start = processes.iter().find(|process| process.pid == own).map_or(0, |process| process.start_ticks);
        let leader = self.leader.map_or(0, Pid::as_raw_pid);
        let is_member = |process: &ProcessStat| {
            let is_in_leader_group = leader != 0 && [process.pid, process.group, process.session].contains(&leader);
            // A process older than this one was not started by it.
            is_in_leader_group || (process.start_ticks >= own_start && has_mark(process.pid, self.mark))
        };
        let mut members: HashSet<i32> =
            processes.iter().filter(|process| process.pid != own && is_member(process)).map(|one| one.pid).collect();
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

/// Lists all processes, except for zombies.
fn list_processes() -> Vec<ProcessStat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).collect()
}

fn parse_stat(pid: i32, stat: &str) -> Option<ProcessStat> {
    // The process name, in parentheses, may contain any character.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    let mut number = || fields.next()?.parse().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    let start_ticks = fields.nth(15)?.parse().ok()?;
    Some(ProcessStat { pid, parent, group, session, start_ticks })
}

/// Returns true if a process carries a mark with this prefix. Environments of other users' processes are not readable.
fn has_mark(pid: i32, mark: &str) -> bool {
    let Ok(file) = fs::File::open(format!("/proc/{pid}/environ")) else { return false };
    let mut environment = Vec::new();
    if file.take(MAX_ENVIRON_BYTES).read_to_end(&mut environment).is_err() {
        return false;
    }
    let mark = format!("{COMMAND_MARK_VARIABLE}={mark}");
    environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark.as_bytes()))
}

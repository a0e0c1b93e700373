//! Descendants of the helper, found in `/proc`.

use std::collections::HashSet;
use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

/// Process as described by `/proc/PID/stat`.
#[derive(Debug, Clone, Copy)]
struct ProcessStatus {
    pid: Pid,
    parent: i32,
    /// Has ended and waits for its parent, or only its first thread has ended.
    is_zombie: bool,
}

/// Kills all descendants of this process and reaps them. Returns the number of those that it may not kill.
///
/// This process is a subreaper: a descendant that loses its parent becomes a child, so none is missed, and the end of all
/// children is the end of the tree.
pub(super) fn kill_descendants() -> usize {
    loop {
        if reap_ended_children() == Err(Errno::CHILD) {
            return 0;
        }
        let (mut killed, mut refused) = (0, 0);
        for process in find_descendants() {
            match kill_process(process.pid, Signal::KILL) {
                Err(Errno::PERM) => refused += 1,
                Ok(()) if !process.is_zombie => killed += 1,
                Ok(()) | Err(_) => {}
            }
        }
        if killed > 0 {
            // One of them, or an ancestor of theirs, ends as a child of this process.
            let _status = wait(WaitOptions::empty());
        } else if refused > 0 {
            return refused;
        } else {
            // A child was born or changed its parent during the scan.
            rustix::thread::sched_yield();
        }
    }
}

/// Reaps all children that have ended. The error `CHILD` means that there are no children.
fn reap_ended_children() -> Result<(), Errno> {
    while wait(WaitOptions::NOHANG)?.is_some() {}
    Ok(())
}

/// Finds all descendants of this process.
fn find_descendants() -> Vec<ProcessStatus> {
    let own = getpid();
    let Some(mut pending) = list_children(own) else { return scan_descendants(own) };
    let mut found = Vec::new();
    while let Some(pid) = pending.pop() {
        pending.extend(list_children(pid).unwrap_or_default());
        // A process whose status cannot be read has been reaped by its parent.
        found.extend(fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(|stat| parse_status(pid, &stat)));
    }
    found
}

/// Lists the children of a process. It takes a fraction of the time of a scan of all processes, so that even a process that
/// only forks and exits is caught. `None` if the kernel does not list children.
fn list_children(pid: Pid) -> Option<Vec<Pid>> {
    let mut children = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let listed = fs::read_to_string(task.ok()?.path().join("children")).ok()?;
        children.extend(listed.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)));
    }
    Some(children)
}

/// Finds the descendants of a process among all processes.
fn scan_descendants(ancestor: Pid) -> Vec<ProcessStatus> {
    let processes = list_processes();
    let mut members = HashSet::from([ancestor.as_raw_pid()]);
    let mut found = Vec::new();
    loop {
        let is_new = |process: &&ProcessStatus| {
            members.contains(&process.parent) && !members.contains(&process.pid.as_raw_pid())
        };
        let children: Vec<ProcessStatus> = processes.iter().filter(is_new).copied().collect();
        if children.is_empty() {
            return found;
        }
        members.extend(children.iter().map(|process| process.pid.as_raw_pid()));
        found.extend(children);
    }
}

fn list_processes() -> Vec<ProcessStatus> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?));
    pids.filter_map(|pid| parse_status(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).collect()
}

fn parse_status(pid: Pid, stat: &str) -> Option<ProcessStatus> {
    // The process name, in parentheses, may contain any character.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    Some(ProcessStatus { pid, parent: fields.next()?.parse().ok()?, is_zombie })
}

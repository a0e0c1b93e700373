//! End of trees: nothing that a command started outlives it.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;

use capstan_sandbox::{IsolationPolicy, SandboxError, TreeExit};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{POLICIES, WitnessFifo, daemon_and, parent_of, shell, spawn_with, status_field};

/// Variables of the host that [`role_host`] is.
const ROLE_WITNESS: &str = "SANDBOX_TEST_WITNESS";
const ROLE_POLICY: &str = "SANDBOX_TEST_POLICY";
const ROLE_TREES: &str = "SANDBOX_TEST_TREES";

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn x05_a_daemonised_grandchild_ends_when_the_tree_is_killed() {
    for policy in POLICIES {
        let fifo = WitnessFifo::new();
        let Some(mut tree) = spawn_with(daemon_and(&fifo.path(), "exec sleep 1000"), policy).await else { return };
        let witness = fifo.opened().await;
        assert_eq!(tree.kill().await.unwrap(), TreeExit::Killed);
        assert_eq!(witness.closed().await, "");
        assert_eq!(tree.kill().await.unwrap(), TreeExit::Killed, "killing twice is allowed");
    }
}

#[tokio::test]
async fn x05_a_daemonised_grandchild_ends_when_the_handle_is_dropped() {
    for policy in POLICIES {
        let fifo = WitnessFifo::new();
        let Some(tree) = spawn_with(daemon_and(&fifo.path(), "exec sleep 1000"), policy).await else { return };
        let witness = fifo.opened().await;
        drop(tree);
        assert_eq!(witness.closed().await, "");
    }
}

#[tokio::test]
async fn x05_a_daemonised_grandchild_ends_with_the_main_process() {
    for policy in POLICIES {
        let fifo = WitnessFifo::new();
        // The command waits until the daemon is ready, which the test confirms by a second FIFO.
        let gate = WitnessFifo::new();
        let command = daemon_and(&fifo.path(), r#"read -r line <"$2"; exit 5"#).arg(gate.path());
        let Some(mut tree) = spawn_with(command, policy).await else { return };
        let witness = fifo.opened().await;
        let gate_path = gate.path();
        tokio::task::spawn_blocking(move || std::fs::write(gate_path, "go\n")).await.unwrap().unwrap();
        assert_eq!(tree.wait().await.unwrap(), TreeExit::Code(5));
        assert_eq!(witness.closed().await, "");
    }
}

#[tokio::test]
async fn x05_no_process_and_no_zombie_is_left_after_an_end() {
    for policy in POLICIES {
        let Some(mut tree) = spawn_with(shell("sleep 1000 & sleep 1000 & exec sleep 1000"), policy).await else {
            return;
        };
        let main = tree.id().unwrap();
        let init = parent_of(main);
        let guard = parent_of(init);
        assert_eq!(parent_of(guard), std::process::id());
        assert_eq!(status_field(guard, "Name").unwrap(), "capstan-sandbox");
        tree.kill().await.unwrap();
        for pid in [main, init, guard] {
            assert_eq!(status_field(pid, "State"), None, "{policy:?}");
        }
    }
}

#[tokio::test]
async fn x05_orphans_are_reaped_while_the_tree_runs() {
    for policy in POLICIES {
        // Twenty orphans end; the children of the init process are then the main process alone.
        let script = r"
            for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do (setsid -f true); done
            while ps -A -o ppid=,stat= | grep -q '^ *'$PPID' Z'; do :; done
            echo reaped";
        let Some(output) = crate::support::output_of(shell(script), policy).await else { return };
        assert_eq!(output, "reaped\n");
    }
}

#[tokio::test]
async fn x05_the_tree_ends_when_a_process_of_the_helper_is_killed() {
    for policy in POLICIES {
        for is_guard in [true, false] {
            let fifo = WitnessFifo::new();
            let command = daemon_and(&fifo.path(), "exec sleep 1000");
            let Some(mut tree) = spawn_with(command, policy).await else { return };
            let witness = fifo.opened().await;
            let init = parent_of(tree.id().unwrap());
            kill(if is_guard { parent_of(init) } else { init });
            let error = tree.wait().await.unwrap_err();
            assert!(matches!(error, SandboxError::HelperEnded { .. }), "{error}");
            assert_eq!(witness.closed().await, "", "{policy:?}, guard: {is_guard}");
        }
    }
}

/// Host that starts trees and waits to be killed.
#[tokio::test]
#[ignore = "a role of another test"]
async fn role_host() {
    let variable = |name| std::env::var(name).ok();
    let (Some(witness), Some(policy), Some(trees)) =
        (variable(ROLE_WITNESS), variable(ROLE_POLICY), variable(ROLE_TREES))
    else {
        return;
    };
    let policy = if policy == "namespace" { IsolationPolicy::RequireNamespace } else { IsolationPolicy::SubreaperOnly };
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..trees.parse().unwrap() {
        starts.spawn(spawn_with(daemon_and(Path::new(&witness), "exec sleep 1000"), policy));
    }
    let _trees = starts.join_all().await;
    std::future::pending::<()>().await;
}

/// Kills a host that starts this number of trees as soon as the first one runs, and waits for the end of all processes.
async fn kill_host_of(trees: u32) {
    for policy in ["namespace", "subreaper"] {
        let fifo = WitnessFifo::new();
        if policy == "namespace" && spawn_with(shell("exit 0"), IsolationPolicy::RequireNamespace).await.is_none() {
            continue;
        }
        let mut host = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["ending::role_host", "--exact", "--ignored", "--nocapture"])
            .env(ROLE_WITNESS, fifo.path())
            .env(ROLE_POLICY, policy)
            .env(ROLE_TREES, trees.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let witness = fifo.opened().await;
        host.start_kill().unwrap();
        assert_eq!(host.wait().await.unwrap().signal(), Some(9));
        let others = witness.closed().await;
        assert!(others.lines().count() < trees as usize, "{policy}: {others}");
    }
}

#[tokio::test]
async fn x05_a_daemonised_grandchild_ends_when_the_host_is_killed() {
    kill_host_of(1).await;
}

#[tokio::test]
async fn x05_trees_that_are_being_started_end_when_the_host_is_killed() {
    kill_host_of(20).await;
}

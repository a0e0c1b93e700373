//! Limits of processes, memory and files.

use capstan_sandbox::{IsolationPolicy, ResourceLimits, TreeExit};

use crate::support::{POLICIES, WitnessFifo, output_of, shell, spawn_with};

/// Number of processes that root can have beyond its limit.
const ROOT_PROCESS_MARGIN: usize = 300;

/// Returns true if the number of processes of a tree can be limited for the user of this test.
fn can_limit_processes(policy: IsolationPolicy) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let version: Vec<u32> = release.split('.').map_while(|number| number.parse().ok()).collect();
    !rustix::process::geteuid().is_root()
        || (policy == IsolationPolicy::RequireNamespace && version.as_slice() >= [6, 14].as_slice())
}

#[tokio::test]
async fn x05_files_and_memory_are_limited_and_core_dumps_are_off() {
    const MEMORY_BYTES: u64 = 64 * 1024 * 1024;
    for policy in POLICIES {
        let limits =
            ResourceLimits { memory_bytes: Some(MEMORY_BYTES), open_files: Some(50), ..ResourceLimits::default() };
        let Some(output) =
            output_of(shell("ulimit -n; ulimit -Hn; ulimit -c; ulimit -Hc").limits(limits), policy).await
        else {
            return;
        };
        assert_eq!(output, "50\n50\n0\n0\n");
        for (block, exit) in [("16M", TreeExit::Code(0)), ("128M", TreeExit::Code(1))] {
            let command = shell(&format!("exec dd if=/dev/zero of=/dev/null bs={block} count=1")).limits(limits);
            let mut tree = spawn_with(command, policy).await.unwrap();
            assert_eq!(tree.wait().await.unwrap(), exit, "{block} {policy:?}");
        }
    }
}

#[tokio::test]
async fn x05_the_number_of_processes_is_limited() {
    const PROCESSES: usize = 25;
    for policy in POLICIES.into_iter().filter(|policy| can_limit_processes(*policy)) {
        let script = "
            i=0
            while [ $i -lt 400 ]; do sleep 1000 </dev/null >/dev/null 2>&1 & i=$((i + 1)); echo $i; done
            echo unlimited";
        let limits = ResourceLimits { processes: Some(PROCESSES as u64), ..ResourceLimits::default() };
        let Some(output) = output_of(shell(script).limits(limits), policy).await else { return };
        let margin = if rustix::process::geteuid().is_root() { ROOT_PROCESS_MARGIN } else { 0 };
        assert!(output.lines().count() <= PROCESSES + margin, "{policy:?}: {output}");
        assert!(!output.contains("unlimited"));
    }
}

#[tokio::test]
async fn x05_a_burst_of_processes_ends_with_its_tree() {
    for policy in POLICIES {
        let fifo = WitnessFifo::new();
        // A fork bomb that stops by itself at 256 processes: a failure of this test must not exhaust the machine.
        let script = r#"
            exec 9>"$1"; echo ready >&9
            bomb() { if [ "$1" -lt 7 ]; then bomb $(($1 + 1)) & bomb $(($1 + 1)) & wait; else exec sleep 1000; fi; }
            bomb 0 2>/dev/null"#;
        let Some(mut tree) = spawn_with(shell(script).arg(fifo.path()), policy).await else { return };
        let witness = fifo.opened().await;
        // Kills it while it grows.
        assert_eq!(tree.kill().await.unwrap(), TreeExit::Killed);
        assert_eq!(witness.closed().await, "");
    }
}

#[tokio::test]
async fn x05_a_process_that_forks_and_exits_all_the_time_ends_with_its_tree() {
    for policy in POLICIES {
        let fifo = WitnessFifo::new();
        // Only one or two processes exist at a time. They stop by themselves, with a word, if they are not caught.
        let script = r#"
            exec 9>"$1"; echo ready >&9
            run() { if [ "$1" -lt 50000 ]; then run $(($1 + 1)) & else echo escaped >&9; fi; }
            run 0; exec sleep 1000"#;
        let Some(mut tree) = spawn_with(shell(script).arg(fifo.path()), policy).await else { return };
        let witness = fifo.opened().await;
        assert_eq!(tree.kill().await.unwrap(), TreeExit::Killed);
        assert_eq!(witness.closed().await, "");
    }
}

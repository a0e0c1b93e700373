//! Start of commands: streams, environment, files, errors.

use std::os::fd::AsFd as _;

use capstan_sandbox::{
    HelperProgram, IsolationPolicy, SandboxError, SandboxSupport, TreeCommand, TreeExit, TreeIsolation, TreeStdio,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{POLICIES, output_of, shell, spawn_with};

#[tokio::test]
async fn x05_exit_codes_and_signals_are_reported() {
    for policy in POLICIES {
        let cases = [("exit 0", TreeExit::Code(0)), ("exit 37", TreeExit::Code(37)), ("exit 255", TreeExit::Code(255))];
        let signals = [("kill -TERM $$", TreeExit::Signal(15)), ("kill -KILL $$", TreeExit::Signal(9))];
        for (script, exit) in cases.into_iter().chain(signals) {
            let Some(mut tree) = spawn_with(shell(script), policy).await else { return };
            assert_eq!(tree.wait().await.unwrap(), exit, "{script} {policy:?}");
            assert_eq!(tree.wait().await.unwrap(), exit, "the exit can be asked for again");
        }
    }
}

#[tokio::test]
async fn x05_signals_reach_the_main_process() {
    for policy in POLICIES {
        let script = "trap 'echo stopping; exit 3' TERM; echo ready; while :; do read -r line || exit 1; done";
        let command = shell(script).stdin(TreeStdio::Piped).stdout(TreeStdio::Piped);
        let Some(mut tree) = spawn_with(command, policy).await else { return };
        let mut stdout = tree.stdout.take().unwrap();
        let mut ready = [0; 6];
        stdout.read_exact(&mut ready).await.unwrap();
        tree.signal(rustix::process::Signal::TERM).unwrap();
        // Some shells run the trap only when `read` returns; others have ended by now.
        let _ended = tree.stdin.take().unwrap().write_all(b"\n").await;
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).await.unwrap();
        assert_eq!((rest.as_str(), tree.wait().await.unwrap()), ("stopping\n", TreeExit::Code(3)));
        tree.signal(rustix::process::Signal::TERM).unwrap();
        assert_eq!(tree.id(), None);
    }
}

#[tokio::test]
async fn x05_streams_are_piped_or_empty() {
    for policy in POLICIES {
        let command = shell("tr a-z A-Z; echo problem >&2")
            .stdin(TreeStdio::Piped)
            .stdout(TreeStdio::Piped)
            .stderr(TreeStdio::Piped);
        let Some(mut tree) = spawn_with(command, policy).await else { return };
        tree.stdin.take().unwrap().write_all(b"some input").await.unwrap();
        let (mut output, mut errors) = (String::new(), String::new());
        tree.stdout.take().unwrap().read_to_string(&mut output).await.unwrap();
        tree.stderr.take().unwrap().read_to_string(&mut errors).await.unwrap();
        assert_eq!((output.as_str(), errors.as_str()), ("SOME INPUT", "problem\n"));
        assert!(tree.wait().await.unwrap().is_success());
        assert_eq!(output_of(shell("cat; echo end"), policy).await.unwrap(), "end\n", "no input by default");
    }
}

#[tokio::test]
async fn x05_two_streams_can_share_a_file_and_keep_their_order() {
    let (reader, writer) = std::io::pipe().unwrap();
    let errors = writer.try_clone().unwrap();
    let command = shell("echo one; echo two >&2; echo three")
        .stdout(TreeStdio::File(writer.into()))
        .stderr(TreeStdio::File(errors.into()));
    let mut tree = command.spawn().await.unwrap();
    let mut output = String::new();
    let mut reader = tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into()).unwrap();
    reader.read_to_string(&mut output).await.unwrap();
    assert_eq!(output, "one\ntwo\nthree\n");
    assert!(tree.wait().await.unwrap().is_success());
}

#[tokio::test]
async fn x05_environment_holds_only_listed_variables() {
    for policy in POLICIES {
        let command = TreeCommand::new("/usr/bin/env")
            .inherit_env(&["PATH", "CARGO_PKG_*", "NO_SUCH_VARIABLE"])
            .env("ADDED", "a=b c")
            .env("ADDED_BYTES", "ä");
        let Some(output) = output_of(command, policy).await else { return };
        let mut names: Vec<&str> = output.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        names.retain(|name| !name.starts_with("CARGO_PKG_"));
        names.sort_unstable();
        assert_eq!(names, ["ADDED", "ADDED_BYTES", "PATH"], "{output}");
        assert!(output.contains("CARGO_PKG_NAME=capstan-sandbox\n") && output.contains("ADDED=a=b c\n"), "{output}");
        assert!(std::env::var_os("HOME").is_some(), "the host has variables that the command must not see");
    }
}

#[tokio::test]
async fn x05_no_file_of_the_host_leaks_into_a_command() {
    // A file that a library opened without close-on-exec.
    let leaked = std::fs::File::open("/dev/zero").unwrap();
    rustix::io::fcntl_setfd(leaked.as_fd(), rustix::io::FdFlags::empty()).unwrap();
    for policy in POLICIES {
        // The last file is the folder that `ls` itself reads.
        let command = shell("exec ls -1 /proc/self/fd").stderr(TreeStdio::Null);
        let Some(output) = output_of(command, policy).await else { return };
        assert_eq!(output, "0\n1\n2\n3\n", "{policy:?}");
    }
}

#[tokio::test]
async fn x05_commands_see_themselves_in_proc() {
    for policy in POLICIES {
        let script = "test /proc/self -ef /proc/$$ || test -d /proc/$$ && cat /proc/$$/comm";
        let Some(output) = output_of(shell(script), policy).await else { return };
        assert_eq!(output, "sh\n", "{policy:?}");
    }
}

#[tokio::test]
async fn x05_large_output_waits_for_a_slow_reader() {
    const LINES: usize = 40_000;
    for policy in POLICIES {
        let command = shell(&format!("seq 1 {LINES}; echo end >&2")).stdout(TreeStdio::Piped).stderr(TreeStdio::Piped);
        let Some(mut tree) = spawn_with(command, policy).await else { return };
        let (mut stdout, mut stderr) = (tree.stdout.take().unwrap(), tree.stderr.take().unwrap());
        let (mut output, mut piece) = (String::new(), [0; 1000]);
        // More than a pipe holds is left: the command cannot have ended.
        stdout.read_exact(&mut piece).await.unwrap();
        output.push_str(std::str::from_utf8(&piece).unwrap());
        assert!(tree.id().is_some());
        stdout.read_to_string(&mut output).await.unwrap();
        assert_eq!(output.lines().count(), LINES);
        let mut errors = String::new();
        stderr.read_to_string(&mut errors).await.unwrap();
        assert_eq!((errors.as_str(), tree.wait().await.unwrap()), ("end\n", TreeExit::Code(0)));
    }
}

#[tokio::test]
async fn x05_arguments_may_be_long_and_of_any_bytes() {
    use std::os::unix::ffi::OsStrExt as _;
    let long = "x".repeat(100_000);
    let bytes = std::ffi::OsStr::from_bytes(b"\xff\n'\"");
    let command = shell(r#"printf '%s %s' "${#1}" "$2" | od -An -tx1"#).arg(&long).arg(bytes);
    let output = output_of(command, IsolationPolicy::PreferNamespace).await.unwrap();
    assert_eq!(output.trim(), "31 30 30 30 30 30 20 ff 0a 27 22");
}

#[tokio::test]
async fn x05_a_command_that_cannot_start_is_an_error_with_its_reason() {
    for policy in POLICIES {
        let error = TreeCommand::new("/no/such/program").isolation(policy).spawn().await.unwrap_err();
        assert!(matches!(&error, SandboxError::Program { .. }), "{error}");
        assert_eq!(error.to_string(), "cannot run /no/such/program: No such file or directory (os error 2)");
        let error = shell("exit 0").isolation(policy).current_dir("/no/such/folder").spawn().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot enter the working directory /no/such/folder: No such file or directory (os error 2)"
        );
    }
    let error = shell("exit 0").helper(HelperProgram::at("/no/such/helper")).spawn().await.unwrap_err();
    assert!(error.to_string().starts_with("cannot start the sandbox helper: run /no/such/helper: "), "{error}");
    let error = shell("exit 0").helper(HelperProgram::at("/bin/true")).spawn().await.unwrap_err();
    assert!(error.to_string().contains("`/bin/true` does not call `run_helper` first in `main`"), "{error}");
}

#[tokio::test]
async fn x05_isolation_is_the_one_that_was_asked_for() {
    let tree = spawn_with(shell("exit 0"), IsolationPolicy::SubreaperOnly).await.unwrap();
    assert_eq!(tree.isolation(), TreeIsolation::Subreaper);
    let Some(tree) = spawn_with(shell("exit 0"), IsolationPolicy::RequireNamespace).await else { return };
    assert_eq!(tree.isolation(), TreeIsolation::PidNamespace);
    assert_eq!(output_of(shell("echo $$"), IsolationPolicy::PreferNamespace).await.unwrap(), "2\n");
}

#[tokio::test]
async fn x05_the_probe_finds_what_commands_get() {
    let support = SandboxSupport::probe(&HelperProgram::current()).await;
    eprintln!("{support:?}");
    assert!(support.subreaper.is_available(), "{support:?}");
    let tree = spawn_with(shell("exit 0"), IsolationPolicy::PreferNamespace).await.unwrap();
    let has_namespace = tree.isolation() == TreeIsolation::PidNamespace;
    assert_eq!(support.pid_namespace.is_available(), has_namespace, "{support:?}");
    let none = SandboxSupport::probe(&HelperProgram::at("/no/such/helper")).await;
    assert!(!none.subreaper.is_available() && none.folder_closure.is_none(), "{none:?}");
}

#[tokio::test]
async fn x05_a_host_that_is_not_dumpable_can_start_commands() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
    for policy in POLICIES {
        let Some(output) = output_of(shell("echo started"), policy).await else { break };
        assert_eq!(output, "started\n", "{policy:?}");
    }
    // Tests of the same process read their own files in `/proc`.
    set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
}

use std::path::Path;
use std::time::Duration;

use capstan_hooks::SecretMasker;
use capstan_protocol::{SessionId, ToolOutput};
use futures::FutureExt as _;

use super::job_registry::JobRegistry;
use super::running_command::ShellCommand;

/// Job registry whose commands run in the directory for temporary files.
struct BashFixture(JobRegistry);

impl BashFixture {
    fn new() -> Self {
        Self(JobRegistry::new(Vec::new()))
    }

    async fn run(&self, command: &str) -> (String, bool) {
        let output = self.0.run_foreground(temp_dir_command(command), Duration::from_mins(1)).await.unwrap();
        (output.text(), output.is_error)
    }

    fn spawn(&self, session: &str, command: &str) -> String {
        let command = temp_dir_command(command);
        let started = self.0.spawn_background(&session.into(), &command, None).now_or_never();
        started.expect("a free file descriptor").unwrap()
    }

    /// Waits for the job to exit and returns its output since the last call.
    async fn wait_output(&self, session: &str, job: &str) -> String {
        let job = self.0.find(&session.into(), job).unwrap();
        job.wait_exit(Duration::from_mins(1)).await;
        job.new_output()
    }

    async fn kill(&self, session: &str, job: &str) -> String {
        let job = self.0.find(&session.into(), job).unwrap();
        job.kill().await;
        job.new_output()
    }

    /// Returns the first output of the job.
    async fn first_output(&self, session: &str, job: &str) -> String {
        let job = self.0.find(&session.into(), job).unwrap();
        loop {
            let output = job.new_output();
            if !output.starts_with('[') {
                return output;
            }
            tokio::task::yield_now().await;
        }
    }
}

fn temp_dir_command(command: &str) -> ShellCommand {
    ShellCommand { command: command.to_owned(), folder: std::env::temp_dir(), secrets: SecretMasker::default() }
}

/// Returns true if a process is running; a zombie is not.
fn is_process_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

/// Waits until none of these processes is running; a killed process may take a moment to disappear.
async fn wait_until_gone(pids: impl IntoIterator<Item = impl AsRef<str>>) {
    for pid in pids {
        while is_process_running(pid.as_ref()) {
            tokio::task::yield_now().await;
        }
    }
}

/// Starts processes that leave the command's group, one of them without its parent, and prints their ids.
const RUNAWAY_SCRIPT: &str = "setsid sleep 1000 >/dev/null 2>&1 & echo $!; \
    (setsid bash -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' &); \
    sleep 1000 & echo $!; wait";

#[tokio::test]
async fn a04_stdout_and_stderr_keep_their_order_and_failure_is_an_error() {
    let bash = BashFixture::new();
    assert_eq!(bash.run("echo one; echo two >&2; echo three").await, ("one\ntwo\nthree".to_owned(), false));
    assert_eq!(bash.run("true").await, ("(no output)".to_owned(), false));
    assert_eq!(bash.run("echo half; exit 3").await, ("half\n[exited with code 3]".to_owned(), true));
    assert_eq!(bash.run("kill -9 $$").await, ("[was killed by signal 9]".to_owned(), true));
    assert_eq!(bash.run("cat").await, ("(no output)".to_owned(), false), "there is no input to wait for");
}

/// Runs a command until it has written `lines` lines to the file `ready`, then advances the clock past its timeout.
/// Returns the result of the call and those lines.
async fn run_until_timeout(command: &str, lines: usize) -> (ToolOutput, Vec<String>) {
    let (bash, folder, hour) = (JobRegistry::new(Vec::new()), tempfile::tempdir().unwrap(), Duration::from_hours(1));
    let command = ShellCommand {
        command: command.to_owned(),
        folder: folder.path().to_owned(),
        secrets: SecretMasker::default(),
    };
    let mut call = std::pin::pin!(bash.run_foreground(command, hour));
    let ready = || std::fs::read_to_string(folder.path().join("ready")).unwrap_or_default();
    tokio::select! {
        exit = &mut call => panic!("{exit:?}"),
        () = async { while ready().lines().count() < lines { tokio::task::yield_now().await } } => {}
    }
    tokio::time::pause();
    tokio::time::advance(hour).await;
    tokio::time::resume();
    (call.await.unwrap(), ready().lines().map(str::to_owned).collect())
}

#[tokio::test]
async fn a04_hanging_command_times_out_with_a_hint() {
    let (output, _) = run_until_timeout("echo begun; echo >> ready; exec sleep 1000", 1).await;
    assert!(output.is_error);
    let text = output.text();
    assert!(
        text.starts_with("begun\n[timed out after 3600 seconds: raise timeout_seconds (at most 3600), or"),
        "{text}"
    );
}

#[tokio::test]
async fn a04_timeout_leaves_no_process() {
    let (_, pids) = run_until_timeout(&format!("({RUNAWAY_SCRIPT}) >> ready; wait"), 3).await;
    wait_until_gone(pids).await;
}

#[tokio::test]
async fn a04_cancelled_call_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let bash = JobRegistry::new(Vec::new());
    let command = format!("({RUNAWAY_SCRIPT}) > pids; wait");
    let call = bash.run_foreground(
        ShellCommand { command, folder: folder.path().to_owned(), secrets: SecretMasker::default() },
        Duration::from_mins(1),
    );
    let pids = || std::fs::read_to_string(folder.path().join("pids")).unwrap_or_default();
    tokio::select! {
        exit = call => panic!("{exit:?}"),
        () = async { while pids().lines().count() < 3 { tokio::task::yield_now().await } } => {}
    }
    wait_until_gone(pids().lines()).await;
}

#[tokio::test]
async fn a04_processes_left_in_the_group_are_killed_without_delay() {
    let bash = BashFixture::new();
    let (pid, _) = bash.run("sleep 1000 & echo $!").await;
    wait_until_gone([pid]).await;
    let (pid, _) = bash.run("setsid sleep 1000 & echo $!").await;
    // A process that left the group but holds the output is found.
    wait_until_gone([pid]).await;
}

#[tokio::test]
async fn a04_detached_processes_end_with_the_host() {
    let bash = BashFixture::new();
    let (pid, _) = bash.run("setsid bash -c 'sleep 1000 >/dev/null 2>&1 & echo $!'; true").await;
    assert!(is_process_running(&pid), "it detached itself");
    drop(bash);
    wait_until_gone([pid]).await;
}

#[tokio::test]
async fn a04_output_is_bounded_while_reading_and_may_be_binary() {
    let bash = BashFixture::new();
    let (text, _) = bash.run("seq 1 20000").await;
    assert!(text.lines().map(str::to_owned).eq((1..=20_000).map(|number| number.to_string())), "the complete output");
    let (text, _) = bash.run("echo begin; head -c 30000000 /dev/zero | tr '\\0' x; echo; echo end").await;
    assert!(text.len() < 8_400_000 && text.starts_with("begin\nxxx") && text.ends_with("xxx\nend"), "{}", text.len());
    assert!(text.contains(" bytes left out]"));
    assert_eq!(bash.run("printf 'caf\\351\\0'").await.0, "caf\u{fffd}\u{fffd}");
}

#[tokio::test]
async fn a04_missing_working_directory_is_named() {
    let command =
        ShellCommand { command: "true".to_owned(), folder: "/not/there".into(), secrets: SecretMasker::default() };
    let error = JobRegistry::new(Vec::new()).run_foreground(command, Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(error.to_string(), "/not/there is not a folder");
}

#[tokio::test]
async fn a04_background_job_reports_new_output_and_exit() {
    let bash = BashFixture::new();
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo").display().to_string();
    bash.run(&format!("mkfifo {fifo}")).await;
    let job = bash.spawn("s", &format!("echo one; read < {fifo}; echo two; exit 3"));
    assert_eq!(job, "job-2");
    assert_eq!(bash.first_output("s", &job).await, "one\n[job-2 is running]");
    bash.run(&format!("echo > {fifo}")).await;
    assert_eq!(bash.wait_output("s", &job).await, "two\n[job-2 exited with code 3]");
    assert_eq!(bash.wait_output("s", &job).await, "[job-2 exited with code 3]");
    assert!(bash.0.list(&"s".into()).starts_with("job-2 exited with code 3: echo one;"));
}

#[tokio::test]
async fn a04_job_is_killed_with_everything_it_started() {
    let bash = BashFixture::new();
    let job = bash.spawn("s", RUNAWAY_SCRIPT);
    let mut pids = String::new();
    while pids.lines().filter(|line| !line.starts_with('[')).count() < 3 {
        pids += &bash.first_output("s", &job).await;
        pids += "\n";
    }
    let pids: Vec<&str> = pids.lines().filter(|line| !line.starts_with('[')).collect();
    assert!(pids.iter().all(|pid| is_process_running(pid)), "{pids:?}");
    assert!(bash.kill("s", &job).await.ends_with("[job-1 was killed]"));
    wait_until_gone(pids).await;
}

#[tokio::test]
async fn a04_jobs_end_with_the_host_and_at_their_timeout() {
    let bash = BashFixture::new();
    let (session, command) = (SessionId::new("s"), temp_dir_command("sleep 1000"));
    let job = bash.0.spawn_background(&session, &command, Some(Duration::from_secs(1))).await.unwrap();
    assert_eq!(bash.wait_output("s", &job).await, "[job-1 timed out after 1 second]");
    let job = bash.spawn("s", "echo $$; exec sleep 1000");
    let output = bash.first_output("s", &job).await;
    let pid = output.lines().next().unwrap();
    assert!(is_process_running(pid));
    drop(bash);
    wait_until_gone([pid]).await;
}

#[tokio::test]
async fn a04_jobs_belong_to_their_session_and_are_limited() {
    let bash = BashFixture::new();
    let (mine, other) = (SessionId::new("mine"), SessionId::new("other"));
    for _ in 0..8 {
        bash.spawn("mine", "exec sleep 1000");
    }
    let error = bash.0.spawn_background(&mine, &temp_dir_command("true"), None).await.unwrap_err().to_string();
    assert!(error.contains("too many") && error.contains("bash.kill"), "{error}");
    assert!(bash.0.find(&other, "job-1").is_err(), "jobs of other sessions are not visible");
    assert_eq!(bash.0.list(&other), "there are no background jobs");
    bash.spawn("other", "true");
    bash.kill("mine", "job-1").await;
    bash.spawn("mine", "true");
    for _ in 0..200 {
        let job = bash.spawn("other", "true");
        bash.wait_output("other", &job).await;
    }
    assert!(bash.0.list(&other).lines().count() <= 65, "old jobs are removed");
}

#[tokio::test]
async fn a04_command_has_its_own_soft_limit_of_open_files() {
    let bash = BashFixture(JobRegistry::new(Vec::new()).with_file_limit(Some(77)));
    let (output, is_error) = bash.run("ulimit -Sn; echo \"$0 $1\"").await;
    assert_eq!((output.as_str(), is_error), ("77\nbash", false));
}

#[tokio::test]
async fn x06_list_of_jobs_hides_nothing_of_a_command() {
    let bash = BashFixture::new();
    bash.spawn("s", "true #\u{1b}]\ntrue\u{202e}x");
    let listed = bash.0.list(&"s".into());
    assert!(listed.ends_with(r": true #\x1b]\ntrue\u{202e}x"), "{listed}");
}

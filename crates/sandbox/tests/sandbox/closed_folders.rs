//! Closed directories: nothing in them can be read, written, listed or linked.

use std::path::{Path, PathBuf};

use capstan_sandbox::{ClosedFolders, FolderAccess, FolderClosure, IsolationPolicy, SandboxError, TreeCommand};
use tempfile::TempDir;

use crate::support::{POLICIES, output_of, shell, spawn_with};

/// Home of a host beside a directory of the user.
struct ClosedHome {
    root: TempDir,
}

impl ClosedHome {
    fn new() -> Self {
        let home = Self { root: tempfile::tempdir().unwrap() };
        for folder in ["home/plugins/one/data", "home/plugins/one/code", "home/plugins/other", "beside"] {
            std::fs::create_dir_all(home.path(folder)).unwrap();
        }
        std::fs::write(home.path("home/secret"), "the secret").unwrap();
        std::fs::write(home.path("home/plugins/other/secret"), "the secret").unwrap();
        std::fs::write(home.path("home/plugins/one/code/main"), "the code").unwrap();
        std::fs::write(home.path("beside/file"), "a file").unwrap();
        std::os::unix::fs::symlink(home.path("home"), home.path("beside/link")).unwrap();
        home
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    fn folders(&self) -> ClosedFolders {
        ClosedFolders::new(self.path("home"))
            .keep_open(self.path("home/plugins/one/data"), FolderAccess::ReadWrite)
            .keep_open(self.path("home/plugins/one/code"), FolderAccess::ReadOnly)
    }

    /// Command that runs a script beside the home, with the root of both as `$R` and the process id of the host as `$H`.
    fn command(&self, script: &str) -> TreeCommand {
        shell(&format!("exec 2>&1\n{script}"))
            .env("R", self.root.path())
            .env("H", std::process::id().to_string())
            .current_dir(self.path("beside"))
            .closed_folders(self.folders())
    }
}

/// Attempts to reach the home. Each prints `escaped` if it succeeds.
const ATTEMPTS: [&str; 17] = [
    r#"cat "$R/home/secret" | grep -q secret && echo escaped"#,
    "cat link/secret | grep -q secret && echo escaped",
    r#"cat "$R/home/plugins/other/secret" | grep -q secret && echo escaped"#,
    r#"cat "$R/home/plugins/one/data/../../other/secret" | grep -q secret && echo escaped"#,
    r#"ls "$R/home" | grep -q secret && echo escaped"#,
    r#"ls "$R/home/plugins" | grep -q other && echo escaped"#,
    r#"(echo bad >"$R/home/secret") && echo escaped"#,
    r#"(echo bad >"$R/home/new") && echo escaped"#,
    r#"mkdir "$R/home/new" && echo escaped"#,
    r#"rm "$R/home/secret" && echo escaped"#,
    r#"mv "$R/home" "$R/moved" && echo escaped"#,
    r#"ln "$R/home/secret" "$R/beside/hard" && echo escaped"#,
    r#"ln -s "$R/home/secret" soft && cat soft | grep -q secret && echo escaped"#,
    r#"cat "/proc/self/root$R/home/secret" | grep -q secret && echo escaped"#,
    r#"cat "/proc/1/root$R/home/secret" "/proc/$H/root$R/home/secret" "/proc/$PPID/root$R/home/secret" | grep -q secret && echo escaped"#,
    r#"(umount "$R/home"; umount -l "$R/home") && echo escaped"#,
    r#"unshare -Urm sh -c 'umount -l "$R/home"; mount --bind "$R/home" /mnt; cat "$R/home/secret" /mnt/secret' | grep -q secret && echo escaped"#,
];

/// Attempts that only root can make.
const ROOT_ATTEMPTS: [&str; 7] = [
    // The disk itself.
    r#"for disk in $(find /dev -type b); do head -c 1 "$disk" && echo escaped; done"#,
    "mknod disk b 254 0 && echo escaped",
    r#"nsenter -t "$H" -m cat "$R/home/secret" | grep -q secret && echo escaped"#,
    "mount -t tmpfs none /mnt && echo escaped",
    "head -c 1 /proc/kcore && echo escaped",
    r#"for file in $(find /sys/fs/cgroup -name release_agent); do (: >>"$file") && echo escaped; done"#,
    r#"cat "/proc/$H/environ" | grep -q . && echo escaped"#,
];

/// Attempt of root that takes a mount namespace to stop.
const KERNEL_FILE_ATTEMPT: &str = "(: >>/proc/sys/kernel/core_pattern) && echo escaped";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[tokio::test]
async fn x05_a_closed_home_cannot_be_reached() {
    for policy in POLICIES {
        let home = ClosedHome::new();
        let mut attempts = ATTEMPTS.to_vec();
        if is_root() {
            attempts.extend(ROOT_ATTEMPTS);
            if policy == IsolationPolicy::RequireNamespace {
                attempts.push(KERNEL_FILE_ATTEMPT);
            }
        }
        for attempt in attempts {
            let Some(output) = output_of(home.command(attempt), policy).await else { break };
            assert!(!output.contains("escaped"), "{policy:?}: {attempt}\n{output}");
        }
        let secret = std::fs::read_to_string(home.path("home/secret")).unwrap();
        assert_eq!(secret, "the secret", "{policy:?}");
        assert!(!home.path("beside/hard").exists() && !home.path("home/new").exists());
    }
}

/// The attempts above succeed without closed directories: they fail for the right reason.
#[tokio::test]
async fn x05_an_open_home_can_be_reached_by_the_same_attempts() {
    let home = ClosedHome::new();
    for attempt in [&ATTEMPTS[..6], &ATTEMPTS[11..15]].concat() {
        let command = shell(attempt).env("R", home.root.path()).current_dir(home.path("beside"));
        let output = output_of(command, IsolationPolicy::SubreaperOnly).await.unwrap();
        assert!(output.contains("escaped"), "{attempt}\n{output}");
    }
}

#[tokio::test]
async fn x05_open_folders_of_a_closed_home_can_be_used() {
    for policy in POLICIES {
        let home = ClosedHome::new();
        let script = r#"
            cd "$R/home/plugins/one/data" && pwd -P >where && mkdir -p deep/er && mv where deep/er/where
            cat "$R/home/plugins/one/code/main"; echo
            echo bad >"$R/home/plugins/one/code/main" && echo overwritten
            touch "$R/home/plugins/one/code/new" && echo created"#;
        let command = home.command(script).current_dir(home.path("home/plugins/one/code"));
        let Some(output) = output_of(command, policy).await else { return };
        assert!(
            output.contains("the code") && !output.contains("overwritten") && !output.contains("created"),
            "{output}"
        );
        let data = home.path("home/plugins/one/data");
        let where_is = std::fs::read_to_string(data.join("deep/er/where")).unwrap();
        assert_eq!(Path::new(where_is.trim()), data.canonicalize().unwrap());
    }
}

#[tokio::test]
async fn x05_everything_beside_a_closed_home_can_be_used() {
    for policy in POLICIES {
        let home = ClosedHome::new();
        let temporary = home.path("beside").join("temporary");
        std::fs::create_dir(&temporary).unwrap();
        let script = r#"
            cat file; echo
            echo changed >file && mv file renamed && ln renamed hard && mkdir folder && mv renamed folder/
            ls / /usr/bin >/dev/null; echo text >/dev/null; head -c 4 /dev/urandom | wc -c
            (sh -c 'echo child') | cat; cat /proc/$$/comm
            echo out >"$TMPDIR/new" && cat "$TMPDIR/new" && cat <<END
here
END"#;
        let Some(output) = output_of(home.command(script).env("TMPDIR", &temporary), policy).await else { return };
        let output = output.replace("ls: cannot open directory '/': Permission denied\n", "");
        assert_eq!(output, "a file\n4\nchild\nsh\nout\nhere\n", "{policy:?}");
        assert_eq!(std::fs::read_to_string(home.path("beside/folder/renamed")).unwrap(), "changed\n");
    }
}

#[tokio::test]
async fn x05_the_mechanism_that_closes_folders_is_reported() {
    let home = ClosedHome::new();
    let tree = spawn_with(home.command("exit 0"), IsolationPolicy::RequireNamespace).await;
    let expected = [FolderClosure::MountNamespaceAndLandlock, FolderClosure::MountNamespace];
    assert!(tree.is_none_or(|tree| expected.contains(&tree.folder_closure().unwrap())));
    match home.command("exit 0").isolation(IsolationPolicy::SubreaperOnly).spawn().await {
        Ok(tree) => assert_eq!(tree.folder_closure(), Some(FolderClosure::Landlock)),
        Err(error) => {
            // A machine without landlock: the command is refused, unless it may run without.
            assert!(matches!(&error, SandboxError::ClosureUnavailable { .. }), "{error}");
            let folders = home.folders().allow_unenforced();
            let command = home.command("exit 0").closed_folders(folders).isolation(IsolationPolicy::SubreaperOnly);
            assert_eq!(command.spawn().await.unwrap().folder_closure(), Some(FolderClosure::NotEnforced));
        }
    }
    assert_eq!(shell("exit 0").spawn().await.unwrap().folder_closure(), None);
}

#[tokio::test]
async fn x05_a_command_with_closed_folders_cannot_signal_the_host() {
    for policy in POLICIES {
        let home = ClosedHome::new();
        // Signal 0 checks the permission only.
        let script =
            r#"kill -0 "$H" && echo escaped; kill -0 "$PPID" && echo escaped; sleep 1000 & kill $! && echo own"#;
        let Some(output) = output_of(home.command(script), policy).await else { return };
        let escaped = output.matches("escaped").count();
        // In a PID namespace, init is visible but takes no signal.
        let allowed = usize::from(policy == IsolationPolicy::RequireNamespace);
        assert!(escaped <= allowed && output.contains("own"), "{policy:?}: {output}");
    }
}

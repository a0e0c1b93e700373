//! A machine that allows no namespaces, played by a user namespace in which no further ones may be created.

use std::process::Command;

use capstan_sandbox::{
    ClosedFolders, FolderClosure, HelperProgram, IsolationPolicy, SandboxError, SandboxSupport, TreeIsolation,
};

use crate::support::{output_of, shell};

/// Variable that tells a test that it runs on such a machine.
const ROLE_VARIABLE: &str = "SANDBOX_TEST_NO_NAMESPACES";
const SETUP_SCRIPT: &str = r#"
echo 0 >/proc/sys/user/max_pid_namespaces && echo 0 >/proc/sys/user/max_user_namespaces || exit 77
exec "$0" "$@""#;
/// Exit code of [`SETUP_SCRIPT`] where the limits cannot be set.
const SETUP_FAILURE_CODE: i32 = 77;

#[tokio::test]
#[ignore = "a role of another test"]
async fn role_without_namespaces() {
    if std::env::var_os(ROLE_VARIABLE).is_none() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("secret"), "the secret").unwrap();
    let tree = shell("exit 0").spawn().await.unwrap();
    assert_eq!(tree.isolation(), TreeIsolation::Subreaper);
    let refused = shell("exit 0").isolation(IsolationPolicy::RequireNamespace).spawn().await.unwrap_err();
    assert!(matches!(&refused, SandboxError::Namespace { .. }), "{refused}");
    let support = SandboxSupport::probe(&HelperProgram::current()).await;
    assert!(support.subreaper.is_available() && !support.pid_namespace.is_available(), "{support:?}");
    let folders = ClosedFolders::new(home.path());
    let script = r#"cat "$1/secret" 2>/dev/null; echo end"#;
    let command = || shell(script).arg(home.path()).closed_folders(folders.clone());
    if support.landlock_abi.is_some() {
        assert_eq!(support.folder_closure, Some(FolderClosure::Landlock));
        assert_eq!(output_of(command(), IsolationPolicy::PreferNamespace).await.unwrap(), "end\n");
    } else {
        let refused = command().spawn().await.unwrap_err();
        assert!(matches!(&refused, SandboxError::ClosureUnavailable { .. }), "{refused}");
    }
}

#[test]
fn x05_without_namespaces_a_tree_has_subreapers_and_landlock() {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", SETUP_SCRIPT])
        .arg(std::env::current_exe().unwrap())
        .args(["missing_namespaces::role_without_namespaces", "--exact", "--ignored", "--nocapture"])
        .env(ROLE_VARIABLE, "1")
        .output();
    let Ok(output) = output else { return eprintln!("not tested: no program `unshare`") };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(SETUP_FAILURE_CODE) || text.contains("unshare: ") {
        return eprintln!("not tested: no user namespace on this machine: {text}");
    }
    assert!(text.contains("1 passed; 0 failed"), "{text}");
}

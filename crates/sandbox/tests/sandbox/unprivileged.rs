//! All tests as an unprivileged user, where they are run by root.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const ORDINARY_USER_ID: u32 = 65534;

#[test]
fn x05_all_of_this_works_as_an_unprivileged_user_too() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // The user cannot reach the directory in which the tests were built.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let output = Command::new(&program)
        .args(["x05_", "--test-threads", "1", "--skip", "unprivileged::"])
        .current_dir("/")
        .uid(ORDINARY_USER_ID)
        .gid(ORDINARY_USER_ID)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(" passed; 0 failed; 0 ignored"), "{text}");
}

//! The binary as the helper of process trees.

use capstan_sandbox::{FolderClosure, HelperProgram, SandboxSupport, TreeCommand, TreeExit};

fn binary() -> HelperProgram {
    HelperProgram::at(env!("CARGO_BIN_EXE_capstan"))
}

#[tokio::test]
async fn x05_the_binary_serves_as_the_helper_of_process_trees() {
    let command = TreeCommand::new("sh").arg("-c").arg("exit 7").inherit_env(&["PATH"]);
    let mut tree = command.helper(binary()).spawn().await.unwrap();
    assert_eq!(tree.wait().await.unwrap(), TreeExit::Code(7));
    let support = SandboxSupport::probe(&binary()).await;
    assert!(support.subreaper.is_available(), "{support:?}");
    assert_ne!(support.folder_closure, Some(FolderClosure::NotEnforced));
}

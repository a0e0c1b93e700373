//! Preview of the command line: the words that are needed before the commands of plugins are known.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// Words of the command line that decide about logging, and about the configuration that plugins register with.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandLinePreview {
    /// Value of `--workspace`.
    pub(crate) workspace: Option<PathBuf>,
    /// First word that is no option.
    pub(crate) command: Option<String>,
    /// The command line has the flag `--json`.
    pub(crate) has_json_flag: bool,
}

impl CommandLinePreview {
    /// Scans the arguments of a process, without its name.
    pub(crate) fn scan(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let (mut preview, mut arguments) = (Self::default(), arguments.into_iter());
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                break;
            } else if argument == "-w" || argument == "--workspace" {
                preview.workspace = arguments.next().map(PathBuf::from);
            } else if let Some(value) = attached_workspace(&argument) {
                preview.workspace = Some(PathBuf::from(value));
            } else if argument == "--json" {
                preview.has_json_flag = true;
            } else if preview.command.is_none() && !argument.as_bytes().starts_with(b"-") {
                preview.command = Some(argument.to_string_lossy().into_owned());
            }
        }
        preview
    }

    /// Returns true if the command is one of these.
    pub(crate) fn is_command(&self, names: &[&str]) -> bool {
        self.command.as_deref().is_some_and(|command| names.contains(&command))
    }
}

/// Value of `--workspace=DIR` or `-wDIR`.
fn attached_workspace(argument: &OsStr) -> Option<&OsStr> {
    let bytes = argument.as_bytes();
    let short = || bytes.strip_prefix(b"-w").map(|value| value.strip_prefix(b"=").unwrap_or(value));
    bytes.strip_prefix(b"--workspace=").or_else(short).map(OsStr::from_bytes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::CommandLinePreview;

    fn scan(line: &str) -> CommandLinePreview {
        CommandLinePreview::scan(line.split_whitespace().map(Into::into))
    }

    #[test]
    fn h08_preview_finds_the_workspace_before_and_after_the_command() {
        for line in
            ["-w w greet", "greet -w w", "greet --workspace w", "--workspace=w greet", "-ww greet", "greet -w=w"]
        {
            let preview = scan(line);
            assert_eq!(preview.workspace.as_deref(), Some(Path::new("w")), "{line}");
            assert_eq!(preview.command.as_deref(), Some("greet"), "{line}");
        }
    }

    #[test]
    fn h08_preview_reads_nothing_after_two_hyphens() {
        let preview = scan("run -- --json -w w");
        assert_eq!(preview, CommandLinePreview { command: Some("run".to_owned()), ..Default::default() });
        assert!(scan("run hello --json").has_json_flag);
    }
}

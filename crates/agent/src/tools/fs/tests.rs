use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use capstan_hooks::SecretMasker;
use capstan_hooks::contracts::{FnTool, Tool as _, ToolEffect};
use capstan_protocol::{Content, JsonObject, ToolOutput};
use tempfile::TempDir;

use super::FileToolContext;
use super::edit::{FileEditArgs, edit_file};
use super::read::{FileReadArgs, read_file};
use super::write::{FileWriteArgs, write_file};
use crate::paths::PathBounds;

const FILE_SECRET: &str = "sk-SECRETOPENAI-1234567890abcdef";

/// Workspace and a folder outside it.
struct FileFixture {
    folder: TempDir,
    bounds: PathBounds,
    secrets: SecretMasker,
}

impl FileFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["workspace", "beside"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let files =
            Self { folder, bounds: PathBounds::default(), secrets: SecretMasker::new([FILE_SECRET.to_owned()]) };
        std::fs::write(files.outside("secret"), "the secret").unwrap();
        files
    }

    fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace")
    }

    fn outside(&self, name: &str) -> PathBuf {
        self.folder.path().join("beside").join(name)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.workspace().join(name)
    }

    fn with_file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        std::fs::write(self.path(name), content).unwrap();
        self
    }

    fn tool_context<'a>(&'a self, workspace: &'a Path) -> FileToolContext<'a> {
        FileToolContext { bounds: &self.bounds, workspace, secrets: &self.secrets }
    }

    fn read_part(&self, path: &str, offset: Option<usize>, limit: Option<usize>) -> Result<String, String> {
        let read = FileReadArgs { path: path.to_owned(), offset, limit };
        output_text(read_file(self.tool_context(&self.workspace()), &read))
    }

    fn read(&self, path: &str) -> Result<String, String> {
        self.read_part(path, None, None)
    }

    fn write(&self, path: &str, content: &str) -> Result<String, String> {
        let write = FileWriteArgs { path: path.to_owned(), content: content.to_owned() };
        output_text(write_file(self.tool_context(&self.workspace()), &write))
    }

    fn edit(&self, path: &str, old: &str, new: &str) -> Result<String, String> {
        let edit = FileEditArgs { path: path.to_owned(), old: old.to_owned(), new: new.to_owned(), replace_all: false };
        output_text(edit_file(self.tool_context(&self.workspace()), &edit))
    }
}

fn output_text(result: Result<ToolOutput, capstan_hooks::contracts::ToolError>) -> Result<String, String> {
    result.map(|output| output.text()).map_err(|error| error.to_string())
}

fn file_text(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a04_file_is_read_by_lines() {
    let files = FileFixture::new()
        .with_file("a.txt", "one\ntwo\nthree\n")
        .with_file("empty", "")
        .with_file("dos.txt", "one\r\ntwo\r\n");
    assert_eq!(files.read("a.txt").unwrap(), "one\ntwo\nthree");
    assert_eq!(files.read_part("a.txt", Some(2), Some(1)).unwrap(), "two\n[lines 2-2 of 3; continue with offset=3]");
    assert_eq!(files.read_part("a.txt", Some(3), None).unwrap(), "three");
    assert_eq!(files.read_part("a.txt", Some(9), None).unwrap(), "[line 9 is past the end: the file has 3 lines]");
    assert_eq!(files.read("empty").unwrap(), "[the file is empty]");
    assert_eq!(files.read("dos.txt").unwrap(), "one\ntwo");
    assert!(files.read("missing").unwrap_err().contains("No such file"));
}

#[test]
fn a04_long_lines_and_files_are_truncated_with_a_notice() {
    let files = FileFixture::new()
        .with_file("wide", "é".repeat(5000))
        .with_file("long", "a line of some length\n".repeat(20_000));
    let wide = files.read("wide").unwrap();
    assert!(wide.ends_with("é [8000 bytes of this line left out]") && wide.len() < 2100, "{}", wide.len());
    let long = files.read_part("long", None, Some(100_000)).unwrap();
    assert!(long.len() < 140_000, "{}", long.len());
    let next = long.rsplit_once("of 20000; continue with offset=").unwrap().1.trim_end_matches(']');
    assert!(files.read_part("long", Some(next.parse().unwrap()), Some(1)).unwrap().starts_with("a line"));
}

#[test]
fn x06_line_is_never_cut_through_a_secret() {
    for before in [1969, 1990, 1999] {
        let line = format!("{}{FILE_SECRET}", "x".repeat(before));
        let files = FileFixture::new().with_file("exact", &line).with_file("longer", format!("{line}and more"));
        assert_eq!(files.read("exact").unwrap(), line, "the host masks the complete secret");
        assert_eq!(files.read("longer").unwrap(), format!("{line} [8 bytes of this line left out]"));
    }
    let line = format!("{}{FILE_SECRET}", "x".repeat(2000));
    let files = FileFixture::new().with_file("after", line);
    assert_eq!(files.read("after").unwrap(), format!("{} [32 bytes of this line left out]", "x".repeat(2000)));
    let line = format!("{}{FILE_SECRET} and more", "x".repeat(190));
    let files = FileFixture::new().with_file("edited", format!("one\n{line}\n"));
    let shown = files.edit("edited", "one", "two").unwrap();
    assert!(shown.ends_with(&format!("x{FILE_SECRET}")), "{shown}");
}

#[test]
fn a04_binary_file_is_refused_with_a_hint_and_image_is_shown() {
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01";
    let files = FileFixture::new()
        .with_file("program", b"\x7fELF\0\0")
        .with_file("latin", b"caf\xe9\n")
        .with_file("dot.png", png);
    let files = files.with_file("broken.png", b"\x89PNG\r\n\x1a\nrest");
    assert!(files.read("broken.png").unwrap_err().contains("is broken"));
    for name in ["program", "latin"] {
        let refused = files.read(name).unwrap_err();
        assert!(refused.contains("not UTF-8 text") && refused.contains("bash"), "{refused}");
    }
    let read = FileReadArgs { path: "dot.png".to_owned(), offset: None, limit: None };
    let shown = read_file(files.tool_context(&files.workspace()), &read).unwrap();
    let Content::Parts(parts) = &shown.content else { panic!("{shown:?}") };
    let image = serde_json::to_value(&parts[1]).unwrap();
    assert_eq!(image["image_url"]["url"], "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB");
}

#[test]
fn a04_write_replaces_the_file_and_creates_folders() {
    let files = FileFixture::new();
    assert_eq!(files.write("a/b/new.txt", "one\ntwo\n").unwrap(), "created a/b/new.txt (2 lines, 8 bytes)");
    std::fs::set_permissions(files.path("a/b/new.txt"), std::fs::Permissions::from_mode(0o754)).unwrap();
    assert_eq!(files.write("a/b/new.txt", "three").unwrap(), "overwrote a/b/new.txt (1 line, 5 bytes)");
    assert_eq!(file_text(files.path("a/b/new.txt")), "three");
    let mode = files.path("a/b/new.txt").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o754, "permissions are preserved");
    let entries: Vec<_> = std::fs::read_dir(files.path("a/b")).unwrap().collect();
    assert_eq!(entries.len(), 1, "no temporary file remains: {entries:?}");
    assert!(files.write("a", "x").unwrap_err().contains("directory"));
    assert!(files.write("a/b/new.txt/c", "x").is_err(), "a file is not a folder");
}

#[test]
fn a04_edit_replaces_a_unique_text_and_shows_a_diff() {
    let files = FileFixture::new().with_file("a.txt", "zero\none\ntwo\nthree\nfour\ntwo\n");
    let shown = files.edit("a.txt", "one\ntwo", "1\n2").unwrap();
    assert_eq!(shown, "edited a.txt\n@@ line 2 @@\n zero\n-one\n-two\n+1\n+2\n three\n four");
    assert_eq!(file_text(files.path("a.txt")), "zero\n1\n2\nthree\nfour\ntwo\n");
    let within = files.edit("a.txt", "hre", "HRE").unwrap();
    assert_eq!(within, "edited a.txt\n@@ line 4 @@\n 1\n 2\n-three\n+tHREe\n four\n two");
    let gone = files.edit("a.txt", "four\n", "").unwrap();
    assert_eq!(gone, "edited a.txt\n@@ line 5 @@\n 2\n tHREe\n-four\n two");
}

#[test]
fn a04_ambiguous_edit_is_refused_and_changes_nothing() {
    let files = FileFixture::new().with_file("a.txt", "two\ntwo\n");
    assert!(files.edit("a.txt", "three", "x").unwrap_err().contains("was not found"));
    assert!(files.edit("a.txt", "two", "x").unwrap_err().contains("2 times"));
    assert!(files.edit("a.txt", "", "x").unwrap_err().contains("empty"));
    assert!(files.edit("a.txt", "two", "two").unwrap_err().contains("the same"));
    assert_eq!(file_text(files.path("a.txt")), "two\ntwo\n");
    let all = FileEditArgs { path: "a.txt".to_owned(), old: "two".to_owned(), new: "2".to_owned(), replace_all: true };
    let shown = output_text(edit_file(files.tool_context(&files.workspace()), &all)).unwrap();
    assert!(shown.starts_with("edited a.txt in 2 places\n"), "{shown}");
    assert_eq!(file_text(files.path("a.txt")), "2\n2\n");
}

#[test]
fn a04_diff_of_several_changes_shows_each_line_once_and_as_written() {
    let diff_of = |text: &str, old: &str, new: &str| {
        let files = FileFixture::new().with_file("f", text);
        let (path, old, new) = ("f".to_owned(), old.to_owned(), new.to_owned());
        let all = FileEditArgs { path, old, new, replace_all: true };
        output_text(edit_file(files.tool_context(&files.workspace()), &all)).unwrap()
    };
    assert_eq!(diff_of("hello\n", "l", "X"), "edited f in 2 places\n@@ line 1 @@\n-hello\n+heXXo");
    assert_eq!(
        diff_of("a b\nsame\nb a b\n", "b", "c"),
        "edited f in 3 places\n@@ line 1 @@\n-a b\n+a c\n same\n@@ line 3 @@\n-b a b\n+c a c"
    );
    assert_eq!(diff_of("x\nx\n", "x\n", "y\n"), "edited f in 2 places\n@@ line 1 @@\n-x\n-x\n+y\n+y");
    let many = diff_of("x x\n\nx\n\nx\n\nx x\n", "x", "y");
    assert!(many.ends_with("\n@@ line 5 @@\n-x\n+y\n \n[2 more changes]"), "{many}");
    let in_one_line = diff_of(&"x ".repeat(1000), "x", "y");
    assert!(in_one_line.starts_with("edited f in 1000 places\n@@ line 1 @@\n-x x ") && !in_one_line.contains("more"));
}

#[test]
fn x06_edit_that_would_exceed_the_size_limit_is_refused() {
    let text = "a".repeat(1 << 20);
    let files = FileFixture::new().with_file("a.txt", &text);
    let edit = |new: String| {
        let edit = FileEditArgs { path: "a.txt".to_owned(), old: "a".to_owned(), new, replace_all: true };
        output_text(edit_file(files.tool_context(&files.workspace()), &edit))
    };
    let refused = edit("b".repeat(100_000)).unwrap_err();
    assert!(refused.contains("would be larger than the 16777216 bytes allowed"), "{refused}");
    assert!(edit("b".repeat(17)).is_err());
    assert_eq!(file_text(files.path("a.txt")), text, "the file is unchanged");
    edit("b".repeat(16)).unwrap();
    assert_eq!(files.path("a.txt").metadata().unwrap().len(), 16 << 20);
}

#[test]
fn a04_crlf_file_can_be_edited_with_the_lines_as_shown() {
    let files = FileFixture::new().with_file("dos.txt", "one\r\ntwo\r\nthree\r\n");
    files.edit("dos.txt", "one\ntwo", "1\n2").unwrap();
    assert_eq!(file_text(files.path("dos.txt")), "1\r\n2\r\nthree\r\n");
}

#[test]
fn x06_nothing_outside_the_workspace_is_read_written_or_edited() {
    let files = FileFixture::new().with_file("mine", "mine");
    symlink(files.outside("secret"), files.path("link")).unwrap();
    symlink(files.outside(""), files.path("folder")).unwrap();
    symlink(files.outside("not-there"), files.path("dangling")).unwrap();
    let beside = files.outside("secret").display().to_string();
    let paths = ["/etc/passwd", "../beside/secret", "mine/../../beside/secret", "link", "folder/secret", &beside];
    for path in paths {
        assert!(files.read(path).is_err(), "{path}");
        assert!(files.write(path, "x").is_err(), "{path}");
        assert!(files.edit(path, "secret", "x").is_err(), "{path}");
    }
    for path in ["../beside/new", "folder/new", "folder/sub/new", "dangling", "none/../../beside/new"] {
        assert!(files.write(path, "x").is_err(), "{path}");
    }
    let refused = files.read("link").unwrap_err();
    assert!(refused.contains("link leads through a link, and its target is outside the workspace"), "{refused}");
    let refused = files.read("../beside/secret").unwrap_err();
    assert!(refused.starts_with("../beside/secret is outside the workspace"), "{refused}");
    assert_eq!(file_text(files.outside("secret")), "the secret");
    assert_eq!(std::fs::read_dir(files.outside("")).unwrap().count(), 1, "no file was created");
}

#[test]
fn x06_refusal_does_not_tell_what_exists_outside_the_workspace() {
    let files = FileFixture::new();
    symlink(files.outside(""), files.path("folder")).unwrap();
    symlink("nowhere", files.outside("dangling")).unwrap();
    for name in ["secret", "secret/x", "not-there", "not-there/x", "not-there/../x", "dangling", "dangling/x"] {
        let absolute = files.outside(name).display().to_string();
        assert_eq!(
            files.read(&absolute).unwrap_err(),
            format!("{absolute} is outside the workspace and the allowed paths")
        );
        let relative = format!("../beside/{name}");
        assert_eq!(
            files.read(&relative).unwrap_err(),
            format!("{relative} is outside the workspace and the allowed paths")
        );
        assert!(files.read(&format!("folder/{name}")).unwrap_err().contains("outside the workspace"), "{name}");
        assert!(files.write(&absolute, "x").unwrap_err().ends_with("is outside the workspace and the allowed paths"));
    }
}

#[test]
fn a04_links_within_the_workspace_are_followed() {
    let files = FileFixture::new().with_file("real", "real");
    symlink(files.path("real"), files.path("absolute")).unwrap();
    symlink("real", files.path("relative")).unwrap();
    assert_eq!(files.read("absolute").unwrap(), "real");
    files.write("relative", "changed").unwrap();
    assert_eq!(file_text(files.path("real")), "changed");
    assert!(files.path("relative").is_symlink(), "the link is preserved");
    assert_eq!(files.read(&files.path("real").display().to_string()).unwrap(), "changed");
}

#[test]
fn x06_special_files_are_refused_and_do_not_hang() {
    let mut files = FileFixture::new();
    let status = std::process::Command::new("mkfifo").arg(files.path("pipe")).status().unwrap();
    assert!(status.success());
    assert!(files.read("pipe").unwrap_err().contains("not a regular file"));
    assert!(files.write("pipe", "x").unwrap_err().contains("not a regular file"));
    assert!(files.read(".").unwrap_err().contains("directory"));
    files.bounds.extra_roots = vec![PathBuf::from("/")];
    for path in ["/dev/zero", "/proc/self/environ", "/sys/kernel/notes"] {
        assert!(files.read(path).unwrap_err().contains("is a kernel interface"), "{path}");
    }
}

#[test]
fn x06_allowed_roots_are_open_and_denied_ones_stay_closed() {
    let mut files = FileFixture::new();
    let secret = files.outside("secret").display().to_string();
    files.bounds.extra_roots = vec![files.outside("")];
    assert_eq!(files.read(&secret).unwrap(), "the secret");
    files.write(&files.outside("new").display().to_string(), "x").unwrap();
    files.bounds.denied = vec![files.outside("")];
    assert!(files.read(&secret).unwrap_err().contains("is in Capstan's own directory"));
    files.bounds = PathBounds { extra_roots: Vec::new(), denied: vec![files.path("home")] };
    std::fs::create_dir(files.path("home")).unwrap();
    std::fs::write(files.path("home/config.toml"), "").unwrap();
    for result in [files.read("home/config.toml"), files.write("home/config.toml", "x"), files.write("home/new", "x")] {
        assert!(result.unwrap_err().contains("is in Capstan's own directory"), "inside the workspace too");
    }
}

#[test]
fn a04_concurrent_edits_of_one_file_are_all_applied() {
    let lines: Vec<String> = (10..40).map(|number| format!("line {number}")).collect();
    let files = FileFixture::new().with_file("notes.txt", lines.join("\n"));
    std::thread::scope(|scope| {
        for number in 10..40 {
            let files = &files;
            scope.spawn(move || files.edit("notes.txt", &format!("line {number}"), &format!("done {number}")).unwrap());
        }
    });
    let text = std::fs::read_to_string(files.path("notes.txt")).unwrap();
    assert_eq!(text, lines.join("\n").replace("line", "done"));
}

#[test]
fn a10_writes_conflict_only_when_paths_name_the_same_file() {
    let files = FileFixture::new().with_file("a.txt", "a").with_file("b.txt", "b");
    symlink("a.txt", files.path("link")).unwrap();
    symlink(files.workspace(), files.path("here")).unwrap();
    let slots = super::change_slots();
    let (write, edit) = (super::write(PathBounds::default(), &slots), super::edit(PathBounds::default(), &slots));
    let effect_of = |tool: &FnTool, path: &str| {
        tool.effect(&JsonObject::from_iter([("path".to_owned(), path.into())]), &files.workspace())
    };
    let first = effect_of(&write, "a.txt");
    let absolute = files.path("a.txt").display().to_string();
    for path in ["a.txt", "./a.txt", "link", "here/a.txt", "here/../workspace/a.txt", absolute.as_str()] {
        assert!(first.conflicts_with(&effect_of(&edit, path)), "{path} is the same file");
    }
    for path in ["b.txt", "new.txt", "new/a.txt"] {
        assert!(!first.conflicts_with(&effect_of(&edit, path)), "{path} is a different file");
    }
    assert!(
        effect_of(&write, "new/folder/c").conflicts_with(&effect_of(&write, "new/folder/./c")),
        "even before it exists"
    );
    assert_eq!(effect_of(&write, "new/../c"), ToolEffect::Unrestricted, "its meaning may change");
    assert_eq!(write.effect(&JsonObject::new(), &files.workspace()), ToolEffect::Unrestricted);
}

#[test]
fn x06_files_that_steer_an_agent_are_closed_by_every_spelling() {
    let files = FileFixture::new().with_file("AGENTS.md", "old").with_file("real.md", "old");
    for folder in [".git/hooks", ".agents/skills", "sub"] {
        std::fs::create_dir_all(files.path(folder)).unwrap();
    }
    symlink(files.path("AGENTS.md"), files.path("link.md")).unwrap();
    symlink(files.path(".agents"), files.path("linked")).unwrap();
    symlink(files.path("real.md"), files.path(".env")).unwrap();
    let absolute = files.path("AGENTS.md").display().to_string();
    for path in [
        "AGENTS.md",
        "./sub/../agents.MD",
        &absolute,
        "sub/AGENTS.md",
        "link.md",
        "linked/skills/x/SKILL.md",
        ".agents/skills/x/SKILL.md",
        ".AGENTS/x",
        "capstan.toml",
        ".env",
        "real.md",
        ".git/hooks/pre-commit",
        ".Git/HOOKS/pre-commit",
        ".g\u{200c}it/config",
        ".git/config",
        "sub/.git",
    ] {
        let refused = files.write(path, "new").unwrap_err();
        assert!(refused.contains("steers agents or Git"), "{path}: {refused}");
    }
    assert!(files.edit("AGENTS.md", "old", "new").unwrap_err().contains("steers agents or Git"));
    assert_eq!(std::fs::read_to_string(files.path("AGENTS.md")).unwrap(), "old");
    for open in ["AGENTS.md.txt", "sub/agents", ".gitignore", ".env.example", ".git/HEAD"] {
        files.write(open, "new").unwrap();
    }
}

#[test]
fn x06_targets_of_linked_skills_and_other_hook_folders_are_closed() {
    let config = "[user]\n\tname = x\n[Core]\n\tbare = false\n\tHooksPath = \".husky\"\n";
    let files = FileFixture::new();
    for folder in [".git", ".agents/skills/notes", "shared/deploy", "shared/scripts", ".husky", "mirror.git/hooks"] {
        std::fs::create_dir_all(files.path(folder)).unwrap();
    }
    let files = files.with_file(".git/config", config).with_file("notes.md", "old");
    symlink("../../shared/deploy", files.path(".agents/skills/deploy")).unwrap();
    symlink("../scripts", files.path("shared/deploy/scripts")).unwrap();
    symlink("../../../notes.md", files.path(".agents/skills/notes/SKILL.md")).unwrap();
    symlink("..", files.path(".agents/skills/loop")).unwrap();
    for path in [
        "shared/deploy/SKILL.md",
        "shared/scripts/run.sh",
        "notes.md",
        ".husky/pre-commit",
        ".husky/_/new",
        "mirror.git/hooks/post-receive",
        "mirror.git/config",
    ] {
        let refused = files.write(path, "new").unwrap_err();
        assert!(refused.contains("steers agents or Git"), "{path}: {refused}");
    }
    for open in ["shared/notes.md", "mirror.git/HEAD", "husky/pre-commit", "new.git"] {
        files.write(open, "new").unwrap();
    }
}

#[test]
fn x06_allow_paths_opens_a_closed_file_that_it_names() {
    let mut files = FileFixture::new().with_file("AGENTS.md", "old");
    std::fs::create_dir_all(files.path(".git/hooks")).unwrap();
    files.bounds.extra_roots = vec![files.workspace()];
    assert!(files.write("AGENTS.md", "new").is_err(), "the workspace does not name the file");
    files.bounds.extra_roots = vec![files.path("AGENTS.md"), files.path(".git/hooks")];
    files.write("AGENTS.md", "new").unwrap();
    files.write(".git/hooks/pre-commit", "new").unwrap();
    assert!(files.write("capstan.toml", "new").is_err());
}

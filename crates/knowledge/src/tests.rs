use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use capstan_hooks::contracts::{
    KnowledgeBase, KnowledgeError, KnowledgeQuery, KnowledgeSource as _, RetrievedPassages,
};

use super::{FolderKnowledge, FolderLimits};

/// A folder with these files.
fn temp_folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        write_file(folder.path(), name, text);
    }
    folder
}

fn write_file(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn folder_knowledge(path: &Path, excluded: Vec<PathBuf>, limits: FolderLimits) -> FolderKnowledge {
    let base = KnowledgeBase { id: "docs".to_owned(), description: "the documents".to_owned() };
    FolderKnowledge::new(base, path.to_owned(), excluded, limits)
}

fn default_folder_knowledge(path: &Path) -> FolderKnowledge {
    folder_knowledge(path, Vec::new(), FolderLimits::default())
}

async fn retrieve(folder: &FolderKnowledge, text: &str) -> Result<RetrievedPassages, KnowledgeError> {
    folder.retrieve(KnowledgeQuery { text: text.to_owned(), limit: 100, ..KnowledgeQuery::default() }).await
}

/// Locations of the passages for a query, best first.
async fn hit_locations(folder: &FolderKnowledge, text: &str) -> Vec<String> {
    let passages = retrieve(folder, text).await.unwrap().passages;
    passages.iter().map(|passage| format!("{}:{}", passage.source, passage.line.unwrap())).collect()
}

#[tokio::test]
async fn g11_passages_are_found_with_file_line_and_score() {
    let files = [
        ("guide/start.md", "# Start\nHello.\n\n# Backup\nCopy the home to a safe place.\n"),
        ("notes.txt", "a backup, once"),
    ];
    let folder = temp_folder(&files);
    let docs = default_folder_knowledge(folder.path());
    let answer = retrieve(&docs, "backup of the home").await.unwrap();
    let best = &answer.passages[0];
    assert_eq!((best.source.as_str(), best.line), ("guide/start.md", Some(4)));
    assert_eq!(best.text, "# Backup\nCopy the home to a safe place.");
    assert!(best.score > answer.passages[1].score && answer.passages[1].score > 0.0);
    assert_eq!(answer.skipped, None);
}

#[tokio::test]
async fn g11_changed_added_and_removed_files_are_seen_by_the_next_query() {
    let folder = temp_folder(&[("a.md", "the old rope"), ("b.md", "an anchor")]);
    let docs = default_folder_knowledge(folder.path());
    assert_eq!(hit_locations(&docs, "rope").await, ["a.md:1"]);
    // Same length and at once: neither the size nor a coarse clock reveals the change.
    write_file(folder.path(), "a.md", "the new sail");
    assert_eq!(hit_locations(&docs, "rope").await, Vec::<String>::new());
    assert_eq!(hit_locations(&docs, "sail").await, ["a.md:1"]);
    write_file(folder.path(), "new/c.md", "\n\none more sail");
    assert_eq!(hit_locations(&docs, "sail").await, ["a.md:1", "new/c.md:3"]);
    fs::remove_file(folder.path().join("a.md")).unwrap();
    assert_eq!(hit_locations(&docs, "sail").await, ["new/c.md:3"]);
}

#[tokio::test]
async fn g11_nothing_outside_of_the_folder_is_reached() {
    let outside = temp_folder(&[("secret.md", "the secret rope"), ("home/secrets.toml", "rope key")]);
    let inside = outside.path().join("docs");
    fs::create_dir(&inside).unwrap();
    write_file(&inside, "a.md", "the rope");
    symlink("../secret.md", inside.join("file-link.md")).unwrap();
    symlink("..", inside.join("folder-link")).unwrap();
    symlink("nowhere", inside.join("broken-link")).unwrap();
    let docs = default_folder_knowledge(&inside);
    assert_eq!(hit_locations(&docs, "rope secret key").await, ["a.md:1"]);
    assert_eq!(retrieve(&docs, "rope").await.unwrap().skipped.as_deref(), Some("3 links"));
    // A file may have been replaced by a link since the last query.
    fs::remove_file(inside.join("a.md")).unwrap();
    symlink("../secret.md", inside.join("a.md")).unwrap();
    assert_eq!(hit_locations(&docs, "rope").await, Vec::<String>::new());
}

#[tokio::test]
async fn g11_home_is_excluded_even_inside_a_base() {
    let folder = temp_folder(&[("notes.md", "the rope"), ("capstan/secrets.toml", "rope key")]);
    let home = folder.path().join("capstan");
    let docs = folder_knowledge(folder.path(), vec![home.clone()], FolderLimits::default());
    assert_eq!(hit_locations(&docs, "rope key").await, ["notes.md:1"]);
    let refused =
        retrieve(&folder_knowledge(&home, vec![home.clone()], FolderLimits::default()), "rope").await.unwrap_err();
    assert_eq!(refused.to_string(), "its folder cannot be read");
}

#[tokio::test]
async fn g11_hidden_files_non_text_files_and_pipes_are_skipped() {
    let folder = temp_folder(&[(".env", "rope"), (".git/config", "rope"), ("a.md", "rope"), ("zero.bin", "rope\0")]);
    fs::write(folder.path().join("latin.txt"), b"rope \xe9\xff").unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    let docs = default_folder_knowledge(folder.path());
    assert_eq!(hit_locations(&docs, "rope").await, ["a.md:1"]);
    assert_eq!(retrieve(&docs, "rope").await.unwrap().skipped.as_deref(), Some("3 files that cannot be read as text"));
}

#[tokio::test]
async fn g11_files_that_ignore_rules_of_the_folder_exclude_are_skipped() {
    let outer = temp_folder(&[
        (".gitignore", "kept.md\n"),
        ("docs/.gitignore", "*.log\nbuild/\n!important.log\n"),
        ("docs/kept.md", "rope"),
        ("docs/trace.log", "rope"),
        ("docs/important.log", "rope"),
        ("docs/build/out.md", "rope"),
        ("docs/guide/.gitignore", "draft.md\n"),
        ("docs/guide/draft.md", "rope"),
        ("docs/guide/final.md", "rope"),
        ("docs/notes/.ignore", "!*.log\n"),
        ("docs/notes/day.log", "rope"),
    ]);
    let docs = default_folder_knowledge(&outer.path().join("docs"));
    let mut hits = hit_locations(&docs, "rope").await;
    hits.sort_unstable();
    assert_eq!(hits, ["guide/final.md:1", "important.log:1", "kept.md:1", "notes/day.log:1"]);
    assert_eq!(
        retrieve(&docs, "rope").await.unwrap().skipped,
        None,
        "ignored files are not reported, like hidden ones"
    );
    write_file(outer.path(), "docs/.gitignore", "important.log\n");
    let hits = hit_locations(&docs, "rope").await;
    assert!(hits.contains(&"trace.log:1".to_owned()) && !hits.contains(&"important.log:1".to_owned()), "{hits:?}");
}

#[tokio::test]
async fn g11_query_fails_while_the_folder_is_missing() {
    let outer = temp_folder(&[("docs/a.md", "the rope")]);
    let path = outer.path().join("docs");
    let docs = default_folder_knowledge(&path);
    assert_eq!(hit_locations(&docs, "rope").await, ["a.md:1"]);
    fs::rename(&path, outer.path().join("moved")).unwrap();
    let error = retrieve(&docs, "rope").await.unwrap_err();
    assert_eq!(error.to_string(), "its folder cannot be read", "the error reveals no path of the machine");
    fs::rename(outer.path().join("moved"), &path).unwrap();
    assert_eq!(hit_locations(&docs, "rope").await, ["a.md:1"]);
}

#[tokio::test]
async fn g11_files_beyond_the_limits_are_skipped_and_reported() {
    let folder =
        temp_folder(&[("a.md", "rope 1"), ("b.md", "rope rope rope rope"), ("c.md", "rope 3"), ("d.md", "rope 4")]);
    let limits = FolderLimits { max_file_bytes: 10, max_total_bytes: 12, ..FolderLimits::default() };
    let docs = folder_knowledge(folder.path(), Vec::new(), limits);
    assert_eq!(hit_locations(&docs, "rope").await, ["a.md:1", "c.md:1"]);
    let skipped = retrieve(&docs, "rope").await.unwrap().skipped.unwrap();
    assert_eq!(skipped, "1 file larger than 10 bytes, 1 file beyond 10000 files or 12 bytes in all");
    let few = FolderLimits { max_names: 2, ..FolderLimits::default() };
    assert_eq!(retrieve(&folder_knowledge(folder.path(), Vec::new(), few), "rope").await.unwrap().passages.len(), 2);
    write_file(folder.path(), "deep/er/e.md", "the deepest rope");
    let shallow = FolderLimits { max_depth: 1, ..FolderLimits::default() };
    assert!(
        !hit_locations(&folder_knowledge(folder.path(), Vec::new(), shallow), "deepest")
            .await
            .iter()
            .any(|one| one.contains("e.md"))
    );
}

#[tokio::test]
async fn g11_files_beyond_ten_thousand_are_skipped_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..10_020 {
        write_file(folder.path(), &format!("{:03}/{number:05}.md", number / 100), &format!("rope number n{number}"));
    }
    let docs = default_folder_knowledge(folder.path());
    let answer = retrieve(&docs, "n9999").await.unwrap();
    assert_eq!(answer.passages[0].source, "099/09999.md");
    assert_eq!(answer.skipped.as_deref(), Some("20 files beyond 10000 files or 33554432 bytes in all"));
    assert_eq!(retrieve(&docs, "rope").await.unwrap().passages.len(), 100, "as many as were asked for");
    assert!(hit_locations(&docs, "n10019").await.is_empty());
}

#[tokio::test]
async fn g11_large_sparse_file_is_skipped() {
    let folder = temp_folder(&[("a.md", "rope")]);
    File::create(folder.path().join("huge.md")).unwrap().set_len(1 << 40).unwrap();
    let docs = default_folder_knowledge(folder.path());
    let answer = retrieve(&docs, "rope").await.unwrap();
    assert_eq!(answer.skipped.as_deref(), Some("1 file larger than 1048576 bytes"));
    assert_eq!(answer.passages.len(), 1);
}

/// A file cannot be statted, although its folder can be listed: here because its path is too long, elsewhere in a folder
/// without the permission to search it.
#[tokio::test]
async fn g11_a_file_that_cannot_be_statted_is_counted_as_unreadable() {
    const MAX_PATH_BYTES: usize = 4096;
    let folder = temp_folder(&[("a.md", "rope")]);
    let path = folder.path().canonicalize().unwrap();
    let mut parent = File::open(&path).unwrap();
    let mut path_len = path.as_os_str().len();
    while path_len < MAX_PATH_BYTES - 8 {
        let name = "d".repeat((MAX_PATH_BYTES - 8 - path_len).min(200));
        rustix::fs::mkdirat(&parent, &name, rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        parent = rustix::fs::openat(&parent, &name, flags, rustix::fs::Mode::empty()).unwrap().into();
        path_len += 1 + name.len();
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    rustix::fs::openat(&parent, "unreachable.md", flags, rustix::fs::Mode::RWXU).unwrap();
    let docs = default_folder_knowledge(&path);
    let answer = retrieve(&docs, "rope").await.unwrap();
    assert_eq!(answer.passages.len(), 1);
    assert_eq!(answer.skipped.as_deref(), Some("1 file that could not be read"));
}

#[tokio::test]
async fn g11_concurrent_queries_are_all_answered() {
    let folder = temp_folder(&[("a.md", "the rope")]);
    let docs = default_folder_knowledge(folder.path());
    let answers = futures::future::join_all((0..50).map(|_| hit_locations(&docs, "rope"))).await;
    assert!(answers.iter().all(|answer| *answer == ["a.md:1"]));
}

//! Tape files: reads, appends and damage.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use crate::support::{all, entry, ids, message, name, sample, texts};
use capstan_protocol::EntryId;
use capstan_store::{JsonlTapeStore, SqliteStore, jsonl};
use capstan_tape::{Batch, Fact, JournalStore as _, NewTape, Store, StoreError, TapeRepository, TapeSlice, TapeStore};
use serde_json::{Value, json};
use tempfile::TempDir;

struct TapeDirectory {
    directory: TempDir,
    tapes: JsonlTapeStore,
}

impl TapeDirectory {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tapes = JsonlTapeStore::open(directory.path()).unwrap();
        Self { directory, tapes }
    }

    fn with_content(content: impl AsRef<[u8]>) -> Self {
        let files = Self::new();
        fs::write(files.path(), content).unwrap();
        files
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("t.jsonl")
    }

    fn content(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    fn torn_path(&self, number: u32) -> PathBuf {
        self.directory.path().join(format!("t.jsonl.torn-{number}"))
    }

    async fn read_texts(&self) -> Vec<String> {
        texts(&self.tapes.read(&name("t"), &TapeSlice::all()).await.unwrap())
    }

    async fn append(&self, id: u64, text: &str) -> Result<(), StoreError> {
        self.tapes.append(&name("t"), &[message(id, text)]).await
    }
}

fn jsonl_lines(texts: &[&str]) -> String {
    (1..).zip(texts).map(|(id, text)| jsonl::format_line(&message(id, text)) + "\n").collect()
}

#[test]
fn p12_sample_is_written_as_it_was_read() {
    let file = jsonl::read_file(sample()).unwrap();
    assert_eq!(file.torn_line, None);
    let written: String = file.entries.iter().map(|entry| jsonl::format_line(entry) + "\n").collect();
    assert_eq!(written, fs::read_to_string(sample()).unwrap());
}

#[test]
fn p12_unknown_kinds_and_keys_are_written_as_they_were_read() {
    let line = r#"{"id": 3, "kind": "bub.custom", "payload": [1, {"z": 1.5, "a": "é🐋"}], "meta": {}, "date": "once", "vendor": {"b": 1, "a": null}}"#;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("any.jsonl");
    fs::write(&path, line).unwrap();
    let file = jsonl::read_file(&path).unwrap();
    assert_eq!(jsonl::format_line(&file.entries[0]), line);
}

#[tokio::test]
async fn p12_sample_passes_through_every_store_unchanged() {
    let original = jsonl::read_file(sample()).unwrap().entries;
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(directory.path().join("capstan.db")).unwrap());
    let tape = name("t");
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
    batch.push(Fact::ImportEntries { tape: tape.clone(), entries: original.clone() });
    store.commit(batch).await.unwrap();
    let exported: Vec<String> = all(&*store, &tape).await.iter().map(jsonl::format_line).collect();
    assert_eq!(exported, original.iter().map(jsonl::format_line).collect::<Vec<_>>());

    let files = Arc::new(JsonlTapeStore::open(directory.path().join("tapes")).unwrap());
    files.append(&name("live"), &original).await.unwrap();
    assert_eq!(fs::read(files.path(&name("live"))).unwrap(), fs::read(sample()).unwrap());
    let live = TapeRepository::with_external_store(store, files);
    assert_eq!(live.window(&name("live")).await.unwrap().anchor.unwrap().name(), Some("phase-1"));
}

#[tokio::test]
async fn p12_torn_line_is_skipped_by_reads_and_quarantined_by_the_next_append() {
    let torn = r#"{"id": 3, "kind": "mess"#;
    let files = TapeDirectory::with_content(jsonl_lines(&["one", "two"]) + torn);
    assert_eq!(files.read_texts().await, ["one", "two"]);
    assert_eq!(ids(&files.tapes.read(&name("t"), &TapeSlice::last()).await.unwrap()), [2]);
    assert_eq!(files.content(), jsonl_lines(&["one", "two"]) + torn, "a read changes nothing");
    assert_eq!(files.tapes.verify().await.unwrap().len(), 1);

    files.append(3, "three").await.unwrap();
    assert_eq!(files.content(), jsonl_lines(&["one", "two", "three"]));
    assert_eq!(fs::read_to_string(files.torn_path(1)).unwrap(), torn);
    assert_eq!(files.tapes.verify().await.unwrap(), []);
    assert_eq!(files.tapes.tapes().await.unwrap(), [name("t")], "a quarantined line is not a tape");

    fs::write(files.path(), files.content() + "\u{0}\u{0}\n").unwrap();
    files.append(4, "four").await.unwrap();
    assert_eq!(files.read_texts().await, ["one", "two", "three", "four"]);
    assert_eq!(fs::read(files.torn_path(2)).unwrap(), b"\0\0\n");
    assert_eq!(fs::read_to_string(files.torn_path(1)).unwrap(), torn, "earlier quarantined lines are not overwritten");
}

#[tokio::test]
async fn p12_file_with_only_a_torn_line_can_be_appended_to() {
    let files = TapeDirectory::with_content("{\"id\": 1");
    assert!(files.read_texts().await.is_empty());
    files.append(1, "one").await.unwrap();
    assert_eq!(files.content(), jsonl_lines(&["one"]));
    assert_eq!(fs::read_to_string(files.torn_path(1)).unwrap(), "{\"id\": 1");
}

#[tokio::test]
async fn p12_entry_without_its_newline_is_preserved() {
    let files = TapeDirectory::with_content(jsonl_lines(&["one", "two"]).trim_end());
    assert_eq!(files.read_texts().await, ["one", "two"]);
    files.append(3, "three").await.unwrap();
    assert_eq!(files.content(), jsonl_lines(&["one", "two", "three"]));
    assert!(!files.torn_path(1).exists());
}

#[tokio::test]
async fn p12_error_names_a_corrupt_line_in_the_middle() {
    let files = TapeDirectory::with_content(
        jsonl_lines(&["one"]) + "{broken\n" + &jsonl::format_line(&message(3, "three")) + "\n",
    );
    let assert_named = |error: StoreError| match error {
        StoreError::Corrupt { what, detail, .. } => {
            assert_eq!(what, files.path().display().to_string());
            assert!(detail.starts_with("line 2: "), "{detail}");
        }
        other => panic!("{other}"),
    };
    assert_named(jsonl::read_file(files.path()).unwrap_err());
    assert_named(files.tapes.read(&name("t"), &TapeSlice::all()).await.unwrap_err());
    let newest = TapeSlice { limit: None, ..TapeSlice::last() };
    assert_named(files.tapes.read(&name("t"), &newest).await.unwrap_err());
    assert!(files.tapes.verify().await.unwrap()[0].message.contains("line 2: "));

    let damaged = TapeDirectory::with_content(jsonl_lines(&["one"]) + "{broken\n{torn");
    let error = damaged.append(2, "two").await.unwrap_err();
    assert!(error.to_string().contains("line 2: "), "{error}");
    assert!(damaged.content().ends_with("{torn"), "a damaged file is not changed");
}

#[tokio::test]
async fn p14_turn_reads_no_entries_before_the_last_anchor() {
    // Reading the first line fails.
    let mut content = "{broken\n".to_owned();
    for id in 1..5_000 {
        let kind = if id == 4_900 { "anchor" } else { "event" };
        content += &(jsonl::format_line(&entry(id, kind, json!({"name": "x", "pad": "y".repeat(50)}))) + "\n");
    }
    let files = TapeDirectory::with_content(content);
    let store: Arc<dyn Store> = Arc::new(capstan_tape::MemoryStore::new());
    let tapes = TapeRepository::with_external_store(store, Arc::new(files.tapes.clone()));
    let window = tapes.window(&name("t")).await.unwrap();
    assert_eq!(window.anchor.unwrap().id, EntryId(4_900));
    assert_eq!(window.following.len(), 99);
    let mut batch = Batch::new();
    batch.append(&name("t"), crate::support::user("next"));
    tapes.commit(batch).await.unwrap();
    assert_eq!(ids(&files.tapes.read(&name("t"), &TapeSlice::last()).await.unwrap()), [5_000]);
    assert!(files.tapes.read(&name("t"), &TapeSlice::all()).await.is_err());
}

#[tokio::test]
async fn p12_file_with_ids_out_of_order_can_be_read_but_not_imported() {
    let entries = [message(1, "one"), message(2, "two"), message(2, "again"), message(1, "back")];
    let files =
        TapeDirectory::with_content(entries.iter().map(|entry| jsonl::format_line(entry) + "\n").collect::<String>());
    assert_eq!(files.read_texts().await, ["one", "two", "again", "back"]);
    let read = jsonl::read_file(files.path()).unwrap().entries;
    assert_eq!(ids(&read), [1, 2, 2, 1]);
    let problems: Vec<String> =
        files.tapes.verify().await.unwrap().into_iter().map(|problem| problem.message).collect();
    assert_eq!(problems, ["entry 2 does not follow entry 2", "entry 1 does not follow entry 2"]);
    let store = capstan_tape::MemoryStore::new();
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(name("t"))));
    batch.push(Fact::ImportEntries { tape: name("t"), entries: read });
    assert_eq!(store.commit(batch).await, Err(StoreError::OutOfOrder { tape: name("t"), id: 2, head: 2 }));
}

#[tokio::test]
async fn d09_existing_id_with_other_content_is_rejected() {
    let files = TapeDirectory::with_content(jsonl_lines(&["one", "two"]));
    let rejected = files.append(2, "something else").await;
    assert_eq!(rejected, Err(StoreError::OutOfOrder { tape: name("t"), id: 2, head: 2 }));
    let backwards = files.tapes.append(&name("t"), &[message(4, "four"), message(3, "three")]).await;
    assert_eq!(backwards, Err(StoreError::OutOfOrder { tape: name("t"), id: 3, head: 4 }));
    assert_eq!(files.content(), jsonl_lines(&["one", "two"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p12_two_writers_of_one_file_do_not_interleave() {
    let files = TapeDirectory::new();
    let others = JsonlTapeStore::open(files.directory.path()).unwrap();
    let entries: Vec<_> = (1..=40).map(|id| message(id, &"x".repeat(10_000))).collect();
    let appends: Vec<_> = (1..=40)
        .map(|count| {
            let tapes = if count % 2 == 0 { files.tapes.clone() } else { others.clone() };
            let first = entries[..count].to_vec();
            tokio::spawn(async move { tapes.append(&name("t"), &first).await })
        })
        .collect();
    for append in appends {
        append.await.unwrap().unwrap();
    }
    assert_eq!(jsonl::read_file(files.path()).unwrap().entries, entries);
}

/// Repository with a database and these files as its external tape store.
fn live_tapes(files: &TapeDirectory) -> TapeRepository {
    let store = SqliteStore::open(files.directory.path().join("capstan.db")).unwrap();
    TapeRepository::with_external_store(Arc::new(store), Arc::new(files.tapes.clone()))
}

async fn problem_messages(tapes: &TapeRepository) -> Vec<String> {
    tapes.verify().await.unwrap().into_iter().map(|problem| problem.message).collect()
}

#[tokio::test]
async fn p01_line_removed_from_a_live_tape_is_reported() {
    let files = TapeDirectory::new();
    let tapes = live_tapes(&files);
    tapes.commit(crate::support::messages(&name("t"), &["one", "two", "three", "four", "five"])).await.unwrap();
    tapes.reset(&name("t"), false).await.unwrap();
    assert_eq!(problem_messages(&tapes).await, Vec::<String>::new());
    let content = files.content();
    let without = |removed: &[usize]| -> String {
        let remaining = content.lines().enumerate().filter(|(index, _)| !removed.contains(index));
        remaining.map(|(_, line)| line.to_owned() + "\n").collect()
    };
    for (removed, problem) in [(&[0][..], "entry 1 is missing"), (&[1, 2], "entries 2 to 3 are missing")] {
        fs::write(files.path(), without(removed)).unwrap();
        assert_eq!(problem_messages(&tapes).await, [format!("{problem} in its tape store")]);
    }
    fs::write(files.path(), without(&[6])).unwrap();
    assert!(problem_messages(&tapes).await[0].contains("up to 6, but was given entries up to 7"));
    fs::write(files.path(), without(&[2, 5, 6])).unwrap();
    assert_eq!(problem_messages(&tapes).await.len(), 2, "the gap and the missing end");
    fs::write(files.path(), &content).unwrap();
    assert_eq!(problem_messages(&tapes).await, Vec::<String>::new());
}

#[tokio::test]
async fn p12_gaps_of_imported_tapes_are_no_damage_and_later_ones_are() {
    let files = TapeDirectory::with_content([2, 7].map(|id| jsonl::format_line(&message(id, "old")) + "\n").concat());
    let tapes = live_tapes(&files);
    tapes.commit(crate::support::messages(&name("t"), &["eight", "nine"])).await.unwrap();
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(name("imported"))));
    batch.push(Fact::ImportEntries { tape: name("imported"), entries: vec![message(3, "three"), message(5, "five")] });
    tapes.commit(batch).await.unwrap();
    tapes.fork(&name("t"), &name("fork"), Some(EntryId(8))).await.unwrap();
    tapes.commit(crate::support::messages(&name("fork"), &["on the fork", "and more"])).await.unwrap();
    tapes.merge(&name("fork")).await.unwrap();
    assert_eq!(problem_messages(&tapes).await, Vec::<String>::new());

    let fork = files.tapes.path(&name("fork"));
    let content = fs::read_to_string(&fork).unwrap();
    fs::write(&fork, content.split_once('\n').unwrap().1).unwrap();
    assert_eq!(problem_messages(&tapes).await, ["entry 9 is missing in its tape store"]);
    let lines: Vec<String> = files.content().lines().map(|line| line.to_owned() + "\n").collect();
    fs::write(files.path(), [&lines[..2], &lines[3..]].concat().concat()).unwrap();
    assert_eq!(problem_messages(&tapes).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p12_verify_during_writes_finds_no_damage() {
    let files = TapeDirectory::new();
    let (tapes, others) = (live_tapes(&files), live_tapes(&files));
    let writing = tokio::spawn(async move {
        for _ in 0..50 {
            others.commit(crate::support::messages(&name("t"), &["x", "y", "z"])).await.unwrap();
        }
    });
    while !writing.is_finished() {
        assert_eq!(problem_messages(&tapes).await, Vec::<String>::new());
    }
    writing.await.unwrap();
    assert_eq!(ids(&files.tapes.read(&name("t"), &TapeSlice::last()).await.unwrap()), [150]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p12_verify_waits_for_a_running_append_and_reports_no_torn_line() {
    let files = TapeDirectory::with_content(jsonl_lines(&["one"]));
    let mut appending = fs::File::options().append(true).open(files.path()).unwrap();
    appending.lock().unwrap();
    let line = jsonl::format_line(&message(2, "two")) + "\n";
    let (start, end) = line.split_at(9);
    appending.write_all(start.as_bytes()).unwrap();
    let (tapes, (send, started)) = (files.tapes.clone(), std::sync::mpsc::channel());
    let verifying = tokio::spawn(async move {
        send.send(()).unwrap();
        tapes.verify().await
    });
    started.recv().unwrap();
    // Long enough for a check that does not wait.
    (0..10_000).for_each(|_| std::thread::yield_now());
    appending.write_all(end.as_bytes()).unwrap();
    appending.unlock().unwrap();
    assert_eq!(verifying.await.unwrap().unwrap(), []);
}

#[test]
fn p12_error_names_a_directory_that_cannot_be_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "").unwrap();
    let error = JsonlTapeStore::open(&path).unwrap_err();
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    let missing = jsonl::read_file(directory.path().join("none.jsonl")).unwrap_err();
    assert!(matches!(missing, StoreError::Io { .. }), "{missing}");
}

#[test]
fn p12_read_file_returns_a_torn_line() {
    let files = TapeDirectory::with_content(jsonl_lines(&["one"]) + "\n{\"id\": 2, \"kind\": \"é");
    let file = jsonl::read_file(files.path()).unwrap();
    assert_eq!(ids(&file.entries), [1]);
    let torn = file.torn_line.unwrap();
    assert_eq!((torn.line_number, torn.byte_len, torn.text.as_str()), (3, 21, "{\"id\": 2, \"kind\": \"é"));
    assert_eq!(Value::from(torn.line_number), 3);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn x02_full_disk_is_distinguished_from_other_io_errors() {
    let files = TapeDirectory::new();
    std::os::unix::fs::symlink("/dev/full", files.path()).unwrap();
    let what = files.path().display().to_string();
    assert_eq!(files.append(1, "one").await, Err(StoreError::DiskFull { what }));
}

//! Checks that every error code has a page, an entry in the index and a use, and that its id is spelled only in the
//! table.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use capstan_protocol::ErrorCode;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn exit_text(code: ErrorCode) -> String {
    let class = code.exit_class();
    match class.status() {
        Some(status) => format!("{status} ({})", format!("{class:?}").to_lowercase()),
        None => "None: the error is reported and the process continues.".to_owned(),
    }
}

/// Text of a section of a page, without its heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let body = page.split_once(&format!("\n## {heading}\n\n")).map(|(_, rest)| rest).unwrap_or_default();
    body.split("\n## ").next().unwrap_or_default().trim()
}

#[test]
fn d17_every_code_has_a_page_of_the_same_structure() {
    for code in ErrorCode::ALL_CODES {
        let path = repository().join(code.page());
        let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", code.page()));
        let (head, _) = page.split_once("\n## ").unwrap_or_else(|| panic!("{code}: no sections"));
        let head = head.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(head, format!("# {code} {}", code.meaning()), "title and meaning");
        let headings: Vec<&str> = page.lines().filter(|line| line.starts_with('#')).skip(1).collect();
        assert_eq!(headings, ["## Cause", "## What to do", "## Exit code"], "{code}");
        for heading in ["Cause", "What to do"] {
            assert!(!section(&page, heading).is_empty(), "{code}: {heading}");
        }
        let exit = section(&page, "Exit code");
        assert!(exit.starts_with(&exit_text(*code)), "{code}: {exit}");
        assert!(page.lines().all(|line| line.chars().count() <= 100), "{code}: lines wrap at 100");
    }
}

#[test]
fn d17_every_page_belongs_to_a_code() {
    let files = fs::read_dir(repository().join("docs/errors")).expect("docs/errors");
    for file in files {
        let name = file.expect("a page").file_name().to_string_lossy().into_owned();
        let code = ErrorCode::from_id(name.trim_end_matches(".md"));
        assert!(name == "README.md" || code.is_some(), "{name} belongs to no code");
    }
}

/// `UPDATE_ERROR_INDEX=1 cargo nextest run -p capstan-protocol` writes the index.
#[test]
fn d17_the_index_of_the_pages_is_current() {
    let mut index = String::from(
        "# Error codes\n\n\
         A command that fails prints `error[CODE]: MESSAGE` and a hint to the standard error, and exits with\n\
         the status below. Codes are stable: they are also recorded with failed events and sent to runners\n\
         and channels.\n\n\
         This page is generated from the table in `crates/protocol/src/error_code/table.rs`.\n\n\
         | code | meaning | exit code |\n|---|---|---|\n",
    );
    for code in ErrorCode::ALL_CODES {
        let exit = code.exit_class().status().map_or_else(|| "none".to_owned(), |status| status.to_string());
        writeln!(index, "| [{code}]({code}.md) | {} | {exit} |", code.meaning()).expect("write to a string");
    }
    let path = repository().join("docs/errors/README.md");
    if std::env::var_os("UPDATE_ERROR_INDEX").is_some() {
        fs::write(&path, &index).expect("the index can be written");
    }
    let current = fs::read_to_string(&path).unwrap_or_default();
    assert!(current == index, "stale; run UPDATE_ERROR_INDEX=1 cargo nextest run -p capstan-protocol");
}

/// Source files of all crates, without their tests.
fn production_sources() -> Vec<(PathBuf, String)> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for file in fs::read_dir(folder).expect("a folder of sources") {
            let path = file.expect("a source").path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut files = Vec::new();
    for folder in fs::read_dir(repository().join("crates")).expect("crates") {
        let source = folder.expect("a crate").path().join("src");
        if source.is_dir() {
            collect(&source, &mut files);
        }
    }
    let is_production = |path: &PathBuf| !path.file_name().unwrap_or_default().to_string_lossy().ends_with("tests.rs");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source");
        let production = text.split_once("#[cfg(test)]\nmod ").map_or(text.as_str(), |(before, _)| before).to_owned();
        (path, production)
    };
    files.into_iter().filter(is_production).map(read).collect()
}

fn is_code_table(path: &Path) -> bool {
    path.ends_with("error_code/table.rs")
}

#[test]
fn d17_every_code_is_used() {
    let mut used = BTreeSet::new();
    for (path, text) in production_sources() {
        if path.components().any(|part| part.as_os_str() == "error_code") {
            continue;
        }
        for prefix in ["ErrorCode::", "#[code("] {
            let name = |rest: &str| rest.split(|c: char| !c.is_alphanumeric()).next().map(ToOwned::to_owned);
            used.extend(text.split(prefix).skip(1).filter_map(name));
        }
    }
    let unused: Vec<&ErrorCode> =
        ErrorCode::ALL_CODES.iter().filter(|code| !used.contains(&format!("{code:?}"))).collect();
    assert!(unused.is_empty(), "no error carries {unused:?}");
}

#[test]
fn d17_ids_of_codes_are_spelled_only_in_the_table() {
    let sources = production_sources();
    assert!(sources.iter().any(|(path, _)| is_code_table(path)), "the sources were found");
    let mut literals = Vec::new();
    for (path, text) in sources.iter().filter(|(path, _)| !is_code_table(path)) {
        // `usage` is also the name of a JSON field.
        for code in ErrorCode::ALL_CODES.iter().filter(|code| **code != ErrorCode::Usage) {
            let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let spelled = lines.filter(|line| line.contains(&format!("\"{code}\""))).count();
            literals.extend((spelled > 0).then(|| format!("{code} in {}", path.display())));
        }
    }
    assert!(literals.is_empty(), "use ErrorCode: {literals:#?}");
}

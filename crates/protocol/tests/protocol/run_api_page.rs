//! Generates the table of methods in `docs/run-api.md` from the list of methods.

use std::fmt::Write as _;
use std::path::PathBuf;

use capstan_protocol::run_api::ApiMethod;

const TABLE_START: &str = "<!-- methods: generated, see Adding a method -->\n";
const TABLE_END: &str = "<!-- end of methods -->\n";

/// Description of a type, by its name in the schemas.
fn type_words(rust: &str) -> String {
    let rust = rust.replace(' ', "");
    let parameter = |generic: &str| rust.strip_prefix(generic)?.strip_prefix('<')?.strip_suffix('>');
    if let Some(item) = parameter("Vec").or_else(|| parameter("Arc")) {
        format!("list of {}", type_words(item.trim_matches(['[', ']'])))
    } else if let Some(value) = parameter("Option") {
        format!("{} or null", type_words(value))
    } else if let Some(value) = parameter("Box") {
        type_words(value)
    } else if let Some(item) = parameter("CursorPage") {
        format!("`{item}Page`")
    } else {
        match rust.as_str() {
            "()" | "EmptyCall" => "nothing".to_owned(),
            "Value" => "any JSON".to_owned(),
            "String" => "text".to_owned(),
            "bool" => "true or false".to_owned(),
            name => format!("`{name}`"),
        }
    }
}

/// Table with a row for each method.
fn method_table() -> String {
    let mut table =
        "| method | required grant | request | response | description |\n|---|---|---|---|---|\n".to_owned();
    for method in ApiMethod::METHODS {
        let lines = method.description().iter().map(|line| line.trim());
        let description: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
        let request = type_words(method.request_type());
        let response = type_words(method.response_type());
        let response = if method.is_streaming() { format!("stream of {response}") } else { response };
        let (needs, description) = (method.required_grant(), description.join(" "));
        writeln!(table, "| `{method}` | {needs} | {request} | {response} | {description} |").unwrap();
    }
    table
}

/// `UPDATE_DOCS=1 cargo nextest run -p capstan-protocol` rewrites the table.
#[test]
fn k11_run_api_page_lists_all_methods() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/run-api.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(TABLE_START).expect("start marker of the table");
    let (_, after) = rest.split_once(TABLE_END).expect("end marker of the table");
    let expected = format!("{before}{TABLE_START}{}{TABLE_END}{after}", method_table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    } else {
        assert!(page == expected, "the table is stale; run UPDATE_DOCS=1 cargo nextest run -p capstan-protocol");
    }
}

//! The schemas that are checked in are the schemas of the types.

use std::path::PathBuf;

use capstan_protocol::schema;

fn schema_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("schema")
}

/// `UPDATE_SCHEMAS=1 cargo nextest run -p capstan-protocol` writes them anew.
#[test]
fn checked_in_schemas_are_current() {
    let update = std::env::var_os("UPDATE_SCHEMAS").is_some();
    if update {
        std::fs::create_dir_all(schema_dir()).unwrap();
    }
    let mut stale = Vec::new();
    for document in schema::schema_files() {
        let path = schema_dir().join(document.file);
        let wanted = serde_json::to_string_pretty(&document.schema).unwrap() + "\n";
        if update {
            std::fs::write(&path, &wanted).unwrap();
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != wanted {
            stale.push(document.file);
        }
    }
    assert!(stale.is_empty(), "stale: {stale:?}; run UPDATE_SCHEMAS=1 cargo nextest run -p capstan-protocol");
}

#[test]
fn no_schema_file_is_left_over() {
    let known: Vec<String> = schema::schema_files().iter().map(|d| d.file.to_owned()).collect();
    for file in std::fs::read_dir(schema_dir()).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name), "{name} belongs to no type");
    }
}

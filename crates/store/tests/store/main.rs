//! The stores: conformance, files, migrations, and faults of disk, memory and processes.

mod bub_format;
mod conformance;
mod faults;
mod jsonl_files;
mod sqlite_chain;
mod sqlite_commit;
mod sqlite_file;
mod sqlite_migration;
mod sqlite_payloads;
mod sqlite_snapshot;
mod sqlite_upgrade;
mod support;

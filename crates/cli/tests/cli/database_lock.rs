//! The real binary while another program locks the database.
#![cfg(target_os = "linux")]

use crate::support::{BinaryOutput, CliFixture};
use capstan_testing::disk::DiskLayer;
use rusqlite::Connection;

#[test]
fn x02_locked_database_is_readable_and_a_run_reports_the_lock() {
    let fixture = CliFixture::new();
    fixture.capstan(&["run", "hello"]).data();
    let before = fixture.entries();
    let other_program = Connection::open(fixture.database()).unwrap();
    other_program.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Waiting would take seconds.
    let layer = DiskLayer::for_folder(&fixture.home()).with_instant_sleep();
    let mut run = fixture.command(&["run", "more"]);
    layer.preload_into(&mut run);
    let output = BinaryOutput::from(run.output().unwrap()).refused("store-busy", 4);
    let message = format!("{} cannot be written: another process keeps it locked", fixture.database().display());
    assert!(output.stderr.contains(&message), "{output:?}");
    assert_eq!(fixture.entries(), before, "readers do not wait");

    other_program.execute_batch("ROLLBACK").unwrap();
    fixture.capstan(&["run", "more"]).data();
    fixture.assert_undamaged();
}

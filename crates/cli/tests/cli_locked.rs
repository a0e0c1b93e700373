//! The real binary while another program keeps the database locked.
#![cfg(target_os = "linux")]

mod cli_support;

use capstan_testing::disk::DiskLayer;
use cli_support::{BinaryOutput, CliFixture};
use rusqlite::Connection;

#[test]
fn x02_a_locked_database_can_be_read_and_a_run_says_that_it_is_locked() {
    let place = CliFixture::new();
    place.capstan(&["run", "hello"]).data();
    let before = place.entries();
    let other_program = Connection::open(place.database()).unwrap();
    other_program.execute_batch("BEGIN IMMEDIATE").unwrap();
    // It would wait for seconds.
    let layer = DiskLayer::for_folder(&place.home()).with_instant_sleep();
    let mut run = place.command(&["run", "more"]);
    layer.preload_into(&mut run);
    let said = BinaryOutput::from(run.output().unwrap()).refused("store-busy", 4);
    let message = format!("{} cannot be written: another process keeps it locked", place.database().display());
    assert!(said.stderr.contains(&message), "{said:?}");
    assert_eq!(place.entries(), before, "who reads does not wait");

    other_program.execute_batch("ROLLBACK").unwrap();
    place.capstan(&["run", "more"]).data();
    place.assert_undamaged();
}

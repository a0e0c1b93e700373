//! A disk that fails on demand, for the files of one folder and without root.
//!
//! [`DiskLayer`] is loaded into a process (Linux, `LD_PRELOAD`) and stands between it and the folder: it can write down
//! every call that changes something there, it can run out of room, and it can fail to sync. What was written down is read as [`Call`]s; put
//! on a [`Platter`] up to any of them, it tells what would be left had the power gone at that moment. See [`Cut`] for
//! what a disk may do with what it was not asked to sync.

mod call;
mod chance;
mod file;
mod names;
mod platter;

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

pub use call::Call;
pub use platter::{Cut, Image, Platter};

const SOURCE: &str = include_str!("disk/layer.c");

/// What is loaded into a process to watch or to fail its disk.
pub struct DiskLayer {
    folder: PathBuf,
    /// Beside the folder, so that nothing of ours is in it: the library, the log, and the mark that there is room.
    own: TempDir,
    records: bool,
    room: Option<u64>,
    hurries: bool,
}

impl DiskLayer {
    /// A layer over a folder that is there. It does nothing yet.
    ///
    /// # Panics
    ///
    /// Where there is no C compiler, which the bundled `SQLite` needs too.
    pub fn over(folder: &Path) -> Self {
        let own = tempfile::tempdir().expect("a folder for the layer");
        let source = own.path().join("layer.c");
        std::fs::write(&source, SOURCE).expect("the source of the layer");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-pthread", "-o"]).arg(library(&own)).arg(source);
        assert!(compiler.status().expect("cc, a C compiler").success(), "the layer compiles");
        let folder = folder.canonicalize().expect("the folder to watch");
        Self { folder, own, records: false, room: None, hurries: false }
    }

    /// Writes down what processes do to the folder, and what they say on their standard output. Syncing takes no time.
    pub fn recording(mut self) -> Self {
        self.records = true;
        self
    }

    /// The files of the folder may grow by so many bytes in each process; then the disk is full.
    pub fn with_room(mut self, bytes: u64) -> Self {
        self.room = Some(bytes);
        self
    }

    /// Sleeping takes no time. What waits by counting its naps, as `SQLite` does for a lock, is soon done waiting.
    pub fn hurrying(mut self) -> Self {
        self.hurries = true;
        self
    }

    /// Loads the layer into a process that is not started yet.
    pub fn load_into(&self, command: &mut Command) {
        command.env("LD_PRELOAD", library(&self.own)).env("DISK_LAYER_FOLDER", &self.folder);
        if self.records {
            command.env("DISK_LAYER_LOG", self.log());
        }
        if let Some(bytes) = self.room {
            command.env("DISK_LAYER_ROOM", bytes.to_string()).env("DISK_LAYER_ROOM_FILE", self.room_file());
        }
        if self.hurries {
            command.env("DISK_LAYER_HURRY", "1");
        }
        command.env("DISK_LAYER_NO_SYNC_FILE", self.no_sync_file());
    }

    /// The file whose being there makes every sync fail, for processes that run already too.
    pub fn no_sync_file(&self) -> PathBuf {
        self.own.path().join("no-sync")
    }

    /// Gives the disk room without limit, for processes that run already too.
    ///
    /// # Panics
    ///
    /// Where its mark cannot be written.
    pub fn make_room(&self) {
        std::fs::write(self.room_file(), "").expect("the mark that there is room");
    }

    /// The file whose being there gives the disk room.
    pub fn room_file(&self) -> PathBuf {
        self.own.path().join("room")
    }

    /// Everything that was written down so far, in order.
    ///
    /// # Panics
    ///
    /// Where nothing was written down, or it cannot be read.
    pub fn calls(&self) -> Vec<Call> {
        call::read_all(&std::fs::read(self.log()).expect("the log of the layer"))
    }

    /// What was written down when the [log](Self::log) had so many bytes.
    ///
    /// # Panics
    ///
    /// Where it never had.
    pub fn calls_until(&self, bytes: usize) -> Vec<Call> {
        call::read_all(&std::fs::read(self.log()).expect("the log of the layer")[..bytes])
    }

    /// Where it is written down. Whoever wants to know later what the disk had when something was done looks how long it is.
    pub fn log(&self) -> PathBuf {
        self.own.path().join("log")
    }
}

fn library(own: &TempDir) -> PathBuf {
    own.path().join("layer.so")
}

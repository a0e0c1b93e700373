//! A disk that fails on demand, for the files of one folder and without root.
//!
//! [`DiskLayer`] is loaded into a process (Linux, `LD_PRELOAD`) and stands between it and the folder: it can write down
//! every call that changes something there, it can run out of room, and it can fail to sync. What was written down is read as [`Call`]s; put
//! on a [`Platter`] up to any of them, it tells what would be left had the power gone at that moment. See [`Cut`] for
//! what a disk may do with what it was not asked to sync.

mod directory;
mod disk_call;
mod disk_file;
mod seeded_rng;
mod simulated_disk;

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

pub use disk_call::DiskCall;
pub use simulated_disk::{DiskImage, PowerCut, SimulatedDisk};

const LAYER_SOURCE: &str = include_str!("disk/layer.c");

/// What is loaded into a process to watch or to fail its disk.
pub struct DiskLayer {
    folder: PathBuf,
    /// Beside the folder, so that nothing of ours is in it: the library, the log, and the mark that there is room.
    work_dir: TempDir,
    is_recording: bool,
    free_bytes: Option<u64>,
    skips_sleep: bool,
}

impl DiskLayer {
    /// A layer over a folder that is there. It does nothing yet.
    ///
    /// # Panics
    ///
    /// Where there is no C compiler, which the bundled `SQLite` needs too.
    pub fn for_folder(folder: &Path) -> Self {
        let own = tempfile::tempdir().expect("a folder for the layer");
        let source = own.path().join("layer.c");
        std::fs::write(&source, LAYER_SOURCE).expect("the source of the layer");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-pthread", "-o"]).arg(library_path(&own)).arg(source);
        assert!(compiler.status().expect("cc, a C compiler").success(), "the layer compiles");
        let folder = folder.canonicalize().expect("the folder to watch");
        Self { folder, work_dir: own, is_recording: false, free_bytes: None, skips_sleep: false }
    }

    /// Writes down what processes do to the folder, and what they say on their standard output. Syncing takes no time.
    pub fn with_recording(mut self) -> Self {
        self.is_recording = true;
        self
    }

    /// The files of the folder may grow by so many bytes in each process; then the disk is full.
    pub fn with_free_bytes(mut self, bytes: u64) -> Self {
        self.free_bytes = Some(bytes);
        self
    }

    /// Sleeping takes no time. What waits by counting its naps, as `SQLite` does for a lock, is soon done waiting.
    pub fn with_instant_sleep(mut self) -> Self {
        self.skips_sleep = true;
        self
    }

    /// Loads the layer into a process that is not started yet.
    pub fn preload_into(&self, command: &mut Command) {
        command.env("LD_PRELOAD", library_path(&self.work_dir)).env("DISK_LAYER_FOLDER", &self.folder);
        if self.is_recording {
            command.env("DISK_LAYER_LOG", self.log_path());
        }
        if let Some(bytes) = self.free_bytes {
            command.env("DISK_LAYER_ROOM", bytes.to_string()).env("DISK_LAYER_ROOM_FILE", self.unlimited_space_file());
        }
        if self.skips_sleep {
            command.env("DISK_LAYER_HURRY", "1");
        }
        command.env("DISK_LAYER_NO_SYNC_FILE", self.sync_failure_file());
    }

    /// The file whose being there makes every sync fail, for processes that run already too.
    pub fn sync_failure_file(&self) -> PathBuf {
        self.work_dir.path().join("no-sync")
    }

    /// Gives the disk room without limit, for processes that run already too.
    ///
    /// # Panics
    ///
    /// Where its mark cannot be written.
    pub fn lift_space_limit(&self) {
        std::fs::write(self.unlimited_space_file(), "").expect("the mark that there is room");
    }

    /// The file whose being there gives the disk room.
    pub fn unlimited_space_file(&self) -> PathBuf {
        self.work_dir.path().join("room")
    }

    /// Everything that was written down so far, in order.
    ///
    /// # Panics
    ///
    /// Where nothing was written down, or it cannot be read.
    pub fn calls(&self) -> Vec<DiskCall> {
        disk_call::parse_calls(&std::fs::read(self.log_path()).expect("the log of the layer"))
    }

    /// What was written down when the [log](Self::log) had so many bytes.
    ///
    /// # Panics
    ///
    /// Where it never had.
    pub fn calls_until(&self, bytes: usize) -> Vec<DiskCall> {
        disk_call::parse_calls(&std::fs::read(self.log_path()).expect("the log of the layer")[..bytes])
    }

    /// Where it is written down. Whoever wants to know later what the disk had when something was done looks how long it is.
    pub fn log_path(&self) -> PathBuf {
        self.work_dir.path().join("log")
    }
}

fn library_path(own: &TempDir) -> PathBuf {
    own.path().join("layer.so")
}

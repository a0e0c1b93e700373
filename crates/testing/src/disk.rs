//! Disk that fails on demand, for the files of one folder and without root.
//!
//! [`DiskLayer`] is loaded into a process (Linux, `LD_PRELOAD`) and intercepts its calls on the folder: it can record
//! every change, run out of space, and fail to sync. Recorded changes are read as [`DiskCall`]s; applied to a
//! [`SimulatedDisk`] up to any of them, they show which data would survive a power cut at that moment. [`PowerCut`]
//! describes what a disk may do with data it was not asked to sync.

mod directory;
mod disk_call;
mod disk_file;
mod seeded_rng;
mod simulated_disk;

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

pub use disk_call::DiskCall;
pub use seeded_rng::SeededRng;
pub use simulated_disk::{DiskImage, PowerCut, SimulatedDisk};

const LAYER_SOURCE: &str = include_str!("disk/layer.c");

/// Interposition library that records or fails the disk calls of a process.
pub struct DiskLayer {
    folder: PathBuf,
    /// Outside the folder, so that the folder holds nothing of the layer: library, log and control files.
    work_dir: TempDir,
    is_recording: bool,
    free_bytes: Option<u64>,
    skips_sleep: bool,
}

impl DiskLayer {
    /// Creates a layer over an existing folder. It does nothing until configured.
    ///
    /// # Panics
    ///
    /// Panics without a C compiler, which the bundled `SQLite` needs too.
    pub fn for_folder(folder: &Path) -> Self {
        let work_dir = tempfile::tempdir().expect("a temporary folder");
        let source = work_dir.path().join("layer.c");
        std::fs::write(&source, LAYER_SOURCE).expect("the source of the layer");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-pthread", "-o"]).arg(library_path(&work_dir)).arg(source);
        assert!(compiler.status().expect("cc, a C compiler").success(), "the layer compiles");
        let folder = folder.canonicalize().expect("the folder to watch");
        Self { folder, work_dir, is_recording: false, free_bytes: None, skips_sleep: false }
    }

    /// Records the changes that processes make to the folder, and their standard output. Syncs return at once.
    pub fn with_recording(mut self) -> Self {
        self.is_recording = true;
        self
    }

    /// Limits the growth of the folder's files to `bytes` per process; then the disk is full.
    pub fn with_free_bytes(mut self, bytes: u64) -> Self {
        self.free_bytes = Some(bytes);
        self
    }

    /// Makes sleeping take no time. Code that waits by counting its sleeps, as `SQLite` does for a lock, soon gives up.
    pub fn with_instant_sleep(mut self) -> Self {
        self.skips_sleep = true;
        self
    }

    /// Adds the layer to a process before it is started.
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

    /// Returns the file whose existence makes every sync fail, in running processes too.
    pub fn sync_failure_file(&self) -> PathBuf {
        self.work_dir.path().join("no-sync")
    }

    /// Lifts the space limit, for running processes too.
    ///
    /// # Panics
    ///
    /// Panics if the control file cannot be written.
    pub fn lift_space_limit(&self) {
        std::fs::write(self.unlimited_space_file(), "").expect("the control file is writable");
    }

    /// Returns the file whose existence lifts the space limit.
    pub fn unlimited_space_file(&self) -> PathBuf {
        self.work_dir.path().join("room")
    }

    /// Returns all recorded calls, in order.
    ///
    /// # Panics
    ///
    /// Panics if nothing was recorded or the log is malformed.
    pub fn calls(&self) -> Vec<DiskCall> {
        disk_call::parse_calls(&std::fs::read(self.log_path()).expect("the log of the layer"))
    }

    /// Returns the calls recorded when the [log](Self::log_path) had a size of `bytes`.
    ///
    /// # Panics
    ///
    /// Panics if the log was never that long.
    pub fn calls_until(&self, bytes: usize) -> Vec<DiskCall> {
        disk_call::parse_calls(&std::fs::read(self.log_path()).expect("the log of the layer")[..bytes])
    }

    /// Returns the path of the log. A test that wants to know later which calls preceded an action notes its size.
    pub fn log_path(&self) -> PathBuf {
        self.work_dir.path().join("log")
    }
}

fn library_path(work_dir: &TempDir) -> PathBuf {
    work_dir.path().join("layer.so")
}

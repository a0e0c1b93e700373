//! Calls of a process on the folder, as recorded by the layer.

use std::path::PathBuf;

/// Call that changed the folder, or wrote to standard output. Paths are relative to the folder; the folder itself is
/// the empty path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskCall {
    /// Open of a file or folder.
    Open {
        /// Handle that later calls use.
        handle: FileHandle,
        /// Path of the file.
        path: PathBuf,
        /// The file did not exist before.
        is_new: bool,
        /// The previous content was discarded.
        is_truncated: bool,
    },
    /// Write to a file.
    Write {
        /// Open file.
        handle: FileHandle,
        /// Offset in the file.
        offset: usize,
        /// Written bytes.
        bytes: Vec<u8>,
    },
    /// Change of a file's length.
    Truncate {
        /// Open file.
        handle: FileHandle,
        /// New length.
        length: usize,
    },
    /// Sync of a file's content, or of the names in a folder.
    Sync {
        /// Open file or folder.
        handle: FileHandle,
    },
    /// Creation of a folder.
    CreateFolder {
        /// Path of the folder.
        path: PathBuf,
    },
    /// Removal of a file or folder.
    Remove {
        /// Removed path.
        path: PathBuf,
    },
    /// Rename of a file or folder.
    Rename {
        /// Old path.
        from: PathBuf,
        /// New path.
        to: PathBuf,
    },
    /// Output of the process on standard output.
    WriteStdout {
        /// Written bytes.
        bytes: Vec<u8>,
    },
}

/// Open file of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    /// Process id.
    pub process_id: u32,
    /// File descriptor.
    pub descriptor: i32,
}

/// Parses a log into its calls, in order.
pub(super) fn parse_calls(log: &[u8]) -> Vec<DiskCall> {
    let mut rest = CallLogReader(log);
    let mut calls = Vec::new();
    while !rest.0.is_empty() {
        calls.push(rest.read_call());
    }
    calls
}

/// Unread part of a log; its records have the layout of `struct record` in the layer.
struct CallLogReader<'a>(&'a [u8]);

impl CallLogReader<'_> {
    fn read_call(&mut self) -> DiskCall {
        let [kind] = self.read_array();
        let handle = FileHandle {
            process_id: u32::from_ne_bytes(self.read_array()),
            descriptor: i32::from_ne_bytes(self.read_array()),
        };
        let number = u64::from_ne_bytes(self.read_array());
        let lengths = [self.read_array(), self.read_array()].map(u32::from_ne_bytes);
        let [first, second] = lengths.map(|length| self.read_bytes(length as usize).to_vec());
        let path = |bytes: Vec<u8>| PathBuf::from(String::from_utf8(bytes).expect("a path in UTF-8"));
        let size = || usize::try_from(number).expect("a size that fits");
        match kind {
            b'o' => {
                DiskCall::Open { handle, path: path(first), is_new: number & 1 != 0, is_truncated: number & 2 != 0 }
            }
            b'w' => DiskCall::Write { handle, offset: size(), bytes: first },
            b't' => DiskCall::Truncate { handle, length: size() },
            b's' => DiskCall::Sync { handle },
            b'm' => DiskCall::CreateFolder { path: path(first) },
            b'u' => DiskCall::Remove { path: path(first) },
            b'r' => DiskCall::Rename { from: path(first), to: path(second) },
            b'p' => DiskCall::WriteStdout { bytes: first },
            other => panic!("the layer wrote a call of kind {other}"),
        }
    }

    fn read_array<const LENGTH: usize>(&mut self) -> [u8; LENGTH] {
        self.read_bytes(LENGTH).try_into().expect("the requested number of bytes")
    }

    fn read_bytes(&mut self, length: usize) -> &[u8] {
        let (bytes, rest) = self.0.split_at_checked(length).expect("a complete record");
        self.0 = rest;
        bytes
    }
}

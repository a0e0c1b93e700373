//! What a process did to the folder, as the layer wrote it down.

use std::path::PathBuf;

/// One call that changed something, or said something. Paths are those inside the folder; the folder itself has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskCall {
    /// A file or folder was opened.
    Open {
        /// How later calls name it.
        handle: FileHandle,
        /// Its path.
        path: PathBuf,
        /// It was not there before.
        is_new: bool,
        /// What was in it was thrown away.
        is_truncated: bool,
    },
    /// Bytes were written.
    Write {
        /// To what.
        handle: FileHandle,
        /// Where in the file.
        offset: usize,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A file was cut or lengthened.
    Truncate {
        /// Which one.
        handle: FileHandle,
        /// How long it is now.
        length: usize,
    },
    /// The disk was asked to keep what was written to a file, or the names in a folder.
    Sync {
        /// Of what.
        handle: FileHandle,
    },
    /// A folder was made.
    CreateFolder {
        /// Its path.
        path: PathBuf,
    },
    /// A file or folder was removed.
    Remove {
        /// Its path.
        path: PathBuf,
    },
    /// A file or folder was renamed.
    Rename {
        /// From this path.
        from: PathBuf,
        /// To this one.
        to: PathBuf,
    },
    /// The process said something on its standard output.
    WriteStdout {
        /// The bytes.
        bytes: Vec<u8>,
    },
}

/// An open file of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    /// The process.
    pub process_id: u32,
    /// Its number for the file.
    pub descriptor: i32,
}

/// The calls in a log, in order.
pub(super) fn parse_calls(log: &[u8]) -> Vec<DiskCall> {
    let mut rest = CallLogReader(log);
    let mut calls = Vec::new();
    while !rest.0.is_empty() {
        calls.push(rest.read_call());
    }
    calls
}

/// What is left of a log: records as `struct record` of the layer lays them out.
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
        self.read_bytes(LENGTH).try_into().expect("as many bytes as were asked for")
    }

    fn read_bytes(&mut self, length: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at_checked(length).expect("a whole record");
        self.0 = rest;
        taken
    }
}

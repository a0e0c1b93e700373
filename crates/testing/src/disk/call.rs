//! What a process did to the folder, as the layer wrote it down.

use std::path::PathBuf;

/// One call that changed something, or said something. Paths are those inside the folder; the folder itself has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// A file or folder was opened.
    Open {
        /// How later calls name it.
        handle: Handle,
        /// Its path.
        path: PathBuf,
        /// It was not there before.
        created: bool,
        /// What was in it was thrown away.
        emptied: bool,
    },
    /// Bytes were written.
    Write {
        /// To what.
        handle: Handle,
        /// Where in the file.
        offset: usize,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A file was cut or lengthened.
    Truncate {
        /// Which one.
        handle: Handle,
        /// How long it is now.
        length: usize,
    },
    /// The disk was asked to keep what was written to a file, or the names in a folder.
    Sync {
        /// Of what.
        handle: Handle,
    },
    /// A folder was made.
    MakeFolder {
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
    Say {
        /// The bytes.
        bytes: Vec<u8>,
    },
}

/// An open file of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The process.
    pub process: u32,
    /// Its number for the file.
    pub number: i32,
}

/// The calls in a log, in order.
pub(super) fn read_all(log: &[u8]) -> Vec<Call> {
    let mut rest = Log(log);
    let mut calls = Vec::new();
    while !rest.0.is_empty() {
        calls.push(rest.call());
    }
    calls
}

/// What is left of a log: records as `struct record` of the layer lays them out.
struct Log<'a>(&'a [u8]);

impl Log<'_> {
    fn call(&mut self) -> Call {
        let [kind] = self.array();
        let handle = Handle { process: u32::from_ne_bytes(self.array()), number: i32::from_ne_bytes(self.array()) };
        let number = u64::from_ne_bytes(self.array());
        let lengths = [self.array(), self.array()].map(u32::from_ne_bytes);
        let [first, second] = lengths.map(|length| self.bytes(length as usize).to_vec());
        let path = |bytes: Vec<u8>| PathBuf::from(String::from_utf8(bytes).expect("a path in UTF-8"));
        let size = || usize::try_from(number).expect("a size that fits");
        match kind {
            b'o' => Call::Open { handle, path: path(first), created: number & 1 != 0, emptied: number & 2 != 0 },
            b'w' => Call::Write { handle, offset: size(), bytes: first },
            b't' => Call::Truncate { handle, length: size() },
            b's' => Call::Sync { handle },
            b'm' => Call::MakeFolder { path: path(first) },
            b'u' => Call::Remove { path: path(first) },
            b'r' => Call::Rename { from: path(first), to: path(second) },
            b'p' => Call::Say { bytes: first },
            other => panic!("the layer wrote a call of kind {other}"),
        }
    }

    fn array<const LENGTH: usize>(&mut self) -> [u8; LENGTH] {
        self.bytes(LENGTH).try_into().expect("as many bytes as were asked for")
    }

    fn bytes(&mut self, length: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at_checked(length).expect("a whole record");
        self.0 = rest;
        taken
    }
}

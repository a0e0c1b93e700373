//! Two peers over pipes in memory, and a peer against hostile bytes.

mod hostile;
mod peers;
mod streams;
mod support;

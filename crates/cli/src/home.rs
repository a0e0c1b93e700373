//! The home directory: its layout, its database, and the locks of the processes that use it.

use std::fs::{File, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan_host::LeaseOwner;
use capstan_store::SqliteStore;
use capstan_tape::Store;

use crate::CommandError;
use crate::config::Config;

/// Permission bits of group and others, who have no access to the home.
pub(crate) const SHARED_MODE_BITS: u32 = 0o077;

/// Path of the database.
pub(crate) fn database_path(home: &Path) -> PathBuf {
    home.join("capstan.db")
}

/// Directory of tapes stored as files.
pub(crate) fn tapes_dir(home: &Path) -> PathBuf {
    home.join("tapes")
}

/// Directory of the lock files by which the processes of a home show that they are alive.
pub(crate) fn process_locks_dir(home: &Path) -> PathBuf {
    home.join("owners")
}

/// Creates the home if it is missing, and syncs its parents so that it survives a power cut.
pub(crate) fn create_home(home: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = home.ancestors().take_while(|folder| !folder.exists()).collect();
    // Conversations are private to the user.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    for parent in missing.into_iter().filter_map(Path::parent) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        // Some file systems cannot sync a directory, and some users may not open the parent.
        if let Err(error) = File::open(parent).and_then(|folder| folder.sync_all()) {
            tracing::debug!(folder = %parent.display(), %error, "could not sync a directory");
        }
    }
    Ok(())
}

/// Removes the access of group and others to the home and its files, and returns the changed paths. Files of other users,
/// and targets of links, are left as they are.
pub(crate) fn make_private(home: &Path) -> std::io::Result<Vec<PathBuf>> {
    let user = rustix::process::geteuid().as_raw();
    let mut changed = Vec::new();
    for path in private_paths(home) {
        let metadata = if path == home { std::fs::metadata(&path) } else { std::fs::symlink_metadata(&path) };
        let metadata = match metadata {
            // A lock file of a process that has ended since.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            found => found?,
        };
        let mode = metadata.mode() & 0o777;
        if metadata.uid() == user && !metadata.is_symlink() && mode & SHARED_MODE_BITS != 0 {
            std::fs::set_permissions(&path, Permissions::from_mode(mode & !SHARED_MODE_BITS))?;
            changed.push(path);
        }
    }
    Ok(changed)
}

/// The home, the files in it, and those in its folders of tapes and locks.
fn private_paths(home: &Path) -> Vec<PathBuf> {
    let folders = [home.to_owned(), tapes_dir(home), process_locks_dir(home)];
    let entries = folders.iter().flat_map(std::fs::read_dir).flatten().flatten().map(|entry| entry.path());
    std::iter::once(home.to_owned()).chain(entries).collect()
}

/// Opens the database, creating home and database if missing, and registers this process as a lease owner.
pub(crate) fn open_store_and_lock(config: &Config) -> Result<(Arc<dyn Store>, LeaseOwner), CommandError> {
    Ok((open_store(config)?, LeaseOwner::open(process_locks_dir(&config.home))?))
}

/// Opens the database, creating home and database if missing.
pub(crate) fn open_store(config: &Config) -> Result<Arc<dyn Store>, CommandError> {
    create_home(&config.home).map_err(|error| CommandError::home_error(&config.home, &error))?;
    Ok(Arc::new(SqliteStore::open(database_path(&config.home))?))
}

/// Opens an existing database, read-only if it cannot be written, for commands that may only read.
pub(crate) fn open_existing_store(config: &Config) -> Result<Arc<dyn Store>, CommandError> {
    Ok(Arc::new(SqliteStore::open_with_read_only_fallback(database_path(&config.home))?))
}

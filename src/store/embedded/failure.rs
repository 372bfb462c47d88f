//! What went wrong with a file, for the caller.

use crate::store::StoreError;
use std::path::Path;

/// What the database says.
pub(super) fn classify(path: &Path, error: redb::Error) -> StoreError {
    let path = path.to_owned();
    match error {
        redb::Error::Corrupted(reason) => StoreError::Damaged { path, reason },
        redb::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            StoreError::Damaged { path, reason: "it is not a database of ours".into() }
        }
        other => disk_error(&path, &other),
    }
}

/// What the system says.
pub(super) fn disk_error(path: &Path, error: &dyn std::error::Error) -> StoreError {
    StoreError::Disk { path: path.to_owned(), reason: error.to_string() }
}

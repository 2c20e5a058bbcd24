//! The files of a model: in a folder, or in a store that is read by ranges.

use std::io;

/// A file of a model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileEntry {
    /// Its path below the model's root, with `/` as the separator.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
}

/// The files of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub files: Vec<FileEntry>,
    /// Links that point outside of the model's root, or to a folder. They are never read.
    pub skipped: Vec<String>,
}

/// Why files can't be listed or read.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("{path}: {error}")]
    Io { path: String, error: io::Error },
    #[error("{path} has more than {limit} bytes: check whether it is the file that it should be")]
    TooLarge { path: String, limit: usize },
    #[error("{path} contains more than {limit} files and folders: specify the folder of one model")]
    TooMany { path: String, limit: usize },
    #[error("{path} is more than {limit} folders deep: specify the folder of one model")]
    TooDeep { path: String, limit: usize },
    #[error("{path} leads out of the model's folder: replace the link with the file")]
    Outside { path: String },
    /// The error of a store that isn't a file system.
    #[error("{path}: {message}")]
    Store { path: String, message: String },
}

/// Lists and reads the files of one model. Paths are those of the listing.
pub trait ModelFiles {
    /// All files, in any order.
    fn list(&self) -> Result<Listing, FilesError>;

    /// The bytes from `offset`: `length` of them, or fewer if the file ends earlier.
    fn read_range(&self, path: &str, offset: u64, length: usize) -> Result<Vec<u8>, FilesError>;

    /// A whole file, if it has at most `limit` bytes.
    fn read_whole(&self, path: &str, limit: usize) -> Result<Vec<u8>, FilesError> {
        let bytes = self.read_range(path, 0, limit.saturating_add(1))?;
        if bytes.len() > limit { Err(FilesError::TooLarge { path: path.to_owned(), limit }) } else { Ok(bytes) }
    }
}

/// The folder of a path: empty for the root.
pub(crate) fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The last part of a path.
pub(crate) fn base(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, base)| base)
}

/// A path below a folder.
pub(crate) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

//! A model in a local folder.

use crate::{
    files::{FileEntry, FilesError, Listing, ModelFiles, join},
    limits::{MAX_DEPTH, MAX_FILES},
};
use std::{
    fmt::Display,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

/// The files below a folder. Only links to files below it are followed, and hidden folders such as `.git` are omitted.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Without links, so that paths below it can be recognized.
    root: PathBuf,
    max_files: usize,
}

impl Directory {
    /// The model in this folder, which may itself be a link.
    pub fn new(root: impl AsRef<Path>) -> Result<Self, FilesError> {
        let root = root.as_ref();
        let resolved = fs::canonicalize(root).map_err(|error| failed(root.display(), error))?;
        if resolved.is_dir() {
            Ok(Self { root: resolved, max_files: MAX_FILES })
        } else {
            Err(failed(root.display(), io::Error::new(io::ErrorKind::NotADirectory, "not a folder: specify the model's folder")))
        }
    }

    /// The target of a path, which must be below the root.
    fn resolve(&self, path: &str) -> Result<PathBuf, FilesError> {
        let resolved = fs::canonicalize(self.root.join(path)).map_err(|error| failed(path, error))?;
        if resolved.starts_with(&self.root) { Ok(resolved) } else { Err(FilesError::Outside { path: path.to_owned() }) }
    }
}

fn failed(path: impl Display, error: io::Error) -> FilesError {
    FilesError::Io { path: path.to_string(), error }
}

impl ModelFiles for Directory {
    fn list(&self) -> Result<Listing, FilesError> {
        let root = self.root.display().to_string();
        let mut listing = Listing::default();
        let mut folders = vec![(String::new(), 1)];
        let mut seen = 0_usize;
        while let Some((folder, depth)) = folders.pop() {
            let at = self.root.join(&folder);
            let shown = if folder.is_empty() { root.as_str() } else { folder.as_str() };
            for entry in fs::read_dir(&at).map_err(|error| failed(shown, error))? {
                let entry = entry.map_err(|error| failed(shown, error))?;
                seen += 1;
                if seen > self.max_files {
                    return Err(FilesError::TooMany { path: root, limit: self.max_files });
                }
                // A model's index can't refer to a name that isn't text.
                let Ok(name) = entry.file_name().into_string() else { continue };
                let path = join(&folder, &name);
                let kind = entry.file_type().map_err(|error| failed(&path, error))?;
                if kind.is_dir() {
                    if name.starts_with('.') {
                        continue;
                    }
                    if depth == MAX_DEPTH {
                        return Err(FilesError::TooDeep { path, limit: MAX_DEPTH });
                    }
                    folders.push((path, depth + 1));
                } else if kind.is_symlink() {
                    match self.resolve(&path).ok().and_then(|resolved| fs::metadata(resolved).ok()) {
                        Some(target) if target.is_file() => listing.files.push(FileEntry { path, size: target.len() }),
                        _ => listing.skipped.push(path),
                    }
                } else if kind.is_file() {
                    let size = entry.metadata().map_err(|error| failed(&path, error))?.len();
                    listing.files.push(FileEntry { path, size });
                }
            }
        }
        listing.files.sort();
        listing.skipped.sort();
        Ok(listing)
    }

    fn read_range(&self, path: &str, offset: u64, length: usize) -> Result<Vec<u8>, FilesError> {
        let resolved = self.resolve(path)?;
        let read = || -> io::Result<Vec<u8>> {
            // Opening a pipe would block, and a device has no end.
            if !fs::metadata(&resolved)?.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
            }
            let mut file = File::open(&resolved)?;
            file.seek(SeekFrom::Start(offset))?;
            let mut bytes = Vec::new();
            file.take(length as u64).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|error| failed(path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn paths(listing: &Listing) -> Vec<&str> {
        listing.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn a_link_out_of_the_folder_is_neither_listed_nor_read() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("model");
        fs::create_dir_all(root.join("blobs")).unwrap();
        fs::write(place.path().join("secret"), "secret").unwrap();
        fs::write(root.join("blobs/a"), "{}").unwrap();
        symlink("../secret", root.join("config.json")).unwrap();
        symlink("blobs/a", root.join("inside.json")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        let files = Directory::new(&root).unwrap();
        let listing = files.list().unwrap();
        assert_eq!(paths(&listing), ["blobs/a", "inside.json"]);
        assert_eq!(listing.skipped, ["config.json", "dangling", "up"]);
        assert!(matches!(files.read_whole("config.json", 10), Err(FilesError::Outside { .. })));
        assert!(matches!(files.read_whole("../secret", 10), Err(FilesError::Outside { .. })));
        assert!(matches!(files.read_whole("up/secret", 10), Err(FilesError::Outside { .. })));
        assert_eq!(files.read_whole("inside.json", 10).unwrap(), b"{}");
    }

    #[test]
    fn a_root_may_be_a_link() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("real")).unwrap();
        fs::write(place.path().join("real/config.json"), "{}").unwrap();
        symlink("real", place.path().join("link")).unwrap();
        let files = Directory::new(place.path().join("link")).unwrap();
        assert_eq!(paths(&files.list().unwrap()), ["config.json"]);
        assert_eq!(files.read_range("config.json", 1, 10).unwrap(), b"}");
    }

    #[test]
    fn depth_count_and_size_have_limits() {
        let place = tempfile::tempdir().unwrap();
        let mut deep = place.path().to_owned();
        for _ in 0..MAX_DEPTH {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        let error = Directory::new(place.path()).unwrap().list().unwrap_err();
        assert_eq!(error.to_string(), "d/d/d/d/d/d/d/d is more than 8 folders deep: specify the folder of one model");
        fs::remove_dir(&deep).unwrap();
        assert!(Directory::new(place.path()).unwrap().list().is_ok());
        for number in 0..10 {
            fs::write(place.path().join(number.to_string()), "").unwrap();
        }
        // There are seven folders and ten files.
        let limited = |max_files| Directory { max_files, ..Directory::new(place.path()).unwrap() }.list();
        assert!(limited(17).is_ok());
        assert!(limited(16).unwrap_err().to_string().contains("contains more than 16 files and folders"));
        fs::write(place.path().join("0"), "123").unwrap();
        let files = Directory::new(place.path()).unwrap();
        assert_eq!(
            files.read_whole("0", 2).unwrap_err().to_string(),
            "0 has more than 2 bytes: check whether it is the file that it should be"
        );
        assert!(Directory::new(place.path().join("0")).is_err());
    }

    #[test]
    fn what_is_no_regular_file_is_neither_listed_nor_read() {
        let place = tempfile::tempdir().unwrap();
        std::os::unix::net::UnixListener::bind(place.path().join("socket")).unwrap();
        let files = Directory::new(place.path()).unwrap();
        assert_eq!(files.list().unwrap(), Listing::default());
        assert!(files.read_whole("socket", 10).unwrap_err().to_string().contains("not a regular file"));
    }

    #[test]
    fn hidden_folders_are_left_out() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join(".cache/a/b/c/d/e/f/g/h/i")).unwrap();
        fs::write(place.path().join(".hidden"), "").unwrap();
        assert_eq!(paths(&Directory::new(place.path()).unwrap().list().unwrap()), [".hidden"]);
    }
}

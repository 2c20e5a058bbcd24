//! Plugins from a directory on disk, which may be a mounted ConfigMap.

mod watch;

pub use watch::{follow, watch};

use super::{Source, SourceView, off_the_runtime, unpack::unpack};
use crate::problem::Problem;
use futures::{FutureExt, future::BoxFuture};
use pointsman_crds::policy::plugin::PluginSource;
use pointsman_sandbox::limits::LARGEST_BINARY;
use rustix::fs::OFlags;
use std::{
    fs::{self, FileType, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::{Component, Path, PathBuf},
};

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The path isn't a relative path below the directory.
    #[error("the path {0:?} must be relative and without `..`: a plugin is looked up in the plugin directory")]
    Path(String),
    /// The file doesn't exist.
    #[error("{} doesn't exist: put the plugin there, or correct the path", .0.display())]
    Missing(PathBuf),
    /// A symbolic link leads out of the directory.
    #[error("{} is a link to {}, which is outside of the plugin directory: put the plugin itself into the directory", path.display(), target.display())]
    Outside {
        /// The requested path.
        path: PathBuf,
        /// The target of the link.
        target: PathBuf,
    },
    /// It is a directory, a pipe or the like.
    #[error("{} is {what}: a plugin must be a regular file", path.display())]
    NotRegular {
        /// The requested path.
        path: PathBuf,
        /// The kind of file.
        what: &'static str,
    },
    /// It exceeds the size limit.
    #[error("{} has more than {LARGEST_BINARY} bytes", .0.display())]
    TooLarge(PathBuf),
    /// The system refuses the access.
    #[error("{} can't be read: {error}", path.display())]
    Unreadable {
        /// The requested path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

impl FileError {
    /// A CamelCase reason for a condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Path(_) => "FilePathInvalid",
            Self::Missing(_) => "FileMissing",
            Self::Outside { .. } => "FileOutside",
            Self::NotRegular { .. } => "FileNotRegular",
            Self::TooLarge(_) => "FileTooLarge",
            Self::Unreadable { .. } => "FileUnreadable",
        }
    }
}

/// `spec.source.file`.
#[derive(Debug)]
pub struct File;

impl Source for File {
    fn field(&self) -> &'static str {
        "file"
    }

    fn title(&self, source: &PluginSource) -> Option<String> {
        source.file.as_ref().map(|file| file.path.clone())
    }

    fn is_in_directory(&self) -> bool {
        true
    }

    fn read(&self, source: PluginSource, from: SourceView) -> BoxFuture<'static, Result<Option<Vec<u8>>, Problem>> {
        let read_file = move || {
            let Some(directory) = &from.settings.directory else {
                let message = "source.file: this host has no plugin directory; start it with --plugin-dir.".to_owned();
                return Err(Problem { reason: "NoPluginDirectory".to_owned(), message });
            };
            let path = source.file.unwrap_or_default().path;
            let bytes = read(directory, &path).map_err(|error| Problem::new(error.reason(), &error))?;
            unpack(&bytes).map(|bytes| Some(bytes.into_owned())).map_err(|error| Problem::new(error.reason(), &error))
        };
        off_the_runtime(read_file).boxed()
    }
}

/// The bytes of the file at a path in the directory. Blocks only briefly, regardless of the kind of file.
pub fn read(dir: &Path, path: &str) -> Result<Vec<u8>, FileError> {
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if path.is_empty() || !Path::new(path).components().all(inside) {
        return Err(FileError::Path(path.to_owned()));
    }
    let path = dir.join(path);
    match resolve_and_read(dir, &path) {
        // If a mounted ConfigMap is swapped meanwhile, the folder that was just found is gone.
        Err(FileError::Missing(_)) => resolve_and_read(dir, &path),
        done => done,
    }
}

fn resolve_and_read(dir: &Path, path: &Path) -> Result<Vec<u8>, FileError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => FileError::Missing(path.to_owned()),
        _ => FileError::Unreadable { path: path.to_owned(), error },
    };
    let dir = fs::canonicalize(dir).map_err(failed)?;
    // A mounted ConfigMap consists of links within the directory.
    let target = fs::canonicalize(path).map_err(failed)?;
    if !target.starts_with(&dir) {
        return Err(FileError::Outside { path: path.to_owned(), target });
    }
    let check = |found: &fs::Metadata| match other_than_regular(found.file_type()) {
        Some(what) => Err(FileError::NotRegular { path: path.to_owned(), what }),
        None if found.len() > LARGEST_BINARY as u64 => Err(FileError::TooLarge(path.to_owned())),
        None => Ok(()),
    };
    // Check before opening, because opening a device may have effects, and after it, because the file may have been swapped.
    check(&fs::symlink_metadata(&target).map_err(failed)?)?;
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(&target).map_err(failed)?;
    check(&file.metadata().map_err(failed)?)?;
    // It may grow while it is read.
    let mut bytes = Vec::new();
    file.take(LARGEST_BINARY as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > LARGEST_BINARY { Err(FileError::TooLarge(path.to_owned())) } else { Ok(bytes) }
}

fn other_than_regular(found: FileType) -> Option<&'static str> {
    match found {
        regular if regular.is_file() => None,
        dir if dir.is_dir() => Some("a directory"),
        pipe if pipe.is_fifo() => Some("a named pipe"),
        socket if socket.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::fs::symlink, process::Command};
    use tempfile::TempDir;

    fn refused(dir: &TempDir, path: &str) -> (&'static str, String) {
        let error = read(dir.path(), path).unwrap_err();
        (error.reason(), error.to_string().replace(dir.path().to_str().unwrap(), "DIR"))
    }

    #[test]
    fn a_file_is_read_through_the_links_of_a_mounted_config_map() {
        let dir = TempDir::new().unwrap();
        let version = dir.path().join("..2026_11_21_10_00_00.1");
        fs::create_dir(&version).unwrap();
        fs::write(version.join("plugin.wasm"), "one").unwrap();
        symlink("..2026_11_21_10_00_00.1", dir.path().join("..data")).unwrap();
        symlink("..data/plugin.wasm", dir.path().join("plugin.wasm")).unwrap();
        assert_eq!(read(dir.path(), "plugin.wasm").unwrap(), b"one");
        // The directory itself may be a link.
        let elsewhere = TempDir::new().unwrap();
        symlink(dir.path(), elsewhere.path().join("plugins")).unwrap();
        assert_eq!(read(&elsewhere.path().join("plugins"), "./plugin.wasm").unwrap(), b"one");
    }

    #[test]
    fn a_path_that_leads_out_of_the_directory_is_refused() {
        let dir = TempDir::new().unwrap();
        for path in ["", "/etc/passwd", "../a", "a/../b"] {
            assert_eq!(refused(&dir, path).0, "FilePathInvalid", "{path}");
        }
        symlink("/etc", dir.path().join("etc")).unwrap();
        let said =
            "DIR/etc/passwd is a link to /etc/passwd, which is outside of the plugin directory: put the plugin itself into the directory";
        assert_eq!(refused(&dir, "etc/passwd"), ("FileOutside", said.to_owned()));
        // A sibling directory whose name starts with the directory's name isn't inside.
        let beside = dir.path().with_extension("beside");
        fs::write(&beside, "").unwrap();
        symlink(&beside, dir.path().join("beside")).unwrap();
        let (reason, _) = refused(&dir, "beside");
        fs::remove_file(&beside).unwrap();
        assert_eq!(reason, "FileOutside");
    }

    #[test]
    fn what_is_no_ordinary_file_is_refused_without_waiting_for_it() {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        assert!(Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap().success());
        let said = |what: &str| format!("DIR/{what}: a plugin must be a regular file");
        assert_eq!(refused(&dir, "folder"), ("FileNotRegular", said("folder is a directory")));
        assert_eq!(refused(&dir, "pipe"), ("FileNotRegular", said("pipe is a named pipe")));
    }

    #[test]
    fn a_file_that_is_missing_or_too_large_is_told_with_its_path() {
        let dir = TempDir::new().unwrap();
        assert_eq!(refused(&dir, "a"), ("FileMissing", "DIR/a doesn't exist: put the plugin there, or correct the path".to_owned()));
        symlink("nowhere", dir.path().join("dangling")).unwrap();
        assert_eq!(refused(&dir, "dangling").0, "FileMissing");
        symlink("loop", dir.path().join("loop")).unwrap();
        assert_eq!(refused(&dir, "loop").0, "FileUnreadable");
        let largest = LARGEST_BINARY as u64;
        fs::File::create(dir.path().join("large")).unwrap().set_len(largest + 1).unwrap();
        let said = "DIR/large has more than 67108864 bytes";
        assert_eq!(refused(&dir, "large"), ("FileTooLarge", said.to_owned()));
        fs::File::create(dir.path().join("largest")).unwrap().set_len(largest).unwrap();
        assert_eq!(read(dir.path(), "largest").unwrap().len(), LARGEST_BINARY);
    }
}

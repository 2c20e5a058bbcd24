//! The folder of compiled plugins. Its files are executed as native code, so no other user may have access.
//!
//! The folder is opened once, and its files through that handle. Whoever owns a parent folder can replace it with another, but without
//! effect. The folder and its files must belong to this user, and no other user may have write access. If other processes run under the
//! same user id and share the volume, a key authenticates our files.

use crate::sync::locked;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{self as sys, AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};
use sha2::{Digest, Sha256};
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// The length of the checksum at the start of a file, in bytes.
const CHECKSUM: usize = 32;

/// The maximum size of a file. The machine code of the largest plugin takes a fraction of it.
const LARGEST: u64 = 1 << 30;

/// Why a folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The folder can't be created or opened.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another user has access to it.
    #[error("{0} isn't ours alone")]
    Shared(PathBuf),
}

/// A folder that only this user can write to.
#[derive(Debug)]
pub struct Artifacts {
    path: PathBuf,
    key: Vec<u8>,
    folder: Mutex<Arc<OwnedFd>>,
}

impl Artifacts {
    /// Opens the folder, and creates it if it doesn't exist. The key authenticates the files.
    pub fn open(path: &Path, key: &[u8]) -> Result<Self, FolderError> {
        Ok(Self { path: path.to_owned(), key: key.to_owned(), folder: Mutex::new(Arc::new(open(path)?)) })
    }

    /// The content of a file, if it is complete and authentic.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        let folder = self.folder().ok()?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = sys::openat(&*folder, name, flags, Mode::empty()).ok()?;
        let found = sys::fstat(&file).ok()?;
        if !is_ours(&found, FileType::RegularFile) {
            tracing::warn!(file = %self.path.join(name).display(), "a file among the compiled plugins belongs to another user or can be written by others; compiling it again");
            return None;
        }
        let mut kept = Vec::with_capacity(usize::try_from(found.st_size).unwrap_or_default().min(64 << 20));
        File::from(file).take(LARGEST).read_to_end(&mut kept).ok()?;
        let (sum, code) = kept.split_at_checked(CHECKSUM)?;
        if sum == self.checksum(name, code) {
            // Moved in place: half a megabyte of new pages would cost more than the move.
            kept.drain(..CHECKSUM);
            return Some(kept);
        }
        tracing::warn!(file = %self.path.join(name).display(), "a compiled plugin in the cache is damaged, or of another key; compiling it again");
        None
    }

    /// Stores a file. If the folder can't be written to, the only cost is time.
    pub fn keep(&self, name: &str, code: &[u8]) {
        // Under a temporary name first: another host may read at the same time, and another thread may store the same plugin.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let partial = format!("{name}.{}.{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let write = || -> io::Result<()> {
            let folder = self.folder()?;
            sys::unlinkat(&*folder, &*partial, AtFlags::empty()).ok();
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(sys::openat(&*folder, &*partial, flags, Mode::RUSR | Mode::WUSR)?);
            let written = file.write_all(&self.checksum(name, code)).and_then(|()| file.write_all(code));
            let kept = written.and_then(|()| Ok(sys::renameat(&*folder, &*partial, &*folder, name)?));
            kept.inspect_err(|_| {
                sys::unlinkat(&*folder, &*partial, AtFlags::empty()).ok();
            })
        };
        if let Err(error) = write() {
            tracing::warn!(%error, file = %self.path.join(name).display(), "a compiled plugin can't be stored in the cache");
        }
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) {
        if let Ok(folder) = self.folder() {
            sys::unlinkat(&*folder, name, AtFlags::empty()).ok();
        }
    }

    /// The folder, created again if it was deleted.
    fn folder(&self) -> io::Result<Arc<OwnedFd>> {
        let mut folder = locked(&self.folder);
        if sys::fstat(&**folder)?.st_nlink == 0 {
            *folder = Arc::new(open(&self.path).map_err(io::Error::other)?);
        }
        Ok(Arc::clone(&folder))
    }

    fn checksum(&self, name: &str, code: &[u8]) -> [u8; CHECKSUM] {
        // Each part is preceded by its length, so that different keys and names never give the same input. It is hashed twice, so that
        // nobody can extend a known checksum.
        let part = |sum: Sha256, part: &[u8]| sum.chain_update((part.len() as u64).to_le_bytes()).chain_update(part);
        let inner: [u8; CHECKSUM] = part(part(part(Sha256::new(), &self.key), name.as_bytes()), code).finalize().into();
        part(part(Sha256::new(), &self.key), &inner).finalize().into()
    }
}

fn open(path: &Path) -> Result<OwnedFd, FolderError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match sys::openat(sys::CWD, path, flags, Mode::empty()) {
        // A symbolic link could point elsewhere later.
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(FolderError::Shared(path.to_owned())),
        other => other.map_err(io::Error::from)?,
    };
    let found = sys::fstat(folder.as_fd()).map_err(io::Error::from)?;
    if is_ours(&found, FileType::Directory) { Ok(folder) } else { Err(FolderError::Shared(path.to_owned())) }
}

fn is_ours(found: &Stat, sort: FileType) -> bool {
    let others = Mode::WGRP | Mode::WOTH;
    FileType::from_raw_mode(found.st_mode) == sort
        && found.st_uid == rustix::process::geteuid().as_raw()
        && !Mode::from_raw_mode(found.st_mode).intersects(others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, os::unix::fs::PermissionsExt};

    fn folder(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("pointsman-artifacts-{}-{name}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_folder_that_is_put_in_its_place_changes_nothing() {
        let above = folder("swapped");
        let [ours, theirs] = ["cache", "theirs"].map(|name| above.join(name));
        let kept = Artifacts::open(&ours, b"").unwrap();
        kept.keep("a", b"code");
        Artifacts::open(&theirs, b"").unwrap().keep("a", b"evil");
        fs::rename(&ours, above.join("elsewhere")).unwrap();
        fs::rename(&theirs, &ours).unwrap();
        assert_eq!(kept.read("a").as_deref(), Some(&b"code"[..]));
        kept.keep("b", b"more");
        assert!(above.join("elsewhere/b").exists() && !ours.join("b").exists());
        fs::remove_dir_all(above).unwrap();
    }

    #[test]
    fn what_is_of_another_key_is_damaged_linked_or_writable_by_others_is_not_read() {
        let path = folder("files").join("cache");
        let kept = Artifacts::open(&path, b"key").unwrap();
        kept.keep("a", b"code");
        assert_eq!(kept.read("a").as_deref(), Some(&b"code"[..]));
        assert_eq!(Artifacts::open(&path, b"other").unwrap().read("a"), None);
        fs::rename(path.join("a"), path.join("b")).unwrap();
        assert_eq!(kept.read("b"), None, "it is of another name");
        fs::rename(path.join("b"), path.join("real")).unwrap();
        std::os::unix::fs::symlink("real", path.join("a")).unwrap();
        assert_eq!(kept.read("a"), None);
        fs::remove_file(path.join("a")).unwrap();
        fs::rename(path.join("real"), path.join("a")).unwrap();
        assert!(kept.read("a").is_some());
        fs::set_permissions(path.join("a"), fs::Permissions::from_mode(0o620)).unwrap();
        assert_eq!(kept.read("a"), None);
        kept.keep("a", b"code");
        let mut bytes = fs::read(path.join("a")).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path.join("a"), bytes).unwrap();
        assert_eq!(kept.read("a"), None);
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_folder_that_others_can_write_to_or_a_link_is_refused_and_a_deleted_one_is_made_again() {
        let above = folder("modes");
        let path = above.join("cache");
        let kept = Artifacts::open(&path, b"").unwrap();
        fs::remove_dir_all(&path).unwrap();
        kept.keep("a", b"code");
        assert_eq!(kept.read("a").as_deref(), Some(&b"code"[..]));
        std::os::unix::fs::symlink(&path, above.join("link")).unwrap();
        assert!(matches!(Artifacts::open(&above.join("link"), b""), Err(FolderError::Shared(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(matches!(Artifacts::open(&path, b""), Err(FolderError::Shared(_))));
        fs::remove_dir_all(above).unwrap();
    }
}

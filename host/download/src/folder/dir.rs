//! An open folder, below which nothing is reached through a link.

use crate::{
    error::{DiskContext, Error},
    path::RelativePath,
};
use rustix::{
    fd::OwnedFd,
    fs::{self, AtFlags, FileType, Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::CString,
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

const FILE_MODE: Mode = Mode::from_raw_mode(0o644);
const DIR_MODE: Mode = Mode::from_raw_mode(0o755);
const OPEN_DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

#[derive(Clone, Debug)]
pub(crate) struct Dir {
    fd: Arc<OwnedFd>,
    path: PathBuf,
}

/// Numbers of a file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    pub(crate) available: u64,
}

impl Dir {
    /// A folder that the caller trusts, by an absolute path that may have links.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let fd = fs::open(path, OPEN_DIR, Mode::empty()).on_disk("opening", path)?;
        Ok(Self { fd: Arc::new(fd), path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A folder in this one, if it is there and no link.
    pub(crate) fn child(&self, name: &str) -> Result<Option<Self>, Error> {
        match fs::openat(&*self.fd, name, OPEN_DIR | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(fd) => Ok(Some(Self { fd: Arc::new(fd), path: self.path.join(name) })),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(Error::Occupied {
                path: self.path.join(name),
                reason: "is a file or a link where a folder is needed",
                remedy: "remove it, or set another storage.path",
            }),
            Err(error) => Err(error).on_disk("opening", self.path.join(name)),
        }
    }

    /// A folder in this one, which is made if it isn't there.
    pub(crate) fn make(&self, name: &str) -> Result<Self, Error> {
        if let Some(child) = self.child(name)? {
            return Ok(child);
        }
        match fs::mkdirat(&*self.fd, name, DIR_MODE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error).on_disk("making", self.path.join(name)),
        }
        let child = self.child(name)?.ok_or(Errno::NOENT).on_disk("opening", self.path.join(name))?;
        // Whatever the process's umask.
        fs::fchmod(&*child.fd, DIR_MODE).on_disk("setting the mode of", child.path())?;
        Ok(child)
    }

    /// The folder of a file below, which is made if it isn't there, and the file's name in it.
    pub(crate) fn make_parent<'a>(&self, path: &'a RelativePath) -> Result<(Self, &'a str), Error> {
        let (mut folders, name) = path.split();
        let parent = folders.try_fold(self.clone(), |dir, folder| dir.make(folder))?;
        Ok((parent, name))
    }

    /// The folder of a file below, and the file's name in it.
    pub(crate) fn parent<'a>(&self, path: &'a RelativePath) -> Result<Option<(Self, &'a str)>, Error> {
        let (folders, name) = path.split();
        let mut dir = self.clone();
        for folder in folders {
            match dir.child(folder)? {
                Some(child) => dir = child,
                None => return Ok(None),
            }
        }
        Ok(Some((dir, name)))
    }

    /// A regular file for reading, if there is one of this name.
    pub(crate) fn open_file(&self, name: &str) -> Result<Option<File>, Error> {
        // Non-blocking, so that a pipe of this name doesn't hold us up.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match fs::openat(&*self.fd, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error).on_disk("opening", self.path.join(name)),
        };
        let is_file = file.metadata().on_disk("reading", self.path.join(name))?.is_file();
        Ok(is_file.then_some(file))
    }

    /// What a short text file has, if there is one of this name. One that is too long or no text is as if it weren't there.
    pub(crate) fn read_text(&self, name: &str, most: u64) -> Result<Option<String>, Error> {
        let Some(file) = self.open_file(name)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).on_disk("reading", self.path.join(name))?;
        Ok(if bytes.len() as u64 > most { None } else { String::from_utf8(bytes).ok() })
    }

    /// A file for reading and writing, which is made if it isn't there.
    pub(crate) fn create_file(&self, name: &str, flags: OFlags) -> Result<File, Error> {
        let flags = flags | OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(&*self.fd, name, flags, FILE_MODE).on_disk("making", self.path.join(name))?;
        fs::fchmod(&fd, FILE_MODE).on_disk("setting the mode of", self.path.join(name))?;
        Ok(File::from(fd))
    }

    /// Writes a file whole or not at all.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let draft = format!("{name}.new");
        let mut file = self.create_file(&draft, OFlags::TRUNC)?;
        file.write_all(bytes).and_then(|()| file.sync_data()).on_disk("writing", self.path.join(&draft))?;
        self.rename(&draft, self, name)?;
        self.sync()
    }

    pub(crate) fn rename(&self, from: &str, to: &Self, name: &str) -> Result<(), Error> {
        fs::renameat(&*self.fd, from, &*to.fd, name).on_disk("moving", self.path.join(from))
    }

    /// Another name for a file, if the file system has such names and room for one more.
    pub(crate) fn link(&self, from: &str, to: &Self, name: &str) -> Result<bool, Error> {
        match fs::linkat(&*self.fd, from, &*to.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::XDEV | Errno::MLINK | Errno::PERM | Errno::NOENT | Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error).on_disk("linking", self.path.join(from)),
        }
    }

    /// What a name is, without following it.
    pub(crate) fn kind(&self, name: &str) -> Result<Option<FileType>, Error> {
        match fs::statat(&*self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error).on_disk("reading", self.path.join(name)),
        }
    }

    /// Where a link leads, if this is one.
    pub(crate) fn link_target(&self, name: &str) -> Result<Option<String>, Error> {
        match fs::readlinkat(&*self.fd, name, Vec::new()) {
            Ok(target) => Ok(Some(target.to_string_lossy().into_owned())),
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(error) => Err(error).on_disk("reading", self.path.join(name)),
        }
    }

    /// Makes a link that replaces a link or nothing, at once.
    pub(crate) fn replace_link(&self, name: &str, target: &str) -> Result<(), Error> {
        let draft = format!(".{}.pointsman", crate::checksum::sha256_hex(name).split_off(48));
        self.unlink(&draft)?;
        fs::symlinkat(target, &*self.fd, draft.as_str()).on_disk("linking", self.path.join(name))?;
        self.rename(&draft, self, name)?;
        self.sync()
    }

    pub(crate) fn unlink(&self, name: &str) -> Result<(), Error> {
        match fs::unlinkat(&*self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error).on_disk("removing", self.path.join(name)),
        }
    }

    /// Removes a folder if it is empty.
    pub(crate) fn remove_if_empty(&self, name: &str) -> Result<bool, Error> {
        match fs::unlinkat(&*self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => Ok(false),
            Err(error) => Err(error).on_disk("removing", self.path.join(name)),
        }
    }

    /// The names in this folder.
    pub(crate) fn names(&self) -> Result<Vec<CString>, Error> {
        let entries = fs::Dir::read_from(&*self.fd).on_disk("reading", &self.path)?;
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.on_disk("reading", &self.path)?.file_name().to_owned();
            if !matches!(name.as_bytes(), b"." | b"..") {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// The names in this folder that are Unicode, as all that we make are.
    pub(crate) fn text_names(&self) -> Result<Vec<String>, Error> {
        Ok(self.names()?.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    /// Removes what is at a name, and all below it if that is a folder. Links are removed, not followed.
    pub(crate) fn remove_tree(&self, name: &str) -> Result<(), Error> {
        match self.kind(name)? {
            None => Ok(()),
            Some(FileType::Directory) => {
                let Some(child) = self.child(name)? else { return Ok(()) };
                for entry in child.names()? {
                    match entry.to_str() {
                        Ok(entry) => child.remove_tree(entry)?,
                        Err(_) => fs::unlinkat(&*child.fd, &entry, AtFlags::empty()).on_disk("removing", &child.path)?,
                    }
                }
                fs::unlinkat(&*self.fd, name, AtFlags::REMOVEDIR).on_disk("removing", self.path.join(name))
            }
            Some(_) => self.unlink(name),
        }
    }

    /// All regular files below, by their paths; other things are left out.
    pub(crate) fn files(&self) -> Result<Vec<RelativePath>, Error> {
        let mut found = Vec::new();
        self.collect("", &mut found)?;
        Ok(found)
    }

    fn collect(&self, prefix: &str, found: &mut Vec<RelativePath>) -> Result<(), Error> {
        for name in self.text_names()? {
            let path = format!("{prefix}{name}");
            match self.kind(&name)? {
                Some(FileType::Directory) => {
                    if let Some(child) = self.child(&name)? {
                        child.collect(&format!("{path}/"), found)?;
                    }
                }
                Some(FileType::RegularFile) => found.extend(RelativePath::parse(&path).ok()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes this folder's own entries, and those of all folders below, survive a loss of power.
    pub(crate) fn sync_tree(&self) -> Result<(), Error> {
        for name in self.text_names()? {
            if self.kind(&name)? == Some(FileType::Directory)
                && let Some(child) = self.child(&name)?
            {
                child.sync_tree()?;
            }
        }
        self.sync()
    }

    pub(crate) fn sync(&self) -> Result<(), Error> {
        fs::fsync(&*self.fd).on_disk("syncing", &self.path)
    }

    /// The bytes that files below hold on the disk, each counted by its blocks.
    pub(crate) fn bytes_on_disk(&self) -> Result<u64, Error> {
        use std::os::unix::fs::MetadataExt;
        let mut sum = 0;
        for path in self.files()? {
            if let Some((dir, name)) = self.parent(&path)?
                && let Some(file) = dir.open_file(name)?
            {
                sum += file.metadata().on_disk("reading", dir.path.join(name))?.blocks() * 512;
            }
        }
        Ok(sum)
    }

    pub(crate) fn space(&self) -> Result<Space, Error> {
        let numbers = fs::fstatvfs(&*self.fd).on_disk("asking for the space of", &self.path)?;
        Ok(Space { available: numbers.f_bavail.saturating_mul(numbers.f_frsize) })
    }
}

//! Unpacks archives of models: regular files and folders, below one folder. No link is ever made; one to a file of the archive becomes
//! that file.

mod tar_reader;
#[cfg(test)]
mod tests;

use crate::{
    checksum::Digests,
    error::{DiskContext, Error},
    folder::{Dir, Done, State},
    path::RelativePath,
    source::Archive,
};
use flate2::read::MultiGzDecoder;
use rustix::fs::OFlags;
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Read, Write},
};
use tar_reader::{Entry, Kind, TarReader};

const BUFFER_BYTES: usize = 256 << 10;
/// Entries for each file that a model may have: folders, links, and what is outside of the model's folder.
const ENTRIES_PER_FILE: usize = 10;
/// The longest chain of links.
const MAX_LINKS: usize = 8;
/// How layers of images say that a file of a layer below is gone, and that all of a folder are.
const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// What an archive may become, and who counts it.
pub(crate) struct Bounds<'a> {
    pub(crate) max_files: usize,
    pub(crate) max_bytes: u64,
    /// Asked for each write.
    pub(crate) wrote: &'a dyn Fn(u64) -> Result<(), Error>,
}

/// Unpacks archives, one over the other, into a folder.
pub(crate) struct Unpacker<'a> {
    folder: Dir,
    bounds: Bounds<'a>,
    files: BTreeMap<RelativePath, Done>,
    entries: usize,
    bytes: u64,
}

impl<'a> Unpacker<'a> {
    pub(crate) fn new(folder: Dir, bounds: Bounds<'a>) -> Self {
        Self { folder, bounds, files: BTreeMap::new(), entries: 0, bytes: 0 }
    }

    /// All files that are there in the end.
    pub(crate) fn files(self) -> BTreeMap<RelativePath, Done> {
        self.files
    }

    pub(crate) fn unpack(&mut self, name: &str, blob: File, archive: &Archive) -> Result<(), Error> {
        let reader = BufReader::with_capacity(BUFFER_BYTES, blob);
        let reader: Box<dyn Read> = if archive.gzip { Box::new(MultiGzDecoder::new(reader)) } else { Box::new(reader) };
        let mut reader = TarReader::new(reader);
        let refused = |reason: String| Error::Archive { archive: name.to_owned(), reason };
        let unreadable = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => refused("ends early".to_owned()),
            _ => refused(format!("can't be read ({error})")),
        };
        let mut links = BTreeMap::new();
        while let Some(entry) = reader.next_entry().map_err(unreadable)? {
            self.entries += 1;
            if self.entries > self.bounds.max_files.saturating_mul(ENTRIES_PER_FILE) {
                return Err(refused(format!("has more than {} entries", self.bounds.max_files.saturating_mul(ENTRIES_PER_FILE))));
            }
            let Some(path) = below(&entry.path, archive).map_err(refused)? else { continue };
            if archive.layer && self.white_out(&path)? {
                continue;
            }
            match &entry.kind {
                Kind::Folder => {}
                Kind::File => {
                    links.remove(&path);
                    self.write(&path, &entry, &mut reader, &refused, &unreadable)?;
                }
                Kind::SymbolicLink(target) => {
                    self.forget(&path)?;
                    let target = resolve(&entry.path, target).ok_or_else(|| outside(&entry, target)).map_err(&refused)?;
                    links.insert(path, target);
                }
                Kind::HardLink(target) => {
                    self.forget(&path)?;
                    let target = resolve("", target).ok_or_else(|| outside(&entry, target)).map_err(&refused)?;
                    links.insert(path, target);
                }
                Kind::Other => return Err(refused(format!("has {:?}, which is neither a file nor a folder", entry.path))),
            }
        }
        for (path, target) in &links {
            self.link(path, target, &links, archive).map_err(|error| match error {
                Ok(reason) => refused(reason),
                Err(error) => error,
            })?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        path: &RelativePath,
        entry: &Entry,
        reader: &mut TarReader<Box<dyn Read>>,
        refused: &dyn Fn(String) -> Error,
        unreadable: &dyn Fn(io::Error) -> Error,
    ) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(entry.size);
        if self.bytes > self.bounds.max_bytes {
            return Err(refused(format!("has more than {} bytes unpacked", self.bounds.max_bytes)));
        }
        self.forget(path)?;
        if self.files.len() >= self.bounds.max_files {
            return Err(refused(format!("has more than {} files", self.bounds.max_files)));
        }
        let (dir, name) = self.folder.make_parent(path)?;
        // What is there may have another name too.
        dir.remove_tree(name)?;
        let mut file = dir.create_file(name, OFlags::TRUNC)?;
        let mut digests = Digests::new(None, entry.size);
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let length = reader.content(&mut buffer).map_err(unreadable)?;
            if length == 0 {
                break;
            }
            file.write_all(&buffer[..length]).on_disk("writing", dir.path().join(name))?;
            digests.update(&buffer[..length]);
            (self.bounds.wrote)(length as u64)?;
        }
        file.sync_all().on_disk("syncing", dir.path().join(name))?;
        let state = State::for_file(&file).on_disk("reading", dir.path().join(name))?;
        self.files.insert(path.clone(), Done { sha256: digests.finish().0, state });
        Ok(())
    }

    /// Gives a file another name, if a link's target is one; the error is a reason, or the disk's.
    fn link(
        &mut self,
        path: &RelativePath,
        target: &str,
        links: &BTreeMap<RelativePath, String>,
        archive: &Archive,
    ) -> Result<(), Result<String, Error>> {
        let mut found = None;
        let mut target = target.to_owned();
        for _ in 0..MAX_LINKS {
            let Some(inside) = below(&target, archive).map_err(Ok)? else { break };
            let Some(next) = links.get(&inside) else {
                found = self.files.get(&inside).cloned().map(|done| (inside, done));
                break;
            };
            target.clone_from(next);
        }
        let Some((inside, done)) = found else {
            return Err(Ok(format!("has the link {:?}, which leads to no file of the model", path.as_str())));
        };
        let parents = self.folder.parent(&inside).map_err(Err)?.zip(Some(self.folder.make_parent(path).map_err(Err)?));
        let Some(((from, from_name), (to, name))) = parents else { return Ok(()) };
        to.remove_tree(name).map_err(Err)?;
        if !from.link(from_name, &to, name).map_err(Err)? {
            return Err(Ok(format!("has the link {:?}, and this file system has no hard links", path.as_str())));
        }
        self.files.insert(path.clone(), done);
        Ok(())
    }

    /// Removes what a layer says is gone. Returns whether the entry is such a word.
    fn white_out(&mut self, path: &RelativePath) -> Result<bool, Error> {
        let (_, name) = path.split();
        let Some(gone) = name.strip_prefix(WHITEOUT) else { return Ok(false) };
        let parent = path.as_path().parent().and_then(|parent| parent.to_str()).unwrap_or_default();
        let removed = if name == OPAQUE { parent.to_owned() } else { format!("{parent}/{gone}").trim_start_matches('/').to_owned() };
        let gone: Vec<_> = self.files.keys().filter(|path| path.as_path().starts_with(&removed)).cloned().collect();
        for path in gone {
            self.forget(&path)?;
        }
        Ok(true)
    }

    /// Removes a file that an entry replaces, and what is below it.
    fn forget(&mut self, path: &RelativePath) -> Result<(), Error> {
        let gone: Vec<_> = self.files.keys().filter(|file| file.as_path().starts_with(path.as_path())).cloned().collect();
        for file in gone {
            if let Some((dir, name)) = self.folder.parent(&file)? {
                dir.unlink(name)?;
            }
            self.files.remove(&file);
        }
        Ok(())
    }
}

fn outside(entry: &Entry, target: &str) -> String {
    format!("has the link {:?} to {target:?}, which is outside of it", entry.path)
}

/// Where an entry goes: nowhere if it isn't below the folder of the archive that is wanted.
fn below(path: &str, archive: &Archive) -> Result<Option<RelativePath>, String> {
    let refused = |reason: String| format!("has a file whose path {path:?} {reason}");
    let trimmed = path.trim_start_matches("./").trim_end_matches('/');
    // The root itself.
    if trimmed.is_empty() || trimmed == "." {
        return Ok(None);
    }
    let inside = match &archive.below {
        Some(folder) => {
            let trimmed = trimmed.trim_start_matches('/');
            match trimmed.strip_prefix(folder.as_str()).and_then(|rest| rest.strip_prefix('/')) {
                Some(inside) => inside,
                None => return Ok(None),
            }
        }
        None => trimmed,
    };
    RelativePath::parse(inside).map(Some).map_err(refused)
}

/// The path in the archive to which a link leads, unless it leaves the archive.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    if !target.starts_with('/') {
        let folder = from.trim_start_matches("./").rsplit_once('/').map_or("", |(folder, _)| folder);
        parts.extend(folder.split('/').filter(|part| !part.is_empty() && *part != "."));
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

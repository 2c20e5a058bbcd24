//! What of a version is on disk already, in a file of lines that are only added to.
//!
//! A line is written once the bytes are: a process that is killed loses what it hadn't written. After a loss of power, lines may describe
//! bytes that never reached the disk, so each has a CRC-32C, and what doesn't match is downloaded again.

use super::dir::Dir;
use crate::{
    checksum::Checksum,
    error::{DiskContext, Error},
    source::Listing,
};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

const NAME: &str = "journal";

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Record {
    /// The next file's path and identity; these lines come first.
    File(String, String),
    /// Bytes of a file: its index, the start, the length, the CRC-32C.
    Part(usize, u64, u64, u32),
    /// The checksum that the source publishes only with the bytes.
    Sum(usize, Checksum),
    /// A file is whole and verified.
    Done(usize, Done),
    /// What is known of a file's bytes doesn't hold.
    Drop(usize),
}

/// A verified file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) sha256: String,
    pub(crate) state: State,
}

/// What changes when a file is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) size: u64,
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: i64,
}

impl State {
    pub(crate) fn for_file(file: &File) -> std::io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = file.metadata()?;
        Ok(Self { size: metadata.size(), seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() })
    }
}

/// What is known of a file.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) parts: Vec<(u64, u64, u32)>,
    pub(crate) checksum: Option<Checksum>,
    pub(crate) done: Option<Done>,
}

/// What a journal says.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Path and identity of each file.
    pub(crate) files: Vec<(String, String)>,
    pub(crate) known: BTreeMap<usize, Known>,
}

pub(crate) struct Journal {
    file: Mutex<File>,
    path: PathBuf,
}

impl Journal {
    /// Reads the journal of a folder, up to the first line that isn't whole.
    pub(crate) fn read(dir: &Dir) -> Result<Contents, Error> {
        let mut contents = Contents::default();
        let Some(file) = dir.open_file(NAME)? else { return Ok(contents) };
        for line in BufReader::new(file).split(b'\n') {
            let line = line.on_disk("reading", dir.path().join(NAME))?;
            let Ok(record) = serde_json::from_slice(&line) else { break };
            contents.add(record);
        }
        Ok(contents)
    }

    /// Begins a journal for a list, with what is known of its files already.
    pub(crate) fn begin(dir: &Dir, listing: &Listing, known: &BTreeMap<usize, Known>) -> Result<Self, Error> {
        let mut text = Vec::new();
        let headers = listing.files.iter().map(|file| Record::File(file.path.to_string(), file.identity()));
        let facts = known.iter().flat_map(|(index, known)| {
            let parts = known.parts.iter().map(|(start, length, crc)| Record::Part(*index, *start, *length, *crc));
            let sum = known.checksum.iter().map(|checksum| Record::Sum(*index, checksum.clone()));
            parts.chain(sum).chain(known.done.iter().map(|done| Record::Done(*index, done.clone()))).collect::<Vec<_>>()
        });
        for record in headers.chain(facts) {
            append(&mut text, &record);
        }
        dir.write(NAME, &text)?;
        let path = dir.path().join(NAME);
        let file = dir.create_file(NAME, OFlags::APPEND)?;
        Ok(Self { file: Mutex::new(file), path })
    }

    pub(crate) fn write(&self, record: &Record) -> Result<(), Error> {
        let mut line = Vec::with_capacity(96);
        append(&mut line, record);
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line).on_disk("writing", &self.path)
    }

    pub(crate) fn sync(&self) -> Result<(), Error> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).try_clone();
        file.and_then(|file| file.sync_data()).on_disk("syncing", &self.path)
    }
}

fn append(text: &mut Vec<u8>, record: &Record) {
    // Writing into memory, of what has no maps, doesn't fail.
    if serde_json::to_writer(&mut *text, record).is_ok() {
        text.push(b'\n');
    }
}

impl Contents {
    fn add(&mut self, record: Record) {
        match record {
            Record::File(path, identity) => self.files.push((path, identity)),
            Record::Part(index, start, length, crc) => self.known.entry(index).or_default().parts.push((start, length, crc)),
            Record::Sum(index, checksum) => self.known.entry(index).or_default().checksum = Some(checksum),
            Record::Done(index, done) => {
                let known = self.known.entry(index).or_default();
                known.parts = Vec::new();
                known.done = Some(done);
            }
            Record::Drop(index) => {
                self.known.remove(&index);
            }
        }
    }

    /// Whether it is about exactly these files.
    pub(crate) fn is_about(&self, listing: &Listing) -> bool {
        self.files.len() == listing.files.len()
            && self
                .files
                .iter()
                .zip(&listing.files)
                .all(|((path, identity), file)| path == file.path.as_str() && *identity == file.identity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{path::RelativePath, source::SourceFile};

    fn listing() -> Listing {
        let path = RelativePath::parse("a/b").unwrap();
        let file = SourceFile { path, size: 9, checksum: None, validator: None, key: String::new(), archive: None, ranges: true };
        Listing { version: "v".into(), files: vec![file] }
    }

    #[test]
    fn a_torn_line_and_what_follows_is_as_if_it_had_not_been_written() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Dir::open(folder.path()).unwrap();
        let journal = Journal::begin(&dir, &listing(), &BTreeMap::new()).unwrap();
        journal.write(&Record::Part(0, 0, 4, 7)).unwrap();
        journal.write(&Record::Part(0, 4, 2, 8)).unwrap();
        let path = folder.path().join(NAME);
        let whole = std::fs::read(&path).unwrap();
        for (cut, expected) in [(whole.len(), 2), (whole.len() - 2, 1), (whole.len() - 20, 1)] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let contents = Journal::read(&dir).unwrap();
            assert!(contents.is_about(&listing()));
            assert_eq!(contents.known.get(&0).map_or(0, |known| known.parts.len()), expected, "{cut}");
        }
        std::fs::write(&path, [&whole[..], &[0; 64], b"\n", &whole[..]].concat()).unwrap();
        assert_eq!(Journal::read(&dir).unwrap().known[&0].parts, [(0, 4, 7), (4, 2, 8)]);
    }

    #[test]
    fn another_list_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Dir::open(folder.path()).unwrap();
        Journal::begin(&dir, &listing(), &BTreeMap::new()).unwrap();
        let mut other = listing();
        other.files[0].validator = Some("\"2\"".into());
        assert!(!Journal::read(&dir).unwrap().is_about(&other));
    }
}

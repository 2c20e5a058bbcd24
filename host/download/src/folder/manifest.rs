//! What a complete version has, and whether it is still so.

use super::{State, dir::Dir};
use crate::{
    checksum::Digests,
    error::{DiskContext, Error},
    path::RelativePath,
};
use serde::{Deserialize, Serialize};
use std::{fs::File, io::Read};

const BUFFER_BYTES: usize = 256 << 10;

/// The record of a complete version.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub version: String,
    /// Where it was downloaded from, without credentials.
    pub source: String,
    /// Whose credentials opened it: only downloads of an equal scope share its files.
    pub scope: String,
    pub files: Vec<ManifestFile>,
}

/// A file of a complete version.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ManifestFile {
    pub path: RelativePath,
    pub sha256: String,
    pub(crate) state: State,
    /// What told it apart at its source; empty for what came from an archive.
    pub(crate) identity: String,
    /// A full verification found other bytes.
    #[serde(default)]
    pub(crate) damaged: bool,
}

impl ManifestFile {
    pub fn size(&self) -> u64 {
        self.state.size
    }

    fn compare(&self, opened: File, full: bool) -> std::io::Result<Option<Problem>> {
        let state = State::for_file(&opened)?;
        if state.size != self.state.size || !full && state != self.state {
            return Ok(Some(Problem::Modified));
        }
        Ok((full && sha256(opened, state.size)? != self.sha256).then_some(Problem::Damaged))
    }
}

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    Missing,
    /// Its size or its time differs from the manifest.
    Modified,
    /// Its bytes have another digest.
    Damaged,
    /// The manifest doesn't list it.
    Unknown,
}

/// A file with a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub path: RelativePath,
    pub problem: Problem,
}

/// What a verification found.
#[derive(Clone, Debug)]
pub struct Verification {
    pub version: String,
    pub files: usize,
    pub bytes: u64,
    pub damage: Vec<Damage>,
}

impl Verification {
    pub fn is_intact(&self) -> bool {
        self.damage.is_empty()
    }
}

impl Manifest {
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(ManifestFile::size).sum()
    }

    /// Compares a version's folder with this: sizes and times, or the bytes too.
    pub(crate) fn verify(&self, folder: &Dir, full: bool) -> Result<Verification, Error> {
        let mut damage = Vec::new();
        for file in &self.files {
            let problem = match open(folder, &file.path)? {
                None => Some(Problem::Missing),
                Some(_) if file.damaged => Some(Problem::Damaged),
                Some(opened) => file.compare(opened, full).on_disk("reading", folder.path().join(file.path.as_path()))?,
            };
            damage.extend(problem.map(|problem| Damage { path: file.path.clone(), problem }));
        }
        let listed: std::collections::HashSet<_> = self.files.iter().map(|file| &file.path).collect();
        let unknown = folder.files()?.into_iter().filter(|path| !listed.contains(path));
        damage.extend(unknown.map(|path| Damage { path, problem: Problem::Unknown }));
        Ok(Verification { version: self.version.clone(), files: self.files.len(), bytes: self.bytes(), damage })
    }
}

/// A file of a version that is as the manifest has it, by size and time.
pub(crate) fn find_intact(folder: &Dir, file: &ManifestFile) -> Result<bool, Error> {
    let Some(opened) = open(folder, &file.path)? else { return Ok(false) };
    let state = State::for_file(&opened).on_disk("reading", folder.path())?;
    Ok(!file.damaged && state == file.state)
}

fn open(folder: &Dir, path: &RelativePath) -> Result<Option<File>, Error> {
    match folder.parent(path)? {
        Some((dir, name)) => dir.open_file(name),
        None => Ok(None),
    }
}

/// The digest of a file from its beginning.
pub(crate) fn sha256(mut file: File, size: u64) -> std::io::Result<String> {
    let mut digests = Digests::new(None, size);
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digests.finish().0),
            length => digests.update(&buffer[..length]),
        }
    }
}

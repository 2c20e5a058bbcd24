//! What is on the disk, whoever put it there and when: for somebody who starts anew and decides what may go.

use super::{Root, model};
use crate::{error::Error, path::RelativePath};
use std::path::PathBuf;

/// The file with what the caller notes of a model.
const NOTE: &str = "note";

/// The longest note that is read.
const MAX_NOTE_BYTES: u64 = 64 << 10;

/// A model on the disk, complete or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredModel {
    /// Its `storage.path`.
    pub path: PathBuf,
    /// What the caller has noted of it.
    pub note: Option<String>,
    /// The folder of the version to which its path leads.
    pub current: Option<String>,
    /// The folders of all complete versions.
    pub versions: Vec<String>,
}

impl Root {
    /// All models.
    pub(crate) fn stored(&self) -> Result<Vec<StoredModel>, Error> {
        let mut stored = Vec::new();
        for key in self.models.text_names()? {
            let Some(folder) = self.models.child(&key)? else { continue };
            // Without its path, which is written first, it isn't a model's.
            let Some(path) = model::path(&folder)? else { continue };
            let versions = folder.child("versions")?.map(|versions| versions.text_names()).transpose()?.unwrap_or_default();
            let note = folder.read_text(NOTE, MAX_NOTE_BYTES)?;
            let current = self.current_folder(&path)?;
            stored.push(StoredModel { path: self.dir.path().join(path.as_path()), note, current, versions });
        }
        stored.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(stored)
    }

    /// Notes something of a model. Its folder is made if it isn't there.
    pub(crate) fn note(&self, path: &RelativePath, note: &str) -> Result<(), Error> {
        let folder = self.models.make(&model::key(path))?;
        model::set_path(&folder, path)?;
        if folder.read_text(NOTE, MAX_NOTE_BYTES)?.as_deref() != Some(note) {
            folder.write(NOTE, note.as_bytes())?;
        }
        Ok(())
    }
}

//! Where models are on a node's disk.
//!
//! A root is a folder on one file system, such as `/mnt/models`. All that this crate writes is in `ROOT/.pointsman`, besides one link for
//! each model:
//!
//! ```text
//! /mnt/models/llama -> .pointsman/models/llama-5c1d0e3f/versions/3aef12...   what pods mount
//! /mnt/models/.pointsman/models/llama-5c1d0e3f/
//!     lock                  held by the process that downloads or removes
//!     model.json            the path that this is for
//!     note                  what the caller has noted of it
//!     versions/VERSION/     complete versions
//!     manifests/VERSION.json    sizes, times and digests of a version's files
//!     partial/VERSION/      unfinished: files/, blobs/ (archives) and the journal
//! ```
//!
//! Pods mount `storage.path` as a hostPath. Container runtimes resolve a link there when they create a container, so a pod sees the files
//! of one version at the path itself, and retains that version while it runs, whatever the link becomes. The link is relative, so that it
//! leads to the same place under whatever path the agent itself sees the root. It is replaced by a rename: at each moment it leads to a
//! complete version.

mod dir;
mod journal;
mod manifest;
mod model;
mod stored;

pub(crate) use dir::Dir;
pub(crate) use journal::{Contents, Done, Journal, Known, Record, State};
pub use manifest::{Damage, Manifest, ManifestFile, Problem, Verification};
pub(crate) use model::{ModelFolder, link};
pub use stored::StoredModel;

use crate::{error::Error, path::RelativePath};
use std::path::Path;

const HIDDEN: &str = ".pointsman";

/// The folder of all models of a node on one file system.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) dir: Dir,
    models: Dir,
    trash: Dir,
}

/// What the disk holds below a root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of complete versions; what two of them share counts twice.
    pub complete: u64,
    /// Bytes of unfinished downloads, which a later one continues.
    pub partial: u64,
    /// Bytes that the file system has for others.
    pub available: u64,
}

impl Root {
    /// Opens a root, and removes what an interrupted removal has left.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let dir = Dir::open(path)?;
        let hidden = dir.make(HIDDEN)?;
        let root = Self { models: hidden.make("models")?, trash: hidden.make("trash")?, dir };
        for name in root.trash.text_names()? {
            root.trash.remove_tree(&name)?;
        }
        Ok(root)
    }

    /// The part of a `storage.path` below this root.
    pub(crate) fn relative(&self, path: &Path) -> Result<RelativePath, Error> {
        let refused = |reason: &str| Error::InvalidPath {
            place: format!("the root {}", self.dir.path().display()),
            path: path.display().to_string(),
            reason: reason.to_owned(),
        };
        let below = path.strip_prefix(self.dir.path()).map_err(|_| refused("isn't below it"))?;
        let relative = RelativePath::parse(below.to_str().ok_or_else(|| refused("isn't Unicode"))?).map_err(|reason| refused(&reason))?;
        if relative.as_path().starts_with(HIDDEN) {
            return Err(refused("is where this agent has its own files"));
        }
        Ok(relative)
    }

    pub(crate) fn usage(&self) -> Result<Usage, Error> {
        let mut usage = Usage { available: self.dir.space()?.available, ..Usage::default() };
        for name in self.models.text_names()? {
            let Some(model) = self.models.child(&name)? else { continue };
            let bytes = |folder| model.child(folder)?.map_or(Ok(0), |folder| folder.bytes_on_disk());
            usage.complete += bytes("versions")?;
            usage.partial += bytes("partial")?;
        }
        Ok(usage)
    }
}

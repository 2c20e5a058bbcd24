//! One model's folder, held by a lock.

use super::{Dir, HIDDEN, Manifest, ManifestFile, Root, Verification, manifest};
use crate::{
    checksum::sha256_hex,
    error::{DiskContext, Error},
    path::RelativePath,
};
use rustix::fs::{FileType, FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};
use std::fs::File;

const LAYOUT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Model {
    layout: u32,
    path: RelativePath,
}

/// A model's folder. Its lock is free once this and what was cloned of it is dropped, or the process ends.
#[derive(Debug)]
pub(crate) struct ModelFolder {
    root: Root,
    key: String,
    path: RelativePath,
    versions: Dir,
    manifests: Dir,
    pub(crate) partial: Dir,
    _lock: File,
}

/// The name of a model's folder: a person recognizes it, and no two paths have the same.
pub(super) fn key(path: &RelativePath) -> String {
    let (_, name) = path.split();
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')).take(100).collect();
    format!("{}-{}", name.trim_start_matches('.'), &sha256_hex(path.as_str())[..16])
}

impl ModelFolder {
    /// Makes or opens the folder for a path, unless another process has it.
    pub(crate) fn lock(root: &Root, path: &RelativePath) -> Result<Self, Error> {
        let key = key(path);
        loop {
            let dir = root.models.make(&key)?;
            let lock = dir.create_file("lock", OFlags::empty())?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                return Err(Error::Busy { path: root.dir.path().join(path.as_path()) });
            }
            // Whoever had it may have removed the folder.
            let is_there = root.models.child(&key)?.map(|dir| dir.open_file("lock")).transpose()?.flatten();
            if is_there.is_none_or(|file| !is_same(&file, &lock)) {
                continue;
            }
            set_path(&dir, path)?;
            return Ok(Self {
                root: root.clone(),
                key,
                path: path.clone(),
                versions: dir.make("versions")?,
                manifests: dir.make("manifests")?,
                partial: dir.make("partial")?,
                _lock: lock,
            });
        }
    }

    pub(crate) fn path(&self) -> &RelativePath {
        &self.path
    }

    /// The version that a path leads to, without a lock.
    pub(crate) fn current(root: &Root, path: &RelativePath) -> Result<Option<(Dir, Manifest)>, Error> {
        let Some(folder) = root.current_folder(path)? else { return Ok(None) };
        let Some(model) = root.models.child(&key(path))? else { return Ok(None) };
        read_version(&model, &folder)
    }

    /// Checks that the model's path is free or ours.
    pub(crate) fn check_path(&self) -> Result<(), Error> {
        let (parent, name) = self.root.dir.make_parent(&self.path)?;
        let occupied = |reason, remedy| Err(Error::Occupied { path: self.root.dir.path().join(self.path.as_path()), reason, remedy });
        match parent.kind(name)? {
            None => Ok(()),
            // Kubelets make an empty folder for a hostPath that isn't there.
            Some(FileType::Directory) if parent.remove_if_empty(name)? => Ok(()),
            Some(FileType::Directory) => occupied("is a folder that somebody else filled", "move it away, or set another storage.path"),
            Some(FileType::Symlink) => {
                let target = parent.link_target(name)?.unwrap_or_default();
                match version_folder(&self.path, &self.key, &target) {
                    Some(_) => Ok(()),
                    None => occupied("is a link that somebody else made", "remove it, or set another storage.path"),
                }
            }
            Some(_) => occupied("is a file", "remove it, or set another storage.path"),
        }
    }

    /// Complete versions: the names of their folders with their manifests.
    pub(crate) fn complete(&self) -> Result<Vec<(Dir, Manifest)>, Error> {
        let mut found = Vec::new();
        for name in self.versions.text_names()? {
            if let Some(manifest) = read_manifest(&self.manifests, &name)?
                && let Some(folder) = self.versions.child(&name)?
            {
                found.push((folder, manifest));
            }
        }
        Ok(found)
    }

    /// A complete version that is as it was written, by sizes and times.
    pub(crate) fn find_intact(&self, version: &str, scope: &str) -> Result<Option<(Dir, Manifest)>, Error> {
        for (folder, manifest) in self.complete()? {
            if manifest.version == version && manifest.scope == scope && manifest.verify(&folder, false)?.is_intact() {
                return Ok(Some((folder, manifest)));
            }
        }
        Ok(None)
    }

    /// Makes what is in a partial folder a complete version.
    pub(crate) fn complete_version(&self, partial: &Dir, manifest: &Manifest) -> Result<Dir, Error> {
        // A version that is damaged, or of another scope, stays for the pods that have it.
        let names = std::iter::once(manifest.version.clone()).chain((1..).map(|count| format!("{}.{count}", manifest.version)));
        for name in names {
            if self.versions.kind(&name)?.is_some() {
                continue;
            }
            let text = serde_json::to_vec(manifest).map_err(std::io::Error::other).on_disk("writing", self.manifests.path())?;
            self.manifests.write(&format!("{name}.json"), &text)?;
            partial.rename("files", &self.versions, &name)?;
            self.versions.sync()?;
            return self.versions.child(&name)?.ok_or(std::io::ErrorKind::NotFound).on_disk("opening", self.versions.path());
        }
        Err(std::io::ErrorKind::AlreadyExists).on_disk("making", self.versions.path())
    }

    /// Makes the model's path lead to a version. Returns whether it led elsewhere before.
    pub(crate) fn publish(&self, version: &Dir) -> Result<bool, Error> {
        let (parent, name) = self.root.dir.make_parent(&self.path)?;
        let folder = version.path().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let target = format!("{}{folder}", prefix(&self.path, &self.key));
        if parent.link_target(name)?.as_deref() == Some(&target) {
            return Ok(false);
        }
        self.check_path()?;
        parent.replace_link(name, &target)?;
        Ok(true)
    }

    /// Removes all versions but those that the path leads to or that the caller retains.
    pub(crate) fn prune(&self, retain: &dyn Fn(&str) -> bool) -> Result<Vec<String>, Error> {
        let current = Self::current(&self.root, &self.path)?.map(|(folder, _)| folder.path().to_owned());
        let mut removed = Vec::new();
        for name in self.versions.text_names()? {
            if current.as_deref() == Some(&self.versions.path().join(&name)) || retain(&name) {
                continue;
            }
            self.manifests.unlink(&format!("{name}.json"))?;
            self.versions.remove_tree(&name)?;
            removed.push(name);
        }
        Ok(removed)
    }

    /// Removes the model: its link, and all that is behind it.
    pub(crate) fn remove(self) -> Result<(), Error> {
        if let Some((parent, name)) = self.root.dir.parent(&self.path)?
            && let Some(target) = parent.link_target(name)?
            && version_folder(&self.path, &self.key, &target).is_some()
        {
            parent.unlink(name)?;
            parent.sync()?;
        }
        // From here on the model isn't there, even if removing its files is interrupted.
        self.root.models.rename(&self.key, &self.root.trash, &self.key)?;
        self.root.trash.remove_tree(&self.key)
    }

    /// Records that files have other bytes than they had.
    pub(crate) fn mark_damaged(&self, folder: &Dir, manifest: &Manifest, verification: &Verification) -> Result<(), Error> {
        let name = folder.path().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let mut manifest = manifest.clone();
        for file in &mut manifest.files {
            file.damaged |= verification.damage.iter().any(|damage| damage.path == file.path);
        }
        let text = serde_json::to_vec(&manifest).map_err(std::io::Error::other).on_disk("writing", self.manifests.path())?;
        self.manifests.write(&format!("{name}.json"), &text)
    }
}

/// Records the path that a model's folder is for.
pub(super) fn set_path(folder: &Dir, path: &RelativePath) -> Result<(), Error> {
    if folder.open_file("model.json")?.is_some() {
        return Ok(());
    }
    let model = Model { layout: LAYOUT, path: path.clone() };
    let text = serde_json::to_vec(&model).map_err(std::io::Error::other).on_disk("writing", folder.path())?;
    folder.write("model.json", &text)
}

/// The path that a model's folder is for.
pub(super) fn path(folder: &Dir) -> Result<Option<RelativePath>, Error> {
    let Some(file) = folder.open_file("model.json")? else { return Ok(None) };
    Ok(serde_json::from_reader(std::io::BufReader::new(file)).ok().map(|Model { path, .. }| path))
}

impl Root {
    /// The name of the version's folder to which a path leads.
    pub(super) fn current_folder(&self, path: &RelativePath) -> Result<Option<String>, Error> {
        let Some((parent, name)) = self.dir.parent(path)? else { return Ok(None) };
        Ok(parent.link_target(name)?.and_then(|target| version_folder(path, &key(path), &target)))
    }

    /// Complete versions of all models that a scope may read: for files that another model has already.
    pub(crate) fn shared_with(&self, scope: &str) -> Result<Vec<(Dir, Manifest)>, Error> {
        let mut found = Vec::new();
        for name in self.models.text_names()? {
            let Some(model) = self.models.child(&name)? else { continue };
            let Some(versions) = model.child("versions")? else { continue };
            for version in versions.text_names()? {
                found.extend(read_version(&model, &version)?.filter(|(_, manifest)| manifest.scope == scope));
            }
        }
        Ok(found)
    }
}

/// Links a file of a complete version to another place, if it is as its manifest has it.
pub(crate) fn link(from: &Dir, file: &ManifestFile, to: &Dir, path: &RelativePath) -> Result<bool, Error> {
    if !manifest::find_intact(from, file)? {
        return Ok(false);
    }
    let Some((source, name)) = from.parent(&file.path)? else { return Ok(false) };
    let (target, target_name) = to.make_parent(path)?;
    target.unlink(target_name)?;
    source.link(name, &target, target_name)
}

fn read_version(model: &Dir, name: &str) -> Result<Option<(Dir, Manifest)>, Error> {
    let Some(manifests) = model.child("manifests")? else { return Ok(None) };
    let Some(manifest) = read_manifest(&manifests, name)? else { return Ok(None) };
    let folder = model.child("versions")?.map(|versions| versions.child(name)).transpose()?.flatten();
    Ok(folder.map(|folder| (folder, manifest)))
}

fn read_manifest(manifests: &Dir, name: &str) -> Result<Option<Manifest>, Error> {
    let Some(file) = manifests.open_file(&format!("{name}.json"))? else { return Ok(None) };
    // One that can't be read is as if it weren't there: the version is downloaded again.
    Ok(serde_json::from_reader(std::io::BufReader::new(file)).ok())
}

/// Where a model's link leads, up to the version.
fn prefix(path: &RelativePath, key: &str) -> String {
    let depth = path.as_str().matches('/').count();
    format!("{}{HIDDEN}/models/{key}/versions/", "../".repeat(depth))
}

/// The version's folder that a link leads to, if it is one of ours.
fn version_folder(path: &RelativePath, key: &str, target: &str) -> Option<String> {
    let folder = target.strip_prefix(&prefix(path, key))?;
    (!folder.is_empty() && !folder.contains('/') && folder != "..").then(|| folder.to_owned())
}

fn is_same(a: &File, b: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
    identity(a).is_some() && identity(a) == identity(b)
}

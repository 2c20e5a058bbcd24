//! The unfinished folder of a version, with what is on disk of it already: from an earlier attempt, another version, another model.

use super::{Request, schedule::Partial, target::joined};
use crate::{
    checksum::Checksum,
    error::Error,
    folder::{Contents, Dir, Done, Journal, Known, Manifest, ManifestFile, ModelFolder, Root, link},
    source::{Listing, SourceFile},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use tokio::task::spawn_blocking;

/// Opens the folder, and removes those of other versions, which nobody will finish. Returns how many bytes are shared.
pub(super) async fn open(
    root: &Root,
    folder: &Arc<ModelFolder>,
    listing: &Arc<Listing>,
    Request { scope, reuses_files, .. }: &Request,
) -> Result<(Partial, Dir, u64), Error> {
    let (root, folder, listing, scope, reuses_files) = (root.clone(), folder.clone(), listing.clone(), scope.clone(), *reuses_files);
    joined(spawn_blocking(move || open_blocking(&root, &folder, &listing, &scope, reuses_files)).await)
}

/// The bytes that aren't on disk yet.
pub(super) fn missing_bytes(listing: &Listing, partial: &Partial) -> u64 {
    let there = |index, size: u64| match partial.known.get(&index) {
        Some(known) if known.done.is_some() => size,
        Some(known) => known.parts.iter().map(|(_, length, _)| length).sum::<u64>().min(size),
        None => 0,
    };
    listing.files.iter().enumerate().map(|(index, file)| file.size - there(index, file.size)).sum()
}

fn open_blocking(
    root: &Root,
    folder: &ModelFolder,
    listing: &Listing,
    scope: &str,
    reuses_files: bool,
) -> Result<(Partial, Dir, u64), Error> {
    // What another scope's credentials brought is none of ours.
    let suffix = format!("-{}", &crate::checksum::sha256_hex(scope)[..16]);
    let name = format!("{}{suffix}", listing.version);
    let dir = folder.partial.make(&name)?;
    let (files, blobs) = (dir.make("files")?, dir.make("blobs")?);
    let contents = Journal::read(&dir)?;
    let mut known = if contents.is_about(listing) { contents.known } else { BTreeMap::new() };
    known.retain(|index, known| *index < listing.files.len() && (known.done.is_none() || is_there(&dir, &listing.files[*index], known)));
    let mut shared_bytes = 0;
    let mut sources = Sources::read(root, folder, scope, reuses_files)?;
    for other in folder.partial.text_names()?.into_iter().filter(|other| *other != name) {
        if let Some(other_dir) = folder.partial.child(&other)?
            && other.ends_with(&suffix)
        {
            sources.add_partial(&other_dir)?;
        }
    }
    for (index, file) in listing.files.iter().enumerate() {
        if file.archive.is_some() || known.get(&index).is_some_and(|known| known.done.is_some()) {
            continue;
        }
        if let Some(done) = sources.bring(file, &files)? {
            shared_bytes += file.size;
            known.insert(index, Known { done: Some(done), ..Known::default() });
        }
    }
    let journal = Arc::new(Journal::begin(&dir, listing, &known)?);
    for other in folder.partial.text_names()?.into_iter().filter(|other| *other != name) {
        folder.partial.remove_tree(&other)?;
    }
    Ok((Partial { files, blobs, journal, known }, dir, shared_bytes))
}

/// Whether a file that the journal calls done is as it was then.
fn is_there(dir: &Dir, file: &SourceFile, known: &Known) -> bool {
    let folder = if file.archive.is_some() { "blobs" } else { "files" };
    let find = || -> Result<bool, Error> {
        let Some(done) = &known.done else { return Ok(false) };
        let Some((parent, name)) = dir.make(folder)?.parent(&file.path)? else { return Ok(false) };
        let Some(opened) = parent.open_file(name)? else { return Ok(false) };
        Ok(crate::folder::State::for_file(&opened).is_ok_and(|state| state == done.state))
    };
    find().unwrap_or(false)
}

/// Where a file may be on this disk.
struct Sources {
    /// Complete versions that the scope may read.
    versions: Vec<(Dir, Manifest)>,
    by_digest: HashMap<String, (usize, usize)>,
    /// Those of this model, by path and identity.
    by_identity: HashMap<(String, String), (usize, usize)>,
    /// Unfinished other versions of this model, by path and identity.
    partials: HashMap<(String, String), (Dir, Done)>,
}

impl Sources {
    fn read(root: &Root, folder: &ModelFolder, scope: &str, reuses_files: bool) -> Result<Self, Error> {
        let own: Vec<_> = folder.complete()?.into_iter().filter(|(_, manifest)| manifest.scope == scope).collect();
        let own_count = own.len();
        let others = if reuses_files { root.shared_with(scope)? } else { Vec::new() };
        let versions: Vec<_> = own.into_iter().chain(others).collect();
        let (mut by_digest, mut by_identity) = (HashMap::new(), HashMap::new());
        for (version, (_, manifest)) in versions.iter().enumerate() {
            for (index, file) in manifest.files.iter().enumerate().filter(|(_, file)| !file.damaged) {
                by_digest.entry(file.sha256.clone()).or_insert((version, index));
                if version < own_count && !file.identity.is_empty() {
                    by_identity.entry((file.path.to_string(), file.identity.clone())).or_insert((version, index));
                }
            }
        }
        Ok(Self { versions, by_digest, by_identity, partials: HashMap::new() })
    }

    fn add_partial(&mut self, dir: &Dir) -> Result<(), Error> {
        let Contents { files, known } = Journal::read(dir)?;
        for (index, known) in known {
            if let (Some(key), Some(done)) = (files.get(index), known.done) {
                self.partials.insert(key.clone(), (dir.clone(), done));
            }
        }
        Ok(())
    }

    /// Brings a file from where it is, if it is anywhere.
    fn bring(&self, file: &SourceFile, to: &Dir) -> Result<Option<Done>, Error> {
        let key = (file.path.to_string(), file.identity());
        let digest = match &file.checksum {
            Some(Checksum::Sha256(digest)) => self.by_digest.get(digest),
            _ => None,
        };
        // A size alone doesn't tell two states apart.
        let has_identity = file.checksum.is_some() || file.validator.is_some();
        let identity = || self.by_identity.get(&key).filter(|_| has_identity);
        if let Some(&(version, index)) = digest.or_else(identity) {
            let (dir, manifest) = &self.versions[version];
            let found: &ManifestFile = &manifest.files[index];
            if found.state.size == file.size && link(dir, found, to, &file.path)? {
                return Ok(Some(Done { sha256: found.sha256.clone(), state: found.state.clone() }));
            }
        }
        let Some((dir, done)) = self.partials.get(&key).filter(|_| has_identity) else { return Ok(None) };
        let Some(files) = dir.child("files")? else { return Ok(None) };
        let Some((parent, name)) = files.parent(&file.path)? else { return Ok(None) };
        let is_same =
            parent.open_file(name)?.is_some_and(|opened| crate::folder::State::for_file(&opened).is_ok_and(|state| state == done.state));
        if !is_same {
            return Ok(None);
        }
        let (target, target_name) = to.make_parent(&file.path)?;
        parent.rename(name, &target, target_name)?;
        Ok(Some(done.clone()))
    }
}

//! Makes a complete version of downloaded files: unpacks archives, records the manifest, moves the folder.

use super::Job;
use crate::{
    error::Error,
    folder::{Dir, Done, Manifest, ManifestFile, ModelFolder},
    path::RelativePath,
    source::Listing,
    unpack::{Bounds, Unpacker},
};
use std::collections::BTreeMap;

const UNPACKED: &str = "unpacked";

/// Returns the version's folder and its manifest.
pub(super) fn assemble(
    job: &Job,
    model: &ModelFolder,
    dir: &Dir,
    listing: &Listing,
    done: BTreeMap<usize, Done>,
    source: String,
    scope: String,
) -> Result<(Dir, Manifest), Error> {
    let mut files: BTreeMap<RelativePath, (Done, String)> = BTreeMap::new();
    for (index, done) in done {
        let file = &listing.files[index];
        if file.archive.is_none() {
            files.insert(file.path.clone(), (done, file.identity()));
        }
    }
    if listing.files.iter().any(|file| file.archive.is_some()) {
        let unpacked = unpack(job, dir, listing, files.keys())?;
        files.extend(unpacked.into_iter().map(|(path, done)| (path, (done, String::new()))));
        dir.remove_tree("files")?;
        dir.rename(UNPACKED, dir, "files")?;
    }
    let Some(folder) = dir.child("files")? else {
        return Err(Error::NotFound { place: dir.path().display().to_string(), remedy: "download it again".to_owned() });
    };
    folder.sync_tree()?;
    let files = files
        .into_iter()
        .map(|(path, (done, identity))| ManifestFile { path, sha256: done.sha256, state: done.state, identity, damaged: false })
        .collect();
    let manifest = Manifest { version: listing.version.clone(), source, scope, files };
    let version = model.complete_version(dir, &manifest)?;
    if let Some(name) = dir.path().file_name().and_then(|name| name.to_str()) {
        model.partial.remove_tree(name)?;
    }
    Ok((version, manifest))
}

/// Unpacks all archives over each other, beside the files that aren't in one.
fn unpack<'a>(
    job: &Job,
    dir: &Dir,
    listing: &Listing,
    plain: impl Iterator<Item = &'a RelativePath>,
) -> Result<BTreeMap<RelativePath, Done>, Error> {
    // An earlier attempt may have been interrupted.
    dir.remove_tree(UNPACKED)?;
    let (unpacked, files, blobs) = (dir.make(UNPACKED)?, dir.make("files")?, dir.make("blobs")?);
    let limits = &job.shared.limits;
    let wrote = |bytes| job.claim.wrote(bytes);
    let bounds = Bounds { max_files: limits.max_files, max_bytes: limits.max_model_bytes, wrote: &wrote };
    let mut unpacker = Unpacker::new(unpacked.clone(), bounds);
    for file in &listing.files {
        let Some(archive) = &file.archive else { continue };
        let blob = blobs.parent(&file.path)?.map(|(parent, name)| parent.open_file(name)).transpose()?.flatten();
        let Some(blob) = blob else {
            return Err(Error::NotFound { place: file.path.to_string(), remedy: "download it again".to_owned() });
        };
        unpacker.unpack(&format!("{} of {}", file.path, job.source.name()), blob, archive)?;
    }
    let found = unpacker.files();
    if found.is_empty() {
        let wanted = listing.files.iter().find_map(|file| file.archive.as_ref()?.below.as_ref()).map(|folder| format!("/{folder}"));
        let reason = format!("has no file below {}", wanted.unwrap_or_else(|| "its root".to_owned()));
        return Err(Error::Archive { archive: job.source.name().to_owned(), reason });
    }
    for path in plain {
        let Some((from, name)) = files.parent(path)? else { continue };
        let (to, target) = unpacked.make_parent(path)?;
        to.remove_tree(target)?;
        // The link leaves what the journal knows, in case this is interrupted.
        if !from.link(name, &to, target)? {
            from.rename(name, &to, target)?;
        }
    }
    Ok(found)
}

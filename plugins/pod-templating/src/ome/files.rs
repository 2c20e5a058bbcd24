//! Files that are provided at a path of the main container: a model, or an adapter.

use super::storage::{self, Storage};
use crate::{
    initializer::{self, Initializer},
    node::{By, Node},
    pod::Pod,
    volume::{self, Claim},
};
use pointsman_plugin::{Failure, Reason, Subject, reason};

/// The location of files before the pod starts.
#[derive(Debug)]
pub(super) enum Origin<'u> {
    /// In this folder of the node.
    Node(String),
    Claim(Claim<'u>),
    /// At a location from which only an init container can download them.
    Elsewhere(&'u str),
}

impl<'u> Origin<'u> {
    /// The location in the URI.
    pub(super) fn from_uri(uri: Option<&'u str>, what: &str, subject: &Subject) -> Result<Self, Failure> {
        let uri = uri.unwrap_or_default();
        if let Some(claim) = Claim::of_subject(uri, &format!("the {what}"), subject)? {
            return Ok(Self::Claim(claim));
        }
        let folder = uri.strip_prefix("local://").map(|path| path.trim_matches('/'));
        match folder {
            _ if uri.is_empty() => Err(format!("the {what} has no location: set its storage URI, such as hf://ORGANISATION/NAME").into()),
            Some("") => Err(format!("the URI {uri} of the {what} has no folder: write local:///PATH").into()),
            Some(path) => Ok(Self::Node(format!("/{path}"))),
            None => Ok(Self::Elsewhere(uri)),
        }
    }
}

/// Files to provide at a path of the main container.
#[derive(Debug)]
pub(super) struct Files<'f> {
    /// A description for messages.
    pub(super) what: &'f str,
    pub(super) origin: Origin<'f>,
    pub(super) path: &'f str,
    /// The name of their volume.
    pub(super) volume: &'f str,
    /// The name and the image of the init container that downloads them, if one is needed.
    pub(super) initializer: (&'f str, &'f str),
}

impl Files<'_> {
    /// Mounts the files, and downloads them first if necessary: into the storage, if there is one. Returns whether the storage now contains
    /// them.
    pub(super) fn bring<'a>(
        &self,
        storage: Option<&Storage>,
        pod: &mut Pod<'a>,
        by: By<'a>,
        reasons: &mut Vec<Reason>,
    ) -> Result<bool, Failure> {
        let Self { what, origin, path, .. } = self;
        if pod.main().is_some_and(|main| volume::is_mounted(main, path)) {
            reasons.push(reason("ModelMountKept", format!("Something is mounted at {path} already, so the {what} isn't.")));
            return Ok(false);
        }
        match origin {
            Origin::Node(folder) => {
                let volume = volume::add(pod, self.volume, ("hostPath", Node::object([("path", Node::text(&**folder, by))], by)), by);
                volume::mount(pod, &volume, path, "", by);
                reasons.push(reason("ModelFromNode", format!("The {what} comes from the node's {folder}.")));
                Ok(false)
            }
            Origin::Claim(claim) => {
                let volume = volume::add(pod, self.volume, claim.source(by), by);
                volume::mount(pod, &volume, path, claim.sub_path, by);
                reasons.push(reason("ModelFromClaim", format!("The {what} is mounted at {path}, from the claim {}.", claim.name)));
                Ok(false)
            }
            Origin::Elsewhere(uri) => {
                self.fetch(uri, storage, pod, by, reasons)?;
                Ok(storage.is_some())
            }
        }
    }

    fn fetch<'a>(
        &self,
        uri: &str,
        storage: Option<&Storage>,
        pod: &mut Pod<'a>,
        by: By<'a>,
        reasons: &mut Vec<Reason>,
    ) -> Result<(), Failure> {
        let Self { what, path, initializer: (name, image), .. } = self;
        let (source, part, into) = match storage {
            None => (("emptyDir", Node::object([], by)), String::new(), String::new()),
            Some(storage) => {
                let part = storage::folder(self.volume, uri);
                let into = format!(" into the folder {part} of the claim {}", storage.claim);
                (storage.to_fill(what)?, part, into)
            }
        };
        let volume = volume::add(pod, self.volume, source, by);
        volume::mount(pod, &volume, path, &part, by);
        let initializer = Initializer { name, image, uri, path, volume: &volume, part: &part };
        initializer::add(pod, initializer.container(by).into_iter().collect(), by);
        let message = format!("At {path} is the {what}, which the init container {name} downloads from {uri}{into}.");
        reasons.push(reason("ModelDownloaded", message));
        if let Some(storage) = storage {
            storage.let_write(name, pod, reasons);
        }
        Ok(())
    }
}

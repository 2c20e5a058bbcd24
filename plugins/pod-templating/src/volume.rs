//! Volumes and their mounts.

use crate::{
    node::{By, Form, Node},
    pod::Pod,
};
use pointsman_plugin::{Failure, Subject};

/// A claim that contains files, from `pvc://CLAIM/PATH` or `pvc://NAMESPACE:CLAIM/PATH`.
#[derive(Debug)]
pub(crate) struct Claim<'u> {
    pub(crate) namespace: Option<&'u str>,
    pub(crate) name: &'u str,
    pub(crate) sub_path: &'u str,
}

impl<'u> Claim<'u> {
    /// Parses the URI of a claim; none if it has another scheme.
    pub(crate) fn parse_uri(uri: &'u str) -> Option<Self> {
        let rest = uri.strip_prefix("pvc://")?;
        let (claim, sub_path) = rest.split_once('/').unwrap_or((rest, ""));
        let (namespace, name) = claim.split_once(':').map_or((None, claim), |(namespace, name)| (Some(namespace), name));
        Some(Self { namespace, name, sub_path: sub_path.trim_matches('/') })
    }

    /// The same, if the subject's pods can mount the claim. `what` describes the content for messages.
    pub(crate) fn of_subject(uri: &'u str, what: &str, subject: &Subject) -> Result<Option<Self>, Failure> {
        let Some(claim) = Self::parse_uri(uri) else { return Ok(None) };
        if claim.name.is_empty() {
            return Err(format!("the URI {uri} of {what} has no claim: write pvc://CLAIM/PATH").into());
        }
        match claim.namespace {
            Some(namespace) if namespace != subject.namespace => Err(format!(
                "{what} is in the claim {} of the namespace {namespace}, but a pod can only mount claims of its own namespace, {}: serve \
                 it in {namespace}, or create a claim in {} and use that",
                claim.name, subject.namespace, subject.namespace
            )
            .into()),
            _ => Ok(Some(claim)),
        }
    }

    /// The source of its volume.
    pub(crate) fn source<'a>(&self, by: By<'a>) -> (&'static str, Node<'a>) {
        claim(self.name, true, by)
    }
}

/// The volume source for a claim.
pub(crate) fn claim<'a>(name: &str, read_only: bool, by: By<'a>) -> (&'static str, Node<'a>) {
    let mut source = Node::object([("claimName", Node::text(name, by))], by);
    if read_only {
        source.set("readOnly", yes(by));
    }
    ("persistentVolumeClaim", source)
}

pub(crate) fn yes(by: By<'_>) -> Node<'_> {
    Node { by, form: Form::Scalar(true.into()) }
}

/// Whether something is mounted in the container at that path.
pub(crate) fn is_mounted(container: &Node<'_>, path: &str) -> bool {
    let at = |mount: &Node<'_>| mount.text_at("mountPath").is_some_and(|other| other.trim_end_matches('/') == path.trim_end_matches('/'));
    container.items_at("volumeMounts").iter().any(at)
}

/// Adds a volume with this source. If the name is taken, uses another. Returns the name.
pub(crate) fn add<'a>(pod: &mut Pod<'a>, wanted: &str, source: (&str, Node<'a>), by: By<'a>) -> String {
    let mut name = wanted.to_owned();
    let mut number = 1;
    while is_there(pod, &name) {
        name = if number == 1 { format!("{wanted}-files") } else { format!("{wanted}-files-{number}") };
        number += 1;
    }
    if let Some(volumes) = pod.spec.list_at("volumes", by) {
        volumes.push(Node::object([("name", Node::text(&*name, by)), source], by));
    }
    name
}

pub(crate) fn is_there(pod: &Pod<'_>, volume: &str) -> bool {
    pod.spec.items_at("volumes").iter().any(|other| other.text_at("name") == Some(volume))
}

/// Mounts the volume into the main container, read-only. An empty part means the whole volume.
pub(crate) fn mount<'a>(pod: &mut Pod<'a>, volume: &str, path: &str, part: &str, by: By<'a>) {
    let mut mount = mounted(volume, path, by);
    mount.set("readOnly", yes(by));
    if !part.is_empty() {
        mount.set("subPath", Node::text(part, by));
    }
    add_mount(pod, mount, by);
}

/// Mounts the volume into the main container, writable.
pub(crate) fn mount_writable<'a>(pod: &mut Pod<'a>, volume: &str, path: &str, by: By<'a>) {
    add_mount(pod, mounted(volume, path, by), by);
}

fn mounted<'a>(volume: &str, path: &str, by: By<'a>) -> Node<'a> {
    Node::object([("name", Node::text(volume, by)), ("mountPath", Node::text(path, by))], by)
}

fn add_mount<'a>(pod: &mut Pod<'a>, mount: Node<'a>, by: By<'a>) {
    if let Some(mounts) = pod.main_mut().and_then(|main| main.list_at("volumeMounts", by)) {
        mounts.push(mount);
    }
}

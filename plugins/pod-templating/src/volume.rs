//! Volumes, and where they are mounted.

use crate::{
    node::{By, Form, Node},
    pod::Pod,
};

/// A claim that holds files, as `pvc://CLAIM/PATH` and `pvc://NAMESPACE:CLAIM/PATH` name it.
#[derive(Debug)]
pub(crate) struct Claim<'u> {
    pub(crate) namespace: Option<&'u str>,
    pub(crate) name: &'u str,
    pub(crate) sub_path: &'u str,
}

impl<'u> Claim<'u> {
    /// The claim that the URI names, if it is one of those.
    pub(crate) fn of(uri: &'u str) -> Option<Self> {
        let rest = uri.strip_prefix("pvc://")?;
        let (claim, sub_path) = rest.split_once('/').unwrap_or((rest, ""));
        let (namespace, name) = claim.split_once(':').map_or((None, claim), |(namespace, name)| (Some(namespace), name));
        Some(Self { namespace, name, sub_path: sub_path.trim_matches('/') })
    }

    /// The source of its volume.
    pub(crate) fn source<'a>(&self, by: By<'a>) -> (&'static str, Node<'a>) {
        ("persistentVolumeClaim", Node::object([("claimName", Node::text(self.name, by)), ("readOnly", yes(by))], by))
    }
}

pub(crate) fn yes(by: By<'_>) -> Node<'_> {
    Node { by, form: Form::Scalar(true.into()) }
}

/// Whether the container has something at that path.
pub(crate) fn is_mounted(container: &Node<'_>, path: &str) -> bool {
    let at = |mount: &Node<'_>| mount.text_at("mountPath").is_some_and(|other| other.trim_end_matches('/') == path.trim_end_matches('/'));
    container.items_at("volumeMounts").iter().any(at)
}

/// Adds a volume with that source by that name, or by another if it is taken, and tells it.
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

/// Mounts the volume into the main container, which can only read it. An empty part means the whole volume.
pub(crate) fn mount<'a>(pod: &mut Pod<'a>, volume: &str, path: &str, part: &str, by: By<'a>) {
    let text = |text: &str| Node::text(text, by);
    let mut mount = Node::object([("name", text(volume)), ("mountPath", text(path)), ("readOnly", yes(by))], by);
    if !part.is_empty() {
        mount.set("subPath", text(part));
    }
    if let Some(mounts) = pod.main_mut().and_then(|main| main.list_at("volumeMounts", by)) {
        mounts.push(mount);
    }
}

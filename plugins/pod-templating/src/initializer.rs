//! Init containers that download files before other containers start.

use crate::{
    merge::merge,
    node::{By, Node},
    place::SpecPosition,
    pod::Pod,
};
use serde_json::json;

/// An init container that downloads files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Initializer<'i> {
    pub(crate) name: &'i str,
    pub(crate) image: &'i str,
    /// The source of the files.
    pub(crate) uri: &'i str,
    /// The folder for the files.
    pub(crate) path: &'i str,
    /// The volume that is mounted there.
    pub(crate) volume: &'i str,
    /// The folder in the volume; empty for the whole volume.
    pub(crate) part: &'i str,
}

impl Initializer<'_> {
    /// The container, with the defaults of KServe's own.
    pub(crate) fn container<'a>(&self, by: By<'a>) -> Option<Node<'a>> {
        let Self { name, image, uri, path, volume, part } = self;
        let mut mount = json!({"name": volume, "mountPath": path});
        if !part.is_empty() {
            mount["subPath"] = json!(part);
        }
        let mut container = json!({
            "name": name,
            "image": image,
            "args": [uri, path],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumeMounts": [mount],
        });
        if uri.starts_with("hf://") {
            container["env"] = json!([
                {"name": "HF_HUB_ENABLE_HF_TRANSFER", "value": "1"},
                {"name": "HF_XET_HIGH_PERFORMANCE", "value": "1"},
                {"name": "HF_XET_NUM_CONCURRENT_RANGE_GETS", "value": "8"},
            ]);
        }
        Node::from_value(container, by)
    }
}

/// Adds the init containers before all others, which may need the files. A layer's container with the same name is merged over it, for
/// example to add a token or more memory.
pub(crate) fn add<'a>(pod: &mut Pod<'a>, initializers: Vec<Node<'a>>, by: By<'a>) {
    if initializers.is_empty() {
        return;
    }
    let Some(containers) = pod.spec.list_at("initContainers", by) else { return };
    let mut first = Vec::new();
    for mut initializer in initializers {
        match containers.iter_mut().find(|container| container.text_at("name") == initializer.text_at("name")) {
            Some(container) => {
                merge(&mut initializer, container.clone(), SpecPosition::Container);
                *container = initializer;
            }
            None => first.push(initializer),
        }
    }
    containers.splice(0..0, first);
}

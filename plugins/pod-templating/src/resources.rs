//! Resources whose limit and request must be equal.

use crate::{node::Node, pod::Pod};

/// If limit and request must be equal, the one with higher precedence is used for both.
///
/// Otherwise, a runtime that sets both and a service that sets one of them would give a pod that the cluster rejects.
pub(crate) fn settle(pod: &mut Pod<'_>) {
    for field in ["initContainers", "containers"] {
        let containers = pod.spec.fields_mut().and_then(|spec| spec.get_mut(field)?.items_mut());
        for container in containers.into_iter().flatten() {
            if let Some(resources) = container.fields_mut().and_then(|container| container.get_mut("resources")) {
                settle_of(resources);
            }
        }
    }
}

fn settle_of(resources: &mut Node<'_>) {
    let (Some(limits), Some(requests)) = (resources.get("limits"), resources.get("requests")) else { return };
    let mut settled = Vec::new();
    for (key, limit) in limits.fields().into_iter().flatten().filter(|(key, _)| must_be_equal(key)) {
        match requests.get(key) {
            Some(request) if request.by.rank < limit.by.rank => settled.push(("requests", key.clone(), limit.clone())),
            Some(request) if request.by.rank > limit.by.rank => settled.push(("limits", key.clone(), request.clone())),
            _ => {}
        }
    }
    for (field, key, quantity) in settled {
        if let Some(weaker) = resources.fields_mut().and_then(|fields| fields.get_mut(field)) {
            weaker.set(&key, quantity);
        }
    }
}

/// Devices and huge pages can't be overcommitted: the limit must equal the request.
fn must_be_equal(resource: &str) -> bool {
    resource.starts_with("hugepages-") || resource.split_once('/').is_some_and(|(domain, _)| domain != "kubernetes.io")
}

//! The subject of a question for policies.

use crate::{objects::strings, world::Snapshot};
use pointsman_sandbox::point::{Entry, Subject};
use std::collections::BTreeMap;

/// The subject for policies, with these labels and annotations.
pub(crate) fn subject_with(snapshot: &Snapshot, labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> Subject {
    let key = &snapshot.subject.key;
    Subject {
        group: key.resource.group.to_owned(),
        version: key.resource.version.to_owned(),
        kind: key.resource.kind.to_owned(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        labels: entries(labels),
        annotations: entries(annotations),
        namespace_labels: entries(&snapshot.namespace_labels),
    }
}

/// The subject for policies, to determine which plugins apply to it.
pub fn subject(snapshot: &Snapshot) -> Subject {
    let content = snapshot.subject.content();
    let map = |name: &str| strings(&content["metadata"][name]);
    subject_with(snapshot, &map("labels"), &map("annotations"))
}

/// The entries of a map, in the form for policies.
pub fn entries(map: &BTreeMap<String, String>) -> Vec<Entry> {
    map.iter().map(|(key, value)| Entry { key: key.clone(), value: value.clone() }).collect()
}

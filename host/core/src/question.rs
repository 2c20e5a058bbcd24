//! The subject of a question as policies see it.

use crate::{objects::strings, world::Snapshot};
use pointsman_sandbox::point::{Entry, Subject};
use std::collections::BTreeMap;

/// A subject as policies see it.
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

/// A subject as policies see it, for whoever wants to know which of them are asked about it.
pub fn subject(snapshot: &Snapshot) -> Subject {
    let content = snapshot.subject.content();
    let map = |name: &str| strings(&content["metadata"][name]);
    subject_with(snapshot, &map("labels"), &map("annotations"))
}

/// The entries of a map, as policies see them.
pub fn entries(map: &BTreeMap<String, String>) -> Vec<Entry> {
    map.iter().map(|(key, value)| Entry { key: key.clone(), value: value.clone() }).collect()
}

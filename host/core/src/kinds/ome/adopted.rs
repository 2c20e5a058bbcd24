//! Adopted objects of OME's own controller whose names differ from ours.

use super::component::{ComponentKind, Mode};
use crate::world::{ObjectKey, Snapshot};
use std::collections::BTreeMap;

/// Adopted workloads are found by the component's label: upstream shortens the name of a LeaderWorkerSet, in ways that have changed.
pub(super) fn stand_ins(snapshot: &Snapshot) -> BTreeMap<ObjectKey, ObjectKey> {
    let ObjectKey { namespace, name: service, .. } = &snapshot.subject.key;
    let mut stand_ins = BTreeMap::new();
    for part in ComponentKind::ALL {
        for (resource, name) in [Mode::Raw, Mode::MultiNode(1), Mode::Serverless].map(|mode| part.workload(mode, service)) {
            let ours = ObjectKey { resource, namespace: namespace.clone(), name };
            let theirs = snapshot.children.iter().find(|child| {
                let adopted = child.observed.adopted.as_deref();
                child.key.resource == resource
                    && !child.deleting
                    && adopted.is_some_and(|adopted| adopted.runs.is_some() && adopted.component.as_deref() == Some(part.name()))
            });
            if let Some(theirs) = theirs
                && theirs.key != ours
                && !snapshot.children.iter().any(|child| child.key == ours)
            {
                stand_ins.insert(ours, theirs.key.clone());
            }
        }
    }
    stand_ins
}

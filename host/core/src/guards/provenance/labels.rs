//! Determines who requested labels and annotations, of an object or of its pods.

use super::{
    Walk, is_of,
    said::{HOST, fields},
    writer::StepWriters,
};
use crate::{
    decide::{
        Decision,
        propagation::{Inputs, Propagated},
    },
    objects::label_value,
    plan::{Decided, Object},
};
use pointsman_sandbox::point::{
    Role,
    propagation::{Place, Placed, Target},
};
use serde_json::Value;
use std::collections::HashMap;

/// The maps in an object's metadata that policies can change.
pub(super) const MAPS: [&str; 2] = ["labels", "annotations"];

/// The layer with the metadata from pod-templating.
const TEMPLATE: &str = "template";

/// The owner of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetadataOwner {
    /// The object.
    Object,
    /// Its pods, which may have a role in a group.
    Pods(Option<Role>),
}

/// The decision on the metadata.
#[derive(Clone, Copy)]
pub(super) struct MetadataProvenance<'d> {
    inputs: &'d Inputs,
    decision: &'d Decision<Propagated>,
}

impl<'d> MetadataProvenance<'d> {
    /// The decision on an object's own metadata, or on that of its pods.
    pub(super) fn find(object: &Object, decisions: &'d [Decided], whose: MetadataOwner) -> Option<Self> {
        let (place, role) = match whose {
            MetadataOwner::Object => (Place::Object, None),
            MetadataOwner::Pods(role) => (Place::PodTemplate, role),
        };
        let of_place = |target: &Target| role.is_none() || target.role == role;
        let resource = object.key.resource;
        let fitting = || {
            decisions.iter().filter_map(|decided| match decided {
                Decided::Metadata(target, inputs, decision)
                    if target.place == place && target.group == resource.group && target.kind == resource.kind && of_place(target) =>
                {
                    Some((target, inputs, decision))
                }
                _ => None,
            })
        };
        let named = fitting().find(|(target, ..)| target.name == object.key.name);
        // Adopted objects have the name that the other controller gave them, and the decision on a RayCluster's pods is made before it has
        // a name.
        let other = || fitting().find(|(target, ..)| target.group_role.or(target.role).is_some_and(|role| is_of(object, role)));
        named.or_else(other).map(|(_, inputs, decision)| Self { inputs, decision })
    }

    /// The plugin that set a label or an annotation.
    pub(super) fn writer(&self, map: &str, key: &str) -> Option<&'d str> {
        let answer = &self.decision.answer;
        let (placed, writers) = match map {
            "labels" => (&answer.labels, &answer.label_writers),
            _ => (&answer.annotations, &answer.annotation_writers),
        };
        let at = placed.binary_search_by(|placed| placed.key.as_str().cmp(key)).ok()?;
        self.decision.writer(*writers.get(at)?)
    }

    /// Records one of the maps. Entries that differ from the policies' answer are the host's.
    pub(super) fn tell<'o>(
        self,
        walk: &mut Walk<'o, '_>,
        map: &'o str,
        value: &'o Value,
        mut writers: Option<(&mut StepWriters<'_>, usize)>,
    ) {
        let labels = map == "labels";
        let entries: HashMap<&str, Vec<(&str, &str)>> = self.inputs.layers.iter().fold(HashMap::new(), |mut all, layer| {
            let entries = if labels { &layer.labels } else { &layer.annotations };
            for entry in entries {
                all.entry(&entry.key).or_default().push((&layer.name, &entry.value));
            }
            all
        });
        let answer = &self.decision.answer;
        let (frame, answer) =
            if labels { (&*self.inputs.labels, &answer.labels) } else { (&*self.inputs.annotations, &answer.annotations) };
        for (key, value) in value.as_object().into_iter().flat_map(fields) {
            walk.path.enter(key);
            let text = value.as_str().unwrap_or_default();
            let placed = |all: &[Placed], layer: Option<&str>| {
                let found = all.binary_search_by(|placed| placed.key.as_str().cmp(key)).ok().and_then(|at| all.get(at));
                found.is_some_and(|placed| placed.value == text && layer.is_none_or(|layer| placed.layer == layer))
            };
            let (mut by, mut plugin) = (vec![HOST.to_owned()], None);
            if placed(answer, None) && !placed(frame, Some(HOST)) {
                let same = |said: &str| said == text || labels && label_value(said) == text;
                let asking = entries.get(key).into_iter().flatten().filter(|(_, said)| same(said));
                by = asking.map(|(layer, _)| (*layer).to_owned()).collect();
                if by.is_empty() {
                    by = walk.configs.holding(value);
                }
                if by.is_empty() {
                    plugin = match &mut writers {
                        Some((writers, start)) if placed(frame, Some(TEMPLATE)) => writers.last(walk.path.behind(*start), value),
                        _ => self.writer(map, key).map(str::to_owned),
                    };
                }
            }
            walk.put(value, by, plugin);
            walk.path.leave();
        }
    }
}

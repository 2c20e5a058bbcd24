//! Asks the policies a kind's questions: the part that all kinds share.

use crate::{
    decide::{
        Pinned, Undecided,
        propagation::{self, Propagated},
        templating,
    },
    objects::{Metadata, strings},
    plan::Decided,
    question::subject_with,
    resource::Resource,
    settings::Settings,
    world::{
        ObjectKey, Read, Snapshot,
        child::{SUBJECT_KIND, VERSION},
    },
};
use pointsman_sandbox::{
    digest::Digested,
    point::{
        Fact, IMAGE_MIRROR, Role, Subject,
        propagation::{Layer, Place as Where, Placed, Target},
        templating::Layer as Part,
    },
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// The reasons why objects of a kind can't be created.
pub(super) const MISSING_API: &str = "MissingApi";
pub(super) const MISSING_PERMISSION: &str = "MissingPermission";

/// The delay before a plan is tried again after a policy has failed.
pub(super) const POLICY_FAILURE_RETRY: Duration = Duration::from_secs(15);

/// The role of pods, and for a leader or a worker the role of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PodRole {
    pub(super) role: Role,
    pub(super) group: Option<Role>,
}

impl PodRole {
    /// Whether it is a worker of a leader: no Service selects it.
    pub(super) fn follows(self) -> bool {
        self.role == Role::Worker
    }
}

/// The inputs of a pod template.
#[derive(Debug)]
pub(super) struct TemplateQuestion {
    /// The layers in order of precedence, the lowest first.
    pub(super) layers: Vec<Part>,
    /// The names of the layers that only administrators write.
    pub(super) admin_layers: Vec<String>,
    /// The host's frame: `metadata` and `spec`.
    pub(super) frame: Value,
}

/// The target of labels and annotations.
#[derive(Clone, Copy)]
pub(super) struct MetadataQuestion<'a> {
    pub(super) key: &'a ObjectKey,
    /// The role of the object's component; none for an object of the whole subject.
    pub(super) role: Option<Role>,
    /// The role of the pods, if the target is the object's pods instead of the object.
    pub(super) pods: Option<PodRole>,
    /// The pods' metadata from pod-templating.
    pub(super) template: Option<&'a Value>,
}

/// The questions of one plan.
pub(super) struct Questions<'a> {
    pub(super) snapshot: &'a Snapshot,
    policies: &'a Pinned<'a>,
    /// The facts from the settings for policies.
    facts: Digested<Vec<Fact>>,
    pub(super) reads: BTreeSet<Read>,
    pub(super) decisions: Vec<Decided>,
}

impl<'a> Questions<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, policies: &'a Pinned<'a>, settings: &Settings) -> Self {
        let mirror = settings.image_mirror.iter().map(|mirror| Fact { name: IMAGE_MIRROR.to_owned(), value: json!(mirror).to_string() });
        let reads = BTreeSet::from([Read::Namespace(snapshot.subject.key.namespace.clone())]);
        Self { snapshot, policies, facts: Digested::new(mirror.collect()).unwrap_or_default(), reads, decisions: Vec::new() }
    }

    pub(super) fn policies(&self) -> &Pinned<'a> {
        self.policies
    }

    /// The subject for policies.
    pub(super) fn subject(&self, labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> Digested<Subject> {
        Digested::new(subject_with(self.snapshot, labels, annotations)).unwrap_or_default()
    }

    /// The pod template, as `metadata` and `spec`: the frame with the changes from the layers.
    pub(super) fn template(
        &mut self,
        subject: &Digested<Subject>,
        place: PodRole,
        TemplateQuestion { layers, admin_layers, frame }: TemplateQuestion,
        workload: &ObjectKey,
    ) -> Result<Value, Undecided> {
        let inputs = templating::Inputs {
            subject: subject.clone(),
            role: place.role,
            group_role: place.group,
            layers: Digested::new(layers).unwrap_or_default(),
            admin_layers,
            template: Digested::new(frame).unwrap_or_default(),
            facts: self.facts.clone(),
            now: Some(self.snapshot.now),
        };
        let decision = self.policies.template(&inputs)?;
        let template = serde_json::from_str(&decision.answer.template).unwrap_or_default();
        self.decisions.push(Decided::Template(workload.clone(), inputs, decision));
        Ok(template)
    }

    /// The metadata of an object, or of its pods. `ours` are the labels for selectors: policies can't change them.
    pub(super) fn metadata(
        &mut self,
        subject: &Digested<Subject>,
        about: MetadataQuestion<'_>,
        mut ours: BTreeMap<String, String>,
        layers: Digested<Vec<Layer>>,
    ) -> Result<Metadata, Undecided> {
        ours.insert(SUBJECT_KIND.to_owned(), self.snapshot.subject.key.resource.kind.to_owned());
        let frame = |map: &BTreeMap<String, String>, layer: &str| -> Vec<Placed> {
            map.iter().map(|(key, value)| Placed { key: key.clone(), value: value.clone(), layer: layer.to_owned() }).collect()
        };
        let of_template = |name: &str| about.template.map(|metadata| strings(&metadata[name])).unwrap_or_default();
        let mut labels = frame(&ours, "host");
        let mut given = of_template("labels");
        given.retain(|key, _| !ours.contains_key(key));
        labels.extend(frame(&given, "template"));
        labels.sort();
        let annotations = frame(&of_template("annotations"), "template");
        let target = Target {
            group: about.key.resource.group.to_owned(),
            kind: about.key.resource.kind.to_owned(),
            name: about.key.name.clone(),
            role: about.pods.map(|place| place.role).or(about.role),
            group_role: about.pods.and_then(|place| place.group),
            place: if about.pods.is_some() { Where::PodTemplate } else { Where::Object },
        };
        let inputs = propagation::Inputs {
            subject: subject.clone(),
            target: Digested::new(target.clone()).unwrap_or_default(),
            layers,
            labels: Digested::new(labels).unwrap_or_default(),
            annotations: Digested::new(annotations).unwrap_or_default(),
            now: Some(self.snapshot.now),
            ..propagation::Inputs::default()
        };
        let decision = self.policies.propagate(&inputs)?;
        let Propagated { labels, annotations, .. } = &*decision.answer;
        let map = |placed: &[Placed]| -> BTreeMap<String, String> {
            placed.iter().map(|placed| (placed.key.clone(), placed.value.clone())).collect()
        };
        let (mut labels, annotations) = (map(labels), map(annotations));
        // Overrides policies: the selectors must match the same objects as before.
        labels.extend(ours);
        if about.pods.is_some() {
            // An upgrade must not restart pods, regardless of policies.
            labels.remove(VERSION);
        }
        self.decisions.push(Decided::Metadata(target, inputs, Arc::clone(&decision)));
        Ok(Metadata { labels, annotations, owner: about.pods.is_none().then(|| self.owner()).flatten() })
    }

    /// The owner reference, which lets Kubernetes delete objects with the subject. Offline there is no uid, and no owner.
    fn owner(&self) -> Option<Value> {
        let subject = &self.snapshot.subject;
        (!subject.uid.is_empty()).then(|| {
            json!({
                "apiVersion": subject.key.resource.api_version(), "kind": subject.key.resource.kind, "name": subject.key.name,
                "uid": subject.uid, "controller": true, "blockOwnerDeletion": true,
            })
        })
    }
}

/// The message for a missing decision, with its consequence.
pub(super) fn undecided_message(snapshot: &Snapshot, undecided: &Undecided) -> String {
    format!("{}: {}.", snapshot.consequence(), undecided.to_string().trim_end_matches('.'))
}

/// Why an object that a subject needs can't be created, as a reason and a message: the cluster doesn't serve its kind, or the host lacks
/// the permission. None if it can.
pub(super) fn missing_kind(snapshot: &Snapshot, what: &str, resource: &'static Resource) -> Option<(&'static str, String)> {
    if snapshot.serves(resource) {
        return None;
    }
    let (kind, name) = (resource.display_name(), resource.crd_name());
    let article = if kind.starts_with(['A', 'E', 'I', 'O', 'U']) || kind.starts_with("HTTP") { "an" } else { "a" };
    let needs = format!("The {what} needs {article} {kind}");
    Some(if let Some(role) = snapshot.denied.get(resource) {
        (MISSING_PERMISSION, format!("{needs}, but the host has no right to list {name}: {role}."))
    } else {
        let neighbour = resource.neighbour.unwrap_or("it");
        (MISSING_API, format!("{needs}, which the cluster doesn't serve: install {neighbour}, with its CRD {name}."))
    })
}

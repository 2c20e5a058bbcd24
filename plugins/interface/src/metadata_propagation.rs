//! Which labels and annotations of a subject are propagated to the objects that are created for it.

use crate::{Entry, Fact, Reason, Role, Subject, image};
use serde::{Deserialize, Serialize};
#[cfg(feature = "host")]
use wasmtime::component::{ComponentType, Lift, Lower};

/// A source of labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(default, deny_unknown_fields)]
pub struct Layer {
    /// Its name, such as `subject`, `spec`, `runtime` or `namespace`.
    pub name: String,
    /// Its labels, by key.
    #[serde(deserialize_with = "image::list")]
    pub labels: Vec<Entry>,
    /// Its annotations, by key.
    #[serde(deserialize_with = "image::list")]
    pub annotations: Vec<Entry>,
}

enumeration! {
    /// The metadata of the target that a question is about.
    #[derive(Default)]
    pub enum Place {
        /// The object's own metadata.
        #[default]
        Object = "object",
        /// The metadata of the object's pods.
        PodTemplate = "pod-template",
    }
}

/// The object that gets the labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Target {
    /// Its API group; empty for core kinds.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The role of its pods, or of the pods that it serves; absent if it belongs to the subject as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// For a leader or a worker: the role of its group.
    #[cfg_attr(feature = "host", component(name = "group-role"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_role: Option<Role>,
    /// Its own metadata or that of its pods.
    pub place: Place,
}

/// A label or annotation on the target.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// The name of the layer that it comes from, or `plugin`.
    pub layer: String,
}

request! {
    /// The question.
    [Default] {
        /// The subject of the decision.
        subject: Subject as &'a Subject,
        /// The object that gets the labels and annotations.
        target: Target as &'a Target,
        /// The layers, lowest precedence first.
        layers: Vec<Layer> as &'a [Layer],
        /// The current labels, by key, with those that earlier plugins placed.
        #[serde(default)]
        labels: Vec<Placed> as &'a [Placed],
        /// The current annotations, by key.
        #[serde(default)]
        annotations: Vec<Placed> as &'a [Placed],
        /// Seconds since 1970, rounded down to a minute. Set only if the plugin wants the time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        now: Option<u64> as Option<u64>,
        /// Additional facts, by name. Ignore unknown ones.
        #[serde(default, skip_serializing_if = "image::is_empty")]
        facts: Vec<Fact> as &'a [Fact],
    }
}

enumeration! {
    /// A label or an annotation.
    #[derive(Default)]
    pub enum Sort {
        /// A label.
        #[default]
        Label = "label",
        /// An annotation.
        Annotation = "annotation",
    }
}

/// A label or annotation of a layer that the target doesn't get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct Dropped {
    /// A label or an annotation.
    pub sort: Sort,
    /// Its key.
    pub key: String,
    /// The name of the layer that has it.
    pub layer: String,
    /// Why.
    pub reason: Reason,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(default, deny_unknown_fields)]
pub struct Answer {
    /// All labels that the target gets. They replace the current ones.
    #[serde(deserialize_with = "image::list")]
    pub labels: Vec<Placed>,
    /// All annotations that the target gets. They replace the current ones.
    #[serde(deserialize_with = "image::list")]
    pub annotations: Vec<Placed>,
    /// The labels and annotations that the plugin omitted.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<Dropped>,
    /// The reasons for the answer.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
}

impl Answer {
    /// The current labels and annotations: the answer of a plugin that changes nothing.
    pub fn unchanged(request: Request) -> Self {
        Self { labels: request.labels, annotations: request.annotations, dropped: Vec::new(), reasons: Vec::new() }
    }

    /// Sets a label on the target. Replaces a label with the same key.
    pub fn put_label(&mut self, key: impl Into<String>, value: impl Into<String>, layer: impl Into<String>) {
        put(&mut self.labels, Placed { key: key.into(), value: value.into(), layer: layer.into() });
    }

    /// Sets an annotation on the target. Replaces an annotation with the same key.
    pub fn put_annotation(&mut self, key: impl Into<String>, value: impl Into<String>, layer: impl Into<String>) {
        put(&mut self.annotations, Placed { key: key.into(), value: value.into(), layer: layer.into() });
    }

    /// Removes a label, and records the reason.
    pub fn drop_label(&mut self, key: &str, reason: Reason) {
        drop_key(&mut self.labels, &mut self.dropped, Sort::Label, key, reason);
    }

    /// Removes an annotation, and records the reason.
    pub fn drop_annotation(&mut self, key: &str, reason: Reason) {
        drop_key(&mut self.annotations, &mut self.dropped, Sort::Annotation, key, reason);
    }
}

fn put(placed: &mut Vec<Placed>, new: Placed) {
    match placed.iter_mut().find(|old| old.key == new.key) {
        Some(old) => *old = new,
        None => placed.push(new),
    }
}

fn drop_key(placed: &mut Vec<Placed>, dropped: &mut Vec<Dropped>, sort: Sort, key: &str, reason: Reason) {
    if let Some(index) = placed.iter().position(|old| old.key == key) {
        let Placed { key, layer, .. } = placed.remove(index);
        dropped.push(Dropped { sort, key, layer, reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason;

    #[test]
    fn a_label_takes_the_place_of_its_namesake() {
        let mut answer = Answer::unchanged(Request::default());
        answer.put_label("a", "1", "subject");
        answer.put_label("b", "2", "subject");
        answer.put_label("a", "3", "plugin");
        let seen: Vec<_> = answer.labels.iter().map(|l| (l.key.as_str(), l.value.as_str(), l.layer.as_str())).collect();
        assert_eq!(seen, [("a", "3", "plugin"), ("b", "2", "subject")]);
    }

    #[test]
    fn what_is_dropped_is_told() {
        let mut answer = Answer::unchanged(Request::default());
        answer.put_annotation("a", "1", "subject");
        answer.drop_annotation("a", reason("Private", "It is nobody's business."));
        answer.drop_annotation("b", reason("Private", "It is nobody's business."));
        assert!(answer.annotations.is_empty());
        let seen: Vec<_> = answer.dropped.iter().map(|d| (d.sort, d.key.as_str(), d.layer.as_str())).collect();
        assert_eq!(seen, [(Sort::Annotation, "a", "subject")]);
    }
}

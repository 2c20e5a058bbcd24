//! Decides which labels and annotations a target gets.

use super::{Decision, Pinned, Undecided, cached::CachedQuestion, chain::Fault};
use crate::decide::member::Member;
use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::{
    call::CallError,
    digest::{Digest, Digested},
    point::{
        Fact, Reason, Subject,
        propagation::{Answer, Dropped, Layer, Placed, RequestRef, Target},
    },
    text::printable_line,
    words,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, sync::Arc};

/// The question. Its parts are shared by many decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inputs {
    /// The subject.
    pub subject: Digested<Subject>,
    /// The target of the labels and annotations.
    pub target: Digested<Target>,
    /// The layers in order of precedence, the lowest first.
    pub layers: Digested<Vec<Layer>>,
    /// The labels of the host's frame.
    #[serde(default)]
    pub labels: Digested<Vec<Placed>>,
    /// The annotations of the host's frame.
    #[serde(default)]
    pub annotations: Digested<Vec<Placed>>,
    /// Additional facts, by name.
    #[serde(default, skip_serializing_if = "super::is_empty")]
    pub facts: Digested<Vec<Fact>>,
    /// Seconds since 1970, rounded down to a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<u64>,
}

impl Inputs {
    /// The request to one plugin, with the labels and annotations that the plugins before it have set.
    pub fn request<'a>(&'a self, labels: &'a [Placed], annotations: &'a [Placed]) -> RequestRef<'a> {
        let Self { subject, target, layers, labels: _, annotations: _, facts, now } = self;
        RequestRef { subject, target, layers, labels, annotations, now: *now, facts }
    }
}

/// The labels and annotations of the target.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Propagated {
    /// Its labels, by key.
    pub labels: Vec<Placed>,
    /// Its annotations, by key.
    pub annotations: Vec<Placed>,
    /// The keys that were dropped, each with the plugin that dropped it.
    pub dropped: Vec<(String, Dropped)>,
    /// The reasons, each with the plugin that gave it.
    pub reasons: Vec<(String, Reason)>,
    /// The writer of each label.
    pub label_writers: Vec<Writer>,
    /// The writer of each annotation.
    pub annotation_writers: Vec<Writer>,
}

/// The plugin that last set a label or an annotation, by its index among the plugins of the decision; none for the frame's.
pub type Writer = Option<u16>;

impl Decision<Propagated> {
    /// The name of a writer's PolicyPlugin.
    pub fn writer(&self, writer: Writer) -> Option<&str> {
        self.plugins.get(usize::from(writer?)).map(|asked| asked.plugin.as_str())
    }
}

impl CachedQuestion for Inputs {
    const POINT: PolicyPoint = PolicyPoint::MetadataPropagation;
    type Answer = Propagated;

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn now(&self) -> Option<u64> {
        self.now
    }

    #[deny(unused_variables)]
    fn digest(&self) -> Digest {
        let Self { subject, target, layers, labels, annotations, facts, now: _ } = self;
        Digest::of_all([subject.digest(), target.digest(), layers.digest(), labels.digest(), annotations.digest(), facts.digest()])
    }

    fn answer(&self, pinned: &Pinned<'_>, chain: &[Arc<Member>]) -> Result<Propagated, Fault> {
        let (labels, annotations) = (self.labels.to_vec(), self.annotations.to_vec());
        let (label_writers, annotation_writers) = (vec![None; labels.len()], vec![None; annotations.len()]);
        let mut answer = Propagated { labels, annotations, label_writers, annotation_writers, ..Propagated::default() };
        for (at, member) in chain.iter().enumerate() {
            pinned.carry(at, member, self, &mut answer).map_err(|error| Fault { at, error })?;
        }
        Ok(answer)
    }
}

impl Pinned<'_> {
    /// Decides on the labels and annotations of the target.
    pub fn propagate(&self, inputs: &Inputs) -> Result<Arc<Decision<Propagated>>, Undecided> {
        self.decide(inputs)
    }

    /// Calls one plugin with the current labels and annotations.
    fn carry(&self, at: usize, member: &Member, inputs: &Inputs, so_far: &mut Propagated) -> Result<(), CallError> {
        let now = inputs.now_for(member);
        let answer: Answer = self.call(Inputs::POINT, member, inputs.subject(), |plugin| {
            let (mut answer, spent) = plugin.propagate(RequestRef { now, ..inputs.request(&so_far.labels, &so_far.annotations) })?;
            // A canonical order, so that the order of the plugin's answer doesn't affect the next plugin or the object.
            answer.labels.sort();
            answer.annotations.sort();
            let known: BTreeSet<&str> = inputs.layers.iter().map(|layer| layer.name.as_str()).chain(ALWAYS).collect();
            let earlier = so_far.labels.iter().chain(&so_far.annotations).map(|placed| placed.layer.as_str());
            let known: BTreeSet<&str> = known.into_iter().chain(earlier).collect();
            check(&answer, &known).map_err(|sentence| CallError::Nonsense(printable_line(&sentence)))?;
            let annotations: usize = answer.annotations.iter().map(|placed| placed.key.len() + placed.value.len()).sum();
            if annotations > words::MAX_ANNOTATIONS_BYTES {
                let most = words::MAX_ANNOTATIONS_BYTES;
                return Err(CallError::TooLarge(format!("its annotations have {annotations} bytes; the limit is {most}")));
            }
            Ok((answer, spent))
        })?;
        let writer = u16::try_from(at).ok();
        so_far.label_writers = writers(&answer.labels, &so_far.labels, &so_far.label_writers, writer);
        so_far.annotation_writers = writers(&answer.annotations, &so_far.annotations, &so_far.annotation_writers, writer);
        so_far.labels = answer.labels;
        so_far.annotations = answer.annotations;
        let plugin = || member.name().to_owned();
        so_far.dropped.extend(answer.dropped.into_iter().map(|dropped| (plugin(), dropped)));
        so_far.reasons.extend(answer.reasons.into_iter().map(|reason| (plugin(), reason)));
        Ok(())
    }
}

/// The writer of each label or annotation: unchanged ones keep theirs, the others get the plugin that was called.
fn writers(now: &[Placed], before: &[Placed], earlier: &[Writer], plugin: Writer) -> Vec<Writer> {
    let writer = |placed: &Placed| {
        let unchanged = before.iter().zip(earlier).find(|(before, _)| *before == placed);
        unchanged.map_or(plugin, |(_, earlier)| *earlier)
    };
    now.iter().map(writer).collect()
}

/// The permitted sources in addition to the layers: the plugin itself, and the question's facts about the subject.
const ALWAYS: [&str; 3] = ["namespace", "plugin", "subject"];

/// Rejects here, where the plugin is known, what the API server would reject later.
fn check(answer: &Answer, layers: &BTreeSet<&str>) -> Result<(), String> {
    for (what, placed) in [("label", &answer.labels), ("annotation", &answer.annotations)] {
        for Placed { key, value, layer } in placed {
            words::key(key).map_err(|flaw| format!("the {what} {key:?}: {flaw}"))?;
            if what == "label" {
                words::label_value(value).map_err(|flaw| format!("the label {key} has the value {value:?}: {flaw}"))?;
            }
            if !layers.contains(layer.as_str()) {
                return Err(format!("the {what} {key} has the layer {layer:?}, which is not a layer of the question"));
            }
        }
        if let Some([twice, _]) = placed.array_windows().find(|[first, second]| first.key == second.key) {
            return Err(format!("the {what} {} is listed twice", twice.key));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_as_it_was_stays_that_of_whoever_set_it() {
        let placed = |entries: &[(&str, &str)]| -> Vec<Placed> {
            let placed = |(key, value): &(&str, &str)| Placed { key: (*key).to_owned(), value: (*value).to_owned(), layer: "x".to_owned() };
            entries.iter().map(placed).collect()
        };
        let (frame, first) = (placed(&[("app", "chat")]), placed(&[("app", "chat"), ("team", "a")]));
        let by_first = writers(&first, &frame, &[None], Some(0));
        assert_eq!(by_first, [None, Some(0)]);
        let second = placed(&[("app", "chat"), ("cost", "9"), ("team", "b")]);
        assert_eq!(writers(&second, &first, &by_first, Some(1)), [None, Some(1), Some(1)]);
        assert_eq!(writers(&first, &first, &by_first, Some(1)), by_first, "who changes nothing has set nothing");
    }
}

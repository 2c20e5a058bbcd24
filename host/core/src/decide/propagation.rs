//! Which labels and annotations a target gets.

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

/// The question, of parts that many decisions share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inputs {
    /// What is to be served.
    pub subject: Digested<Subject>,
    /// What the labels and annotations are for.
    pub target: Digested<Target>,
    /// The layers, the weakest first.
    pub layers: Digested<Vec<Layer>>,
    /// The labels that the host's frame has.
    #[serde(default)]
    pub labels: Digested<Vec<Placed>>,
    /// The annotations that the host's frame has.
    #[serde(default)]
    pub annotations: Digested<Vec<Placed>>,
    /// What is told beside these fields, by name.
    #[serde(default, skip_serializing_if = "super::is_empty")]
    pub facts: Digested<Vec<Fact>>,
    /// Seconds since 1970, rounded down to a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<u64>,
}

impl Inputs {
    /// As one plugin is asked, given what those before it have placed.
    pub fn request<'a>(&'a self, labels: &'a [Placed], annotations: &'a [Placed]) -> RequestRef<'a> {
        let Self { subject, target, layers, labels: _, annotations: _, facts, now } = self;
        RequestRef { subject, target, layers, labels, annotations, now: *now, facts }
    }
}

/// What the target gets.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Propagated {
    /// Its labels, by key.
    pub labels: Vec<Placed>,
    /// Its annotations, by key.
    pub annotations: Vec<Placed>,
    /// What it doesn't get, each with the plugin that says so.
    pub dropped: Vec<(String, Dropped)>,
    /// Why, each with the plugin that says so.
    pub reasons: Vec<(String, Reason)>,
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
        let mut answer = Propagated { labels, annotations, ..Propagated::default() };
        for (at, member) in chain.iter().enumerate() {
            pinned.carry(member, self, &mut answer).map_err(|error| Fault { at, error })?;
        }
        Ok(answer)
    }
}

impl Pinned<'_> {
    /// Says what the target gets.
    pub fn propagate(&self, inputs: &Inputs) -> Result<Arc<Decision<Propagated>>, Undecided> {
        self.decide(inputs)
    }

    /// Lets one plugin go on with the labels and annotations.
    fn carry(&self, member: &Member, inputs: &Inputs, so_far: &mut Propagated) -> Result<(), CallError> {
        let now = inputs.now_for(member);
        let answer: Answer = self.call(Inputs::POINT, member, inputs.subject(), |plugin| {
            let (mut answer, spent) = plugin.propagate(RequestRef { now, ..inputs.request(&so_far.labels, &so_far.annotations) })?;
            // Whatever the order of its answer, the next plugin and the object see one.
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
        so_far.labels = answer.labels;
        so_far.annotations = answer.annotations;
        let plugin = || member.name().to_owned();
        so_far.dropped.extend(answer.dropped.into_iter().map(|dropped| (plugin(), dropped)));
        so_far.reasons.extend(answer.reasons.into_iter().map(|reason| (plugin(), reason)));
        Ok(())
    }
}

/// What something may come from beside the layers: the plugin itself, and what the question tells of the subject.
const ALWAYS: [&str; 3] = ["namespace", "plugin", "subject"];

/// What the API server would refuse is refused here, where the plugin is known.
fn check(answer: &Answer, layers: &BTreeSet<&str>) -> Result<(), String> {
    for (what, placed) in [("label", &answer.labels), ("annotation", &answer.annotations)] {
        for Placed { key, value, layer } in placed {
            words::key(key).map_err(|flaw| format!("the {what} {key:?}: {flaw}"))?;
            if what == "label" {
                words::label_value(value).map_err(|flaw| format!("the label {key} has the value {value:?}: {flaw}"))?;
            }
            if !layers.contains(layer.as_str()) {
                return Err(format!("the {what} {key} is said to come from {layer:?}, which is no layer of the question"));
            }
        }
        if let Some([twice, _]) = placed.array_windows().find(|[first, second]| first.key == second.key) {
            return Err(format!("the {what} {} is there twice", twice.key));
        }
    }
    Ok(())
}

//! Rules: CEL expressions that must hold on what users write (stage Input), or on what policies put out (stage Output). They are part of the
//! policy set, and the same function asks them wherever somebody wants to know: the controller, `render`, the comparison of two sets.
//!
//! `rule` is one rule, compiled; `judge` asks all of a set about one object; `plan` is what becomes of a plan by it; `layers` tells who asked
//! for the fields of a planned object; `lookups` finds what a rule wants to know beside its object; `fields` finds names in expressions that no object has; `ome_keys` is the table of OME's labels and annotations;
//! `shipped` are the rules that the host brings;
//! `tally` counts how the live subjects stand to all of them.

pub mod fields;
pub mod judge;
pub mod lookups;
pub mod ome_keys;
pub mod rule;
pub mod schema;
pub mod shipped;
pub mod tally;
pub mod visible;

use pointsman_crds::policy::rule::{LookupScope, RuleStage};
use pointsman_sandbox::{digest::Digest, evaluator::Evaluator};
use rule::Rule;
use std::sync::Arc;

/// The rules of a policy set, in the order of their names.
#[derive(Clone, Debug)]
pub struct Rules {
    all: Vec<Arc<Rule>>,
    /// Of those of each stage.
    digests: [Digest; 2],
    evaluator: Option<Arc<Evaluator>>,
}

impl Default for Rules {
    fn default() -> Self {
        Self::new(Vec::new(), None)
    }
}

impl Rules {
    /// Puts them in line. Without an evaluator every rule counts as one that can't be evaluated.
    pub fn new(mut all: Vec<Arc<Rule>>, evaluator: Option<Arc<Evaluator>>) -> Self {
        all.sort_by(|a, b| a.name().cmp(b.name()));
        let of = |stage| Digest::of_all(all.iter().filter(|rule| rule.stage() == stage).map(|rule| rule.identity()));
        let digests = [of(RuleStage::Input), of(RuleStage::Output)];
        Self { all, digests, evaluator }
    }

    /// All of them.
    pub fn all(&self) -> &[Arc<Rule>] {
        &self.all
    }

    /// The one of a name.
    pub fn find(&self, name: &str) -> Option<&Arc<Rule>> {
        self.all.iter().find(|rule| rule.name() == name)
    }

    /// Those that count at a stage.
    pub fn for_stage(&self, stage: RuleStage) -> impl Iterator<Item = &Arc<Rule>> {
        self.all.iter().filter(move |rule| rule.stage() == stage && rule.bound.spec.enabled)
    }

    /// The digest of those of a stage.
    pub fn digest(&self, stage: RuleStage) -> &Digest {
        match stage {
            RuleStage::Input => &self.digests[0],
            RuleStage::Output => &self.digests[1],
        }
    }

    /// Those that depend on nothing but the object.
    #[must_use]
    pub fn of_objects_alone(&self) -> Self {
        Self::new(self.all.iter().filter(|rule| !rule.looks_up()).cloned().collect(), self.evaluator.clone())
    }

    /// Where sums count services, at the widest; none where nothing is added up.
    pub fn sums(&self) -> Option<LookupScope> {
        let looking = self.for_stage(RuleStage::Input).flat_map(|rule| rule.lookups());
        let scopes: Vec<LookupScope> = looking.filter_map(|lookup| Some(lookup.subjects.as_ref()?.within)).collect();
        scopes.iter().copied().find(|scope| *scope == LookupScope::Cluster).or_else(|| scopes.first().copied())
    }

    /// What evaluates them.
    pub fn evaluator(&self) -> Option<&Arc<Evaluator>> {
        self.evaluator.as_ref()
    }
}

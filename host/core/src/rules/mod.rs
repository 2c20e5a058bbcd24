//! Rules: CEL expressions that must be true of what users write (stage Input), or of planned objects (stage Output). They are part of the
//! policy set, and all entry points use the same evaluation: admission, the controller, `render`, the comparison of two sets.
//!
//! `rule` is one compiled rule; `judge` evaluates all rules of a set for one object; `lookups` finds the data that a rule needs in addition
//! to its object; `visible` limits objects to the fields that rules can read; `fields` finds names in expressions that no object has;
//! `schema` validates objects against their schemas; `ome_keys` is the table of OME's labels and annotations; `shipped` contains the
//! shipped rules; `tally` counts the results of all live subjects.

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

/// The rules of a policy set, sorted by name.
#[derive(Clone, Debug)]
pub struct Rules {
    all: Vec<Arc<Rule>>,
    /// The digest of the rules of each stage.
    digests: [Digest; 2],
    evaluator: Option<Arc<Evaluator>>,
}

impl Default for Rules {
    fn default() -> Self {
        Self::new(Vec::new(), None)
    }
}

impl Rules {
    /// Sorts the rules. Without an evaluator, no rule can be evaluated.
    pub fn new(mut all: Vec<Arc<Rule>>, evaluator: Option<Arc<Evaluator>>) -> Self {
        all.sort_by(|a, b| a.name().cmp(b.name()));
        let of = |stage| Digest::of_all(all.iter().filter(|rule| rule.stage() == stage).map(|rule| rule.identity()));
        let digests = [of(RuleStage::Input), of(RuleStage::Output)];
        Self { all, digests, evaluator }
    }

    /// All rules.
    pub fn all(&self) -> &[Arc<Rule>] {
        &self.all
    }

    /// The rule with this name.
    pub fn find(&self, name: &str) -> Option<&Arc<Rule>> {
        self.all.iter().find(|rule| rule.name() == name)
    }

    /// The enabled rules of a stage.
    pub fn for_stage(&self, stage: RuleStage) -> impl Iterator<Item = &Arc<Rule>> {
        self.all.iter().filter(move |rule| rule.stage() == stage && rule.bound.spec.enabled)
    }

    /// The digest of the rules of a stage.
    pub fn digest(&self, stage: RuleStage) -> &Digest {
        match stage {
            RuleStage::Input => &self.digests[0],
            RuleStage::Output => &self.digests[1],
        }
    }

    /// The rules that depend only on the object.
    #[must_use]
    pub fn of_objects_alone(&self) -> Self {
        Self::new(self.all.iter().filter(|rule| !rule.looks_up()).cloned().collect(), self.evaluator.clone())
    }

    /// The widest scope of the rules' sums; none if no rule has one.
    pub fn sums(&self) -> Option<LookupScope> {
        let looking = self.for_stage(RuleStage::Input).flat_map(|rule| rule.lookups());
        let scopes: Vec<LookupScope> = looking.filter_map(|lookup| Some(lookup.subjects.as_ref()?.within)).collect();
        scopes.iter().copied().find(|scope| *scope == LookupScope::Cluster).or_else(|| scopes.first().copied())
    }

    /// The evaluator of the rules.
    pub fn evaluator(&self) -> Option<&Arc<Evaluator>> {
        self.evaluator.as_ref()
    }
}

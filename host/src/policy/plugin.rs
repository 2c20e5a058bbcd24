//! One loaded plugin, whatever form it has, and how it is asked.

use super::{
    call::{CallError, Sandbox, Spent},
    component::Linked,
    engine::{Engines, Use},
    limits::Limits,
    point::{Reason, describe::Description, propagation, scoring, selection, templating},
};
use std::sync::Arc;
use wasmtime::component::Component;

/// A plugin that can be asked. Cheap to clone: everything in it is shared.
#[derive(Clone, Debug)]
pub struct Plugin(Arc<Linked>);

/// What becomes of an instance after its call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instances {
    /// It is dropped: nothing of one question is left for the next.
    #[default]
    Fresh,
    /// It answers again, until it traps or has answered often enough.
    Warm,
}

impl Plugin {
    /// Links a component that was compiled by the engine for `use_`.
    pub fn new(
        engines: &Arc<Engines>,
        use_: Use,
        component: &Component,
        config: &str,
        limits: Limits,
        instances: Instances,
    ) -> Result<Self, CallError> {
        let sandbox = Sandbox { engines: Arc::clone(engines), use_, limits };
        Linked::new(sandbox, component, config, instances == Instances::Warm).map(|linked| Self(Arc::new(linked)))
    }

    /// What the plugin says of itself. It isn't configured for that.
    pub fn describe(&self) -> Result<(Description, Spent), CallError> {
        self.0.describe()
    }

    /// Whether the plugin takes its configuration.
    pub fn takes_config(&self) -> Result<Spent, CallError> {
        self.0.takes_config()
    }

    /// A verdict for every candidate.
    pub fn judge(&self, request: selection::Request<'_>) -> Result<(Vec<selection::Verdict>, Spent), CallError> {
        let (verdicts, spent) = self.0.judge(request)?;
        let (given, asked) = (verdicts.len(), request.candidates.len());
        if given != asked {
            return Err(CallError::Nonsense(format!("{given} verdicts for {asked} candidates")));
        }
        let finite = |number: &f64| number.is_finite();
        for (verdict, candidate) in verdicts.iter().zip(request.candidates) {
            if let selection::Verdict::Eligible(eligible) = verdict
                && !(finite(&eligible.score) && eligible.tie_break.iter().all(finite))
            {
                return Err(CallError::Nonsense(format!("the score of {} isn't a finite number", candidate.name)));
            }
        }
        Ok((verdicts, spent))
    }

    /// The steps that finish a pod's template.
    pub fn template(&self, request: templating::Request<'_>) -> Result<(templating::Answer, Spent), CallError> {
        self.0.template(request)
    }

    /// The labels and annotations of a target.
    pub fn propagate(&self, request: propagation::Request<'_>) -> Result<(propagation::Answer, Spent), CallError> {
        self.0.propagate(request)
    }

    /// A score for every row.
    pub fn score(&self, request: scoring::Request<'_>) -> Result<(Vec<f64>, Spent), CallError> {
        let (scores, spent) = self.0.score(request)?;
        let (given, asked) = (scores.len(), request.rows());
        if given != asked {
            return Err(CallError::Nonsense(format!("{given} scores for {asked} candidates")));
        }
        Ok((scores, spent))
    }

    /// Why a row has its score.
    pub fn explain(&self, request: scoring::Request<'_>, row: u32) -> Result<(Vec<Reason>, Spent), CallError> {
        self.0.explain(request, row)
    }
}

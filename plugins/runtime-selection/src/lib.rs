//! The default policy at runtime-selection: which runtimes can serve a model, and how suitable they are.
//!
//! It selects as OME does, but without OME's errors: only entries that match the model affect a runtime's score, a size range may have only
//! one end, and an unreadable size is reported instead of being treated as 0.

pub mod kind;
pub mod score;
pub mod size;
pub mod version;

use pointsman_plugin::{
    Failure,
    runtime_selection::{Candidate, Eligible, Request, SupportedModel, Verdict, excluded},
};
use schemars::JsonSchema;
use serde::Deserialize;
use size::{Fit, Size};

/// The configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The weight of a matching format if the runtime sets none.
    pub format_weight: u32,
    /// The weight of a matching framework if the runtime sets none.
    pub framework_weight: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { format_weight: 10, framework_weight: 5 }
    }
}

/// Judges every candidate, in their order.
#[allow(clippy::needless_pass_by_value, reason = "it has the form that all policies have")]
pub fn judge(config: &Config, request: Request) -> Result<Vec<Verdict>, Failure> {
    let size = request.model.parameter_size.as_deref().map(Size::parse);
    Ok(request.candidates.iter().map(|candidate| verdict(config, &request, size.as_ref(), candidate)).collect())
}

fn verdict(config: &Config, request: &Request, size: Option<&Size<'_>>, candidate: &Candidate) -> Verdict {
    let model = &request.model;
    if model.disabled {
        return excluded("ModelDisabled", format!("The model {} is disabled.", model.name));
    }
    if candidate.disabled {
        return excluded("Disabled", "The runtime is disabled.");
    }
    let matching: Vec<&SupportedModel> = match kind::matching(model, &candidate.models) {
        Ok(matching) => matching,
        Err(reason) => return reason.into(),
    };
    let Fit { distance, reason } = match size::fit(size, candidate.smallest.as_deref(), candidate.largest.as_deref()) {
        Ok(fit) => fit,
        Err(reason) => return reason.into(),
    };
    let best = score::best(config, &matching);
    if !request.named {
        if !candidate.models.iter().any(|entry| entry.auto_select == Some(true)) {
            return excluded(
                "NotAutoSelected",
                "The runtime is for services that name it: none of its supportedModelFormats has autoSelect: true.",
            );
        }
        if best.as_ref().is_none_or(|best| best.score <= 0.0) {
            return excluded("NoScore", score::lacking(best.as_ref()));
        }
    }
    let mut reasons = Vec::with_capacity(2);
    reasons.push(score::reason_for_score(best.as_ref()));
    reasons.extend(reason);
    Eligible { score: best.map_or(0.0, |best| best.score), tie_break: vec![distance], reasons, ..Eligible::default() }.into()
}

pointsman_plugin::export! { config: Config, runtime_selection: judge }

//! How suitable a runtime is for a model.

use crate::Config;
use pointsman_plugin::{
    Reason, reason,
    runtime_selection::{Supported, SupportedModel},
};

/// The entry that gives a runtime its score.
#[derive(Clone, Copy, Debug)]
pub struct Best<'a> {
    /// Higher is better.
    pub score: f64,
    entry: &'a SupportedModel,
    format: f64,
    framework: f64,
}

/// The best of the entries that match the model and don't disable automatic selection; the first of equal ones.
pub fn best<'a>(config: &Config, matching: &[&'a SupportedModel]) -> Option<Best<'a>> {
    let mut best: Option<Best<'a>> = None;
    for &entry in matching.iter().filter(|entry| entry.auto_select != Some(false)) {
        let format = weight(entry.format.as_ref(), config.format_weight);
        let framework = weight(entry.framework.as_ref(), config.framework_weight);
        let score = (format + framework) * priority(entry);
        if best.is_none_or(|best| score > best.score) {
            best = Some(Best { score, entry, format, framework });
        }
    }
    best
}

/// The parts of the score.
fn composition(best: &Best<'_>) -> String {
    let Best { score, entry, format, framework } = best;
    let format = entry.format.as_ref().map_or_else(String::new, |supported| format!("{format} for the format {}", supported.name));
    let framework =
        entry.framework.as_ref().map_or_else(String::new, |supported| format!(" + {framework} for the framework {}", supported.name));
    format!("Score {score}: ({format}{framework}) x priority {}.", priority(entry))
}

/// The reason for a runtime that can be selected.
pub fn reason_for_score(best: Option<&Best<'_>>) -> Reason {
    reason("Score", best.map_or_else(|| "Score 0: all matching supportedModelFormats have autoSelect: false.".to_owned(), composition))
}

/// Why the score isn't sufficient for automatic selection.
pub fn lacking(best: Option<&Best<'_>>) -> String {
    match best {
        None => "All matching supportedModelFormats have autoSelect: false, so spec.runtime must name the runtime.".to_owned(),
        Some(best) => format!("The score must be greater than 0 unless spec.runtime names the runtime. {}", composition(best)),
    }
}

/// OME writes 0 if no weight was specified.
#[allow(clippy::cast_precision_loss, reason = "no weight that anybody writes comes near 2^53, and beyond it rounding is harmless")]
fn weight(supported: Option<&Supported>, default: u32) -> f64 {
    supported.map_or(0.0, |supported| match supported.weight {
        None | Some(0) => f64::from(default),
        Some(weight) => weight as f64,
    })
}

fn priority(entry: &SupportedModel) -> f64 {
    entry.priority.map_or(1.0, f64::from)
}

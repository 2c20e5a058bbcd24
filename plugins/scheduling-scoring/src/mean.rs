//! A weighted mean of parts, each from 0 to 1, and the terms that explain it.

use crate::NEUTRAL;
use pointsman_plugin::scheduling_scoring::Term;

/// The sum of all weights; none if it is 0 or overflows.
fn total(weights: &[f64]) -> Option<f64> {
    let total: f64 = weights.iter().map(|weight| weight.abs()).sum();
    Some(total).filter(|total| *total > 0.0 && total.is_finite())
}

/// The weighted mean of the parts. A negative weight inverts a part.
pub(crate) fn mean<const N: usize>(weights: [f64; N], parts: [f64; N]) -> f64 {
    let Some(total) = total(&weights) else { return NEUTRAL };
    let parts = weights.into_iter().zip(parts);
    parts.map(|(weight, part)| weight.abs() * counted(part, weight)).sum::<f64>() / total
}

/// One term per part with a weight. The source of a part is a code and the start of a sentence.
pub(crate) fn terms<const N: usize>(weights: [f64; N], parts: [f64; N], sources: [(&'static str, String); N]) -> Vec<Term> {
    let Some(total) = total(&weights) else { return Vec::new() };
    let parts = weights.into_iter().zip(parts).zip(sources);
    let term = |((weight, part), (code, source)): ((f64, f64), (&'static str, String))| {
        let counted = counted(part, weight);
        Term::new(code, format!("{source}: {counted:.2} of 1, weight {weight} of {total}."), weight.abs() * counted / total)
    };
    parts.filter(|((weight, _), _)| *weight != 0.0).map(term).collect()
}

/// The effective part: inverted for a negative weight, and neutral if unknown.
fn counted(part: f64, weight: f64) -> f64 {
    let part = if part.is_nan() { NEUTRAL } else { part };
    if weight < 0.0 { 1.0 - part } else { part }
}

/// The position of a value between 0 and infinity: half at `middle`.
pub(crate) fn share(value: f64, middle: f64) -> f64 {
    if value == f64::INFINITY { 1.0 } else { value.clamp(0.0, f64::MAX) / (value.clamp(0.0, f64::MAX) + middle) }
}

//! Finds the part of the scores that decided between the chosen endpoint and the runner-up.

use crate::endpoint_picker::decisions::record::{EXCLUDED, EndpointRecord, ProfileRecord};
use pointsman_picker::pick::EndpointFeatures;
use pointsman_sandbox::point::scoring::Term;
use serde::Serialize;

/// Scores that differ by less are equal: they are sums of the same parts in another order.
const EQUAL_WITHIN: f64 = 1e-12;

/// The maximum difference between the sum of the parts and the score.
const SUM_WITHIN: f64 = 1e-6;

/// The explanation of a profile's choice.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Explanation<'r> {
    pub(super) profile: &'r str,
    /// The address of the first choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) chosen: Option<&'r str>,
    /// The address of the best other endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runner_up: Option<&'r str>,
    /// The parts of both scores, those with the largest difference in favor of the chosen one first.
    pub(super) parts: Vec<Part>,
    /// Why there are no parts, or the problem with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
    /// Why the chosen one was chosen.
    pub(super) verdict: String,
}

/// A part of the scores, such as a scorer's.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part {
    pub(super) code: String,
    pub(super) chosen: Side,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runner_up: Option<Side>,
}

/// A policy's value of a part.
#[derive(Debug, Serialize)]
pub(super) struct Side {
    /// Its contribution to the score.
    pub(super) value: Option<f64>,
    pub(super) message: String,
}

impl Part {
    /// The difference of its contributions to both scores.
    pub(super) fn difference(&self) -> Option<f64> {
        Some(self.chosen.value? - self.runner_up.as_ref()?.value?)
    }
}

/// Explains the choice of a profile. `terms` calls the policy for a row.
pub(super) fn explain(
    profile: &ProfileRecord,
    mut terms: impl FnMut(&[EndpointFeatures], usize) -> Result<Vec<Term>, String>,
) -> Explanation<'_> {
    let rows: Vec<&EndpointRecord> = profile.endpoints.iter().filter(|row| is_candidate(row)).collect();
    let chosen = rows.iter().position(|row| row.chosen);
    let runner_up = chosen.and_then(|chosen| (0..rows.len()).find(|at| *at != chosen && rows[*at].score.is_some()));
    let (mut parts, mut note) = (Vec::new(), None);
    if let Some(chosen) = chosen.filter(|_| profile.policy.is_some()) {
        let mut known: Vec<EndpointFeatures> = rows.iter().map(|row| row.features).collect();
        // With these, scorers that compare all candidates find the same range.
        known.extend(profile.extremes.iter().flat_map(|extremes| [extremes.least, extremes.most]));
        let asked = terms(&known, chosen).and_then(|of_chosen| {
            let of_other = runner_up.map(|at| terms(&known, at)).transpose()?;
            Ok((of_chosen, of_other))
        });
        match asked {
            Ok((of_chosen, of_other)) => {
                note = wrong_sum(rows[chosen], &of_chosen);
                parts = pair(of_chosen, of_other);
            }
            Err(why) => note = Some(why),
        }
    }
    let address = |at: Option<usize>| at.map(|at| &*rows[at].address);
    let verdict = verdict(profile, chosen.map(|at| rows[at]), runner_up.map(|at| rows[at]), &parts);
    Explanation { profile: &profile.name, chosen: address(chosen), runner_up: address(runner_up), parts, note, verdict }
}

/// Whether the policy has scored the endpoint.
fn is_candidate(row: &EndpointRecord) -> bool {
    row.removed_by.as_deref().is_none_or(|step| step == EXCLUDED)
}

/// The problem if the sum of the parts isn't the score.
fn wrong_sum(row: &EndpointRecord, terms: &[Term]) -> Option<String> {
    let sum: f64 = terms.iter().map(|term| term.value).sum::<Option<f64>>()?;
    let score = row.score?;
    ((sum - score).abs() > SUM_WITHIN).then(|| {
        format!("The parts add up to {sum:.4}, and the score was {score:.4}: the policy doesn't compute its scores from these parts, or uses inputs that aren't recorded.")
    })
}

/// Pairs the parts of both by their codes. A repeated code has its parts in the same order for both, and gets numbers.
fn pair(of_chosen: Vec<Term>, of_other: Option<Vec<Term>>) -> Vec<Part> {
    let side = |Term { message, value, .. }: Term| Side { value, message };
    let mut others = of_other.unwrap_or_default();
    let codes: Vec<String> = of_chosen.iter().map(|term| term.code.clone()).collect();
    let mut parts: Vec<Part> = Vec::new();
    for (at, term) in of_chosen.into_iter().enumerate() {
        let is_same = |code: &&String| **code == term.code;
        let number = codes[..=at].iter().filter(is_same).count();
        let code = if codes.iter().filter(is_same).count() > 1 { format!("{} #{number}", term.code) } else { term.code.clone() };
        let other = others.iter().position(|other| other.code == term.code).map(|at| others.remove(at));
        parts.push(Part { code, chosen: side(term), runner_up: other.map(side) });
    }
    parts.sort_by(|one, other| other.difference().unwrap_or(0.0).total_cmp(&one.difference().unwrap_or(0.0)));
    parts
}

fn verdict(profile: &ProfileRecord, chosen: Option<&EndpointRecord>, runner_up: Option<&EndpointRecord>, parts: &[Part]) -> String {
    let ProfileRecord { picker, seed, .. } = profile;
    let Some(chosen) = chosen else { return "No endpoint was left to choose.".to_owned() };
    let address = &*chosen.address;
    if profile.policy.is_none() {
        return format!("No policy has answered: {address} had the least load, and chance chose among equal ones (seed {seed}).");
    }
    let Some((other, score, other_score)) = runner_up.and_then(|other| Some((other, chosen.score?, other.score?))) else {
        return format!("{address} was the only endpoint left to choose.");
    };
    let other = &*other.address;
    let difference = score - other_score;
    match &**picker {
        "random-picker" => return format!("Chance chose {address}, regardless of the scores (random-picker, seed {seed})."),
        "weighted-random-picker" => {
            return format!("Chance chose {address}, with odds by the scores (weighted-random-picker, seed {seed}).");
        }
        _ if difference.abs() <= EQUAL_WITHIN => {
            let is_equal = |row: &&EndpointRecord| row.score.is_some_and(|other| (score - other).abs() <= EQUAL_WITHIN);
            let equal = profile.endpoints.iter().filter(is_equal).count();
            return format!("Chance chose {address} among the {equal} endpoints with the score {score:.4} (seed {seed}).");
        }
        _ => {}
    }
    let differences = || parts.iter().filter_map(|part| Some((&*part.code, part.difference()?)));
    let Some((code, most)) = differences().next().filter(|(_, most)| *most > 0.0) else {
        return format!("{address} has the better score, by {difference:.4} against {other}; the parts of the scores are unknown.");
    };
    let named = |(code, by): (&str, f64)| format!("{code} ({by:+.4})");
    let further: Vec<String> = differences().skip(1).filter(|(_, by)| *by > EQUAL_WITHIN).map(named).collect();
    let against: Vec<String> = differences().filter(|(_, by)| *by < -EQUAL_WITHIN).map(named).collect();
    let share = if further.is_empty() { "the difference" } else { "most of the difference" };
    let mut sentence = format!("{code} made {share} between {address} and {other}: {most:+.4} of {difference:+.4}");
    if !further.is_empty() {
        sentence += "; ";
        sentence += &further.join(", ");
        sentence += " added to it";
    }
    if !against.is_empty() {
        sentence += "; ";
        sentence += &against.join(", ");
        sentence += " counted against it";
    }
    sentence + "."
}

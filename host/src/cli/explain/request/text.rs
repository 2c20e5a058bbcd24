//! The explanation as text for people.

use super::verdict::{Explanation, Part};
use crate::{
    cli::output::{pairs, table},
    endpoint_picker::decisions::record::{EndpointRecord, PolicyRecord, ProfileRecord, Record},
};
use pointsman_picker::pick::Feature;
use pointsman_sandbox::text::printable_line;
use std::fmt::Write;

/// The features that are shown if no policy has scored: the endpoint with the least load by these was chosen.
const LOAD: [Feature; 3] = [Feature::InFlightRequests, Feature::QueueLength, Feature::RunningRequests];

/// The explanation of a decision.
pub(super) fn text(record: &Record, explanations: &[Explanation<'_>]) -> String {
    let mut text = head(record);
    for (profile, explanation) in record.profiles.iter().zip(explanations) {
        text.push('\n');
        text.push_str(&choice(profile));
        text.push('\n');
        text.push_str(&endpoints(profile));
        text.push_str(&parts(explanation));
        if let Some(note) = &explanation.note {
            line(&mut text, &format!("\n{}", printable_line(note)));
        }
        line(&mut text, &format!("\n{}", printable_line(&explanation.verdict)));
    }
    text
}

fn line(text: &mut String, words: &str) {
    // Writing to a String can't fail.
    writeln!(text, "{words}").ok();
}

/// The request and its result. Its names are the client's.
fn head(record: &Record) -> String {
    let model = match (&*record.model, &record.target) {
        ("", _) => "unknown".to_owned(),
        (model, None) => model.to_owned(),
        (model, Some(target)) => format!("{model}, sent as {target}"),
    };
    let objective = record.objective.as_ref().map(|name| format!(" (objective {name})")).unwrap_or_default();
    let limit = record.output_limit.map(|limit| format!(", at most {limit} in the response")).unwrap_or_default();
    let allowed = record.subset.map(|subset| format!(", the gateway allows {subset}")).unwrap_or_default();
    let mut lines = vec![
        ("request", record.request.clone()),
        ("time", record.time.clone()),
        ("pool", format!("{}, {} endpoints{allowed}", &*record.pool, record.pool_endpoints)),
        ("model", model),
        ("priority", format!("{}{objective}, flow {}", record.priority, record.flow)),
        ("tokens", format!("{} in the prompt, by estimate{limit}", record.prompt_tokens)),
    ];
    lines.extend(record.waited_seconds.map(|seconds| ("waited", format!("{seconds:.3} s in flow control"))));
    lines.extend(record.saturation.map(|saturation| ("saturation", format!("{saturation:.2}"))));
    if !record.sent.is_empty() {
        lines.push(("sent to", record.sent.join(", ")));
    }
    lines.extend(record.prefill.iter().map(|prefill| ("prefill", prefill.clone())));
    if let Some(refused) = &record.refused {
        lines.push(("refused", format!("{} {}: {}", refused.status, refused.reason, refused.message)));
    }
    let lines: Vec<(&str, String)> = lines.into_iter().map(|(name, value)| (name, printable_line(&value))).collect();
    pairs(&lines)
}

/// The policy that scored, and the picker that chose.
fn choice(profile: &ProfileRecord) -> String {
    let short = |digest: &str| digest.get(..19).unwrap_or(digest).to_owned();
    let named = |policy: &PolicyRecord| format!("{} {}", policy.name, short(&policy.digest));
    let together = profile.together.iter().map(|weighted| format!("{} (weight {})", named(&weighted.policy), weighted.weight));
    let together = together.collect::<Vec<_>>().join(" and ");
    let scored = match &profile.policy {
        Some(_) if !together.is_empty() => format!("scored by {together}"),
        Some(policy) => format!("scored by {}", named(policy)),
        None => "not scored".to_owned(),
    };
    let set = profile.policy_set.as_deref().map(|set| format!(" of the policy set {}", short(set))).unwrap_or_default();
    let mut text = String::new();
    line(&mut text, &printable_line(&format!("profile {}: {scored}{set}, chosen by {}", profile.name, profile.picker)));
    for missed in &profile.unanswered {
        let sentence = format!("no answer by {} {}: {} ({})", missed.policy, short(&missed.digest), missed.message, missed.reason);
        line(&mut text, &format!("  {}", printable_line(&sentence)));
    }
    text
}

/// The endpoints with the features that the policy requests. Features that are equal for all are below them.
fn endpoints(profile: &ProfileRecord) -> String {
    let rows = &profile.endpoints;
    let policies = profile.policy.iter().map(|policy| &**policy).chain(profile.together.iter().skip(1).map(|weighted| &*weighted.policy));
    let mut asked: Vec<Feature> = Vec::new();
    for feature in policies.flat_map(|policy| &policy.features).filter_map(|name| Feature::parse(name)) {
        if !asked.contains(&feature) {
            asked.push(feature);
        }
    }
    if profile.policy.is_none() {
        asked = LOAD.to_vec();
    }
    let value = |feature: Feature, row: &EndpointRecord| number(feature.value(&row.features));
    let is_same = |feature: &Feature| rows.iter().all(|row| value(*feature, row) == value(*feature, &rows[0]));
    let is_unknown = |feature: &Feature| rows.iter().all(|row| feature.value(&row.features).is_nan());
    let (same, differ): (Vec<Feature>, Vec<Feature>) = asked.into_iter().filter(|feature| !is_unknown(feature)).partition(is_same);

    let fixed = ["", "ENDPOINT", "POD", "SCORE"].map(str::to_owned);
    let headings: Vec<String> = fixed.into_iter().chain(differ.iter().map(|feature| feature.name().to_uppercase())).collect();
    let cells = |row: &EndpointRecord| -> Vec<String> {
        let score = match (row.score, &row.removed_by) {
            (Some(score), _) => format!("{score:.4}"),
            (None, Some(step)) => format!("removed by {step}"),
            (None, None) => "-".to_owned(),
        };
        let mark = if row.chosen { "*" } else { "" };
        let fixed = [mark.to_owned(), row.address.to_string(), row.pod.to_string(), score];
        fixed.iter().map(|cell| printable_line(cell)).chain(differ.iter().map(|feature| value(*feature, row))).collect()
    };
    if rows.is_empty() {
        return String::new();
    }
    let mut text = table(&headings, &rows.iter().map(cells).collect::<Vec<_>>());
    if profile.left_out > 0 {
        line(&mut text, &format!("and {} more, which aren't recorded", profile.left_out));
    }
    if !same.is_empty() {
        let same: Vec<String> = same.iter().map(|feature| format!("{} {}", feature.name(), value(*feature, &rows[0]))).collect();
        line(&mut text, &format!("the same for all: {}", same.join(", ")));
    }
    text
}

/// A count as a whole number, and other numbers with three decimals.
fn number(value: f64) -> String {
    if value.is_nan() {
        "-".to_owned()
    } else if value.fract().abs() < f64::EPSILON {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    }
}

/// The parts of the scores of the chosen endpoint and the runner-up, and the policy's messages.
fn parts(explanation: &Explanation<'_>) -> String {
    let Explanation { chosen: Some(chosen), runner_up, parts, .. } = explanation else { return String::new() };
    if parts.is_empty() {
        return String::new();
    }
    let signed = |value: Option<f64>, sign: bool| match value {
        Some(value) if sign => format!("{value:+.4}"),
        Some(value) => format!("{value:.4}"),
        None => "-".to_owned(),
    };
    let headings: Vec<String> = ["PART", *chosen, runner_up.unwrap_or("-"), "DIFFERENCE"].map(str::to_owned).to_vec();
    let cells = |part: &Part| {
        let other = part.runner_up.as_ref().and_then(|side| side.value);
        vec![printable_line(&part.code), signed(part.chosen.value, false), signed(other, false), signed(part.difference(), true)]
    };
    let mut text = format!("\n{}", table(&headings, &parts.iter().map(cells).collect::<Vec<_>>()));
    let of_chosen = parts.iter().map(|part| (&part.code, &part.chosen)).collect::<Vec<_>>();
    let of_other = parts.iter().filter_map(|part| Some((&part.code, part.runner_up.as_ref()?))).collect::<Vec<_>>();
    for (address, sides) in [(Some(*chosen), of_chosen), (*runner_up, of_other)] {
        let Some(address) = address.filter(|_| !sides.is_empty()) else { continue };
        line(&mut text, &format!("\n{address}"));
        for (code, side) in sides {
            line(&mut text, &format!("  {}: {}", printable_line(code), printable_line(&side.message)));
        }
    }
    text
}

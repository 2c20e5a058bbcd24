//! The parts of a score, in sentences.

use super::{
    EndpointPick, ScorerKind,
    columns::{Column, Endpoint, Range},
    scorers::{in_flight, tokens},
};
use pointsman_plugin::scheduling_scoring::{Matrix, Term};

impl EndpointPick {
    /// One term per scorer with a weight; none if no scorer has one, or if there is no such row.
    pub(crate) fn explain(&self, matrix: &Matrix, row: usize) -> Vec<Term> {
        let Some(endpoint) = Endpoint::find(matrix, row) else { return Vec::new() };
        let total = self.total();
        let terms = self.scorers.iter().filter(|scorer| scorer.weight > 0.0).map(|scorer| {
            let mut scores = vec![0.0; matrix.rows().len()];
            scorer.kind.add(matrix, 1.0, &mut scores);
            let (score, weight) = (scores[row], scorer.weight);
            let (code, source) = scorer.kind.source(matrix, endpoint);
            Term::new(code, format!("{source}: {score:.2} of 1, weight {weight} of {total}."), weight * score / total)
        });
        terms.collect()
    }
}

impl ScorerKind {
    /// The source of an endpoint's score: a code, and the start of a sentence.
    fn source(self, matrix: &Matrix, endpoint: Endpoint<'_>) -> (&'static str, String) {
        let known = |column| Some(endpoint.value(column)).filter(|value| !value.is_nan());
        let or = |sentence: Option<String>, unknown: &str| sentence.unwrap_or_else(|| unknown.to_owned());
        match self {
            Self::Queue => {
                let Range { least, most } = Range::new(matrix, Column::QueueLength);
                let sentence = known(Column::QueueLength)
                    .map(|waiting| format!("{waiting} requests wait in its queue, and {least} to {most} in those of all candidates"));
                ("Queue", or(sentence, "It hasn't reported its queue, which counts as the longest"))
            }
            Self::RunningRequests => {
                let Range { least, most } = Range::new(matrix, Column::RunningRequests);
                let sentence = known(Column::RunningRequests)
                    .map(|running| format!("It is working on {running} requests, and the candidates on {least} to {most}"));
                ("RunningRequests", or(sentence, "It hasn't reported its running requests, which counts as the most"))
            }
            Self::KvCacheUtilization => {
                let sentence = known(Column::KvCacheUtilization).map(|used| format!("{:.0} % of its KV cache is in use", used * 100.0));
                ("KvCache", or(sentence, "It hasn't reported its KV cache, which counts as full"))
            }
            Self::PrefixCache { match_length_weight, .. } => ("PrefixCache", prefix_cache(endpoint, match_length_weight)),
            Self::LoraAffinity => ("Adapter", lora_affinity(matrix, endpoint)),
            Self::TokenLoad { threshold } => {
                let source = format!("With this request, {} tokens are in flight there, and {threshold} score 0", tokens(endpoint));
                ("TokenLoad", source)
            }
            Self::ActiveRequest { .. } => {
                let Range { most, .. } = Range::new(matrix, Column::InFlightRequests);
                // Not `max`, which may return either of 0 and -0 and could therefore differ between Wasm and the host.
                let most = if most > 0.0 { most } else { 0.0 };
                ("ActiveRequests", format!("{} requests are in flight there, and at most {most} at any candidate", in_flight(endpoint)))
            }
            Self::LoadAware { threshold } => {
                let sentence = known(Column::QueueLength)
                    .map(|waiting| format!("{waiting} requests wait in its queue, none score 0.5, and {threshold} score 0"));
                ("LoadAware", or(sentence, "It hasn't reported its queue, which counts as full"))
            }
            Self::SessionAffinity => {
                let has_served = endpoint.value(Column::Session) > 0.0;
                let source = if has_served { "It has served this session" } else { "It hasn't served this session, if there is one" };
                ("Session", source.to_owned())
            }
            Self::NoHitLru => {
                let sentence = known(Column::ColdRequestTurn)
                    .map(|_| "No endpoint has cached this prompt, and endpoints take such prompts in turn".to_owned());
                ("ColdRequest", or(sentence, "Turns count only for a prompt that no endpoint has cached"))
            }
            Self::ContextLength => {
                let sentence =
                    known(Column::ContextLengthFit).map(|_| "It has a range of context lengths, which fits the prompt".to_owned());
                ("ContextLength", or(sentence, "It has no range of context lengths"))
            }
            Self::Latency => {
                let Range { least, most } = Range::new(matrix, Column::TimeToFirstTokenSeconds);
                let sentence = known(Column::TimeToFirstTokenSeconds).map(|time| {
                    format!("Its first token is expected after {time:.3} s, and after {least:.3} to {most:.3} s at all candidates")
                });
                ("Latency", or(sentence, "The time to its first token is unknown"))
            }
        }
    }
}

fn prefix_cache(endpoint: Endpoint<'_>, match_length_weight: f64) -> String {
    let share = endpoint.value(Column::PrefixMatch);
    if share.is_nan() {
        return "Its cached part of the prompt is unknown, which counts as nothing".to_owned();
    }
    let length = if match_length_weight > 0.0 { format!(", {} tokens", endpoint.amount(Column::CachedTokens, 0.0)) } else { String::new() };
    format!("It has cached {:.0} % of the prompt{length}", share * 100.0)
}

fn lora_affinity(matrix: &Matrix, endpoint: Endpoint<'_>) -> String {
    let loaded = endpoint.value(Column::AdapterLoaded);
    let source = if loaded.is_nan() && Range::new(matrix, Column::AdapterLoaded).is_known() {
        "It hasn't reported its adapters"
    } else if loaded.is_nan() {
        "The request is for no adapter"
    } else if loaded > 0.5 {
        "It has loaded the adapter"
    } else if endpoint.value(Column::AdapterSlots) > 0.0 {
        return format!("It can load {} more adapters", endpoint.value(Column::AdapterSlots));
    } else if endpoint.value(Column::AdapterWaiting) > 0.5 {
        "The adapter waits to be loaded there"
    } else {
        "It has no place for the adapter"
    };
    source.to_owned()
}

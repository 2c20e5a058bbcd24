//! Selects the runtime for a model.

use super::{
    Decision, Pinned, Undecided,
    cached::{CachedQuestion, marker},
    chain::Fault,
};
use crate::decide::member::Member;
use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::{
    digest::{Digest, Digested},
    point::{
        Fact, Reason, Subject,
        selection::{Accelerator, Candidate, Current, Demand, Eligible, Model, RequestRef, Verdict},
    },
};
use serde::{Deserialize, Serialize};
use std::{cmp::Ordering, sync::Arc};

/// The question. Its parts are shared by many decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inputs {
    /// The subject.
    pub subject: Digested<Subject>,
    /// Its model.
    pub model: Digested<Model>,
    /// The runtimes, by kind, namespace and name.
    pub candidates: Digested<Vec<Candidate>>,
    /// Whether the subject names its runtime.
    #[serde(default)]
    pub named: bool,
    /// The accelerators of the cluster, by name.
    #[serde(default, skip_serializing_if = "super::is_empty")]
    pub accelerators: Digested<Vec<Accelerator>>,
    /// The subject's accelerator requirements, one per group of pods.
    #[serde(default, skip_serializing_if = "super::is_empty")]
    pub demands: Digested<Vec<Demand>>,
    /// The runtime that serves the subject now.
    #[serde(default, skip_serializing_if = "is_none")]
    pub current: Digested<Option<Current>>,
    /// Additional facts, by name.
    #[serde(default, skip_serializing_if = "super::is_empty")]
    pub facts: Digested<Vec<Fact>>,
    /// Seconds since 1970, rounded down to a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<u64>,
}

fn is_none<T>(value: &Digested<Option<T>>) -> bool {
    value.is_none()
}

impl Inputs {
    /// The request to a plugin.
    pub fn request(&self) -> RequestRef<'_> {
        let Self { subject, model, candidates, named, accelerators, demands, current, facts, now } = self;
        let (named, current, now) = (*named, current.as_ref(), *now);
        RequestRef { subject, model, candidates, named, accelerators, demands, current, now, facts }
    }
}

/// The combined verdicts of all plugins on the runtimes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Selection {
    /// One per candidate, in the order of the question.
    pub judged: Vec<Judged>,
    /// The indices of the eligible candidates, the best first.
    pub ranking: Vec<usize>,
    /// Whether only the name distinguishes the first two.
    pub tie: bool,
    /// The plugins that gave scores, in the order of the calls.
    pub shares: Vec<ScoreShare>,
}

/// One plugin's share of the scores.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScoreShare {
    /// The name of its PolicyPlugin.
    pub plugin: String,
    /// One per candidate, multiplied by the plugin's weight; none if the plugin gives none.
    pub scores: Vec<Option<f64>>,
}

/// The combined verdict of all plugins on one runtime.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Judged {
    /// It can serve the model.
    Eligible(Eligible),
    /// It can't, or must not.
    Excluded {
        /// The plugin that excludes it; none if no plugin gave a verdict.
        plugin: Option<String>,
        /// Why.
        reason: Reason,
    },
}

impl CachedQuestion for Inputs {
    const POINT: PolicyPoint = PolicyPoint::RuntimeSelection;
    type Answer = Selection;

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn now(&self) -> Option<u64> {
        self.now
    }

    #[deny(unused_variables)]
    fn digest(&self) -> Digest {
        let Self { subject, model, candidates, named, accelerators, demands, current, facts, now: _ } = self;
        let named = marker(&[u8::from(*named)]);
        let shared = [subject.digest(), model.digest(), candidates.digest(), &named, accelerators.digest()];
        Digest::of_all(shared.into_iter().chain([demands.digest(), current.digest(), facts.digest()]))
    }

    fn answer(&self, pinned: &Pinned<'_>, chain: &[Arc<Member>]) -> Result<Selection, Fault> {
        let mut verdicts = Vec::with_capacity(chain.len());
        for (at, member) in chain.iter().enumerate() {
            let verdict = pinned.judge(member, self).map_err(|error| Fault { at, error })?;
            verdicts.push((member, verdict));
        }
        Ok(combine(self, verdicts))
    }
}

impl Pinned<'_> {
    /// Evaluates and ranks the runtimes.
    pub fn select(&self, inputs: &Inputs) -> Result<Arc<Decision<Selection>>, Undecided> {
        self.decide(inputs)
    }

    fn judge(&self, member: &Member, inputs: &Inputs) -> Result<Vec<Verdict>, pointsman_sandbox::call::CallError> {
        let now = inputs.now_for(member);
        self.call(Inputs::POINT, member, inputs.subject(), |plugin| plugin.judge(RequestRef { now, ..inputs.request() }))
    }
}

/// A single exclusion excludes; scores are weighted and summed, and tie-breaks are concatenated.
fn combine(inputs: &Inputs, verdicts: Vec<(&Arc<Member>, Vec<Verdict>)>) -> Selection {
    let mut judged: Vec<Option<Judged>> = vec![None; inputs.candidates.len()];
    let mut shares = Vec::new();
    for (member, verdicts) in verdicts {
        shares.extend(share(member, &verdicts));
        for (judged, verdict) in judged.iter_mut().zip(verdicts) {
            match (judged.as_mut(), verdict) {
                (Some(Judged::Excluded { .. }), _) | (_, Verdict::Abstain) => {}
                (_, Verdict::Excluded(reason)) => {
                    *judged = Some(Judged::Excluded { plugin: Some(member.name().to_owned()), reason });
                }
                (Some(Judged::Eligible(sum)), Verdict::Eligible(eligible)) => {
                    sum.score += member.weight() * eligible.score;
                    sum.tie_break.extend(eligible.tie_break);
                    sum.reasons.extend(eligible.reasons);
                }
                (None, Verdict::Eligible(eligible)) => {
                    *judged = Some(Judged::Eligible(Eligible { score: member.weight() * eligible.score, ..eligible }));
                }
            }
        }
    }
    let nobody = || Judged::Excluded {
        plugin: None,
        reason: Reason { code: "NotJudged".to_owned(), message: "No plugin judges the runtime.".to_owned() },
    };
    let judged: Vec<Judged> = judged.into_iter().map(|judged| judged.unwrap_or_else(nobody)).collect();

    let eligible = |place: &usize| match &judged[*place] {
        Judged::Eligible(eligible) => Some(eligible),
        Judged::Excluded { .. } => None,
    };
    // The subject's own namespace first, then the score, then the tie-breaks.
    let merit = |a: &usize, b: &usize| -> Ordering {
        let own = |place: &usize| {
            let namespace = &inputs.candidates[*place].namespace;
            !namespace.is_empty() && *namespace == inputs.subject.namespace
        };
        let (Some(first), Some(second)) = (eligible(a), eligible(b)) else { return Ordering::Equal };
        own(b).cmp(&own(a)).then_with(|| compare(second.score, first.score)).then_with(|| {
            let pairs = first.tie_break.iter().zip(&second.tie_break);
            pairs.map(|(a, b)| compare(*a, *b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        })
    };
    let name = |place: &usize| {
        let Candidate { name, kind, namespace, .. } = &inputs.candidates[*place];
        (name, kind, namespace)
    };
    let mut ranking: Vec<usize> = (0..judged.len()).filter(|place| eligible(place).is_some()).collect();
    ranking.sort_by(|a, b| merit(a, b).then_with(|| name(a).cmp(&name(b))));
    let tie = matches!(&ranking[..], [first, second, ..] if merit(first, second).is_eq());
    Selection { judged, ranking, tie, shares }
}

/// A plugin's share of the scores, if it gives any.
fn share(member: &Member, verdicts: &[Verdict]) -> Option<ScoreShare> {
    let score = |verdict: &Verdict| match verdict {
        Verdict::Eligible(eligible) => Some(member.weight() * eligible.score),
        Verdict::Excluded(_) | Verdict::Abstain => None,
    };
    let scores: Vec<Option<f64>> = verdicts.iter().map(score).collect();
    scores.iter().any(Option::is_some).then(|| ScoreShare { plugin: member.name().to_owned(), scores })
}

/// A total order in which the two zeros are equal.
fn compare(a: f64, b: f64) -> Ordering {
    (a + 0.0).total_cmp(&(b + 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_crds::policy::set::PolicySetPlugin;
    use pointsman_sandbox::point::describe::Description;

    fn member(name: &str, weight: i32) -> Arc<Member> {
        let bound = PolicySetPlugin { name: name.to_owned(), weight, ..PolicySetPlugin::default() };
        Arc::new(Member::new(bound, Description::default(), None, None).unwrap())
    }

    fn eligible(score: f64, tie_break: &[f64]) -> Verdict {
        Verdict::Eligible(Eligible { score, tie_break: tie_break.to_vec(), ..Eligible::default() })
    }

    fn excluded(code: &str) -> Verdict {
        Verdict::Excluded(Reason { code: code.to_owned(), message: String::new() })
    }

    /// Combines verdicts on candidates with these namespaces and names, for a subject in `chat`.
    fn combined(candidates: &[(&str, &str)], verdicts: Vec<(&Arc<Member>, Vec<Verdict>)>) -> Selection {
        let candidate = |(namespace, name): &(&str, &str)| Candidate {
            namespace: (*namespace).to_owned(),
            name: (*name).to_owned(),
            ..Candidate::default()
        };
        let inputs = Inputs {
            subject: Digested::new(Subject { namespace: "chat".to_owned(), ..Subject::default() }).unwrap(),
            candidates: Digested::new(candidates.iter().map(candidate).collect()).unwrap(),
            ..Inputs::default()
        };
        combine(&inputs, verdicts)
    }

    #[test]
    fn one_exclusion_excludes_and_scores_are_weighed_and_added_up() {
        let (a, b) = (member("a", 1), member("b", 3));
        let all = [("", "x"), ("", "y"), ("", "z"), ("", "w")];
        let first = vec![eligible(500.0, &[]), eligible(1.0, &[]), Verdict::Abstain, Verdict::Abstain];
        let second = vec![excluded("No"), eligible(-2.0, &[]), eligible(2.0, &[]), Verdict::Abstain];
        let selection = combined(&all, vec![(&a, first), (&b, second)]);
        assert!(matches!(&selection.judged[0], Judged::Excluded { plugin: Some(plugin), reason } if plugin == "b" && reason.code == "No"));
        assert!(matches!(&selection.judged[1], Judged::Eligible(sum) if (sum.score + 5.0).abs() < f64::EPSILON));
        assert!(matches!(&selection.judged[3], Judged::Excluded { plugin: None, reason } if reason.code == "NotJudged"));
        assert_eq!((selection.ranking, selection.tie), (vec![2, 1], false));
        let shares: Vec<_> = selection.shares.iter().map(|share| (share.plugin.as_str(), share.scores.as_slice())).collect();
        assert_eq!(shares, [("a", &[Some(500.0), Some(1.0), None, None][..]), ("b", &[None, Some(-6.0), Some(6.0), None])]);
    }

    #[test]
    fn the_own_namespace_comes_first_then_scores_then_tie_breaks_then_names() {
        let a = member("a", 1);
        let ranked = |all: &[(&str, &str)], verdicts: Vec<Verdict>| {
            let selection = combined(all, vec![(&a, verdicts)]);
            (selection.ranking, selection.tie)
        };
        assert_eq!(ranked(&[("", "a"), ("chat", "b")], vec![eligible(9.0, &[]), eligible(1.0, &[])]), (vec![1, 0], false));
        assert_eq!(ranked(&[("", "a"), ("", "b")], vec![eligible(1.0, &[2.0]), eligible(1.0, &[1.0])]), (vec![1, 0], false));
        assert_eq!(ranked(&[("", "b"), ("", "a")], vec![eligible(0.0, &[]), eligible(-0.0, &[])]), (vec![1, 0], true));
        assert_eq!(ranked(&[("", "b"), ("other", "a")], vec![eligible(1.0, &[]), eligible(1.0, &[])]), (vec![1, 0], true));
    }
}

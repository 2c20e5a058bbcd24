//! One call of one plugin, in the JSON form of its policy point.

use pointsman_core::{
    decide::{member::Member, propagation, selection, templating},
    point::name,
};
use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::{
    call::{CallError, Spent},
    engine::Use,
    point::{
        self,
        scoring::{RequestRef, Scores, Term},
        selection::Verdict,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned, de::MapAccess};
use serde_json::{Map, Number, Value};
use std::time::{Duration, Instant};

/// The inputs of a call, by policy point.
#[derive(Debug)]
pub(super) enum Question {
    Selection(Box<selection::Inputs>),
    Templating(Box<templating::Inputs>),
    Propagation(Box<propagation::Inputs>),
    Scoring(Scoring),
}

/// The inputs at scheduling-scoring: for scores, or with a row for the explanation of its score.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scoring {
    question: point::Question,
    /// The length of a row; by default, the number of features that the plugin requests.
    columns: Option<u32>,
    /// The rows, one after the other; unknown values are null.
    #[serde(default)]
    matrix: Vec<Option<f64>>,
    row: Option<u32>,
}

impl Question {
    /// Parses it as the value of a map's field.
    pub(super) fn read<'de, M: MapAccess<'de>>(point: PolicyPoint, map: &mut M) -> Result<Self, M::Error> {
        Ok(match point {
            PolicyPoint::RuntimeSelection => Self::Selection(map.next_value()?),
            PolicyPoint::PodTemplating => Self::Templating(map.next_value()?),
            PolicyPoint::MetadataPropagation => Self::Propagation(map.next_value()?),
            PolicyPoint::SchedulingScoring => Self::Scoring(map.next_value()?),
        })
    }

    pub(super) fn parse(point: PolicyPoint, value: Value) -> serde_json::Result<Self> {
        Ok(match point {
            PolicyPoint::RuntimeSelection => Self::Selection(serde_json::from_value(value)?),
            PolicyPoint::PodTemplating => Self::Templating(serde_json::from_value(value)?),
            PolicyPoint::MetadataPropagation => Self::Propagation(serde_json::from_value(value)?),
            PolicyPoint::SchedulingScoring => Self::Scoring(serde_json::from_value(value)?),
        })
    }

    pub(super) fn point(&self) -> PolicyPoint {
        match self {
            Self::Selection(_) => PolicyPoint::RuntimeSelection,
            Self::Templating(_) => PolicyPoint::PodTemplating,
            Self::Propagation(_) => PolicyPoint::MetadataPropagation,
            Self::Scoring(_) => PolicyPoint::SchedulingScoring,
        }
    }

    /// A written answer in normal form: optional fields are omitted, and unknown fields are refused.
    pub(super) fn normal(&self, answer: Value) -> serde_json::Result<Value> {
        fn through<T: DeserializeOwned + Serialize>(answer: Value) -> serde_json::Result<Value> {
            serde_json::from_value::<T>(answer).and_then(serde_json::to_value).map(canonical)
        }
        match self {
            Self::Selection(_) => through::<Vec<Verdict>>(answer),
            Self::Templating(_) => through::<point::templating::Answer>(answer),
            Self::Propagation(_) => through::<point::propagation::Answer>(answer),
            Self::Scoring(Scoring { row: None, .. }) => through::<Scores>(answer),
            Self::Scoring(_) => through::<Vec<Term>>(answer),
        }
    }

    /// Calls the plugin as the host would if no other plugin were in the chain.
    pub(super) fn ask(&self, member: &Member) -> Result<Answered, CallError> {
        let point = self.point();
        if !member.bound.points.contains(&point) {
            return Err(CallError::NotAnswered(name(point)));
        }
        let plugin = member.plugin(match point {
            PolicyPoint::SchedulingScoring => Use::Hot,
            _ => Use::ControlPlane,
        })?;
        // A plugin that doesn't request the time doesn't get it.
        let wants_time = member.description.wants_time;
        match self {
            Self::Selection(inputs) => {
                let request = inputs.request();
                let now = request.now.filter(|_| wants_time);
                answered(|| plugin.judge(point::selection::RequestRef { now, ..request }), |answer| answer)
            }
            Self::Templating(inputs) => {
                let template = inputs.template.to_string();
                let request = inputs.request(&template);
                let now = request.now.filter(|_| wants_time);
                answered(|| plugin.template(point::templating::RequestRef { now, ..request }), |answer| answer)
            }
            Self::Propagation(inputs) => {
                let request = inputs.request(&inputs.labels, &inputs.annotations);
                let now = request.now.filter(|_| wants_time);
                answered(|| plugin.propagate(point::propagation::RequestRef { now, ..request }), |answer| answer)
            }
            Self::Scoring(scoring) => {
                let matrix: Vec<f64> = scoring.matrix.iter().map(|number| number.unwrap_or(f64::NAN)).collect();
                let request = scoring.request(member, &matrix)?;
                match scoring.row {
                    None => answered(|| plugin.score(request), Scores),
                    Some(row) => answered(|| plugin.explain(request, row), |answer| answer),
                }
            }
        }
    }
}

impl Scoring {
    /// The host passes exactly the columns that a plugin requests, in whole rows: other inputs are a mistake of the case.
    fn request<'a>(&self, member: &Member, matrix: &'a [f64]) -> Result<RequestRef<'a>, CallError> {
        let wanted = member.features(self.question);
        let columns = self.columns.unwrap_or(u32::try_from(wanted.len()).unwrap_or(u32::MAX));
        let length = columns as usize;
        let wrong = |sentence: String| Err(CallError::Nonsense(format!("no answer, because the request is invalid: {sentence}")));
        if length != wanted.len() {
            return wrong(format!("it has {length} columns, and the plugin requests {}: {}", wanted.len(), super::none_or(wanted)));
        }
        if matrix.len().checked_rem(length).unwrap_or(matrix.len()) != 0 {
            return wrong(format!("its {} numbers don't make rows of {length}", matrix.len()));
        }
        let request = RequestRef { question: self.question, columns, matrix, facts: &[] };
        if let Some(row) = self.row.filter(|row| *row as usize >= request.rows()) {
            return wrong(format!("the row {row} to explain doesn't exist: there are {}", request.rows()));
        }
        Ok(request)
    }
}

/// An answer, and its cost.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) value: Value,
    pub(super) spent: Spent,
    /// The duration of the call, including the instantiation.
    pub(super) took: Duration,
}

/// Only the call is timed, not the conversion.
fn answered<Answer, Image: Serialize>(
    ask: impl FnOnce() -> Result<(Answer, Spent), CallError>,
    image: impl FnOnce(Answer) -> Image,
) -> Result<Answered, CallError> {
    let started = Instant::now();
    let (answer, spent) = ask()?;
    let took = started.elapsed();
    let value = serde_json::to_value(image(answer));
    let value = value.map_err(|error| CallError::Nonsense(format!("it has no image in JSON: {error}")))?;
    Ok(Answered { value: canonical(value), spent, took })
}

/// The normal form of a value: sorted keys, and numbers by value, so that 20 and 20.0 are equal.
fn canonical(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(whole(&number).unwrap_or(number)),
        Value::Array(items) => items.into_iter().map(canonical).collect(),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.into_iter().map(|(name, value)| (name, canonical(value))).collect();
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(Map::from_iter(fields))
        }
        other => other,
    }
}

/// The whole number of a float without a fraction.
#[allow(clippy::cast_possible_truncation, reason = "checked: it is whole, and smaller than 2^53")]
fn whole(number: &Number) -> Option<Number> {
    let value = number.as_f64().filter(|value| number.is_f64() && value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0)?;
    Some((value as i64).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_values_have_one_form() {
        assert_eq!(canonical(json!({"b": [20.0, -0.0, 0.5], "a": null})).to_string(), r#"{"a":null,"b":[20,0,0.5]}"#);
        assert_eq!(canonical(json!(1e300)).to_string(), "1e+300");
    }

    #[test]
    fn an_answer_may_leave_out_what_is_empty_and_must_not_have_unknown_fields() {
        let question = |value| Question::parse(PolicyPoint::MetadataPropagation, value).unwrap();
        let question = question(json!({"subject": {}, "target": {}, "layers": []}));
        let full = question.normal(json!({"labels": [], "annotations": [], "dropped": [], "reasons": []})).unwrap();
        assert_eq!(full, question.normal(json!({})).unwrap());
        assert!(question.normal(json!({"lables": []})).unwrap_err().to_string().contains("unknown field `lables`"));
    }

    #[test]
    fn nan_is_null_among_scores() {
        let question = Question::parse(PolicyPoint::SchedulingScoring, json!({"question": "endpoint-pick", "matrix": [1, null]})).unwrap();
        assert_eq!(question.normal(json!([null, 1.0])).unwrap(), json!([null, 1]));
    }
}

//! Features of nodes that an administrator defines by CEL expressions. They are evaluated in the sandbox, like rules, and only after a
//! change that an expression can read.

use super::counts::ExtenderCounts;
use pointsman_core::{placement::settings::CustomFeature, rules::rule::Flaw};
use pointsman_sandbox::{
    call::CallError,
    evaluator::{Evaluator, ExpressionId, Named, Problem, Program, Source},
    sync::locked,
    text::printable_line,
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

/// The root that expressions read.
const ROOT: &str = "node";

/// The fields of a node that expressions don't see: they change all the time, or are most of its bytes.
const HIDDEN_METADATA: [&str; 2] = ["managedFields", "resourceVersion"];
const HIDDEN_STATUS: [&str; 3] = ["images", "volumesAttached", "volumesInUse"];
const HIDDEN_CONDITION: [&str; 2] = ["lastHeartbeatTime", "lastTransitionTime"];

/// The features, compiled.
#[derive(Debug)]
pub(crate) struct CompiledFeatures {
    names: Vec<String>,
    /// One lookup of it per feature.
    program: Program,
    evaluator: Arc<Evaluator>,
    counts: Arc<ExtenderCounts>,
    /// The features whose failure was logged: one node is enough to find the mistake.
    complained: Mutex<BTreeSet<usize>>,
}

impl CompiledFeatures {
    /// Compiles expressions, or returns which one is wrong and why. Blocks for some milliseconds.
    pub(crate) fn new(features: &[CustomFeature], evaluator: Arc<Evaluator>, counts: Arc<ExtenderCounts>) -> Result<Self, String> {
        let source = source(features);
        match evaluator.inspect(&source) {
            Ok(Ok(_)) => {}
            Ok(Err(problems)) => return Err(sentences(features, &problems)),
            Err(error) => return Err(format!("features: the expressions can't be compiled: {error}")),
        }
        let names = features.iter().map(|feature| feature.name.clone()).collect();
        Ok(Self { names, program: Program::new(source), evaluator, counts, complained: Mutex::default() })
    }

    /// The values on a node, given as JSON text; NaN if an expression has none. Blocks.
    pub(crate) fn values(&self, node: &str, text: Arc<str>) -> Vec<f64> {
        let mut asking = match self.evaluator.ask() {
            Ok(asking) => asking,
            Err(error) => {
                self.complain(0, node, &error.to_string());
                return vec![f64::NAN; self.names.len()];
            }
        };
        asking.bind(ROOT, text);
        let value = |at: usize| {
            let lookup = u32::try_from(at).unwrap_or(u32::MAX);
            number(asking.look_up(&self.program, lookup)).unwrap_or_else(|why| {
                self.complain(at, node, &why);
                f64::NAN
            })
        };
        (0..self.names.len()).map(value).collect()
    }

    fn complain(&self, at: usize, node: &str, why: &str) {
        let Some(feature) = self.names.get(at) else { return };
        self.counts.feature_failed(feature);
        if locked(&self.complained).insert(at) {
            tracing::warn!(
                feature,
                node,
                "the feature has no value on the node and counts as unknown there; further nodes aren't logged: {why}"
            );
        }
    }
}

fn source(features: &[CustomFeature]) -> Source {
    let named = |feature: &CustomFeature| Named { name: feature.name.clone(), expression: feature.expression.clone() };
    Source { roots: vec![ROOT.to_owned()], lookups: features.iter().map(named).collect(), ..Source::default() }
}

fn sentences(features: &[CustomFeature], problems: &[Problem]) -> String {
    let one = |problem: &Problem| {
        let at = match problem.part {
            ExpressionId::Lookup(at) => usize::try_from(at).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        let name = features.get(at).map_or("", |feature| feature.name.as_str());
        let (field, at) = (format!("features[{name}].expression"), (problem.line, problem.column));
        Flaw { field, at, message: printable_line(&problem.message) }.to_string()
    };
    problems.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The number that an expression returns.
fn number(answer: Result<Result<String, Problem>, CallError>) -> Result<f64, String> {
    let text = answer.map_err(|error| error.to_string())?.map_err(|problem| printable_line(&problem.message))?;
    match serde_json::from_str(&text) {
        Ok(Value::Number(number)) => number.as_f64().filter(|number| number.is_finite()).ok_or_else(|| format!("{text} is too large")),
        Ok(Value::Bool(holds)) => Ok(f64::from(u8::from(holds))),
        // The expression returns that the value is unknown.
        Ok(Value::Null) => Ok(f64::NAN),
        _ => Err("its value is neither a number nor a bool".to_owned()),
    }
}

/// A node without the fields that expressions don't see.
pub(crate) fn visible(mut node: Value) -> Value {
    let mut remove = |pointer: &str, fields: &[&str]| {
        if let Some(Value::Object(object)) = node.pointer_mut(pointer) {
            for field in fields {
                object.remove(*field);
            }
        }
    };
    remove("/metadata", &HIDDEN_METADATA);
    remove("/status", &HIDDEN_STATUS);
    let conditions = node.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        for field in HIDDEN_CONDITION {
            condition.remove(field);
        }
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn features(expressions: &[(&str, &str)]) -> Vec<CustomFeature> {
        expressions.iter().map(|(name, expression)| CustomFeature { name: (*name).into(), expression: (*expression).into() }).collect()
    }

    #[test]
    fn an_expression_gives_a_number_a_truth_value_or_nothing() {
        let value = |text: &str| number(Ok(Ok(text.to_owned())));
        assert_eq!((value("1.5"), value("-3"), value("true")), (Ok(1.5), Ok(-3.0), Ok(1.0)));
        assert!(value("null").unwrap().is_nan());
        assert!(value("\"7\"").is_err() && value("\"NaN\"").is_err() && value("[]").is_err());
        assert!(number(Err(CallError::Busy)).is_err());
    }

    #[test]
    fn a_mistake_is_told_with_the_feature_and_its_place() {
        let problem = |at, line| Problem { part: ExpressionId::Lookup(at), line, column: 6, message: "no such function".to_owned() };
        let features = features(&[("node.a", "1"), ("node.b", "node.x()")]);
        assert_eq!(source(&features).lookups[1].expression, "node.x()");
        assert_eq!(sentences(&features, &[problem(1, 1)]), "features[node.b].expression: column 6: no such function");
        assert_eq!(sentences(&features, &[problem(0, 0)]), "features[node.a].expression: no such function");
    }

    #[test]
    fn heartbeats_and_images_are_no_change() {
        let node = |beat: &str, version: &str| {
            json!({
                "metadata": {"name": "a", "resourceVersion": version, "labels": {"x": "y"}, "managedFields": [{}]},
                "spec": {"unschedulable": true},
                "status": {"images": [{"names": ["i"]}], "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}]},
            })
        };
        let seen = visible(node("1", "1"));
        assert_eq!(seen, visible(node("2", "2")));
        let expected = json!({
            "metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        assert_eq!(seen, expected);
        assert_eq!(visible(json!({})), json!({}));
    }
}

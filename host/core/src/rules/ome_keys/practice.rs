//! The checks that the shipped practices take from the tables.

use super::{
    ANNOTATIONS, ANNOTATIONS_OF_BENCHMARKS, Annotation, Format, LABELS, LABELS_OF_BENCHMARKS, TRAINING_ANNOTATIONS, TRAINING_LABELS,
};
use pointsman_crds::policy::rule::{Validation, Variable};
use serde::Deserialize;
use std::collections::BTreeSet;

/// A practice that checks values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::rules) enum Practice {
    /// How a service is deployed and scaled.
    Scaling,
    /// The settings of the engines.
    Engines,
    /// Security, storage, monitoring and the cloud.
    Pods,
    /// The annotations that training jobs pass to their containers. The practice has its own checks.
    Jobs,
}

impl Practice {
    /// The variables and validations of the practice, one of each per format. They need a variable `annotations`: a list of annotations,
    /// each with its `key`, its `value`, its `place`, and its `text`, with which a message begins.
    pub(in crate::rules) fn checks(self) -> Vec<(Variable, Validation)> {
        let all = ANNOTATIONS.iter().filter_map(|annotation| {
            let (practice, format) = annotation.format?;
            (practice == self).then_some((annotation, format))
        });
        let mut checks: Vec<(Format, Vec<&Annotation>)> = Vec::new();
        for (annotation, format) in all {
            match checks.iter_mut().find(|(known, _)| known.name == format.name) {
                Some((_, annotations)) => annotations.push(annotation),
                None => checks.push((format, vec![annotation])),
            }
        }
        checks.into_iter().map(|(format, annotations)| check(format, &annotations)).collect()
    }
}

/// Checks the format of all its annotations together. The format of an annotation with a guard belongs only to that annotation.
fn check(format: Format, annotations: &[&Annotation]) -> (Variable, Validation) {
    let keys: Vec<&str> = annotations.iter().map(|annotation| annotation.key).collect();
    let keys = match &keys[..] {
        [key] => format!("s.key == '{key}'"),
        keys => format!("s.key in ['{}']", keys.join("', '")),
    };
    let guard = annotations.iter().find_map(|annotation| annotation.guard).map(|guard| format!(" && {guard}")).unwrap_or_default();
    let (name, refused, must) = (format.name, format.refused(), format.must());
    let variable = Variable { name: name.to_owned(), expression: format!("variables.annotations.filter(s, {keys}{guard} && {refused})") };
    let validation = Validation {
        expression: format!("variables.{name}.size() == 0"),
        message_expression: Some(format!("variables.{name}.map(s, s.text).join(', ') + ', but {must}'")),
        ..Validation::default()
    };
    (variable, validation)
}

/// The names of all labels, and of all annotations, under OME's own prefixes: two CEL maps from a prefix to its names.
pub(in crate::rules) fn keys_by_prefix() -> [String; 2] {
    let labels: Vec<&str> = LABELS.iter().chain(&TRAINING_LABELS).map(|label| label.key).chain(LABELS_OF_BENCHMARKS).collect();
    let annotations = ANNOTATIONS.iter().chain(&TRAINING_ANNOTATIONS).map(|annotation| annotation.key);
    let annotations: Vec<&str> = annotations.chain(ANNOTATIONS_OF_BENCHMARKS).collect();
    let split = |key: &&'static str| key.split_once('/').filter(|(prefix, _)| prefix.ends_with(".ome.io"));
    let prefixes: BTreeSet<&str> = labels.iter().chain(&annotations).filter_map(split).map(|(prefix, _)| prefix).collect();
    [labels, annotations].map(|keys| {
        let names = |prefix: &&str| {
            let names: Vec<String> =
                keys.iter().filter_map(split).filter(|(of, _)| of == prefix).map(|(_, name)| format!("'{name}'")).collect();
            format!("'{prefix}': [{}]", names.join(", "))
        };
        format!("{{{}}}", prefixes.iter().map(names).collect::<Vec<_>>().join(", "))
    })
}

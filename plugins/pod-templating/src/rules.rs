//! What differs from one kind of service to another.

use crate::{Config, eh_ops, kserve, ome, pod::Pod};
use pointsman_plugin::{Failure, Reason, Role, Subject, pod_templating::Request};

/// The rules for the pods of one kind.
#[derive(Debug)]
pub(crate) struct Rules {
    /// What the main container is called where nobody names it.
    pub(crate) main: &'static str,
    /// Whether another container is the main one where none is called so.
    pub(crate) lenient: bool,
    /// Whether a layer has a say in the spec of a pod of that role.
    pub(crate) speaks: fn(&str, Role) -> bool,
    /// The sentence for a main container without an image, which goes by that name. The cluster's own names no cause.
    pub(crate) no_image: fn(&Request, &str) -> String,
    /// What is added to the merged layers.
    pub(crate) finish: fn(&Config, &Request, &mut Pod<'_>, &mut Vec<Reason>) -> Result<(), Failure>,
}

impl Rules {
    pub(crate) fn for_subject(subject: &Subject) -> &'static Self {
        match (&*subject.group, &*subject.kind) {
            ("serving.kserve.io", "LLMInferenceService") => &kserve::RULES,
            ("inference.eh-ops.io", "InferenceModel") => &eh_ops::RULES,
            ("ome.io", "BenchmarkJob") => &ome::benchmark::RULES,
            ("ome.io", "TrainingJob") => &ome::training::RULES,
            _ => &ome::RULES,
        }
    }
}

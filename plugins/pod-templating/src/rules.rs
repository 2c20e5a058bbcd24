//! The differences between the kinds of services.

use crate::{Config, eh_ops, kserve, ome, pod::Pod};
use pointsman_plugin::{Failure, Reason, Role, Subject, pod_templating::Request};

/// The rules for the pods of one kind.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The default name of the main container.
    pub(crate) main: &'static str,
    /// Whether another container is the main one if none has that name.
    pub(crate) lenient: bool,
    /// Whether a layer applies to the spec of a pod with that role.
    pub(crate) speaks: fn(&str, Role) -> bool,
    /// The error for a main container without an image. The cluster's own error names no cause.
    pub(crate) no_image: fn(&Request, &str) -> String,
    /// Completes the merged pod.
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

//! The kinds of subjects, as data for all modules below `kinds`, which builds the plans.

use crate::resource::{
    BASE_MODEL, BENCHMARK_JOB, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, INFERENCE_MODEL, INFERENCE_SERVICE, LLM_CONFIG,
    LLM_INFERENCE_SERVICE, OF_PLANS, Resource, SERVING_RUNTIME, TRAINING_JOB,
};
use std::sync::LazyLock;

/// The data of a kind of subjects.
#[derive(Debug)]
pub struct SubjectKind {
    /// Its resource in the API.
    pub resource: &'static Resource,
    /// Its short names for kubectl, in addition to kind and plural.
    pub short_names: &'static [&'static str],
    /// Its name in messages.
    pub noun: &'static str,
    /// The labels with the subject and the component of a pod.
    pub pod_labels: PodLabels,
    /// The kinds that its plans read, in addition to its own objects: all must be listed before anything is planned.
    pub reads: &'static [&'static Resource],
    /// The container that a layer means if it names none.
    pub main_container: MainContainer,
    /// Whether its subjects compete for the memory of nodes: none is planned before the allocation has decided.
    pub competes: bool,
    /// The labels of its objects that are copied to subjects for selectors, according to OME's labels page.
    pub selector_labels: &'static [&'static str],
}

/// The label keys for finding pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodLabels {
    /// The key of the label with the subject's name.
    pub subject: &'static str,
    /// The key of the label with the component's name.
    pub component: &'static str,
}

/// How the main container is identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MainContainer {
    /// Its default name.
    pub name: &'static str,
    /// Whether a single container with another name, or the runner's, is the main container too.
    pub may_be_renamed: bool,
}

/// The label of every object that we create, and of every pod: its value is the kind of the subject. Only objects with this label are
/// watched. It never changes, so it never causes a restart.
pub const SUBJECT_KIND: &str = "pointsman.dev/subject-kind";

/// The labels with the subject and the component of an `InferenceService`'s pods.
pub const SUBJECT: &str = "serving.ome.io/inferenceservice";
/// See [`SUBJECT`].
pub const COMPONENT: &str = "serving.ome.io/component";

/// The labels with the subject and the component of the pods of an `LLMInferenceService` or an `InferenceModel`, by which upstream selects
/// them. [`SUBJECT_KIND`] distinguishes the two.
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// See [`APP_NAME`].
pub const APP_COMPONENT: &str = "app.kubernetes.io/component";

/// The default name of the main container in an `InferenceService`'s pods.
pub const OME_CONTAINER: &str = "ome-container";

/// The main container in an `InferenceModel`'s pod.
pub const INFERENCE_CONTAINER: &str = "inference";

/// The labels with the subject and the component of a `BenchmarkJob`'s pods: there is only one component.
pub const BENCHMARK_NAME: &str = "benchmark.ome.io/job-name";

/// The main container in a `BenchmarkJob`'s pod.
pub const BENCHMARK_CONTAINER: &str = "genai-bench";

/// The labels with the subject and the replica type (launcher or worker) of a `TrainingJob`'s pods.
pub const TRAINING_JOB_NAME: &str = "training.ome.io/job-name";
/// The label with the uid of an object's TrainingJob.
pub const TRAINING_JOB_UID: &str = "training.ome.io/job-uid";

/// See [`TRAINING_JOB_NAME`].
pub const REPLICA_TYPE: &str = "training.ome.io/replica-type";

/// The main container in a `TrainingJob`'s pods; if there is none with this name, it is the first one.
pub const TRAINER_CONTAINER: &str = "trainer";

/// All kinds of subjects: a new one needs an entry here and one in `kinds`.
pub static SUBJECT_KINDS: [SubjectKind; 5] = [
    SubjectKind {
        resource: &INFERENCE_SERVICE,
        short_names: &["isvc"],
        noun: "service",
        pod_labels: PodLabels { subject: SUBJECT, component: COMPONENT },
        reads: &[&BASE_MODEL, &CLUSTER_BASE_MODEL, &SERVING_RUNTIME, &CLUSTER_SERVING_RUNTIME],
        main_container: MainContainer { name: OME_CONTAINER, may_be_renamed: true },
        competes: false,
        selector_labels: &[
            "model.ome.io/format",
            "model.ome.io/name",
            "model.ome.io/size",
            "model.ome.io/type",
            "model.ome.io/vendor",
            "ome.io/managed-by",
            "serving.ome.io/model",
            "serving.ome.io/runtime",
        ],
    },
    SubjectKind {
        resource: &LLM_INFERENCE_SERVICE,
        short_names: &["llmisvc"],
        noun: "service",
        pod_labels: PodLabels { subject: APP_NAME, component: APP_COMPONENT },
        reads: &[&LLM_CONFIG],
        main_container: MainContainer { name: "main", may_be_renamed: false },
        competes: false,
        selector_labels: &[],
    },
    SubjectKind {
        resource: &INFERENCE_MODEL,
        short_names: &["infmodel"],
        noun: "model",
        pod_labels: PodLabels { subject: APP_NAME, component: APP_COMPONENT },
        reads: &[],
        main_container: MainContainer { name: INFERENCE_CONTAINER, may_be_renamed: false },
        competes: true,
        selector_labels: &[],
    },
    SubjectKind {
        resource: &BENCHMARK_JOB,
        short_names: &["bmj"],
        noun: "benchmark",
        pod_labels: PodLabels { subject: BENCHMARK_NAME, component: APP_COMPONENT },
        reads: &[&BASE_MODEL, &CLUSTER_BASE_MODEL, &SERVING_RUNTIME, &CLUSTER_SERVING_RUNTIME],
        main_container: MainContainer { name: BENCHMARK_CONTAINER, may_be_renamed: false },
        competes: false,
        selector_labels: &["benchmark.ome.io/target-service", "ome.io/managed-by"],
    },
    SubjectKind {
        resource: &TRAINING_JOB,
        short_names: &["tjob"],
        noun: "training job",
        pod_labels: PodLabels { subject: TRAINING_JOB_NAME, component: REPLICA_TYPE },
        reads: &[],
        main_container: MainContainer { name: TRAINER_CONTAINER, may_be_renamed: true },
        competes: false,
        selector_labels: &["ome.io/managed-by", "training.ome.io/framework"],
    },
];

impl SubjectKind {
    /// The kind of subjects with this resource.
    pub fn find(resource: &Resource) -> Option<&'static Self> {
        SUBJECT_KINDS.iter().find(|kind| kind.resource == resource)
    }

    /// The kind of subjects with this group and kind.
    pub fn find_by_name(group: &str, kind: &str) -> Option<&'static Self> {
        SUBJECT_KINDS.iter().find(|known| known.resource.group == group && known.resource.kind == kind)
    }

    /// The kind of subjects for a word: its kind, plural or short name, with or without the group.
    pub fn parse(word: &str) -> Option<&'static Self> {
        let (word, group) = word.split_once('.').unwrap_or((word, ""));
        let kind = SUBJECT_KINDS.iter().find(|kind| kind.words().any(|known| known.eq_ignore_ascii_case(word)))?;
        (group.is_empty() || group == kind.resource.group).then_some(kind)
    }

    fn words(&self) -> impl Iterator<Item = &'static str> {
        [self.resource.kind, self.resource.plural].into_iter().chain(self.short_names.iter().copied())
    }

    /// All kinds of subjects, for a message with the valid names.
    pub fn list() -> String {
        let of_kind = |kind: &Self| format!("{} ({})", kind.resource.kind, kind.words().skip(1).collect::<Vec<_>>().join(", "));
        SUBJECT_KINDS.iter().map(of_kind).collect::<Vec<_>>().join(" or ")
    }
}

/// All kinds in the world.
pub static ALL: LazyLock<Vec<&'static Resource>> =
    LazyLock::new(|| OF_PLANS.iter().copied().chain(SUBJECT_KINDS.iter().map(|kind| kind.resource)).collect());

impl Resource {
    /// The kind in the world with this apiVersion and kind.
    pub fn find(api_version: &str, kind: &str) -> Option<&'static Self> {
        ALL.iter().copied().find(|resource| resource.kind == kind && resource.api_version() == api_version)
    }

    /// The name of its objects in messages.
    pub fn noun(&self) -> &'static str {
        SubjectKind::find(self).map_or("object", |kind| kind.noun)
    }

    /// Whether its objects are subjects.
    pub fn is_subject(&self) -> bool {
        SubjectKind::find(self).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{DEPLOYMENT, SERVICE};

    #[test]
    fn a_kind_is_found_by_each_of_its_words() {
        for word in ["isvc", "InferenceService", "inferenceservices", "inferenceservices.ome.io"] {
            assert_eq!(SubjectKind::parse(word).unwrap().resource, &INFERENCE_SERVICE, "{word}");
        }
        for word in ["", "Deployment", "inferenceservices.serving.kserve.io"] {
            assert!(SubjectKind::parse(word).is_none(), "{word}");
        }
        assert!(SubjectKind::list().starts_with("InferenceService (inferenceservices, isvc) or LLMInferenceService ("));
    }

    #[test]
    fn no_two_kinds_share_a_word() {
        for (at, kind) in SUBJECT_KINDS.iter().enumerate() {
            for other in &SUBJECT_KINDS[at + 1..] {
                assert!(
                    kind.words().all(|word| other.words().all(|known| known != word)),
                    "{} {}",
                    kind.resource.kind,
                    other.resource.kind
                );
            }
        }
    }

    #[test]
    fn a_kind_is_found_by_what_an_object_says() {
        assert_eq!(Resource::find("apps/v1", "Deployment"), Some(&DEPLOYMENT));
        assert_eq!(Resource::find("v1", "Service"), Some(&SERVICE));
        assert_eq!(Resource::find("apps/v2", "Deployment"), None);
    }
}

//! The kinds of subject, as data: what everything below the kinds knows of each. What becomes of a subject is in `kinds`.

use crate::resource::{
    BASE_MODEL, BENCHMARK_JOB, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, INFERENCE_MODEL, INFERENCE_SERVICE, LLM_CONFIG,
    LLM_INFERENCE_SERVICE, OF_PLANS, Resource, SERVING_RUNTIME, TRAINING_JOB,
};
use std::sync::LazyLock;

/// What is known of a kind of subject without planning one.
#[derive(Debug)]
pub struct SubjectKind {
    /// Its kind of object.
    pub resource: &'static Resource,
    /// What kubectl calls it beside its kind and its plural.
    pub short_names: &'static [&'static str],
    /// What messages call one.
    pub noun: &'static str,
    /// The labels that say which subject a pod belongs to, and as which component.
    pub pod_labels: PodLabels,
    /// The kinds of object that its plans read, beside what is made for it: each must have been listed before anything is planned.
    pub reads: &'static [&'static Resource],
    /// The container that a layer means which names none.
    pub main_container: MainContainer,
    /// Whether its subjects compete for the memory of nodes: none is planned before the allocation has decided about it.
    pub competes: bool,
    /// The labels of its objects by which people select its subjects too, as OME's labels page lists them.
    pub selector_labels: &'static [&'static str],
}

/// The labels by which pods are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodLabels {
    /// The key whose value is the subject's name.
    pub subject: &'static str,
    /// The key whose value is the component's name.
    pub component: &'static str,
}

/// Which container is the main one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MainContainer {
    /// Its name, where nobody gives it another.
    pub name: &'static str,
    /// Whether a single container of another name, or the runner's, is the main one too.
    pub may_be_renamed: bool,
}

/// The label that every object which we make carries, and every pod: its value is the kind of the subject. Only what has it is
/// watched. It never changes, so it never restarts a pod.
pub const SUBJECT_KIND: &str = "pointsman.dev/subject-kind";

/// The labels by which the subject and the component of an `InferenceService`'s pods are known.
pub const SUBJECT: &str = "serving.ome.io/inferenceservice";
/// See [`SUBJECT`].
pub const COMPONENT: &str = "serving.ome.io/component";

/// The labels by which the subject and the component of an `LLMInferenceService`'s pods are known, and of an `InferenceModel`'s: upstream
/// selects by them. Which of the two it is, [`SUBJECT_KIND`] says.
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// See [`APP_NAME`].
pub const APP_COMPONENT: &str = "app.kubernetes.io/component";

/// The main container of an `InferenceService`'s pods, unless a runner has another.
pub const OME_CONTAINER: &str = "ome-container";

/// The container that serves in an `InferenceModel`'s pod.
pub const INFERENCE_CONTAINER: &str = "inference";

/// The labels by which the subject and the component of a `BenchmarkJob`'s pods are known: the subject has one component.
pub const BENCHMARK_NAME: &str = "benchmark.ome.io/job-name";

/// The container that measures, in a `BenchmarkJob`'s pod.
pub const BENCHMARK_CONTAINER: &str = "genai-bench";

/// The labels by which the subject and the kind of replica (launcher or worker) of a `TrainingJob`'s pods are known.
pub const TRAINING_JOB_NAME: &str = "training.ome.io/job-name";
/// The label with the uid of the TrainingJob that an object belongs to.
pub const TRAINING_JOB_UID: &str = "training.ome.io/job-uid";

/// See [`TRAINING_JOB_NAME`].
pub const REPLICA_TYPE: &str = "training.ome.io/replica-type";

/// The container that trains, or launches, in a `TrainingJob`'s pods, unless there is none of this name: then the first.
pub const TRAINER_CONTAINER: &str = "trainer";

/// All of them: a further kind is a line here, and one in `kinds`.
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
    /// The one of a kind of object.
    pub fn find(resource: &Resource) -> Option<&'static Self> {
        SUBJECT_KINDS.iter().find(|kind| kind.resource == resource)
    }

    /// The one that a group and a kind name.
    pub fn find_by_name(group: &str, kind: &str) -> Option<&'static Self> {
        SUBJECT_KINDS.iter().find(|known| known.resource.group == group && known.resource.kind == kind)
    }

    /// The one that people mean by a word: its kind, its plural or a short name, with or without the group.
    pub fn parse(word: &str) -> Option<&'static Self> {
        let (word, group) = word.split_once('.').unwrap_or((word, ""));
        let kind = SUBJECT_KINDS.iter().find(|kind| kind.words().any(|known| known.eq_ignore_ascii_case(word)))?;
        (group.is_empty() || group == kind.resource.group).then_some(kind)
    }

    fn words(&self) -> impl Iterator<Item = &'static str> {
        [self.resource.kind, self.resource.plural].into_iter().chain(self.short_names.iter().copied())
    }

    /// All of them, for a message that lists what may be named.
    pub fn list() -> String {
        let of_kind = |kind: &Self| format!("{} ({})", kind.resource.kind, kind.words().skip(1).collect::<Vec<_>>().join(", "));
        SUBJECT_KINDS.iter().map(of_kind).collect::<Vec<_>>().join(" or ")
    }
}

/// All kinds of object that the world holds.
pub static ALL: LazyLock<Vec<&'static Resource>> =
    LazyLock::new(|| OF_PLANS.iter().copied().chain(SUBJECT_KINDS.iter().map(|kind| kind.resource)).collect());

impl Resource {
    /// The one that an object says it is of, among those that the world holds.
    pub fn find(api_version: &str, kind: &str) -> Option<&'static Self> {
        ALL.iter().copied().find(|resource| resource.kind == kind && resource.api_version() == api_version)
    }

    /// What messages call one of its objects.
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

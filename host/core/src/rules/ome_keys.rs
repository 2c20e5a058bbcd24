//! Tables of the labels and annotations of OME's page that apply to an InferenceService or a TrainingJob. The host parses values with them,
//! the practices take their checks from them (`shipped`), and `cargo xtask generate` writes them to docs/labels-and-annotations.md.

#[cfg(test)]
mod document;
mod format;
mod practice;

use crate::subject_kind::{REPLICA_TYPE, TRAINING_JOB_NAME};
pub use format::{Format, percent, replicas};
pub(super) use practice::{Practice, keys_by_prefix};

use format::{
    DECIMAL_FROM_CENT, DELAY, FRACTION, NAME, NOT_BLANK, PATH, PERCENT, PORT, REPLICAS, SIZE, STORAGE_LOCATION, WHOLE, WORD, one_of,
};

/// A label. The host or the policies at metadata-propagation write all of them.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    pub key: &'static str,
    /// Whether objects have it.
    pub objects: bool,
    /// Whether pods have it.
    pub pods: bool,
    /// Whether a training job's objects or pods have it.
    pub jobs: bool,
    /// Its meaning, for the document.
    pub about: &'static str,
}

/// The part of Pointsman that evaluates an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    Host,
    /// The policies at pod-templating, which get it in their layer `settings`. It is about the model: a router has no model, so only the
    /// router's own annotation applies to it.
    ModelPolicies,
    /// The same policies, but the annotation applies to the pods of all components.
    PodPolicies,
    /// None: the host writes it.
    Nobody,
}

/// An annotation.
#[derive(Clone, Copy, Debug)]
pub struct Annotation {
    pub key: &'static str,
    pub reader: Reader,
    /// Whether it is propagated to objects.
    pub objects: bool,
    /// Whether it is propagated to pods.
    pub pods: bool,
    /// Whether it also applies to a training job.
    pub jobs: bool,
    /// The format of its values, and the practice that warns about other values; none if any value is accepted.
    format: Option<(Practice, Format)>,
    /// A description of its values, if there is a better one than the format's.
    what: Option<&'static str>,
    /// A CEL expression that limits the cases that the practice warns about.
    guard: Option<&'static str>,
    /// Its effect, for the document.
    pub about: &'static str,
    /// A value that changes the plan, as a case for tests, and the annotations that it requires.
    pub example: (&'static str, &'static [(&'static str, &'static str)]),
    /// A value that is rejected.
    pub wrong: Option<&'static str>,
}

impl Annotation {
    /// A description of the valid values, for messages.
    pub fn what(&self) -> String {
        let format = self.format.map(|(_, format)| format.what());
        self.what.map(str::to_owned).or(format).unwrap_or_default()
    }

    /// Whether a value is valid.
    pub fn accepts(&self, value: &str) -> bool {
        self.format.is_none_or(|(_, format)| format.accepts(value))
    }

    /// The value, if the format is a list of words and contains it.
    pub fn word(&self, value: &str) -> Option<&'static str> {
        self.format.and_then(|(_, format)| format.word(value))
    }

    /// An annotation that accepts any value, isn't propagated and doesn't apply to training jobs.
    const fn new(key: &'static str, reader: Reader, about: &'static str, example: &'static str) -> Self {
        let (objects, pods, jobs) = (false, false, false);
        Self { key, reader, objects, pods, jobs, format: None, what: None, guard: None, about, example: (example, &[]), wrong: None }
    }

    /// The annotation applies to training jobs and to services.
    const fn on_jobs(self) -> Self {
        Self { jobs: true, ..self }
    }

    const fn carried(self, objects: bool, pods: bool) -> Self {
        Self { objects, pods, ..self }
    }

    /// Values have a format: the practice warns about all others, such as `wrong`, and the reader rejects them.
    const fn format(self, practice: Practice, format: Format, wrong: &'static str) -> Self {
        Self { format: Some((practice, format)), wrong: Some(wrong), ..self }
    }

    const fn what_is(self, what: &'static str) -> Self {
        Self { what: Some(what), ..self }
    }

    const fn only_if(self, guard: &'static str) -> Self {
        Self { guard: Some(guard), ..self }
    }

    /// The annotation has an effect only together with others.
    const fn beside(self, others: &'static [(&'static str, &'static str)]) -> Self {
        Self { example: (self.example.0, others), ..self }
    }
}

const fn label(key: &'static str, about: &'static str) -> Label {
    Label { key, objects: true, pods: true, jobs: false, about }
}

/// A label of the objects of services and of training jobs.
const fn shared(key: &'static str, about: &'static str) -> Label {
    Label { jobs: true, ..label(key, about) }
}

/// All labels, in the order of the document.
pub static LABELS: [Label; 17] = [
    shared("ome.io/managed-by", "`ome-controller`, unless the policy's config sets another value"),
    shared("ome.io/component", "engine, decoder or router; trainer for a training job"),
    shared("ome.io/part-of", "the service or the job"),
    Label { pods: false, ..shared("ome.io/version", "the version of Pointsman that created the object; an upgrade restarts no pods") },
    label("serving.ome.io/inferenceservice", "the service; selectors use it"),
    label("serving.ome.io/component", "the component; selectors use it"),
    label("serving.ome.io/revision", "the number of the pod template; on workloads and pods"),
    label("serving.ome.io/model", "the base model"),
    label("serving.ome.io/runtime", "the runtime in use"),
    shared("infrastructure.ome.io/cluster", "propagated from the service or the job, otherwise from its namespace"),
    shared("infrastructure.ome.io/profile", "the same"),
    shared("infrastructure.ome.io/capacity-reservation", "the same"),
    shared(
        "model.ome.io/name",
        "from the served model; the service's own value applies only if nothing is known about the model. For a job, the job's own value",
    ),
    shared("model.ome.io/type", "the same"),
    shared("model.ome.io/vendor", "the same"),
    shared("model.ome.io/format", "the same"),
    shared("model.ome.io/size", "the same"),
];

/// The labels of training jobs, in the order of the document.
pub static TRAINING_LABELS: [Label; 5] = [
    shared(TRAINING_JOB_NAME, "the job; selectors use it"),
    shared("training.ome.io/job-uid", "its uid"),
    shared(REPLICA_TYPE, "launcher or worker; on Jobs and pods"),
    shared(
        "training.ome.io/replica-index",
        "0 for the launcher; for workers, [an admission policy](training.md#the-index-of-a-worker) copies it from Kubernetes' own label",
    ),
    shared("training.ome.io/framework", "pytorch, mpi or deepspeed"),
];

/// The labels of OME's benchmarks, which have no table here.
const LABELS_OF_BENCHMARKS: [&str; 3] = ["benchmark.ome.io/job-name", "benchmark.ome.io/target-service", "benchmark.ome.io/task-type"];

/// The annotations of OME's benchmarks, which have no table here.
const ANNOTATIONS_OF_BENCHMARKS: [&str; 2] = ["benchmark.ome.io/target-qps", "benchmark.ome.io/duration"];

/// An annotation of training jobs, which their containers get as an environment variable.
const fn training(key: &'static str, about: &'static str, example: &'static str, what: &'static str) -> Annotation {
    Annotation { format: Some((Practice::Jobs, NOT_BLANK)), wrong: Some(" "), ..Annotation::new(key, Reader::PodPolicies, about, example) }
        .what_is(what)
        .carried(true, true)
        .on_jobs()
}

/// The annotations of training jobs, in the order of the document.
pub static TRAINING_ANNOTATIONS: [Annotation; 3] = [
    training(
        "training.ome.io/distributed-backend",
        "the environment variable TRAINING_DISTRIBUTED_BACKEND of the main container",
        "nccl",
        "a backend such as nccl, mpi or gloo",
    ),
    training("training.ome.io/checkpoint-strategy", "the same, TRAINING_CHECKPOINT_STRATEGY", "epoch", "epoch, step or time").format(
        Practice::Jobs,
        one_of("strategies", &["epoch", "step", "time"]),
        "sometimes",
    ),
    training("training.ome.io/resume-from", "the same, TRAINING_RESUME_FROM", "/checkpoints/3", "the path of a checkpoint"),
];

const SERVERLESS: &[(&str, &str)] = &[("ome.io/deploymentMode", "Serverless")];
const SCRAPED: &[(&str, &str)] = &[("monitoring.ome.io/scrape", "true")];
const SIZED: &[(&str, &str)] = &[("storage.ome.io/size", "1Gi")];

/// How a component is deployed.
pub const DEPLOYMENT_MODE: Annotation =
    Annotation::new("ome.io/deploymentMode", Reader::Host, "how the component is deployed", "Serverless").format(
        Practice::Scaling,
        one_of("modes", &["RawDeployment", "MultiNode", "Serverless", "MultiNodeRayVLLM"]),
        "Bare",
    );

/// The minimum number of replicas.
pub const MIN_REPLICAS: Annotation =
    Annotation::new("ome.io/min-replicas", Reader::Host, "the minimum number of replicas", "2").format(Practice::Scaling, REPLICAS, "two");

/// The maximum number of replicas.
pub const MAX_REPLICAS: Annotation =
    Annotation::new("ome.io/max-replicas", Reader::Host, "the maximum number of replicas", "7").format(Practice::Scaling, REPLICAS, "-1");

/// The utilization of a resource that an autoscaler aims for.
pub const UTILIZATION: Annotation = Annotation::new(
    "ome.io/target-utilization",
    Reader::Host,
    "the target utilization of CPU or memory for a HorizontalPodAutoscaler; in Serverless mode Knative's \
     target-utilization-percentage",
    "70",
)
.format(Practice::Scaling, PERCENT, "0");

/// Whether KEDA scales the component.
pub const ENABLE_KEDA: Annotation = Annotation::new(
    "autoscaling.ome.io/enable-keda",
    Reader::Host,
    "whether KEDA scales the component. In Serverless mode Knative takes precedence: the annotation is ignored, and `Accepted` reports \
     this",
    "true",
)
.format(Practice::Scaling, one_of("switches", &["true", "false"]), "maybe")
.beside(SERVERLESS);

/// The metric that an autoscaler watches.
pub const METRIC: Annotation = Annotation::new(
    "autoscaling.ome.io/metric",
    Reader::Host,
    "cpu or memory; in Serverless mode also concurrency and rps. gpu-utilization requires a query (kedaConfig)",
    "memory",
)
.format(Practice::Scaling, one_of("metrics", &["cpu", "memory", "concurrency", "rps", "gpu-utilization"]), "happiness");

/// The target value of the metric.
pub const TARGET: Annotation =
    Annotation::new("autoscaling.ome.io/target", Reader::Host, "its target value", "60").format(Practice::Scaling, PERCENT, "lots");

/// The autoscaler of the component. This annotation isn't on OME's page.
pub const AUTOSCALER_CLASS: Annotation = Annotation::new("ome.io/autoscalerClass", Reader::Host, "the component's autoscaler", "external")
    .format(Practice::Scaling, one_of("classes", &["hpa", "keda", "external"]), "none");

const KNATIVE_METRIC: Annotation = Annotation::new(
    "autoscaling.knative.dev/metric",
    Reader::Host,
    "Serverless only: passed through unchanged, like everything under `autoscaling.knative.dev/`. It takes precedence over OME's \
     annotations; a field of the component takes precedence over both",
    "rps",
)
.carried(false, true)
.beside(SERVERLESS);

// Knative itself rejects invalid values.
const KNATIVE_TARGET: Annotation = Annotation {
    wrong: None,
    ..Annotation::new("autoscaling.knative.dev/target", Reader::Host, "the same", "20")
        .carried(false, true)
        .format(Practice::Scaling, DECIMAL_FROM_CENT, "")
        .beside(SERVERLESS)
};

/// The location of the model, if it isn't on the nodes.
pub const STORAGE_URI: Annotation = Annotation::new(
    "model.ome.io/storage-uri",
    Reader::Host,
    "the location of the model if it isn't on the nodes: an init container downloads it, or a claim (pvc://) or a path of the node \
     (local://) is mounted",
    "hf://org/model",
)
.format(Practice::Engines, STORAGE_LOCATION, "somewhere")
.only_if("s.place != ' of spec.router'");

/// The NetworkPolicy of the pods.
pub const NETWORK_POLICY: Annotation = Annotation::new(
    "security.ome.io/network-policy",
    Reader::Host,
    "a NetworkPolicy for each component, see [below](#allow-inference-only)",
    "allow-inference-only",
)
.format(Practice::Pods, one_of("policies", &["allow-inference-only"]), "allow-all")
.only_if("object.kind == 'InferenceService'")
.on_jobs();

/// The StorageClass of a component's PersistentVolumeClaim.
pub const STORAGE_CLASS: Annotation = Annotation::new(
    "storage.ome.io/class",
    Reader::Host,
    "the class of a PersistentVolumeClaim with the name of the component's workload; the cluster's default class if absent",
    "fast-ssd",
)
.format(Practice::Pods, NAME, "-")
.what_is("the name of a StorageClass")
.beside(SIZED)
.on_jobs();

/// The size of the claim.
pub const STORAGE_SIZE: Annotation =
    Annotation::new("storage.ome.io/size", Reader::Host, "the size of the claim; if absent, there is no claim", "100Gi")
        .format(Practice::Pods, SIZE, "big")
        .on_jobs();

/// The access mode of the claim.
pub const ACCESS_MODE: Annotation = Annotation::new(
    "storage.ome.io/access-mode",
    Reader::Host,
    "the access mode of the claim, ReadWriteOnce by default. A downloaded model is stored in the claim; without one, the claim is mounted \
     at /mnt/storage (STORAGE_PATH)",
    "ReadWriteMany",
)
.format(Practice::Pods, one_of("modes", &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]), "ReadMostly")
.beside(SIZED)
.on_jobs();

/// Whether Prometheus scrapes the pods.
pub const SCRAPE: Annotation = Annotation::new("monitoring.ome.io/scrape", Reader::Host, "pods get `prometheus.io/scrape`", "true")
    .format(Practice::Pods, one_of("switches", &["true", "false"]), "yes")
    .on_jobs();

/// The port of the metrics.
pub const METRICS_PORT: Annotation = Annotation::new("monitoring.ome.io/port", Reader::Host, "pods get `prometheus.io/port`", "9400")
    .format(Practice::Pods, PORT, "0")
    .beside(SCRAPED)
    .on_jobs();

/// The path of the metrics.
pub const METRICS_PATH: Annotation = Annotation::new("monitoring.ome.io/path", Reader::Host, "pods get `prometheus.io/path`", "/stats")
    .format(Practice::Pods, PATH, "stats")
    .beside(SCRAPED)
    .on_jobs();

/// An annotation about the model that becomes a flag or a variable. The document lists these by engine.
const fn flag(key: &'static str, example: &'static str, format: Format, wrong: &'static str) -> Annotation {
    Annotation::new(key, Reader::ModelPolicies, "see [Flags](#flags)", example).format(Practice::Engines, format, wrong)
}

/// An annotation about Oracle's cloud.
const fn of_cloud(key: &'static str, what: &'static str, about: &'static str, example: &'static str) -> Annotation {
    Annotation::new(key, Reader::PodPolicies, about, example)
        .carried(true, true)
        .format(Practice::Pods, NOT_BLANK, " ")
        .what_is(what)
        .on_jobs()
}

/// All annotations, in the order of the document.
pub static ANNOTATIONS: [Annotation; 31] = [
    Annotation::new(
        "ome.io/last-applied-configuration",
        Reader::Nobody,
        "written to workloads: the service's spec that was applied last, as JSON (unless it is longer than 64 KiB). The service's own \
         annotation is never propagated",
        "theirs",
    )
    .carried(true, false),
    Annotation::new(
        "ome.io/resource-version",
        Reader::Nobody,
        "written to workloads: the service's generation that was applied last. Neither annotation ever restarts a pod",
        "theirs",
    )
    .carried(true, false),
    DEPLOYMENT_MODE,
    MIN_REPLICAS,
    MAX_REPLICAS,
    UTILIZATION,
    ENABLE_KEDA,
    METRIC,
    TARGET,
    AUTOSCALER_CLASS,
    KNATIVE_METRIC,
    KNATIVE_TARGET,
    STORAGE_URI,
    flag("model.ome.io/quantization", "fp8", WORD, "f p 8"),
    flag("model.ome.io/max-tokens", "4096", WHOLE, "-1"),
    flag("model.ome.io/context-length", "4096", WHOLE, "long"),
    flag("performance.ome.io/gpu-memory-fraction", "0.8", FRACTION, "1.5"),
    flag("performance.ome.io/batch-size", "8", WHOLE, "0"),
    flag("performance.ome.io/max-batch-delay", "10ms", DELAY, "10"),
    Annotation::new(
        "security.ome.io/pod-security-policy",
        Reader::PodPolicies,
        "as in the [Pod Security Standards](https://kubernetes.io/docs/concepts/security/pod-security-standards/): restricted sets \
         runAsNonRoot, the seccomp profile, no privilege escalation and no capabilities; if a layer contradicts it, `Decided` is False. \
         The model's own hostPath volume stays",
        "restricted",
    )
    .format(Practice::Pods, one_of("standards", &["privileged", "baseline", "restricted"]), "strict")
    .on_jobs(),
    NETWORK_POLICY,
    Annotation::new(
        "security.ome.io/secret-ref",
        Reader::PodPolicies,
        "a Secret whose keys become environment variables of the main container, and of the init containers that download models",
        "model-credentials",
    )
    .format(Practice::Pods, NAME, "No Secret")
    .what_is("the name of a Secret")
    .on_jobs(),
    STORAGE_CLASS,
    STORAGE_SIZE,
    ACCESS_MODE,
    SCRAPE,
    METRICS_PORT,
    METRICS_PATH,
    of_cloud(
        "oci.ome.io/compartment-id",
        "the id of a compartment",
        "pods get it as an annotation and as the environment variable OCI_COMPARTMENT_ID",
        "ocid1.compartment.oc1..",
    ),
    of_cloud("oci.ome.io/region", "the name of a region", "the same, OCI_REGION", "us-phoenix-1"),
    of_cloud("oci.ome.io/availability-domain", "the name of an availability domain", "the same, OCI_AVAILABILITY_DOMAIN", "PHX-AD-1"),
];

/// Whether an annotation is on OME's page.
pub fn is_on_the_page(annotation: &Annotation) -> bool {
    annotation.key != AUTOSCALER_CLASS.key
}

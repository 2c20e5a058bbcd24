//! What an administrator has set, for all subjects.

use std::str::FromStr;

/// The namespace of the host, unless a flag names another.
pub const HOST_NAMESPACE: &str = "pointsman-system";

/// The image with genai-bench, unless an administrator or a `BenchmarkJob` names another.
pub const BENCHMARK_IMAGE: &str = "ghcr.io/moirai-internal/genai-bench:0.0.5";

/// The image with this project's endpoint picker where no cluster tells it: the name that this project's own manifests have for it.
pub const PICKER_IMAGE: &str = "pointsman";

/// Which endpoint picker schedules the requests of an `LLMInferenceService`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// This project's.
    #[default]
    Pointsman,
    /// llm-d's.
    LlmD,
}

impl FromStr for Scheduler {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        [Self::Pointsman, Self::LlmD].into_iter().find(|scheduler| scheduler.word() == word).ok_or(())
    }
}

impl Scheduler {
    /// What it is called.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pointsman => "pointsman",
            Self::LlmD => "llm-d",
        }
    }
}

/// What an administrator has set, for all subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The Gateway that services are reached through.
    pub gateway: Option<Gateway>,
    /// The cluster's own domain.
    pub cluster_domain: String,
    /// The namespace of the `LLMInferenceServiceConfigs` for all.
    pub config_namespace: String,
    /// The URL of the Prometheus that KEDA asks what the workload variant autoscaler wants.
    pub prometheus: Option<String>,
    /// The registry that images come from which presets and policies name, rather than users.
    pub image_mirror: Option<String>,
    /// The image that measures services.
    pub benchmark_image: String,
    /// The scheduler of `LLMInferenceServices` that have none yet.
    pub scheduler: Scheduler,
    /// Whether those get it that have another one.
    pub replace_schedulers: bool,
    /// The image with this project's endpoint picker, if it is known.
    pub picker_image: Option<String>,
    /// The scheduler of pods whose templates name none, if Kubernetes' default isn't to place them.
    pub pod_scheduler: Option<String>,
    /// The version of this host.
    pub version: String,
}

/// A Gateway, and the names below which services are reached there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The domain: a service is NAME.NAMESPACE.DOMAIN.
    pub domain: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            gateway: None,
            cluster_domain: "cluster.local".to_owned(),
            config_namespace: HOST_NAMESPACE.to_owned(),
            prometheus: None,
            image_mirror: None,
            benchmark_image: BENCHMARK_IMAGE.to_owned(),
            scheduler: Scheduler::default(),
            replace_schedulers: false,
            picker_image: Some(PICKER_IMAGE.to_owned()),
            pod_scheduler: None,
            version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

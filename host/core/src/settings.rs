//! The administrator's settings for all subjects.

use std::str::FromStr;

/// The default namespace of the host.
pub const HOST_NAMESPACE: &str = "pointsman-system";

/// The default image with genai-bench.
pub const BENCHMARK_IMAGE: &str = "ghcr.io/moirai-internal/genai-bench:0.0.5";

/// The image with this project's endpoint picker if no cluster determines it: the name in this project's own manifests.
pub const PICKER_IMAGE: &str = "pointsman";

/// The endpoint picker that schedules the requests of an `LLMInferenceService`.
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
    /// Its name in settings.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pointsman => "pointsman",
            Self::LlmD => "llm-d",
        }
    }
}

/// The administrator's settings for all subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The Gateway of services.
    pub gateway: Option<Gateway>,
    /// The cluster's own domain.
    pub cluster_domain: String,
    /// The namespace of the shared `LLMInferenceServiceConfigs`.
    pub config_namespace: String,
    /// The URL of the Prometheus that KEDA queries for the recommendations of the workload variant autoscaler.
    pub prometheus: Option<String>,
    /// The mirror registry for images that presets and policies name, as opposed to users.
    pub image_mirror: Option<String>,
    /// The image for benchmarks.
    pub benchmark_image: String,
    /// The scheduler of `LLMInferenceServices` that don't have one yet.
    pub scheduler: Scheduler,
    /// Whether it replaces other schedulers.
    pub replace_schedulers: bool,
    /// The image with this project's endpoint picker, if known.
    pub picker_image: Option<String>,
    /// The scheduler of pods whose templates name none, unless it is Kubernetes' default.
    pub pod_scheduler: Option<String>,
    /// The version of this host.
    pub version: String,
}

/// A Gateway, and the domain of services there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The domain: a service has the host name NAME.NAMESPACE.DOMAIN.
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

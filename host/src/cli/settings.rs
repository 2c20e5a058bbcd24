//! An administrator's settings for all subjects, which the controller and the commands that predict its plans share.

use super::cluster::no_answer;
use crate::{
    own_pod::{self, OwnImageError},
    problem::sentence,
};
use clap::Args;
use kube::Client;
use pointsman_core::settings::{BENCHMARK_IMAGE, HOST_NAMESPACE, PICKER_IMAGE};
use pointsman_core::settings::{Gateway, Scheduler, Settings};
use pointsman_core::world::adopted::is_object_name;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Domain of Services
#[derive(Args, Clone, Debug)]
pub(super) struct ClusterDomainArgs {
    /// DNS domain of the cluster
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    pub(super) cluster_domain: String,
}

/// Settings of all subjects
#[derive(Args, Clone, Debug)]
pub(super) struct SettingsArgs {
    /// Gateway that exposes services outside the cluster; default: services are exposed only within the cluster
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = place, requires = "ingress_domain")]
    gateway: Option<(String, String)>,
    /// Domain of the host names of services: NAME.NAMESPACE.DOMAIN
    #[arg(long, value_name = "DOMAIN", requires = "gateway")]
    ingress_domain: Option<String>,
    #[command(flatten)]
    cluster: ClusterDomainArgs,
    /// Namespace of LLMInferenceServiceConfigs that services of all namespaces can use
    #[arg(long, value_name = "NAMESPACE", default_value = HOST_NAMESPACE)]
    config_namespace: String,
    /// Prometheus that KEDA queries for the number of replicas of an LLMInferenceService with scaling.wva.keda
    #[arg(long, value_name = "URL", value_parser = url)]
    prometheus: Option<String>,
    /// Registry, optionally with a path, of images that no user specifies: those of the presets, and those that download models.
    /// ghcr.io/llm-d/llm-d-inference-scheduler becomes REGISTRY/llm-d/llm-d-inference-scheduler
    #[arg(long, value_name = "REGISTRY", value_parser = registry)]
    image_mirror: Option<String>,
    /// Endpoint picker that schedules the requests of LLMInferenceServices with router.scheduler: pointsman or llm-d. Services that have
    /// one keep it, and the annotation pointsman.dev/scheduler of a service takes precedence
    #[arg(long, value_name = "NAME", default_value = Scheduler::default().word(), value_parser = scheduler)]
    scheduler: Scheduler,
    /// Replace the scheduler of services that have another one than --scheduler, a few at a time (--pace)
    #[arg(long)]
    replace_schedulers: bool,
    /// Image of Pointsman, which its endpoint pickers run; default: the image of the host's own pod
    #[arg(long, value_name = "IMAGE", env = "POINTSMAN_PICKER_IMAGE")]
    picker_image: Option<String>,
    /// Scheduler of pods whose template specifies none, such as pointsman. New workloads get it, and existing ones when their template
    /// changes for another reason: the flag restarts no pod. Pods of Knative, of InferenceModels and of endpoint pickers don't get it
    #[arg(long, value_name = "NAME", value_parser = scheduler_name)]
    pod_scheduler: Option<String>,
    /// Image with genai-bench, which BenchmarkJobs run
    #[arg(long, value_name = "IMAGE", default_value = BENCHMARK_IMAGE)]
    benchmark_image: String,
}

fn scheduler(word: &str) -> Result<Scheduler, String> {
    word.parse().map_err(|()| "expected pointsman or llm-d".to_owned())
}

fn scheduler_name(name: &str) -> Result<String, String> {
    if is_object_name(name) {
        return Ok(name.to_owned());
    }
    Err("write the schedulerName of a profile: lower-case letters, digits, - and ., at most 253 characters".to_owned())
}

pub(super) fn place(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("expected NAMESPACE/NAME".to_owned()),
    }
}

fn url(text: &str) -> Result<String, String> {
    let uri = text.parse::<http::Uri>().map_err(|error| error.to_string())?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(text.to_owned()),
        _ => Err("expected a URL with http:// or https:// and a host".to_owned()),
    }
}

fn registry(text: &str) -> Result<String, String> {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".:-_/".contains(c);
    if text.is_empty() || text.contains("//") || text.starts_with('/') || text.ends_with('/') || !text.chars().all(known) {
        return Err("expected a registry as in an image's name: no scheme, no slash at the end, as in mirror.example.com/ai".to_owned());
    }
    Ok(text.to_owned())
}

impl SettingsArgs {
    /// Without a cluster, the image of endpoint pickers is the one in this project's manifests, unless a flag specifies it.
    pub(super) fn settings(&self) -> Settings {
        let gateway = self.gateway.clone().zip(self.ingress_domain.clone());
        Settings {
            gateway: gateway.map(|((namespace, name), domain)| Gateway { namespace, name, domain }),
            cluster_domain: self.cluster.cluster_domain.clone(),
            config_namespace: self.config_namespace.clone(),
            prometheus: self.prometheus.clone(),
            image_mirror: self.image_mirror.clone(),
            benchmark_image: self.benchmark_image.clone(),
            scheduler: self.scheduler,
            replace_schedulers: self.replace_schedulers,
            pod_scheduler: self.pod_scheduler.clone(),
            picker_image: Some(self.picker_image.clone().unwrap_or_else(|| PICKER_IMAGE.to_owned())),
            ..Settings::default()
        }
    }

    /// The same in a cluster, where the image is that of the host's own pod.
    pub(super) async fn settings_in_cluster(&self, client: &Client, url: &str, namespace: &str, pod: &str) -> Settings {
        let mut settings = self.settings();
        if self.picker_image.is_none() {
            settings.picker_image = own_image(client, url, namespace, pod).await;
        }
        settings
    }
}

/// The delay before the host reads its own pod again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The minimum interval between two log lines about it.
const COMPLAINT_INTERVAL: Duration = Duration::from_mins(1);

/// The host's own image; none if it can't be found out.
async fn own_image(client: &Client, url: &str, namespace: &str, pod: &str) -> Option<String> {
    let mut complained: Option<Instant> = None;
    loop {
        match own_pod::image(client, namespace, pod).await {
            Ok(image) => return Some(image),
            Err(error @ OwnImageError::NoPod(_)) => {
                tracing::info!("{error}: LLMInferenceServices get no endpoint picker, unless --picker-image or --scheduler llm-d is set");
                return None;
            }
            Err(error) if error.is_permanent() => {
                tracing::warn!("{error}");
                // A separate line, because the missing right itself is logged only once.
                tracing::warn!("LLMInferenceServices get no endpoint picker of this project: set --picker-image, or --scheduler llm-d");
                return None;
            }
            Err(error) if complained.is_none_or(|at| at.elapsed() >= COMPLAINT_INTERVAL) => {
                complained = Some(Instant::now());
                tracing::warn!("{}; trying again", complaint(&error, url));
            }
            Err(_) => {}
        }
        sleep(RETRY_INTERVAL).await;
    }
}

/// Why the pod can't be read: in most cases, the cluster doesn't respond at all.
fn complaint(error: &OwnImageError, url: &str) -> String {
    match error {
        OwnImageError::Unread { error, .. } if !matches!(error, kube::Error::Api(_)) => format!("{}: {}", no_answer(url), sentence(error)),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::{Config, core::Status};

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_does_not_answer_is_named_and_a_refusal_keeps_its_message() {
        let url = "http://127.0.0.1:1/";
        let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
        let error = own_pod::image(&client, "a", "b").await.unwrap_err();
        assert!(complaint(&error, url).starts_with("the cluster at http://127.0.0.1:1/ doesn't answer: "), "{error}");
        let status = Status::failure("the server is overloaded", "TooManyRequests").with_code(429);
        let error = OwnImageError::Unread { pod: "a/b".to_owned(), error: kube::Error::Api(Box::new(status)) };
        assert_eq!(complaint(&error, url), "the host can't read its pod a/b (the server is overloaded)");
        assert_eq!(OwnImageError::NoPod("a/b".to_owned()).to_string(), "the host runs outside of a pod (there is no pod a/b)");
    }

    #[test]
    fn the_scheduler_of_pods_is_a_dns_name() {
        for name in ["pointsman", "gpu-scheduler", "example.com"] {
            assert_eq!(scheduler_name(name).as_deref(), Ok(name));
        }
        for name in ["", "Pointsman", "a b", "-a", "a/b"] {
            assert!(scheduler_name(name).is_err_and(|why| why.starts_with("write the schedulerName of a profile: ")), "{name}");
        }
    }
}

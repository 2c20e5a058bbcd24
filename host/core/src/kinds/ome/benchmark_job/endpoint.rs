//! The endpoint of a benchmark: a service of the cluster that is Ready, or any URL.

use super::{ENDPOINT_READY, PlanBuilder, PlanError, served::Served, spec::Accepted};
use crate::{
    kinds::questions,
    resource::{BENCHMARK_JOB, INFERENCE_MODEL, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, REFERENCE_GRANT, Resource},
    world::{ObjectKey, Read, Subject},
};
use pointsman_crds::ome::benchmark_job::{Endpoint as Url, InferenceServiceReference, ServiceKind};
use serde_json::Value;
use std::sync::Arc;

/// The measured endpoint.
#[derive(Debug, PartialEq)]
pub(super) struct Endpoint {
    /// The URL of its API.
    pub(super) url: String,
    /// The API of the endpoint, in genai-bench's terms.
    pub(super) backend: String,
    /// The model's name in requests.
    pub(super) model_name: String,
    /// The tokenizer for counting tokens: a repository, or a path in the pod.
    pub(super) tokenizer: String,
    /// The known facts about the service.
    pub(super) served: Served,
}

impl PlanBuilder<'_> {
    /// The endpoint, once it exists.
    pub(super) fn endpoint(&mut self, accepted: &Accepted) -> Result<Endpoint, Box<PlanError>> {
        let endpoint = &accepted.spec.endpoint;
        match (&endpoint.inference_service, &endpoint.endpoint) {
            (Some(reference), None) => self.service(accepted, reference),
            (None, Some(url)) => from_url(accepted, url),
            _ => {
                let message = "spec.endpoint needs exactly one of inferenceService and endpoint: set one, and remove the other.";
                Err(PlanError::new(ENDPOINT_READY, "InvalidEndpoint", message))
            }
        }
    }

    fn service(&mut self, accepted: &Accepted, reference: &InferenceServiceReference) -> Result<Endpoint, Box<PlanError>> {
        let resource = resource(reference.kind.unwrap_or_default());
        let own = self.benchmark.namespace.clone();
        let namespace = reference.namespace.clone().filter(|namespace| !namespace.is_empty()).unwrap_or_else(|| own.clone());
        let key = ObjectKey { resource, namespace: namespace.clone(), name: reference.name.clone() };
        self.asking.reads.insert(Read::Object(key.clone()));
        if namespace != own {
            self.check_grant(&key)?;
        }
        let (kind, name) = (resource.kind, &key.name);
        let stopped = |reason: &str, message: String| Err(PlanError::new(ENDPOINT_READY, reason, message));
        if let Some((reason, message)) = questions::missing_kind(self.asking.snapshot, "benchmark", resource) {
            return stopped(reason, message);
        }
        let Some(service) = self.asking.snapshot.other_subject(&key).cloned() else {
            let message = format!(
                "There is no {kind} {name} in the namespace {namespace}: create it, or create the benchmark for another service \
                 (spec.endpoint can't be changed)."
            );
            return stopped("ServiceNotFound", message);
        };
        let status = service.status();
        self.check_ready(&service, &status)?;
        let content = service.content();
        let served = self.served(&key, &content, &status);
        let Some(url) = url(resource, &content["spec"], &status) else {
            let message = format!("The {kind} {name} is Ready, but its status has no URL: the benchmark starts once it has one.");
            return Err(PlanError::waiting(ENDPOINT_READY, "NoUrl", message));
        };
        let Some(model_name) = reference.model_name.clone().or_else(|| served.model_name.clone()) else {
            let message = format!(
                "The command line of the {kind} {name} doesn't specify the name of the served model: recreate the benchmark with \
                 spec.endpoint.inferenceService.modelName."
            );
            return stopped("ModelNameUnknown", message);
        };
        let Some(tokenizer) = accepted.spec.tokenizer.clone().or_else(|| served.tokenizer.as_ref().map(ToString::to_string)) else {
            let message = format!(
                "The tokenizer of the {kind} {name} is unknown, because its model is neither on nodes nor on Hugging Face: set spec.tokenizer to \
                 a Hugging Face repository, or to a path that spec.podOverride mounts."
            );
            return stopped("TokenizerUnknown", message);
        };
        let Some(backend) = backend(&accepted.task, &served) else {
            let message = format!("The task {} needs vLLM or SGLang, but the engine of the {kind} {name} is neither.", accepted.task);
            return stopped("TaskNotSupported", message);
        };
        Ok(Endpoint { url, backend, model_name, tokenizer, served })
    }

    /// Checks that the other namespace permits benchmarks from this one. Without a grant, a tenant must not learn what exists there.
    fn check_grant(&mut self, key: &ObjectKey) -> Result<(), Box<PlanError>> {
        let snapshot = self.asking.snapshot;
        self.asking.reads.insert(Read::Grants(key.namespace.clone()));
        if let Some((reason, message)) = questions::missing_kind(snapshot, "reference to another namespace", &REFERENCE_GRANT) {
            return Err(PlanError::new(ENDPOINT_READY, reason, message));
        }
        if snapshot.grants(key) {
            return Ok(());
        }
        let (own, ObjectKey { resource, namespace, name }) = (&self.benchmark.namespace, key);
        let message = format!(
            "The namespace {namespace} doesn't allow benchmarks of the namespace {own} to use its {kind} {name}: have its owner create a \
             ReferenceGrant there, from: [{{group: {}, kind: {}, namespace: {own}}}], to: [{{group: {}, kind: {kind}, name: {name}}}].",
            BENCHMARK_JOB.group,
            BENCHMARK_JOB.kind,
            resource.group,
            kind = resource.kind,
        );
        Err(PlanError::new(ENDPOINT_READY, "ReferenceNotGranted", message))
    }

    /// Checks that the service is Ready, in its current generation.
    fn check_ready(&self, service: &Arc<Subject>, status: &Value) -> Result<(), Box<PlanError>> {
        let ObjectKey { resource, namespace, name } = &service.key;
        let ready = status["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == "Ready");
        let is_of_now = |ready: &&Value| ready["observedGeneration"].as_i64().is_none_or(|seen| Some(seen) >= service.generation);
        let why = match ready.filter(is_of_now) {
            Some(ready) if ready["status"] == "True" => return Ok(()),
            Some(ready) => ready["message"].as_str().unwrap_or_default().trim_end_matches('.').to_owned(),
            None => "its status doesn't report it yet".to_owned(),
        };
        // The details of a service in another namespace are only for its owner.
        let why =
            if *namespace == self.benchmark.namespace { why } else { format!("its status in the namespace {namespace} has the reason") };
        let message = format!("The {} {name} is not Ready ({why}): the benchmark starts once it is.", resource.kind);
        Err(PlanError::waiting(ENDPOINT_READY, "ServiceNotReady", message))
    }
}

fn resource(kind: ServiceKind) -> &'static Resource {
    match kind {
        ServiceKind::InferenceService => &INFERENCE_SERVICE,
        ServiceKind::LLMInferenceService => &LLM_INFERENCE_SERVICE,
        ServiceKind::InferenceModel => &INFERENCE_MODEL,
    }
}

/// The URL of a service within the cluster. An LLMInferenceService is measured through the scheduler that its route leads to.
fn url(resource: &Resource, spec: &Value, status: &Value) -> Option<String> {
    let url = if *resource == INFERENCE_MODEL {
        spec["backendUrl"].as_str()
    } else if *resource == LLM_INFERENCE_SERVICE {
        status["url"].as_str()
    } else {
        status["address"]["url"].as_str().or_else(|| status["url"].as_str())
    };
    url.filter(|url| !url.is_empty()).map(|url| url.trim_end_matches('/').to_owned())
}

/// The API of a service of the cluster. OpenAI has no API for reranking, and only these two engines have one.
fn backend(task: &str, served: &Served) -> Option<String> {
    if task != "text-to-rerank" {
        return Some("openai".to_owned());
    }
    match served.engine {
        Some("vLLM") => Some("vllm".to_owned()),
        Some("SGLang") => Some("sglang".to_owned()),
        _ => None,
    }
}

fn from_url(accepted: &Accepted, endpoint: &Url) -> Result<Endpoint, Box<PlanError>> {
    let stopped = |reason: &str, message: &str| Err(PlanError::new(ENDPOINT_READY, reason, message));
    let Some(model_name) = endpoint.model_name.clone().filter(|name| !name.is_empty()) else {
        return stopped("ModelNameUnknown", "spec.endpoint.endpoint.modelName is missing: create the benchmark with it.");
    };
    let of_name = || is_repository(&model_name).then(|| model_name.clone());
    let Some(tokenizer) = accepted.spec.tokenizer.clone().or_else(of_name) else {
        let message = "The tokenizer is unknown, because spec.endpoint.endpoint.modelName is not a Hugging Face repository (ORG/MODEL): set \
                       spec.tokenizer to one, or to a path that spec.podOverride mounts.";
        return stopped("TokenizerUnknown", message);
    };
    let url = endpoint.url.trim_end_matches('/').to_owned();
    Ok(Endpoint { url, backend: endpoint.api_format.clone(), model_name, tokenizer, served: Served::default() })
}

/// Whether a model's name is that of a Hugging Face repository.
pub(super) fn is_repository(name: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) && !part.starts_with(['.', '-'])
    };
    name.split_once('/').is_some_and(|(organization, model)| part(organization) && part(model))
}

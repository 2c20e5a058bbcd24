//! Builds the command line of genai-bench.

use super::{endpoint::Endpoint, spec::Accepted};
use serde_json::{Map, Value};

/// The variable with the API key, which the tool requires.
pub(super) const API_KEY: &str = "MODEL_API_KEY";

/// The maximum length of the command line in bytes: nodes accept 128 KiB per argument, and Kubernetes 1.5 MiB per object.
const MAX_BYTES: usize = 64 << 10;

/// The engines and GPUs that the tool accepts as labels of results.
const ENGINES: [&str; 6] = ["vLLM", "SGLang", "TGI", "cohere-TensorRT", "cohere-vLLM", "LlamaCPP"];
const GPU_TYPES: [&str; 8] = ["H100", "A100-80G", "A100-40G", "MI300", "A10", "H200", "B200", "RTX-PRO-6000"];

/// A command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arguments(pub(super) Vec<String>);

/// Escapes a text for the kubelet, which replaces `$(NAME)` in arguments and variables, and `$$` by `$`.
pub(super) fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

impl Arguments {
    pub(super) fn flag(&mut self, name: &str, value: &str) {
        self.0.extend([name.to_owned(), literal(value)]);
    }

    pub(super) fn optional(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.flag(name, value);
        }
    }

    pub(super) fn switch(&mut self, name: &str) {
        self.0.push(name.to_owned());
    }

    /// Adds a flag whose value is a variable of the container.
    pub(super) fn variable(&mut self, name: &str, variable: &str) {
        self.0.extend([name.to_owned(), format!("$({variable})")]);
    }

    /// The arguments of the benchmark, without its storages.
    pub(super) fn from_benchmark(accepted: &Accepted, endpoint: &Endpoint) -> Self {
        let Accepted { spec, task, minutes, .. } = accepted;
        let mut arguments = Self(vec!["benchmark".to_owned()]);
        arguments.flag("--api-backend", &endpoint.backend);
        arguments.flag("--api-base", &endpoint.url);
        arguments.variable("--api-key", API_KEY);
        arguments.flag("--api-model-name", &endpoint.model_name);
        arguments.flag("--model-tokenizer", &endpoint.tokenizer);
        arguments.flag("--task", task);
        arguments.flag("--max-time-per-run", &minutes.to_string());
        arguments.flag("--max-requests-per-run", &spec.max_requests_per_iteration.to_string());
        for scenario in &spec.traffic_scenarios {
            arguments.flag("--traffic-scenario", scenario);
        }
        for concurrency in &spec.num_concurrency {
            arguments.flag("--num-concurrency", &concurrency.to_string());
        }
        if !spec.additional_request_params.is_empty() {
            let params: Map<String, Value> =
                spec.additional_request_params.iter().map(|(name, text)| (name.clone(), request_param(text))).collect();
            arguments.flag("--additional-request-params", &Value::Object(params).to_string());
        }
        arguments.add_service(accepted, endpoint);
        arguments
    }

    /// The service's labels for the results: from the benchmark, otherwise as far as they are known.
    fn add_service(&mut self, accepted: &Accepted, endpoint: &Endpoint) {
        let metadata = accepted.spec.service_metadata.clone().unwrap_or_default();
        let served = &endpoint.served;
        let engine = metadata.engine.as_deref().or(served.engine);
        self.optional("--server-engine", engine.and_then(|engine| choice(&ENGINES, engine)));
        self.optional("--server-gpu-type", metadata.gpu_type.as_deref().and_then(|gpu| choice(&GPU_TYPES, gpu)));
        self.optional("--server-version", metadata.version.as_deref().or(served.version.as_deref()));
        let gpus = metadata.gpu_count.map(i64::from).or(served.gpus).map(|count| count.to_string());
        self.optional("--server-gpu-count", gpus.as_deref());
    }

    /// Checks the length; the error is a message.
    pub(super) fn check_length(&self) -> Result<(), String> {
        let bytes: usize = self.0.iter().map(|word| word.len() + 1).sum();
        if bytes <= MAX_BYTES {
            return Ok(());
        }
        Err(format!(
            "The command line of genai-bench has {bytes} bytes; the limit is {MAX_BYTES}: shorten spec.trafficScenarios, \
             spec.numConcurrency or spec.additionalRequestParams."
        ))
    }
}

/// The known value that equals this one regardless of case.
fn choice(known: &[&'static str], word: &str) -> Option<&'static str> {
    known.iter().find(|known| known.eq_ignore_ascii_case(word)).copied()
}

/// Notes on service metadata that the results can't contain.
pub(super) fn service_notes(accepted: &Accepted) -> Vec<String> {
    let metadata = accepted.spec.service_metadata.clone().unwrap_or_default();
    let choices = [("engine", metadata.engine, &ENGINES[..]), ("gpuType", metadata.gpu_type, &GPU_TYPES[..])];
    let unknown = choices.into_iter().filter_map(|(field, word, known)| {
        let word = word.filter(|word| !word.is_empty() && choice(known, word).is_none())?;
        Some(format!("The results leave out spec.serviceMetadata.{field} ({word}), because genai-bench takes only {}.", known.join(", ")))
    });
    unknown.collect()
}

/// A parameter as JSON if it is valid JSON, otherwise as a string: `0.5` is a number, `auto` a string.
fn request_param(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

//! The pods of KServe's LLMInferenceService: the layers of a preset, base configurations and the service are merged, and the model is
//! provided where their command lines expect it.
//!
//! The host has already filled in the templates in their strings, so they stay unchanged here.

mod name;
mod parallelism;
mod scheduler;
mod storage;

use crate::{Config, pod::Pod, readiness, rules::Rules};
use pointsman_plugin::{Failure, Reason, Role, pod_templating::Request};

// As in KServe, the container that serves is always `main`: a service that adds a sidecar to the preset only names the sidecar.
pub(crate) static RULES: Rules = Rules { main: "main", lenient: false, speaks, no_image, finish };

/// vLLM's default port, which requests are sent to.
const PORT: u64 = 8000;

fn speaks(layer: &str, _: Role) -> bool {
    matches!(layer, "preset" | "user") || layer.starts_with("base:")
}

fn finish(config: &Config, request: &Request, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
    if request.role == Role::Scheduler {
        return scheduler::configure(request, pod, reasons);
    }
    storage::bring(config, request, pod, reasons)?;
    // Parallelism may insert a shell before the command.
    name::tell(request, pod, reasons)?;
    parallelism::tell(config, request, pod, reasons)?;
    if request.role != Role::Worker {
        readiness::probe(PORT, pod, reasons);
    }
    Ok(())
}

fn no_image(request: &Request, container: &str) -> String {
    let prefill = request.role == Role::Prefill || request.group_role == Some(Role::Prefill);
    let place = match (request.role, prefill) {
        (Role::Scheduler, _) => "router.scheduler.template",
        (Role::Worker, true) => "prefill.worker",
        (Role::Worker, false) => "worker",
        (_, true) => "prefill.template",
        (_, false) => "template",
    };
    format!(
        "the container {container} has no image: set spec.{place}.containers[name={container}].image in the service, \
         or in an LLMInferenceServiceConfig that it names in spec.baseRefs"
    )
}

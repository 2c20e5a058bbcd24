//! The pods of KServe's LLMInferenceService: a preset, base configurations and the service say what they are, and the model is brought to
//! where their command lines look for it.
//!
//! The host has filled in the templates of their strings, so that none is touched here.

mod name;
mod parallelism;
mod scheduler;
mod storage;

use crate::{Config, pod::Pod, readiness, rules::Rules};
use pointsman_plugin::{Failure, Reason, Role, pod_templating::Request};

// The container that serves is `main` and no other, as with KServe: a service that adds a sidecar to the preset names only that.
pub(crate) static RULES: Rules = Rules { main: "main", lenient: false, speaks, no_image, finish };

/// Where vLLM listens unless it is told, and where requests go to.
const PORT: u64 = 8000;

fn speaks(layer: &str, _: Role) -> bool {
    matches!(layer, "preset" | "user") || layer.starts_with("base:")
}

fn finish(config: &Config, request: &Request, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
    if request.role == Role::Scheduler {
        return scheduler::configure(request, pod, reasons);
    }
    storage::bring(config, request, pod, reasons)?;
    // What parallelism says may put a shell before the command.
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

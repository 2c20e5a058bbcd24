//! The pods of OME's InferenceService: a runtime and a service say what they are, and a model that is on the nodes is mounted.

mod model;
mod placeholder;

use crate::{Config, engine, nodes, pod::Pod, readiness, rules::Rules};
use model::Model;
use pointsman_plugin::{Failure, Reason, Role, pod_templating::Request};

pub(crate) static RULES: Rules = Rules { main: "ome-container", lenient: true, speaks, no_image, finish };

/// Where an engine listens that declares no port.
const PORT: u64 = 8080;

fn speaks(layer: &str, role: Role) -> bool {
    match layer {
        "runtime" | "user" => true,
        "runtime-leader" | "user-leader" => role == Role::Leader,
        "runtime-worker" | "user-worker" => role == Role::Worker,
        _ => false,
    }
}

fn finish(config: &Config, request: &Request, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
    let router = request.role == Role::Router;
    let model = request.layer::<Option<Model>>("model")?.flatten().filter(|_| !router);
    if let Some(model) = &model {
        model.mount(config, &request.subject, pod, reasons)?;
    }
    if !router {
        engine::spread(config, nodes(request)?, pod, reasons)?;
    }
    if !matches!(request.role, Role::Worker | Role::Job) {
        readiness::probe(PORT, pod, reasons);
    }
    let path = model.map(|model| model.path(config));
    placeholder::fill(&request.subject, path.as_deref(), pod, reasons);
    Ok(())
}

fn no_image(request: &Request, container: &str) -> String {
    let component = |role: Role| match role {
        Role::Engine => Some("engine"),
        Role::Decoder => Some("decoder"),
        Role::Router => Some("router"),
        _ => None,
    };
    let part = match request.role {
        Role::Leader => ".leader",
        Role::Worker => ".worker",
        _ => "",
    };
    let of = component(request.role).or_else(|| request.group_role.and_then(component));
    let (runtime, service) = of.map_or_else(Default::default, |of| (format!("{of}Config{part}."), format!("{of}{part}.")));
    format!(
        "neither the runtime nor the service gives the container {container} an image: set {runtime}runner.image in the runtime, \
         or {service}runner.image in the service"
    )
}

//! The pods of OME's InferenceService: the layers of the runtime and the service are merged, the model is mounted, and annotations are
//! converted to settings.

mod adapter;
pub(crate) mod benchmark;
mod files;
mod model;
mod placeholder;
mod ray;
mod security;
mod settings;
mod storage;
pub(crate) mod training;

use crate::{Config, engine, nodes, pod::Pod, readiness, rules::Rules};
use adapter::Adapters;
use model::Model;
use pointsman_plugin::{Failure, Reason, Role, pod_templating::Request};
use ray::Ray;
use settings::Settings;
use storage::Storage;

pub(crate) static RULES: Rules = Rules { main: "ome-container", lenient: true, speaks, no_image, finish };

/// The port of an engine that declares none.
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
    let (router, subject) = (request.role == Role::Router, &request.subject);
    let settings = Settings::from_request(request)?;
    let ray = Ray::begin(request, pod, reasons)?;

    let storage = request.layer::<Option<Storage>>("storage")?.flatten();
    let model = request.layer::<Option<Model>>("model")?.flatten().filter(|_| !router);
    let stored = match &model {
        Some(model) => model.mount(config, subject, storage.as_ref(), pod, reasons)?,
        None => false,
    };
    if let Some(storage) = storage.filter(|_| !stored) {
        storage.mount(pod, reasons);
    }
    let adapters = Adapters::from_request(request, router)?;
    adapters.mount(config, subject, pod, reasons)?;

    if !router {
        let nodes = ray.nodes(nodes(request)?, pod, reasons);
        engine::spread(config, nodes, pod, reasons)?;
        if ray.runs_engine() {
            settings.tell_engine(pod, reasons)?;
            if let Some(length) = model.as_ref().and_then(|model| model.max_tokens) {
                settings::tell_length(length, pod, reasons);
            }
            adapters.tell(pod, reasons)?;
        }
    }
    if !matches!(request.role, Role::Worker | Role::Job) {
        readiness::probe(PORT, pod, reasons);
    }
    settings.tell_cloud(pod);
    settings.give_secret(pod);
    let path = model.map(|model| model.path(config));
    placeholder::fill(subject, path.as_deref(), pod, reasons);
    settings.secure(pod, reasons)?;
    // Last, because the engine behind Ray can't be configured any more.
    ray.finish(pod, reasons);
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
        "the container {container} has no image: set {runtime}runner.image in the runtime, \
         or {service}runner.image in the service"
    )
}

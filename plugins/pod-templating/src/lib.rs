//! The default policy at pod-templating: what the pods of a service look like.
//!
//! It merges what the runtime and the service say of a pod, the weakest first, and adds what the model and the GPUs need. It does so as
//! OME does. Where OME errs, it doesn't: an override without a name blanks no name, a list that is given replaces the weaker one and
//! isn't split at quotes, two sources of a volume don't mix, and placeholders aren't escaped for HTML.

mod arguments;
mod engine;
mod merge;
mod model;
mod node;
mod place;
mod placeholder;
mod pod;
mod readiness;
mod resources;
mod steps;

use model::Model;
use pod::{MAIN, Pod};
use pointsman_plugin::{
    Failure, Role,
    pod_templating::{Answer, Request},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// What can be configured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// What happens to the arguments of a weaker layer.
    pub arguments: Arguments,
    /// The folder below which models are, where a model doesn't say its path.
    pub model_root: String,
    /// Whether pods go to nodes that have the model only.
    pub placement: bool,
    /// Whether vLLM and SGLang are told how to spread over several GPUs, where nobody says it.
    pub parallelism: bool,
    /// The resources that are GPUs, beside all that end in `/gpu`.
    pub gpu_resources: Vec<String>,
}

/// What happens to the arguments of a weaker layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Arguments {
    /// A list that is given replaces the weaker one.
    #[default]
    Replace,
    /// A flag that is given replaces its namesake, and the others stay.
    MergeByFlag,
}

impl Default for Config {
    fn default() -> Self {
        let gpus = ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"];
        Self {
            arguments: Arguments::Replace,
            model_root: "/mnt/models".to_owned(),
            placement: true,
            parallelism: true,
            gpu_resources: gpus.map(str::to_owned).to_vec(),
        }
    }
}

/// The layer `group`.
#[derive(Debug, Deserialize)]
struct Group {
    nodes: u32,
}

/// Turns the layers into the steps that finish the template.
#[allow(clippy::needless_pass_by_value, reason = "it has the form that all policies have")]
pub fn template(config: &Config, request: Request) -> Result<Answer, Failure> {
    let Value::Object(mut frame) = request.template()? else {
        return Err("the template must be an object with metadata and spec; the host, or the plugin before this one, gives it".into());
    };
    let frame = frame.remove("spec").filter(|spec| !spec.is_null());
    let mut reasons = Vec::new();
    let mut pod = Pod::merged(config, &request, frame.as_ref())?;
    has_image(&request, &pod)?;
    resources::settle(&mut pod);
    let router = request.role == Role::Router;
    let model = request.layer::<Option<Model>>("model")?.flatten().filter(|_| !router);
    if let Some(model) = &model {
        model.mount(config, &request.subject, &mut pod, &mut reasons)?;
    }
    if !router {
        engine::spread(config, nodes(&request)?, &mut pod, &mut reasons)?;
    }
    if !matches!(request.role, Role::Worker | Role::Job) {
        readiness::probe(&mut pod, &mut reasons);
    }
    let path = model.map(|model| model.path(config));
    placeholder::fill(&request.subject, path.as_deref(), &mut pod, &mut reasons);
    Ok(Answer { operations: steps::between(frame.as_ref(), &pod.spec)?, reasons })
}

/// How many pods run the model together.
fn nodes(request: &Request) -> Result<u32, Failure> {
    if !matches!(request.role, Role::Leader | Role::Worker) {
        return Ok(1);
    }
    Ok(request.layer::<Option<Group>>("group")?.flatten().map_or(1, |group| group.nodes.max(1)))
}

/// A pod without an image is refused by the cluster, with a sentence that names no cause.
fn has_image(request: &Request, pod: &Pod<'_>) -> Result<(), Failure> {
    let main = pod.main();
    if main.is_some_and(|main| main.text_at("image").is_some()) {
        return Ok(());
    }
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
    let name = main.and_then(|main| main.text_at("name")).unwrap_or(MAIN);
    Err(format!(
        "neither the runtime nor the service gives the container {name} an image: set {runtime}runner.image in the runtime, \
         or {service}runner.image in the service"
    )
    .into())
}

pointsman_plugin::export! { config: Config, pod_templating: template }

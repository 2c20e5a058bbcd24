//! The default policy at pod-templating: what the pods of a service look like.
//!
//! It merges what the layers say of a pod, the weakest first, and adds what the model and the GPUs need. It does so as OME, KServe
//! and eh-ops do, each for its kind. Where they err, it doesn't: an override without a name blanks no name, a list that is given replaces the weaker
//! one and isn't split at quotes, two sources of a volume don't mix, and placeholders aren't escaped for HTML.

mod adapters;
mod arguments;
mod eh_ops;
mod engine;
mod initializer;
mod kserve;
mod merge;
mod node;
mod ome;
mod place;
mod pod;
mod readiness;
mod resources;
mod rules;
mod steps;
mod volume;

use pod::Pod;
use pointsman_plugin::{
    Failure, IMAGE_MIRROR, Role, mirrored,
    pod_templating::{Answer, Request},
};
use rules::Rules;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// What can be configured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// What happens to the arguments of a weaker layer.
    pub arguments: Arguments,
    /// The folder below which OME's models are, where a model doesn't say its path. KServe's are always at /mnt/models itself, which
    /// their command lines name.
    pub model_root: String,
    /// Whether pods go to nodes that have the model only.
    pub placement: bool,
    /// Whether vLLM and SGLang are told how to spread over several GPUs, where nobody says it.
    pub parallelism: bool,
    /// The resources that are GPUs, beside all that end in `/gpu`.
    pub gpu_resources: Vec<String>,
    /// The image of the init container that downloads models. It gets two arguments: the URI that the model is at, and the folder that it
    /// goes to.
    pub storage_initializer: String,
    /// The image of the init container that downloads the adapters of an InferenceService. It gets the same two arguments.
    pub adapter_initializer: String,
}

/// How many operations the host takes from a policy. Whoever specifies more is told so: it is no fault of the policy.
const MAX_OPERATIONS: usize = 4096;

/// Where models are, unless somebody says otherwise.
const MODELS: &str = "/mnt/models";

const STORAGE_INITIALIZER: &str = "kserve/storage-initializer:v0.18.0";

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
            model_root: MODELS.to_owned(),
            placement: true,
            parallelism: true,
            gpu_resources: gpus.map(str::to_owned).to_vec(),
            storage_initializer: STORAGE_INITIALIZER.to_owned(),
            adapter_initializer: STORAGE_INITIALIZER.to_owned(),
        }
    }
}

impl Config {
    /// The same with the images from another registry that nobody has configured.
    fn mirrored(&self, registry: &str) -> Self {
        let image = |image: &str| if image == STORAGE_INITIALIZER { mirrored(image, registry) } else { image.to_owned() };
        Self {
            storage_initializer: image(&self.storage_initializer),
            adapter_initializer: image(&self.adapter_initializer),
            ..self.clone()
        }
    }
}

/// The layer `group`.
#[derive(Debug, Deserialize)]
struct Group {
    nodes: u32,
    /// Whether it is a Ray cluster, rather than a LeaderWorkerSet's group.
    #[serde(default)]
    ray: bool,
    /// Whether somebody asks that KubeRay leave the command lines alone.
    #[serde(default)]
    overwrite: bool,
}

/// Turns the layers into the steps that finish the template.
#[allow(clippy::needless_pass_by_value, reason = "it has the form that all policies have")]
pub fn template(config: &Config, request: Request) -> Result<Answer, Failure> {
    let Value::Object(mut frame) = request.template()? else {
        return Err("the template from the host or the previous plugin must be an object with metadata and spec".into());
    };
    let mirrors = request.fact(IMAGE_MIRROR)?.map(|registry: String| config.mirrored(&registry));
    let config = mirrors.as_ref().unwrap_or(config);
    let metadata = frame.remove("metadata");
    let frame = frame.remove("spec").filter(|spec| !spec.is_null());
    let rules = Rules::for_subject(&request.subject);
    let mut reasons = Vec::new();
    let mut pod = Pod::merged(rules, config, &request, frame.as_ref())?;
    let main = pod.main();
    if main.and_then(|main| main.text_at("image")).is_none() {
        let name = main.and_then(|main| main.text_at("name")).unwrap_or(rules.main);
        return Err((rules.no_image)(&request, name).into());
    }
    resources::settle(&mut pod);
    (rules.finish)(config, &request, &mut pod, &mut reasons)?;
    let mut operations = steps::annotate(metadata.as_ref(), &pod.annotations)?;
    operations.extend(steps::between(frame.as_ref(), &pod.spec)?);
    if operations.len() > MAX_OPERATIONS {
        let number = operations.len();
        return Err(Failure::refusal(format!(
            "the pod is too large: it takes {number} operations to describe it; the limit is {MAX_OPERATIONS}: specify fewer \
             containers, environment variables, arguments or volumes"
        )));
    }
    Ok(Answer { operations, reasons })
}

/// The group of a leader or a worker.
fn group(request: &Request) -> Result<Option<Group>, Failure> {
    if !matches!(request.role, Role::Leader | Role::Worker) {
        return Ok(None);
    }
    Ok(request.layer::<Option<Group>>("group")?.flatten())
}

/// How many pods run the model together.
fn nodes(request: &Request) -> Result<u32, Failure> {
    Ok(group(request)?.map_or(1, |group| group.nodes.max(1)))
}

pointsman_plugin::export! { config: Config, pod_templating: template }

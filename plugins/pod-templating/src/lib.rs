//! The default policy at pod-templating: how the pods of a service are built.
//!
//! It merges the layers, lowest precedence first, and adds the fields that the model and the GPUs need. It does this as OME, KServe and
//! eh-ops do for their kinds, but without their errors: an override without a name doesn't clear a name, a specified list replaces the
//! weaker one and isn't split at quotes, two sources of a volume aren't mixed, and placeholders aren't escaped for HTML.

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

/// The configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// How arguments of a weaker layer are treated.
    pub arguments: Arguments,
    /// The folder below which OME's models are, if a model doesn't specify its path. KServe's models are always at /mnt/models itself,
    /// which their command lines use.
    pub model_root: String,
    /// Whether pods run only on nodes that have the model.
    pub placement: bool,
    /// Whether vLLM and SGLang get flags for several GPUs, unless they are set explicitly.
    pub parallelism: bool,
    /// The GPU resources, in addition to all that end in `/gpu`.
    pub gpu_resources: Vec<String>,
    /// The image of the init container that downloads models. It gets two arguments: the URI of the model, and the destination folder.
    pub storage_initializer: String,
    /// The image of the init container that downloads the adapters of an InferenceService. It gets the same two arguments.
    pub adapter_initializer: String,
}

/// The maximum number of operations that the host accepts from a policy. More are a refusal, because the subject causes them, not the
/// policy.
const MAX_OPERATIONS: usize = 4096;

/// The default folder of models.
const MODELS: &str = "/mnt/models";

const STORAGE_INITIALIZER: &str = "kserve/storage-initializer:v0.18.0";

/// How arguments of a weaker layer are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Arguments {
    /// A specified list replaces the weaker one.
    #[default]
    Replace,
    /// A specified flag replaces the flag with the same name; other flags stay.
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
    /// The same configuration, but images that weren't configured come from another registry.
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
    /// Whether it is a Ray cluster instead of a LeaderWorkerSet's group.
    #[serde(default)]
    ray: bool,
    /// Whether KubeRay must keep the command lines.
    #[serde(default)]
    overwrite: bool,
}

/// Turns the layers into the operations that complete the template.
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

/// The number of pods that run the model together.
fn nodes(request: &Request) -> Result<u32, Failure> {
    Ok(group(request)?.map_or(1, |group| group.nodes.max(1)))
}

pointsman_plugin::export! { config: Config, pod_templating: template }

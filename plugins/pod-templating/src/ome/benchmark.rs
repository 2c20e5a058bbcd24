//! The pod of OME's BenchmarkJob. The host provides the container, the benchmark changes it, and files are added: a tokenizer and a
//! dataset.

use super::{
    files::{Files, Origin},
    model::Model,
    settings::Settings,
};
use crate::{Config, node::By, pod::Pod, rules::Rules};
use pointsman_plugin::{Failure, Reason, Role, pod_templating::Request};
use serde::Deserialize;

pub(crate) static RULES: Rules = Rules { main: "genai-bench", lenient: false, speaks, no_image, finish };

/// The init container that downloads the dataset.
pub(super) const INITIALIZER: &str = "dataset-initializer";

/// The layer `dataset`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dataset {
    name: String,
    storage_uri: String,
    /// The path in the pod: the file itself, or the folder that it is downloaded into.
    path: String,
}

fn speaks(layer: &str, _: Role) -> bool {
    layer == "user"
}

fn finish(config: &Config, request: &Request, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
    let settings = Settings::from_request(request)?;
    if let Some(model) = request.layer::<Option<Model>>("model")?.flatten() {
        model.mount(config, &request.subject, None, pod, reasons)?;
    }
    if let Some(dataset) = request.layer::<Option<Dataset>>("dataset")?.flatten() {
        dataset.bring(config, request, pod, reasons)?;
    }
    settings.tell_cloud(pod);
    settings.give_secret(pod);
    settings.secure(pod, reasons)
}

impl Dataset {
    fn bring(&self, config: &Config, request: &Request, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
        let by = By { rank: usize::MAX, layer: "dataset" };
        let what = format!("dataset {}", self.name);
        let origin = Origin::from_uri(Some(&self.storage_uri), &what, &request.subject)?;
        let initializer = (INITIALIZER, &*config.storage_initializer);
        Files { what: &what, origin, path: &self.path, volume: "dataset", initializer }.bring(None, pod, by, reasons)?;
        Ok(())
    }
}

fn no_image(_: &Request, container: &str) -> String {
    format!("the container {container} has no image: set spec.podOverride.image, or the controller's flag --benchmark-image")
}

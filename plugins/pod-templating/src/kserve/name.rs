//! The name of the model in vLLM, which requests and routers use.

use crate::{
    engine::{self, Engine},
    node::By,
    pod::{Pod, add_arguments},
};
use pointsman_plugin::{Failure, Reason, pod_templating::Request, reason};
use serde::Deserialize;

const FLAG: &str = "--served-model-name";

/// The name in the layer `model`.
#[derive(Debug, Deserialize)]
struct Model {
    #[serde(default)]
    name: String,
}

/// Sets vLLM's flag for the name, unless its command line has it: a service with its own arguments has none of the preset's.
pub(crate) fn tell(request: &Request, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
    let Some(Model { name }) = request.layer::<Option<Model>>("model")?.flatten() else { return Ok(()) };
    let Some(main) = pod.main_mut().filter(|_| !name.is_empty()) else { return Ok(()) };
    if Engine::detect(main) != Some(Engine::Vllm) || engine::given(main).iter().any(|flag| flag == FLAG) {
        return Ok(());
    }
    add_arguments(main, [FLAG.to_owned(), name.clone()], By { layer: "model", ..By::PLUGIN });
    reasons.push(reason("ModelNamed", format!("vLLM serves the model under the name {name}.")));
    Ok(())
}

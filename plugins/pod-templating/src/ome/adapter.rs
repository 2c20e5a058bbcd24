//! A fine-tuned weight that is loaded beside the model.

use super::files::{Files, Origin};
use crate::{
    Config, adapters,
    engine::{self, Engine},
    node::By,
    pod::{Pod, set_variable},
};
use pointsman_plugin::{Failure, Reason, Subject, reason};
use serde::Deserialize;

/// The folder that holds a folder for each adapter.
const ADAPTERS: &str = "/mnt/adapters";

/// The init container that downloads the adapter.
pub(super) const INITIALIZER: &str = "adapter-initializer";

const BY: By<'static> = By { layer: "adapter", ..By::PLUGIN };

/// The layer `adapter`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Adapter {
    name: String,
    storage_uri: Option<String>,
    model_type: Option<String>,
}

impl Adapter {
    /// Brings the adapter into the main container, and tells it where.
    pub(super) fn mount(&self, config: &Config, subject: &Subject, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
        if !adapters::is_folder(&self.name) {
            return Err(format!(
                "the adapter is called {:?}: give it a name of letters, digits and - _ ., which can be a folder's",
                self.name
            )
            .into());
        }
        let (what, path) = (format!("adapter {}", self.name), self.path());
        let origin = Origin::from_uri(self.storage_uri.as_deref(), &what, subject)?;
        if let Some(main) = pod.main_mut() {
            set_variable(main, "ADAPTER_PATH", &*path, BY);
        }
        let initializer = (INITIALIZER, &*config.adapter_initializer);
        Files { what: &what, origin, path: &path, volume: "adapter", initializer }.bring(None, pod, BY, reasons)?;
        Ok(())
    }

    /// Tells the engine to load the adapter, if it is one that the engine knows to load.
    pub(super) fn tell(&self, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) {
        let (name, path) = (&self.name, self.path());
        let Some(main) = pod.main_mut() else { return };
        let container = main.text_at("name").unwrap_or_default().to_owned();
        let Some(engine) = Engine::detect(main) else {
            let message = format!("The command line of {container} is none that is known, so it has to load the adapter at {path} itself.");
            reasons.push(reason("AdapterUntold", message));
            return;
        };
        let kind = self.model_type.as_deref().unwrap_or_default();
        if !["", "lora", "adapter"].contains(&&*kind.to_ascii_lowercase()) {
            let message =
                format!("{} loads no weights of the type {kind}, so {container} has to load those at {path} itself.", engine.name());
            reasons.push(reason("AdapterUntold", message));
            return;
        }
        let flag = engine.adapters();
        if engine::given(main).iter().any(|given| given == flag) {
            let message = format!("The command line of {container} has {flag} already, which has to name {name}={path} itself.");
            reasons.push(reason("FlagKept", message));
        }
        adapters::tell(engine, [(&**name, &*path)].into_iter(), main, BY);
    }

    fn path(&self) -> String {
        format!("{ADAPTERS}/{}", self.name)
    }
}

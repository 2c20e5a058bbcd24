//! Fine-tuned weights that are loaded in addition to the model.

use super::files::{Files, Origin};
use crate::{
    Config, adapters,
    engine::{self, Engine},
    node::{By, Node},
    pod::{Pod, add_arguments, line_of, set_variable},
};
use pointsman_plugin::{
    Failure, Reason, Subject,
    pod_templating::{Layer, Request},
    reason,
};
use serde::Deserialize;

/// The folder that contains one folder per adapter.
const ADAPTERS: &str = "/mnt/adapters";

/// The init container that downloads the adapter. From the second one on, a number is appended.
const INITIALIZER: &str = "adapter-initializer";

/// The variable with the names and paths of several adapters.
const PATHS: &str = "ADAPTER_PATHS";

/// The values that vLLM accepts as the maximum rank. An adapter with a rank in between needs the next larger one.
const VLLM_RANKS: [u64; 7] = [8, 16, 32, 64, 128, 256, 512];

/// vLLM's default maximum rank.
const VLLM_DEFAULT_RANK: u64 = 16;

const BY: By<'static> = By { layer: "adapter", ..By::PLUGIN };

/// The layers `adapter`, one per weight.
#[derive(Debug)]
pub(super) struct Adapters(Vec<Adapter>);

/// A layer `adapter`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Adapter {
    name: String,
    storage_uri: Option<String>,
    model_type: Option<String>,
    rank: Option<u64>,
}

/// Whether an init container with this name downloads an adapter.
pub(super) fn is_initializer(name: &str) -> bool {
    let number = |rest: &str| rest.strip_prefix('-').is_some_and(|number| number.parse::<u8>().is_ok());
    name.strip_prefix(INITIALIZER).is_some_and(|rest| rest.is_empty() || number(rest))
}

impl Adapters {
    /// Parses the layers. A router has none.
    pub(super) fn from_request(request: &Request, router: bool) -> Result<Self, Failure> {
        let layers = request.layers.iter().filter(|layer| layer.name == "adapter" && !router);
        let adapters = layers.map(Layer::content::<Option<Adapter>>).collect::<Result<Vec<_>, _>>()?;
        Ok(Self(adapters.into_iter().flatten().collect()))
    }

    /// Provides the adapters in the main container, and sets their paths there.
    pub(super) fn mount(&self, config: &Config, subject: &Subject, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
        let Self(all) = self;
        if let Some(adapter) = all.iter().find(|adapter| !adapters::is_folder(&adapter.name)) {
            return Err(format!(
                "the adapter is called {:?}: give it a name of letters, digits and - _ ., valid for a folder",
                adapter.name
            )
            .into());
        }
        if let Some(main) = pod.main_mut() {
            match &all[..] {
                [] => {}
                [adapter] => set_variable(main, "ADAPTER_PATH", adapter.path(), BY),
                all => {
                    let paths: Vec<_> = all.iter().map(|adapter| format!("{}={}", adapter.name, adapter.path())).collect();
                    set_variable(main, PATHS, paths.join(","), BY);
                }
            }
        }
        for (number, adapter) in (1..).zip(all) {
            let (what, path) = (format!("adapter {}", adapter.name), adapter.path());
            let numbered = |name: &str| if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
            let (volume, initializer) = (numbered("adapter"), numbered(INITIALIZER));
            let origin = Origin::from_uri(adapter.storage_uri.as_deref(), &what, subject)?;
            let initializer = (&*initializer, &*config.adapter_initializer);
            Files { what: &what, origin, path: &path, volume: &volume, initializer }.bring(None, pod, BY, reasons)?;
        }
        Ok(())
    }

    /// Configures the engine to load the adapters, if it is a known one.
    pub(super) fn tell(&self, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
        let Some(main) = pod.main_mut().filter(|_| !self.0.is_empty()) else { return Ok(()) };
        let container = main.text_at("name").unwrap_or_default().to_owned();
        let Some(engine) = Engine::detect(main) else {
            let why = format!("the command line of {container} is unknown");
            return self.leave(&why, &container, main, reasons);
        };
        if let Some(kind) = self.0.iter().find_map(Adapter::other_kind) {
            let why = format!("{} loads no weights of the type {kind}", engine.name());
            return self.leave(&why, &container, main, reasons);
        }
        let flag = engine.adapters();
        let given = engine::given(main);
        let is_given = |flag: &str| given.iter().any(|given| given == flag);
        if is_given(flag) {
            let named: Vec<_> = self.0.iter().map(|adapter| format!("{}={}", adapter.name, adapter.path())).collect();
            let named = named.join(" ");
            let message = format!("The command line of {container} has {flag} already, which must name {named} itself.");
            reasons.push(reason("FlagKept", message));
        }
        let limits = if engine == Engine::Vllm && !is_given(flag) { self.vllm_limits(is_given)? } else { Vec::new() };
        let paths: Vec<_> = self.0.iter().map(|adapter| (&*adapter.name, adapter.path())).collect();
        adapters::tell(engine, paths.iter().map(|(name, path)| (*name, &**path)), main, BY);
        if !limits.is_empty() {
            let message = format!("vLLM reserves room for the adapters: {}.", limits.join(" "));
            reasons.push(reason("AdapterLimits", message));
            add_arguments(main, limits, BY);
        }
        Ok(())
    }

    /// By default, vLLM has room for one adapter of rank 16 at once. SGLang has room for eight, and reads their ranks from the files.
    fn vllm_limits(&self, is_given: impl Fn(&str) -> bool) -> Result<Vec<String>, Failure> {
        let Self(all) = self;
        let mut words = Vec::new();
        // The limit for main memory must not be below that for the GPU.
        if all.len() > 1 && !is_given("--max-loras") && !is_given("--max-cpu-loras") {
            words.extend(["--max-loras".to_owned(), all.len().to_string()]);
        }
        if all.iter().all(|adapter| adapter.rank.is_none()) || is_given("--max-lora-rank") {
            return Ok(words);
        }
        let rank = all.iter().map(|adapter| adapter.rank.unwrap_or(VLLM_DEFAULT_RANK)).max().unwrap_or_default();
        let Some(room) = VLLM_RANKS.iter().find(|room| **room >= rank) else {
            let name = all.iter().find(|adapter| adapter.rank == Some(rank)).map_or("", |adapter| &*adapter.name);
            let message = format!(
                "the hyperParameters of the FineTunedWeight {name} have rank {rank}, but vLLM loads ranks up to 512: serve it with \
                 SGLang, or merge it with its model"
            );
            return Err(Failure::refusal(message).at("spec.model.fineTunedWeights"));
        };
        words.extend(["--max-lora-rank".to_owned(), room.to_string()]);
        Ok(words)
    }

    /// Leaves the loading to the container. With several adapters, the container must refer to them: otherwise, it would be unknown which
    /// one it serves.
    fn leave(&self, why: &str, container: &str, main: &Node<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
        let asks = |text: &str| text.contains(PATHS) || text.contains(ADAPTERS);
        let line = line_of(main);
        let mut variables = main.items_at("env").iter().filter_map(|variable| variable.text_at("value"));
        let what = match &self.0[..] {
            [adapter] => format!("the adapter at {}", adapter.path()),
            _ if line.into_iter().any(asks) || variables.any(|value| value.contains("$(ADAPTER_PATHS)")) => {
                format!("the adapters in {PATHS}")
            }
            all => {
                let message = format!(
                    "{} weights can't be served beside the model, because {why}: name only one of them, choose a runtime of vLLM or SGLang for \
                     weights of the type LoRA, or name $({PATHS}) in the command line",
                    all.len()
                );
                return Err(Failure::refusal(message).at("spec.model.fineTunedWeights"));
            }
        };
        reasons.push(reason("AdapterUntold", format!("The container {container} must load {what} itself: {why}.")));
        Ok(())
    }
}

impl Adapter {
    fn path(&self) -> String {
        format!("{ADAPTERS}/{}", self.name)
    }

    /// The type of the weight, if engines can't load it in addition to a model.
    fn other_kind(&self) -> Option<&str> {
        let kind = self.model_type.as_deref().unwrap_or_default();
        (!["", "lora", "adapter"].contains(&&*kind.to_ascii_lowercase())).then_some(kind)
    }
}

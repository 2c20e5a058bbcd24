//! The number of GPUs, and the flags with which the engine uses them.

use crate::{
    Config, arguments,
    node::{By, Node},
    pod::{Pod, add_arguments, line_of, set_variable},
};
use pointsman_plugin::{Failure, Reason, reason};
use serde_json::Value;

/// An engine with known flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Vllm,
    Sglang,
}

/// The GPUs of one pod, and the pods of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) gpus: u64,
    pub(crate) nodes: u64,
}

/// Sets the total number of GPUs in the main container, and the flags for an engine without any about parallelism.
pub(crate) fn spread(config: &Config, nodes: u32, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
    let Some(main) = pod.main_mut() else { return Ok(()) };
    let extent = Extent { gpus: gpus(config, main)?, nodes: nodes.max(1).into() };
    if extent.gpus > 0 {
        set_variable(main, "PARALLELISM_SIZE", extent.all().to_string(), By::PLUGIN);
        tell(config, extent, main, reasons);
    }
    Ok(())
}

/// Sets the flags for parallelism, unless the engine already has some.
pub(crate) fn tell(config: &Config, extent: Extent, main: &mut Node<'_>, reasons: &mut Vec<Reason>) {
    if !config.parallelism || extent.all() <= 1 {
        return;
    }
    let Some(engine) = Engine::detect(main) else { return };
    let given = given(main);
    if engine.parallelism().iter().any(|flag| given.iter().any(|given| given == flag)) {
        return;
    }
    let flags: Vec<_> = engine.flags(extent).into_iter().filter(|(flag, _)| !given.iter().any(|given| given == flag)).collect();
    let told: Vec<_> = flags.iter().map(|(flag, value)| format!("{flag} {value}")).collect();
    add_arguments(main, flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]), By::PLUGIN);
    let over = match extent {
        Extent { gpus, nodes: 1 } => format!("{gpus} GPUs"),
        Extent { gpus, nodes } => format!("{gpus} GPUs on each of {nodes} nodes"),
    };
    reasons.push(reason("Parallelism", format!("{} is spread over {over}: {}.", engine.name(), told.join(" "))));
}

/// The flags in the command line.
pub(crate) fn given(container: &Node<'_>) -> Vec<String> {
    line_of(container).into_iter().filter_map(arguments::flag).collect()
}

impl Extent {
    fn all(self) -> u64 {
        self.gpus.saturating_mul(self.nodes)
    }
}

/// The number of GPUs that the container requests.
pub(crate) fn gpus(config: &Config, container: &Node<'_>) -> Result<u64, Failure> {
    let Some(resources) = container.get("resources") else { return Ok(0) };
    let of = |field: &str| resources.get(field).and_then(Node::fields);
    let (limits, requests) = (of("limits"), of("requests"));
    // A limit is also a request, so each resource is counted once.
    let asked = limits.into_iter().flatten();
    let asked = asked.chain(requests.into_iter().flatten().filter(|(key, _)| !limits.is_some_and(|limits| limits.contains_key(*key))));
    let mut gpus = 0_u64;
    for (key, quantity) in asked.filter(|(key, _)| key.ends_with("/gpu") || config.gpu_resources.iter().any(|known| known == *key)) {
        let number = match quantity.scalar() {
            Some(Value::String(text)) => text.parse::<u32>().ok(),
            Some(Value::Number(number)) => number.as_u64().and_then(|number| number.try_into().ok()),
            _ => None,
        };
        let Some(number) = number else {
            let (name, said) = (container.text_at("name").unwrap_or_default(), quantity.scalar().map(Value::to_string).unwrap_or_default());
            return Err(format!("the container {name} requests {said} of {key}: set a whole number, such as 8").into());
        };
        gpus = gpus.saturating_add(number.into());
    }
    Ok(gpus)
}

impl Engine {
    /// The engine that the command line starts. If there are only arguments, the engine is recognised by the image's name.
    ///
    /// Without a command line, the image starts its default command, which arguments would replace.
    pub(crate) fn detect(container: &Node<'_>) -> Option<Self> {
        let (line, image) = (line_of(container), container.text_at("image").unwrap_or_default());
        if line.is_empty() || arguments::is_shell(&line) {
            return None;
        }
        let serves = |program: &str| line.windows(2).any(|pair| arguments::basename(pair[0]) == program && pair[1] == "serve");
        let runs =
            |module: &str| line.iter().any(|word| word.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')));
        if runs("vllm.entrypoints") || serves("vllm") {
            return Some(Self::Vllm);
        }
        if runs("sglang.launch_server") || serves("sglang") {
            return Some(Self::Sglang);
        }
        // A specified command is followed by its own arguments.
        if !container.items_at("command").is_empty() {
            return None;
        }
        let name = repository(image);
        [("sglang", Self::Sglang), ("vllm", Self::Vllm)].into_iter().find(|(word, _)| name.contains(word)).map(|(_, engine)| engine)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
        }
    }

    /// The flag for adapters.
    pub(crate) fn adapters(self) -> &'static str {
        match self {
            Self::Vllm => "--lora-modules",
            Self::Sglang => "--lora-paths",
        }
    }

    /// The flags with which a user sets parallelism explicitly.
    pub(crate) fn parallelism(self) -> &'static [&'static str] {
        match self {
            Self::Vllm => &["--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--data-parallel-size", "-dp"],
            Self::Sglang => &[
                "--tp-size",
                "--tp",
                "--tensor-parallel-size",
                "--pp-size",
                "--pp",
                "--pipeline-parallel-size",
                "--dp-size",
                "--dp",
                "--data-parallel-size",
                "--ep-size",
                "--ep",
                "--expert-parallel-size",
            ],
        }
    }

    /// The flags for parallelism. vLLM uses tensor parallelism within a node and pipeline parallelism between nodes; SGLang uses tensor
    /// parallelism over all GPUs.
    fn flags(self, extent: Extent) -> Vec<(&'static str, String)> {
        let Extent { gpus, nodes } = extent;
        let mut flags = Vec::new();
        match self {
            Self::Vllm => {
                if gpus > 1 {
                    flags.push(("--tensor-parallel-size", gpus.to_string()));
                }
                if nodes > 1 {
                    flags.push(("--pipeline-parallel-size", nodes.to_string()));
                }
            }
            Self::Sglang => {
                flags.push(("--tp-size", extent.all().to_string()));
                if nodes > 1 {
                    // LeaderWorkerSet sets these variables in every pod, and the kubelet expands them.
                    flags.push(("--nnodes", nodes.to_string()));
                    flags.push(("--node-rank", "$(LWS_WORKER_INDEX)".to_owned()));
                    flags.push(("--dist-init-addr", "$(LWS_LEADER_ADDRESS):20000".to_owned()));
                }
            }
        }
        flags
    }
}

/// The image's name without tag and digest.
pub(crate) fn repository(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    // After the last slash, a colon precedes the tag; before it, it precedes the registry's port.
    name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(name, |(name, _)| name)
}

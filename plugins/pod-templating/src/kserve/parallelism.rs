//! vLLM's flags for `spec.parallelism`.
//!
//! They are set here, not in the presets, so that a template without a preset also gets them, and explicit flags take precedence.

use crate::{
    Config, Group,
    engine::{self, Engine, Extent},
    node::{By, Node},
    nodes,
    pod::{Pod, add_arguments},
};
use pointsman_plugin::{Failure, Reason, Role, pod_templating::Request, reason};
use serde::Deserialize;

/// The default port over which the copies of a group communicate.
const RPC_PORT: u64 = 5555;

// LeaderWorkerSet sets these variables in every pod of a group, and the kubelet expands them.
const LEADER: &str = "$(LWS_LEADER_ADDRESS)";
const PLACE: &str = "$(LWS_WORKER_INDEX)";

/// The layer `parallelism`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Parallelism {
    tensor: Option<u64>,
    pipeline: Option<u64>,
    data: Option<u64>,
    data_local: Option<u64>,
    #[serde(rename = "dataRPCPort")]
    data_rpc_port: Option<u64>,
    expert: Option<bool>,
    group: Option<Group>,
}

/// A flag, its short name, its value and its source.
type Flag<'a> = (&'static str, &'static str, Option<String>, By<'a>);

/// Sets vLLM's flags for the split of the model, unless its command line already has them.
pub(crate) fn tell(config: &Config, request: &Request, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
    let layer = request.layer::<Option<Parallelism>>("parallelism")?.flatten();
    let by = layer.as_ref().map_or(By::PLUGIN, |_| By { layer: "parallelism", ..By::PLUGIN });
    let wanted = layer.unwrap_or_default();
    let nodes = u64::from(wanted.group.as_ref().map_or_else(|| nodes(request), |group| Ok(group.nodes.max(1)))?);
    let Some(main) = pod.main_mut() else { return Ok(()) };
    let gpus = engine::gpus(config, main)?;
    match Engine::detect(main) {
        Some(Engine::Vllm) => {}
        Some(Engine::Sglang) if wanted.tensor.is_none() && wanted.data.is_none() => {
            engine::tell(config, Extent { gpus, nodes }, main, reasons);
            return Ok(());
        }
        _ => {
            if wanted.says_something() {
                let message = "The command line of main isn't vLLM's own, so it must set spec.parallelism itself.";
                reasons.push(reason("ParallelismUntold", message));
            }
            return Ok(());
        }
    }
    let given = engine::given(main);
    let is_given = |flag: &str, short: &str| given.iter().any(|given| given == flag || given == short);
    let derive = config.parallelism && !Engine::Vllm.parallelism().iter().any(|flag| is_given(flag, flag));
    let mut flags = wanted.flags(Extent { gpus, nodes }, derive, by);
    let mut reckoned = None;
    if request.role == Role::Worker && nodes > 1 {
        // If each pod accepts requests for its own copies, none is headless.
        if !is_given("--data-parallel-hybrid-lb", "-dph") {
            flags.push(("--headless", "", None, by));
        }
        if wanted.data.is_some() && !is_given("--data-parallel-start-rank", "-dpr") {
            match wanted.local(nodes) {
                1 => flags.push(("--data-parallel-start-rank", "-dpr", Some(PLACE.to_owned()), by)),
                local => reckoned = Some(start_rank(main, local, by)?),
            }
        }
    }
    flags.retain(|(flag, short, ..)| !is_given(flag, short));
    let told = flags.iter().map(|(flag, _, value, _)| value.as_ref().map_or((*flag).to_owned(), |value| format!("{flag} {value}")));
    let told: Vec<_> = told.chain(reckoned).collect();
    for (flag, _, value, by) in flags {
        add_arguments(main, [flag.to_owned()].into_iter().chain(value), by);
    }
    if !told.is_empty() {
        reasons.push(reason("Parallelism", format!("vLLM splits the model by these flags: {}.", told.join(" "))));
    }
    Ok(())
}

impl Parallelism {
    fn says_something(&self) -> bool {
        [self.tensor, self.pipeline, self.data].iter().any(Option::is_some) || self.expert == Some(true)
    }

    /// The number of copies per pod.
    fn local(&self, nodes: u64) -> u64 {
        self.data.map_or(1, |data| self.data_local.unwrap_or(data / nodes)).max(1)
    }

    /// The flags of all pods in a group. If `derive` is set, missing values are derived from the GPUs and the nodes.
    fn flags<'a>(&self, Extent { gpus, nodes }: Extent, derive: bool, by: By<'a>) -> Vec<Flag<'a>> {
        let mut flags = Vec::new();
        let stages = if nodes > 1 { 1 } else { self.pipeline.unwrap_or(1).max(1) };
        let parts = self.local(nodes).saturating_mul(stages);
        let tensor = Some(gpus / parts).filter(|tensor| derive && gpus % parts == 0 && *tensor > 1);
        let pipeline = Some(nodes).filter(|_| derive && nodes > 1 && self.data.is_none());
        for (flag, short, said, derived) in
            [("--tensor-parallel-size", "-tp", self.tensor, tensor), ("--pipeline-parallel-size", "-pp", self.pipeline, pipeline)]
        {
            if let Some(number) = said.or(derived) {
                flags.push((flag, short, Some(number.to_string()), said.map_or(By::PLUGIN, |_| by)));
            }
        }
        let mut add = |flag, short, value: String| flags.push((flag, short, Some(value), by));
        if let Some(data) = self.data {
            add("--data-parallel-size", "-dp", data.to_string());
            if nodes > 1 {
                add("--data-parallel-size-local", "-dpl", self.local(nodes).to_string());
                add("--data-parallel-address", "-dpa", LEADER.to_owned());
                add("--data-parallel-rpc-port", "-dpp", self.data_rpc_port.unwrap_or(RPC_PORT).to_string());
            }
        } else if nodes > 1 {
            add("--nnodes", "-n", nodes.to_string());
            add("--node-rank", "-r", PLACE.to_owned());
            add("--master-addr", "", LEADER.to_owned());
        }
        if self.expert == Some(true) {
            flags.push(("--enable-expert-parallel", "-ep", None, by));
        }
        flags
    }
}

/// Sets the number of a worker's first copy, which is the worker's index in the group times the copies per pod. The kubelet expands
/// variables but can't multiply, so a shell computes it and then executes vLLM. Returns the flag, for messages.
fn start_rank<'a>(main: &mut Node<'a>, local: u64, by: By<'a>) -> Result<String, Failure> {
    let Some(command) = main.take("command").filter(|command| !command.items().is_empty()) else {
        return Err("the container main of a worker needs a command, such as [vllm, serve, /mnt/models], to pass each worker the rank of \
                    its first copy: set it, or add --data-parallel-start-rank to the arguments"
            .into());
    };
    // The kubelet converts `$$` to a dollar sign.
    let script = format!("exec \"$@\" --data-parallel-start-rank \"$$((LWS_WORKER_INDEX * {local}))\"");
    let mut words: Vec<_> = ["/bin/sh", "-c", &script, "sh"].into_iter().map(|word| Node::text(word, by)).collect();
    words.extend(command.items().iter().cloned());
    main.set("command", Node::list(words, by));
    Ok(format!("--data-parallel-start-rank LWS_WORKER_INDEX * {local}"))
}

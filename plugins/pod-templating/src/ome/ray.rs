//! The pods of a Ray cluster, for the mode MultiNodeRayVLLM.
//!
//! KubeRay replaces the command of the first container with its own, which only starts Ray. It keeps a command that starts Ray itself, and
//! any command if an annotation requests this. In the second case, it passes its own command in a variable.

use crate::{
    arguments,
    engine::{self, Engine},
    group,
    node::{By, Node},
    pod::{Pod, add_arguments, line_of},
};
use pointsman_plugin::{Failure, Reason, Role, pod_templating::Request, reason};

/// The annotation that makes KubeRay keep a command.
const OVERWRITE: &str = "ray.io/overwrite-container-cmd";

/// The variable with KubeRay's own command.
const GENERATED: &str = "KUBERAY_GEN_RAY_START_CMD";

/// Starts Ray without waiting for its end, and then executes the following command. The words of that command aren't part of the script, so
/// values that the kubelet inserts may contain quotes.
const SCRIPT: &str = r#"ulimit -n 65536; eval "${KUBERAY_GEN_RAY_START_CMD/--block/}" && exec "$@""#;

/// The shell that KubeRay uses, without a profile that would replace the image's PATH.
const SHELL: [&str; 3] = ["/bin/bash", "-c", "--"];

/// The fields of a container that refer to its engine.
const OF_ENGINE: [&str; 6] = ["command", "args", "livenessProbe", "readinessProbe", "startupProbe", "ports"];

const BACKEND: &str = "--distributed-executor-backend";

const BY: By<'static> = By { layer: "group", ..By::PLUGIN };

/// The role of a pod in a Ray cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ray {
    /// It isn't in a Ray cluster.
    Absent,
    /// It starts Ray itself.
    Own,
    /// Ray is started before its command.
    Head,
    /// It runs only Ray.
    Worker,
}

impl Ray {
    /// Makes the command line explicit, so that it can be read and extended.
    pub(super) fn begin(request: &Request, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<Self, Failure> {
        let Some(group) = group(request)?.filter(|group| group.ray) else { return Ok(Self::Absent) };
        pod.put_main_first();
        let Some(main) = pod.main_mut() else { return Ok(Self::Absent) };
        if group.overwrite || starts_ray(main) {
            // KubeRay searches each word separately for `ray start`.
            pod.annotate(OVERWRITE, "true", BY);
            return Ok(Self::Own);
        }
        if request.role == Role::Worker {
            // With an engine's probes, the kubelet would restart Ray again and again. KubeRay adds its own probes only if there are none.
            let left: Vec<_> = OF_ENGINE.into_iter().filter(|field| main.take(field).is_some()).collect();
            let left = if left.is_empty() { String::new() } else { format!(", so these are left out: {}", left.join(", ")) };
            reasons.push(reason("RayWorker", format!("KubeRay gives a worker its command line, which runs no engine{left}.")));
            return Ok(Self::Worker);
        }
        if main.items_at("command").is_empty() {
            let command = entry_point(main)?.iter().map(|word| Node::text(*word, BY)).collect();
            main.set("command", Node::list(command, BY));
        }
        Ok(Self::Head)
    }

    /// Whether an engine that can be configured runs in the pod.
    pub(super) fn runs_engine(self) -> bool {
        self != Self::Worker
    }

    /// The number of nodes to configure in the engine: those that it can use.
    pub(super) fn nodes(self, nodes: u32, pod: &Pod<'_>, reasons: &mut Vec<Reason>) -> u32 {
        if self == Self::Absent || nodes <= 1 || pod.main().and_then(Engine::detect) != Some(Engine::Sglang) {
            return nodes;
        }
        let message = "SGLang doesn't run on Ray, so it uses the GPUs of the head alone: set the mode MultiNode for it.";
        reasons.push(reason("RayUnused", message));
        1
    }

    /// Starts Ray before the head's command, after that is complete.
    pub(super) fn finish(self, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) {
        let Some(main) = pod.main_mut().filter(|_| self == Self::Head) else { return };
        if Engine::detect(main) == Some(Engine::Vllm) && !engine::given(main).iter().any(|flag| flag == BACKEND) {
            add_arguments(main, [BACKEND.to_owned(), "ray".to_owned()], BY);
        }
        let text = |word: &str| Node::text(word, BY);
        // After the script, a shell expects its name.
        let mut words: Vec<_> = [SCRIPT, "bash"].map(text).into();
        words.extend(["command", "args"].iter().filter_map(|field| main.take(field)).flat_map(|list| list.items().to_vec()));
        main.set("command", Node::list(SHELL.map(text).into(), BY));
        main.set("args", Node::list(words, BY));
        pod.annotate(OVERWRITE, "true", BY);
        reasons.push(reason("RayHead", "Ray starts on the head before its command, with the command that KubeRay passes as a variable."));
    }
}

fn starts_ray(container: &Node<'_>) -> bool {
    let line = line_of(container).join(" ");
    line.contains("ray start") || line.contains(GENERATED)
}

/// The entry point of the image, if it is known.
fn entry_point(container: &Node<'_>) -> Result<&'static [&'static str], Failure> {
    let image = container.text_at("image").unwrap_or_default();
    if arguments::basename(engine::repository(image)) != "vllm-openai" {
        let name = container.text_at("name").unwrap_or_default();
        return Err(format!(
            "the container {name} of the leader needs a command, such as [vllm, serve], because Ray starts before it and the image's own \
             command ({image}) is unknown: set runner.command in the leader of the runtime or the service"
        )
        .into());
    }
    // Only `vllm serve` accepts a model without a flag.
    let serves = container.items_at("args").first().and_then(Node::as_str).is_some_and(|word| !word.starts_with('-'));
    Ok(if serves { &["vllm", "serve"] } else { &["python3", "-m", "vllm.entrypoints.openai.api_server"] })
}
